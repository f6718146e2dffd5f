//! How the node handles foreign changes of a dataplane.

use contiv_node::Input;
use contiv_node::{Outcome, Record};

use super::{last_outcome, names, web};
use crate::{
    drivers::Request,
    metrics::Exposition,
    test_support::{Call, Harness, Mode, TestRenderer, batch, put, service, slice},
};

/// More than are repaired immediately, so that the next one has to wait.
const STORM: usize = 13;

fn is_applied(records: &[Record]) -> bool {
    matches!(last_outcome(records, "test"), Some(Outcome::Applied { .. }))
}

#[tokio::test]
async fn foreign_change_is_undone_by_its_renderer_and_recorded() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    let view = harness.renderer("test", |view| view.ready).await;
    assert!(view.watched && view.foreign_changes == 0);
    renderer.inject_foreign_change("deleted something");
    assert_eq!(renderer.call().await, Call::Heal);

    let records = harness.history(is_applied).await;
    let change = records.last().unwrap();
    assert_eq!(change.kind, "foreign-change");
    assert_eq!(
        change.description,
        "dataplane of renderer test: an unknown process deleted something"
    );
    assert_eq!(change.renderers.len(), 1, "the others have nothing to do");
    let view = harness.renderer("test", |view| view.state == "idle").await;
    assert_eq!(
        (view.foreign_changes, view.damped, view.pending),
        (1, false, "nothing")
    );
    assert_eq!(view.last_report.unwrap().call, "heal");
    let text = harness.metrics.text(Exposition::Prometheus).unwrap();
    for expected in [
        "contiv_foreign_changes_total{renderer=\"test\"} 1",
        "contiv_repairs_total{renderer=\"test\"} 1",
        "contiv_foreign_changes_total{renderer=\"dry-run\"} 0",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
}

#[tokio::test]
async fn store_changes_are_applied_while_repairs_wait() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    for _ in 0..STORM {
        renderer.inject_foreign_change("deleted something");
        assert_eq!(renderer.call().await, Call::Heal);
        harness.history(is_applied).await;
    }
    renderer.inject_foreign_change("deleted something");
    renderer.inject_foreign_change("deleted something else");
    let waits = harness
        .renderer("test", |view| view.foreign_changes == STORM as u64 + 2)
        .await;
    assert_eq!(
        (waits.state, waits.pending, waits.damped),
        ("damped", "repair", true)
    );
    assert!(waits.repair_in_ms.is_some());

    harness.deliver(batch(8, vec![put(slice("web", 2))])).await;
    assert_eq!(renderer.call().await, Call::Update(names(&["web"])));
    assert_eq!(renderer.call().await, Call::Heal);
    let view = harness.renderer("test", |view| view.state == "idle").await;
    assert_eq!((view.applied_revision, view.repair_in_ms), (8, None));
    let records = harness.history(|_| true).await;
    let recorded = records
        .iter()
        .filter(|record| record.kind == "foreign-change")
        .count();
    assert_eq!(
        recorded,
        STORM + 1,
        "what comes while a repair is due is only counted"
    );
}

#[tokio::test]
async fn outcome_of_foreign_change_is_that_of_its_repair() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    renderer.set(Mode::Hang);
    harness.deliver(batch(8, vec![put(slice("web", 2))])).await;
    renderer.call().await;
    harness.deliver(batch(9, vec![put(slice("web", 3))])).await;
    harness.history(|records| records.len() == 3).await;
    renderer.inject_foreign_change("deleted something");
    harness.history(|records| records.len() == 4).await;
    harness.deliver(batch(10, vec![put(slice("web", 4))])).await;
    harness.history(|records| records.len() == 5).await;
    renderer.set(Mode::Work);
    assert_eq!(renderer.call().await, Call::Heal);
    assert_eq!(renderer.call().await, Call::Update(names(&["web"])));
    let records = harness.history(is_applied).await;
    let with = |record: &Record| match record.renderers["test"] {
        Outcome::Applied { first_seq_num, .. } => first_seq_num,
        _ => 0,
    };
    assert_eq!(records[2..].iter().map(with).collect::<Vec<_>>(), [3, 4, 3]);
}

#[tokio::test]
async fn failed_repair_is_followed_by_a_resync() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    renderer.set(Mode::Fail);
    renderer.inject_foreign_change("deleted something");
    assert_eq!(renderer.call().await, Call::Heal);
    harness.renderer("test", |view| view.failures > 0).await;
    renderer.set(Mode::Work);
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    let records = harness.history(is_applied).await;
    assert!(records.iter().any(|record| record.kind == "foreign-change"));
}

#[tokio::test]
async fn watch_that_cannot_be_started_again_leads_to_a_resync() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    renderer.refuse_watches();
    renderer.end_watch();
    let expected = Call::Resync(names(&["web"]));
    assert_eq!(
        renderer.call().await,
        expected,
        "the renderer does not know what it missed"
    );
    assert!(
        !harness
            .renderer("test", |view| view.state == "idle")
            .await
            .watched
    );

    renderer.allow_watches();
    harness
        .requests
        .send(Request::Input(Input::Resync { cause: "test" }))
        .await
        .unwrap();
    assert_eq!(renderer.call().await, expected);
    assert!(
        harness
            .renderer("test", |view| view.state == "idle")
            .await
            .watched
    );
    renderer.inject_foreign_change("deleted something");
    assert_eq!(
        renderer.call().await,
        Call::Heal,
        "it knows again what was changed"
    );
}

#[tokio::test]
async fn ended_watch_is_started_again() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    renderer.end_watch();
    assert_eq!(
        renderer.call().await,
        Call::Heal,
        "something may have been missed"
    );
    let records = harness.history(is_applied).await;
    assert!(
        records
            .last()
            .unwrap()
            .description
            .contains("failure injected by the test")
    );
    assert!(
        harness
            .renderer("test", |view| view.state == "idle")
            .await
            .watched
    );

    // The same for a renderer that has panicked.
    renderer.set(Mode::Panic);
    harness.deliver(batch(8, vec![put(service("a", 2))])).await;
    harness.renderer("test", |view| view.failures > 0).await;
    renderer.set(Mode::Work);
    let view = harness.renderer("test", |view| view.state == "idle").await;
    assert!(view.watched);
    while renderer.started_call().is_some() {}
    renderer.inject_foreign_change("deleted something");
    assert_eq!(renderer.call().await, Call::Heal);
}
