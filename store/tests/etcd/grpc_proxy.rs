//! Watches a store through a real `etcd grpc-proxy`, whose errors have other codes than etcd's and which answers no progress
//! requests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use contiv_store::{
    Delivery, Feed, FeedEvent, Operation, Snapshot, Store,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, GrpcProxy, deliveries::next};
use tokio::{sync::mpsc::Receiver, time::sleep};

/// Longer than twice the time after which a silent watch is checked and given up.
const QUIET_PERIOD: Duration = Duration::from_secs(15);

fn store(endpoint: String) -> EtcdStore {
    EtcdStore::new(&[endpoint], EtcdAccess::default()).unwrap()
}

async fn put(etcd: &Etcd, key: &str) -> i64 {
    let write = Operation::Put {
        key: key.to_owned(),
        value: Bytes::from_static(b"1"),
    };
    store(etcd.endpoint()).commit(vec![write]).await.unwrap()
}

/// Writes keys outside of the watched prefix, then compacts all earlier revisions.
async fn compact(etcd: &Etcd) {
    for i in 0..5 {
        put(etcd, &format!("/theirs/{i}")).await;
    }
    let newest = put(etcd, "/theirs/last").await;
    etcd.ctl(&["compact", &newest.to_string()]).await.unwrap();
}

fn start_feed(proxy: &GrpcProxy) -> Receiver<Delivery> {
    Feed::start(Arc::new(store(proxy.endpoint())), "/ours/").0
}

async fn snapshot(events: &mut Receiver<Delivery>) -> Snapshot {
    loop {
        if let FeedEvent::Snapshot(snapshot) = next(events).await {
            return snapshot;
        }
    }
}

/// Waits until `key` is delivered, by a change or a list.
async fn wait_for_key(events: &mut Receiver<Delivery>, key: &str) {
    loop {
        let is_there = match next(events).await {
            FeedEvent::Snapshot(snapshot) => snapshot.entries.iter().any(|entry| entry.key == key),
            FeedEvent::Changed(batch) => batch.changes.iter().any(|change| change.key() == key),
            _ => false,
        };
        if is_there {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_watch_through_proxy_is_no_outage() {
    let etcd = Etcd::start().await.unwrap();
    let proxy = GrpcProxy::start(&etcd.endpoint()).await.unwrap();
    put(&etcd, "/ours/a").await;
    let mut events = start_feed(&proxy);
    assert_eq!(snapshot(&mut events).await.entries.len(), 1);
    sleep(QUIET_PERIOD).await;
    put(&etcd, "/ours/b").await;
    let event = next(&mut events).await;
    assert!(
        matches!(event, FeedEvent::Changed(_)),
        "no event comes before the change: {event:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_through_proxy_survives_compaction_of_quiet_prefix() {
    let etcd = Etcd::start().await.unwrap();
    let proxy = GrpcProxy::start(&etcd.endpoint()).await.unwrap();
    put(&etcd, "/ours/a").await;
    let mut events = start_feed(&proxy);
    snapshot(&mut events).await;
    // Then the watch has begun at the proxy too.
    put(&etcd, "/ours/begun").await;
    wait_for_key(&mut events, "/ours/begun").await;
    compact(&etcd).await;
    sleep(QUIET_PERIOD).await;
    put(&etcd, "/ours/b").await;
    wait_for_key(&mut events, "/ours/b").await;
    put(&etcd, "/ours/c").await;
    wait_for_key(&mut events, "/ours/c").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_through_proxy_survives_restart_across_compaction() {
    let etcd = Etcd::start().await.unwrap();
    let mut proxy = GrpcProxy::start(&etcd.endpoint()).await.unwrap();
    put(&etcd, "/ours/a").await;
    let mut events = start_feed(&proxy);
    snapshot(&mut events).await;
    proxy.kill().await.unwrap();
    put(&etcd, "/ours/b").await;
    compact(&etcd).await;
    proxy.start_again().await.unwrap();
    wait_for_key(&mut events, "/ours/b").await;
    put(&etcd, "/ours/c").await;
    wait_for_key(&mut events, "/ours/c").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_before_restored_etcd_is_listed_again() {
    let mut etcd = Etcd::start().await.unwrap();
    let proxy = GrpcProxy::start(&etcd.endpoint()).await.unwrap();
    put(&etcd, "/ours/a").await;
    let backup = etcd.back_up().await.unwrap();
    for key in ["/ours/b", "/ours/c", "/ours/d"] {
        put(&etcd, key).await;
    }
    let mut events = start_feed(&proxy);
    assert_eq!(snapshot(&mut events).await.entries.len(), 4);
    etcd.kill().await.unwrap();
    etcd.start_restored(&backup).await.unwrap();
    let listed = snapshot(&mut events).await;
    assert_eq!(listed.entries.len(), 1, "{listed:?}");
    put(&etcd, "/ours/e").await;
    wait_for_key(&mut events, "/ours/e").await;
}
