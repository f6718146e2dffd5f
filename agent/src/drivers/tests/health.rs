//! Health checks for load balancers.

use contiv_node::Core;
use contiv_node::health::ProxyHealth;
use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout};

use crate::{
    drivers::Request,
    test_support::{
        Harness, Mode, TestRenderer, batch, delete, get, load_balancer, local_slice, loopback,
        node, put, service, slice, snapshot,
    },
};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until the health is as expected, and returns it.
async fn wait_for(
    health: &mut watch::Receiver<ProxyHealth>,
    is_wanted: impl FnMut(&ProxyHealth) -> bool,
) -> ProxyHealth {
    let waited = timeout(TEST_TIMEOUT, health.wait_for(is_wanted)).await;
    *waited.expect("in vain").expect("the node runs")
}

#[tokio::test]
async fn health_counts_from_oldest_change_not_applied() {
    let start = Instant::now();
    let (spec, mut renderer) = TestRenderer::new("test");
    let mut harness = Harness::start(vec![spec], vec![]);
    harness.status().await;
    let health = wait_for(&mut harness.proxy_health, |_| true).await;
    assert_eq!((health.in_sync, health.last_applied), (false, None));
    assert!(
        health.unapplied_since.is_some_and(|since| since >= start),
        "{health:?}"
    );

    harness
        .deliver(snapshot(7, vec![slice("web", 1), service("web", 1)]))
        .await;
    let health = wait_for(&mut harness.proxy_health, |health| health.in_sync).await;
    assert_eq!(
        (health.unapplied_since, health.last_applied.is_some()),
        (None, true)
    );

    renderer.set(Mode::Fail);
    let before = Instant::now();
    harness.deliver(batch(8, vec![put(slice("web", 2))])).await;
    let failing = wait_for(&mut harness.proxy_health, |health| !health.in_sync).await;
    let since = failing.unapplied_since.unwrap();
    assert!(since >= before && since <= Instant::now());
    harness.deliver(batch(9, vec![put(slice("web", 3))])).await;
    harness.renderer("test", |view| view.failures > 2).await;
    let health = wait_for(&mut harness.proxy_health, |_| true).await;
    assert_eq!(
        (health.in_sync, health.unapplied_since),
        (false, Some(since)),
        "the oldest counts"
    );

    renderer.set(Mode::Work);
    let health = wait_for(&mut harness.proxy_health, |health| health.in_sync).await;
    assert!(health.last_applied > failing.last_applied);
    wait_for(&mut harness.proxy_health, |health| {
        health.unapplied_since.is_none()
    })
    .await;

    while renderer.started_call().is_some() {}
    renderer.set(Mode::Hang);
    harness.deliver(batch(10, vec![put(slice("web", 4))])).await;
    renderer.call().await;
    let since = wait_for(&mut harness.proxy_health, |health| {
        health.unapplied_since.is_some()
    })
    .await;
    harness.deliver(batch(11, vec![put(slice("web", 5))])).await;
    harness.status().await;
    let health = wait_for(&mut harness.proxy_health, |_| true).await;
    assert_eq!(
        (health.in_sync, health.unapplied_since),
        (true, since.unapplied_since)
    );
}

/// The primary addresses of the node, as of this revision.
async fn node_ips(harness: &Harness, revision: i64) -> Vec<IpAddr> {
    let is_there = async || harness.status().await.revision == revision;
    while !is_there().await {
        tokio::task::yield_now().await;
    }
    let snapshot = harness
        .ask(Core::snapshot)
        .await
        .expect("the store has been read");
    snapshot.node.primary_ips.into_iter().collect()
}

#[tokio::test]
async fn deleted_node_keeps_its_addresses_until_there_is_a_new_one() {
    let harness = Harness::start(
        vec![],
        vec![snapshot(7, vec![node(loopback(21)), service("web", 1)])],
    );
    harness.renderer("dry-run", |view| view.ready).await;
    harness
        .deliver(batch(8, vec![delete(node(loopback(21)))]))
        .await;
    assert_eq!(
        node_ips(&harness, 8).await,
        [loopback(21)],
        "after its deletion"
    );
    harness.deliver(snapshot(9, vec![service("web", 1)])).await;
    assert_eq!(
        node_ips(&harness, 9).await,
        [loopback(21)],
        "after a list without it"
    );
    harness
        .deliver(batch(10, vec![put(node(loopback(22)))]))
        .await;
    assert_eq!(
        node_ips(&harness, 10).await,
        [loopback(22)],
        "after a new one"
    );
    let replaced = vec![delete(node(loopback(22))), put(node(loopback(23)))];
    harness.deliver(batch(11, replaced)).await;
    assert_eq!(
        node_ips(&harness, 11).await,
        [loopback(23)],
        "after both at once"
    );
}

/// Stops the agent after everything is saved for the next one.
async fn stop(harness: Harness, revision: i64) {
    while harness
        .status()
        .await
        .mirror
        .and_then(|mirror| mirror.revision)
        != Some(revision)
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    harness
        .requests
        .send(Request::Shutdown)
        .await
        .expect("the node runs");
    harness
        .task
        .await
        .expect("no panic")
        .expect("the node ends well");
}

#[tokio::test]
async fn deleted_node_keeps_its_addresses_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    // More than are compared with the saved state because of their number alone.
    let services = || {
        (0..1100)
            .map(|number| service(&format!("s{number:04}"), 1))
            .collect::<Vec<_>>()
    };
    let with_node = || {
        let mut entries = [services(), vec![node(loopback(24))]].concat();
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        entries
    };
    let harness = Harness::start_with_mirror(vec![], folder.path());
    harness.deliver(snapshot(7, with_node())).await;
    harness
        .deliver(batch(8, vec![delete(node(loopback(24)))]))
        .await;
    timeout(TEST_TIMEOUT, stop(harness, 8))
        .await
        .expect("it is saved");
    for revision in [9, 10] {
        let mut harness = Harness::start_with_mirror(vec![], folder.path());
        harness.deliver(snapshot(revision, services())).await;
        assert_eq!(
            node_ips(&harness, revision).await,
            [loopback(24)],
            "{revision}"
        );
        wait_for(&mut harness.proxy_health, |health| !health.node_eligible).await;
        timeout(TEST_TIMEOUT, stop(harness, revision))
            .await
            .expect("it is saved");
    }
}

#[tokio::test]
async fn node_without_node_object_is_not_eligible() {
    let address = loopback(20);
    let mut harness = Harness::start(vec![], vec![snapshot(7, vec![])]);
    harness.renderer("dry-run", |view| view.ready).await;
    assert!(
        harness.proxy_health.borrow().node_eligible,
        "it may be in no store"
    );
    harness.deliver(batch(8, vec![put(node(address))])).await;
    harness.history(|records| records.len() == 2).await;
    harness.deliver(batch(9, vec![delete(node(address))])).await;
    wait_for(&mut harness.proxy_health, |health| !health.node_eligible).await;
    harness.deliver(batch(10, vec![put(node(address))])).await;
    wait_for(&mut harness.proxy_health, |health| health.node_eligible).await;
    harness.deliver(snapshot(11, vec![])).await;
    wait_for(&mut harness.proxy_health, |health| !health.node_eligible).await;
}

/// Waits for this status and count of the health check.
async fn answers(address: SocketAddr, wanted: Option<(u16, u64)>) {
    let start = Instant::now();
    loop {
        let answer = get(address, "/").await;
        let answer = answer.map(|answer| {
            (
                answer.status,
                answer.body["localEndpoints"].as_u64().unwrap(),
            )
        });
        if answer == wanted {
            return;
        }
        assert!(
            start.elapsed() < TEST_TIMEOUT,
            "in vain: {answer:?} instead of {wanted:?}"
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn health_check_of_stored_service_follows_the_store() {
    let ip = loopback(21);
    let stored = vec![
        node(ip),
        load_balancer("web", 31001),
        local_slice("web", &[true, true]),
    ];
    let harness = Harness::start(vec![], vec![snapshot(7, stored)]);
    let address = SocketAddr::new(ip, 31001);
    answers(address, Some((200, 2))).await;
    harness
        .deliver(batch(8, vec![put(local_slice("web", &[true, false]))]))
        .await;
    answers(address, Some((200, 1))).await;
    harness
        .deliver(batch(9, vec![put(local_slice("web", &[false]))]))
        .await;
    answers(address, Some((503, 0))).await;
    harness
        .deliver(batch(10, vec![put(load_balancer("web", 31002))]))
        .await;
    answers(address, None).await;
    answers(SocketAddr::new(ip, 31002), Some((503, 0))).await;
    // With policy Cluster each node may get traffic.
    let mut with_cluster = load_balancer("web", 31002);
    with_cluster.value = String::from_utf8_lossy(&with_cluster.value)
        .replace("Local", "Cluster")
        .into();
    harness.deliver(batch(11, vec![put(with_cluster)])).await;
    answers(SocketAddr::new(ip, 31002), None).await;
    harness
        .deliver(batch(12, vec![put(load_balancer("web", 31002))]))
        .await;
    answers(SocketAddr::new(ip, 31002), Some((503, 0))).await;
    harness
        .deliver(batch(13, vec![put(node(loopback(22)))]))
        .await;
    answers(SocketAddr::new(ip, 31002), None).await;
    answers(SocketAddr::new(loopback(22), 31002), Some((503, 0))).await;
    harness
        .deliver(batch(14, vec![delete(load_balancer("web", 31002))]))
        .await;
    answers(SocketAddr::new(loopback(22), 31002), None).await;
}
