//! An agent that starts with a warm mirror reports the same as one without: all its outputs are compared.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    path::Path,
    time::{Duration, Instant},
};

use contiv_model::ServiceId;
use contiv_node::metrics::ServiceSizes;
use contiv_node::{Core, Record};
use contiv_store::{Entry, FeedEvent, Mirror};

use tokio::sync::oneshot;

use crate::drivers::Request;
use crate::{
    health::HealthCheckView,
    test_support::{
        Call, Harness, STORE, TEST_TIMEOUT, TestRenderer, bad_service, load_balancer, local_slice,
        loopback, node, service, slice, snapshot,
    },
};

const HEALTH_CHECK_NODE_PORT: u16 = 31001;

/// All outputs of an agent, without times.
#[derive(Debug, PartialEq)]
struct Outputs {
    health_checks: Vec<HealthCheckView>,
    is_up_to_date: bool,
    /// Ready, synced, from the mirror, revision.
    status: (bool, bool, bool, i64),
    services: String,
    snapshot: String,
    sizes: String,
    quarantined: Vec<String>,
    first_event: (&'static str, usize, Vec<ServiceId>),
    renderers: Vec<(String, bool, i64)>,
    rendered: Call,
}

fn stored() -> Vec<Entry> {
    let mut entries = vec![
        load_balancer("lb", HEALTH_CHECK_NODE_PORT),
        local_slice("lb", &[true, false]),
        node(loopback(40)),
        service("web", 2),
        slice("web", 2),
        bad_service("bad"),
    ];
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    entries
}

fn save(folder: &Path, entries: Vec<Entry>) {
    let (mut mirror, _) = Mirror::open(folder, STORE).expect("a mirror");
    let good = entries
        .into_iter()
        .filter(|entry| !entry.key.contains("bad"));
    mirror
        .replace(7, good.map(Ok), &BTreeSet::new())
        .expect("saved");
}

/// Starts an agent with this folder and this list, and collects its outputs.
async fn outputs(folder: &Path, list: FeedEvent) -> Outputs {
    let (spec, mut test_renderer) = TestRenderer::new("test");
    let harness = Harness::start_with_mirror(vec![spec], folder);
    harness.deliver(list).await;
    let rendered = test_renderer.call().await;
    let mut renderers = Vec::new();
    for name in ["test", "dry-run"] {
        let view = harness
            .renderer(name, |view| view.ready && view.state == "idle")
            .await;
        renderers.push((view.name.to_string(), view.ready, view.applied_revision));
    }
    let records = harness.history(|records| !records.is_empty()).await;
    let Record {
        kind,
        changed,
        services,
        ..
    } = records[0].clone();
    let quarantined = harness.ask(move |core| core.quarantine(0)).await;
    let (reply, health_checks) = oneshot::channel();
    harness
        .health_checks
        .send(reply)
        .await
        .expect("the server runs");
    let is_up_to_date = harness.proxy_health.borrow().is_up_to_date(Instant::now());
    let status = harness.status().await;
    let outputs = Outputs {
        health_checks: health_checks.await.expect("the server answers"),
        is_up_to_date,
        status: (
            status.ready,
            status.synced,
            status.from_mirror,
            status.revision,
        ),
        services: format!("{:?}", harness.ask(Core::services).await),
        snapshot: format!("{:?}", harness.ask(Core::snapshot).await),
        sizes: format!("{:?}", harness.ask(ServiceSizes::of).await),
        quarantined: quarantined
            .into_iter()
            .map(|entry| format!("{} {}", entry.source, entry.reason))
            .collect(),
        first_event: (kind, changed, services),
        renderers,
        rendered,
    };
    harness
        .requests
        .send(Request::Shutdown)
        .await
        .expect("the node runs");
    harness.task.await.expect("no panic").expect("a clean end");
    outputs
}

#[tokio::test]
async fn warm_mirror_start_reports_same_as_fresh_start() {
    let fresh = tempfile::tempdir().unwrap();
    let expected = outputs(fresh.path(), snapshot(8, stored())).await;
    assert_eq!(expected.health_checks.len(), 1, "{expected:#?}");

    let without_web: Vec<Entry> = stored()
        .into_iter()
        .filter(|entry| !entry.key.contains("web"))
        .collect();
    for saved in [stored(), without_web, Vec::new()] {
        // The listener of the previous agent closes a moment after it.
        let start = Instant::now();
        while TcpListener::bind((loopback(40), HEALTH_CHECK_NODE_PORT)).is_err() {
            assert!(start.elapsed() < TEST_TIMEOUT, "the listener stays open");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let warm = tempfile::tempdir().unwrap();
        save(warm.path(), saved);
        assert_eq!(outputs(warm.path(), snapshot(8, stored())).await, expected);
    }
}
