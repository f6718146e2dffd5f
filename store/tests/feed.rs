//! A feed on a real etcd that goes away, comes back, forgets.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::{sync::Arc, time::Duration};

use contiv_store::{
    Change, Feed, FeedEvent, Snapshot, Store,
    etcd::{EtcdAccess, EtcdStore},
    testing::{Etcd, Proxy},
};
use tokio::{sync::mpsc::Receiver, time::timeout};

fn follow(endpoint: String) -> Receiver<FeedEvent> {
    let store: Arc<dyn Store> = Arc::new(EtcdStore::new(&[endpoint], EtcdAccess::default()).unwrap());
    Feed::start(store, "/").0
}

async fn next(events: &mut Receiver<FeedEvent>) -> FeedEvent {
    timeout(Duration::from_secs(20), events.recv()).await.expect("nothing within 20 s").unwrap()
}

fn keys(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.entries.iter().map(|entry| entry.key.as_str()).collect()
}

#[track_caller]
fn expect_put(event: FeedEvent, key: &str) {
    let FeedEvent::Changed(batch) = event else { panic!("expected a change: {event:?}") };
    let [Change::Put(entry)] = batch.changes.as_slice() else { panic!("expected one put: {batch:?}") };
    assert_eq!(entry.key, key);
}

#[track_caller]
fn expect_snapshot(event: FeedEvent, expected: &[&str]) {
    let FeedEvent::Snapshot(snapshot) = event else { panic!("expected a snapshot: {event:?}") };
    assert_eq!(keys(&snapshot), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_etcd_loses_no_change_and_needs_no_list() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.ctl(&["put", "/a", "1"]).await.unwrap();
    let mut events = follow(etcd.endpoint());
    expect_snapshot(next(&mut events).await, &["/a"]);
    etcd.ctl(&["put", "/b", "1"]).await.unwrap();
    expect_put(next(&mut events).await, "/b");

    etcd.kill().await.unwrap();
    let FeedEvent::Down { reason } = next(&mut events).await else { panic!("expected an outage") };
    assert!(reason.contains(&etcd.endpoint()), "{reason}");
    etcd.start_again().await.unwrap();
    etcd.ctl(&["put", "/c", "1"]).await.unwrap();
    assert_eq!(next(&mut events).await, FeedEvent::Up);
    expect_put(next(&mut events).await, "/c");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_and_compacted_during_an_outage_is_gone_afterwards() {
    let etcd = Etcd::start().await.unwrap();
    let mut wire = Proxy::start(&etcd.endpoint()).await.unwrap();
    for key in ["/a", "/b"] {
        etcd.ctl(&["put", key, "1"]).await.unwrap();
    }
    let mut events = follow(wire.endpoint());
    expect_snapshot(next(&mut events).await, &["/a", "/b"]);

    wire.cut();
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    etcd.ctl(&["del", "/a"]).await.unwrap();
    etcd.ctl(&["put", "/c", "1"]).await.unwrap();
    etcd.ctl(&["compact", "5"]).await.unwrap();
    wire.mend().await.unwrap();
    // The watch opens before it is told, so the outage may end before the list.
    let mut event = next(&mut events).await;
    if event == FeedEvent::Up {
        event = next(&mut events).await;
    }
    expect_snapshot(event, &["/b", "/c"]);
    etcd.ctl(&["put", "/d", "1"]).await.unwrap();
    expect_put(next(&mut events).await, "/d");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_lost_its_data_is_listed_again() {
    let mut etcd = Etcd::start().await.unwrap();
    for key in ["/a", "/b", "/c"] {
        etcd.ctl(&["put", key, "1"]).await.unwrap();
    }
    let mut events = follow(etcd.endpoint());
    expect_snapshot(next(&mut events).await, &["/a", "/b", "/c"]);
    etcd.kill().await.unwrap();
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    etcd.start_empty().await.unwrap();
    expect_snapshot(next(&mut events).await, &[]);
    etcd.ctl(&["put", "/d", "1"]).await.unwrap();
    expect_put(next(&mut events).await, "/d");
}
