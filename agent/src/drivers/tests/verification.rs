//! How the node handles deviations found by a verifier.

use std::{collections::BTreeSet, time::Duration};

use contiv_model::ServiceId;
use contiv_node::VerificationConfig;
use contiv_renderer::{Deviation, Drift};

use super::{names, web};
use crate::{
    metrics::Exposition,
    test_support::{Call, Harness, Mode, TestRenderer},
};

fn drift(element: &str) -> BTreeSet<Drift> {
    let service = Some(ServiceId::new("default", "web"));
    let (place, element) = ("map backends4".to_owned(), element.to_owned());
    [Drift {
        service,
        place,
        element,
        deviation: Deviation::Missing,
    }]
    .into()
}

fn verifying(resync_on_drift: bool) -> VerificationConfig {
    VerificationConfig {
        interval: Some(Duration::from_millis(1)),
        resync_on_drift,
    }
}

#[tokio::test]
async fn drift_is_recorded_counted_shown_and_repaired() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start_verifying(vec![spec], vec![web()], verifying(true));
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    let verified = |view: &contiv_node::RendererView| {
        view.verification
            .as_ref()
            .is_some_and(|verification| verification.verifications > 2)
    };
    let clean = harness
        .renderer("test", verified)
        .await
        .verification
        .unwrap();
    assert_eq!((clean.drift, clean.checked), (0, 7));
    assert!(renderer.started_call().is_none(), "nothing to heal");

    renderer.set_drift(drift("10.96.0.1 . tcp . 80"));
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    let records = harness
        .history(|records| records.iter().any(|record| record.kind == "drift"))
        .await;
    let record = records
        .iter()
        .find(|record| record.kind == "drift")
        .unwrap();
    let told = "missing: map backends4 { 10.96.0.1 . tcp . 80 } (service default/web)";
    assert!(record.description.contains(told), "{record:?}");
    assert!(
        record.renderers.len() == 1 && record.renderers.contains_key("test"),
        "{record:?}"
    );
    let seen = |view: &contiv_node::RendererView| {
        view.verification
            .as_ref()
            .is_some_and(|verification| verification.drift == 1)
    };
    let view = harness.renderer("test", seen).await.verification.unwrap();
    assert_eq!(
        view.examples,
        drift("10.96.0.1 . tcp . 80")
            .into_iter()
            .collect::<Vec<_>>()
    );
    assert!(
        harness
            .metrics
            .text(Exposition::Prometheus)
            .unwrap()
            .contains("contiv_drift{renderer=\"test\"} 1")
    );

    renderer.set_drift(BTreeSet::new());
    let gone = |view: &contiv_node::RendererView| {
        view.verification
            .as_ref()
            .is_some_and(|verification| verification.drift == 0)
    };
    assert!(
        harness
            .renderer("test", gone)
            .await
            .verification
            .unwrap()
            .examples
            .is_empty()
    );
}

#[tokio::test]
async fn drift_is_only_reported_and_panicked_verifier_restarts() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start_verifying(vec![spec], vec![web()], verifying(false));
    renderer.call().await;
    // The renderer is idle then, so that it is the verifier that panics.
    harness.renderer("test", |view| view.ready).await;
    renderer.set(Mode::Panic);
    let failed = |view: &contiv_node::RendererView| {
        view.verification
            .as_ref()
            .is_some_and(|verification| verification.error.is_some())
    };
    let error = harness
        .renderer("test", failed)
        .await
        .verification
        .unwrap()
        .error
        .unwrap();
    assert!(error.contains("panicked"), "{error}");
    renderer.set(Mode::Work);
    renderer.set_drift(drift("x"));
    let records = harness
        .history(|records| records.iter().any(|record| record.kind == "drift"))
        .await;
    let record = records
        .iter()
        .find(|record| record.kind == "drift")
        .unwrap();
    assert!(
        record.renderers.is_empty() && record.description.contains("verify-heal"),
        "{record:?}"
    );
    assert!(renderer.started_call().is_none(), "it is left as it is");
}

#[tokio::test]
async fn verification_without_interval_never_runs() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    assert!(
        harness
            .renderer("test", |view| view.ready)
            .await
            .verification
            .is_none()
    );
}
