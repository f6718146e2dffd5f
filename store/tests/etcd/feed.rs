//! A feed on a real etcd that fails, recovers and loses data.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use contiv_store::{
    Change, Delivery, Feed, FeedEvent, Snapshot, Store,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{
    Etcd, EtcdBackup, Proxy,
    deliveries::{after_outage, next},
};
use tokio::sync::mpsc::Receiver;

fn start_feed(endpoint: String) -> Receiver<Delivery> {
    let store: Arc<dyn Store> =
        Arc::new(EtcdStore::new(&[endpoint], EtcdAccess::default()).unwrap());
    Feed::start(store, "/").0
}

fn keys(snapshot: &Snapshot) -> Vec<&str> {
    snapshot
        .entries
        .iter()
        .map(|entry| entry.key.as_str())
        .collect()
}

#[track_caller]
fn expect_put(event: FeedEvent, key: &str) {
    let FeedEvent::Changed(batch) = event else {
        panic!("expected a change: {event:?}")
    };
    let [Change::Put(entry)] = batch.changes.as_slice() else {
        panic!("expected one put: {batch:?}")
    };
    assert_eq!(entry.key, key);
}

#[track_caller]
fn expect_snapshot(event: FeedEvent, expected: &[&str]) {
    let FeedEvent::Snapshot(snapshot) = event else {
        panic!("expected a snapshot: {event:?}")
    };
    assert_eq!(keys(&snapshot), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_of_etcd_loses_no_change_and_needs_no_list() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.ctl(&["put", "/a", "1"]).await.unwrap();
    let mut events = start_feed(etcd.endpoint());
    expect_snapshot(next(&mut events).await, &["/a"]);
    etcd.ctl(&["put", "/b", "1"]).await.unwrap();
    expect_put(next(&mut events).await, "/b");

    etcd.kill().await.unwrap();
    let FeedEvent::Down { reason } = next(&mut events).await else {
        panic!("expected an outage")
    };
    assert!(reason.contains(&etcd.endpoint()), "{reason}");
    etcd.start_again().await.unwrap();
    etcd.ctl(&["put", "/c", "1"]).await.unwrap();
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    expect_put(next(&mut events).await, "/c");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_deleted_and_compacted_during_an_outage_is_gone() {
    let etcd = Etcd::start().await.unwrap();
    let mut wire = Proxy::start(&etcd.endpoint()).await.unwrap();
    for key in ["/a", "/b"] {
        etcd.ctl(&["put", key, "1"]).await.unwrap();
    }
    let mut events = start_feed(wire.endpoint());
    expect_snapshot(next(&mut events).await, &["/a", "/b"]);

    wire.cut().await;
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    etcd.ctl(&["del", "/a"]).await.unwrap();
    etcd.ctl(&["put", "/c", "1"]).await.unwrap();
    etcd.ctl(&["compact", "5"]).await.unwrap();
    wire.reconnect().await.unwrap();
    // The watch opens before its event, so the outage may end before the list.
    let mut event = after_outage(&mut events).await;
    if event == FeedEvent::Up {
        event = next(&mut events).await;
    }
    expect_snapshot(event, &["/b", "/c"]);
    etcd.ctl(&["put", "/d", "1"]).await.unwrap();
    expect_put(next(&mut events).await, "/d");
}

/// Restores etcd to a backup, or to nothing, while its clients are disconnected. Then it is written, and only then clients can
/// connect again.
async fn put_back(
    etcd: &mut Etcd,
    backup: Option<&EtcdBackup>,
    wire: &mut Proxy,
    writes: &[[&str; 3]],
) {
    wire.cut().await;
    etcd.kill().await.unwrap();
    match backup {
        Some(backup) => etcd.start_restored(backup).await.unwrap(),
        None => etcd.start_empty().await.unwrap(),
    }
    for write in writes {
        etcd.ctl(write).await.unwrap();
    }
    wire.reconnect().await.unwrap();
}

/// Expects the detection of other data after an outage.
async fn expect_other_data(events: &mut Receiver<Delivery>, by: &str, expected: &[(&str, &str)]) {
    assert!(matches!(next(events).await, FeedEvent::Down { .. }));
    let FeedEvent::Replaced { reason } = after_outage(events).await else {
        panic!("nothing was noticed")
    };
    assert!(reason.starts_with(by), "{reason}");
    let FeedEvent::Snapshot(snapshot) = next(events).await else {
        panic!("expected a snapshot")
    };
    let entries = snapshot
        .entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.as_ref()));
    assert_eq!(
        entries.collect::<Vec<_>>(),
        expected
            .iter()
            .map(|(key, value)| (*key, value.as_bytes()))
            .collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_restored_beyond_the_known_revision_is_listed_again() {
    let mut etcd = Etcd::start().await.unwrap();
    let mut wire = Proxy::start(&etcd.endpoint()).await.unwrap();
    etcd.ctl(&["put", "/a", "1"]).await.unwrap();
    let backup = etcd.back_up().await.unwrap();
    let mut events = start_feed(wire.endpoint());
    expect_snapshot(next(&mut events).await, &["/a"]);
    etcd.ctl(&["put", "/b", "1"]).await.unwrap();
    expect_put(next(&mut events).await, "/b");

    // The revision at which /b was written now belongs to another key.
    put_back(
        &mut etcd,
        Some(&backup),
        &mut wire,
        &[["put", "/c", "1"], ["put", "/d", "1"]],
    )
    .await;
    let what = "/b differs from its value at revision 3";
    expect_other_data(&mut events, what, &[("/a", "1"), ("/c", "1"), ("/d", "1")]).await;

    // It belongs to the same key, with another value.
    put_back(
        &mut etcd,
        Some(&backup),
        &mut wire,
        &[["put", "/c", "1"], ["put", "/d", "2"]],
    )
    .await;
    let what = "/d differs from its value at revision 4";
    expect_other_data(&mut events, what, &[("/a", "1"), ("/c", "1"), ("/d", "2")]).await;

    // The last written key does not show that an earlier one differs.
    put_back(
        &mut etcd,
        Some(&backup),
        &mut wire,
        &[["put", "/x", "1"], ["put", "/d", "2"]],
    )
    .await;
    let what = "/c differs from its value at revision 4";
    expect_other_data(&mut events, what, &[("/a", "1"), ("/d", "2"), ("/x", "1")]).await;

    // Another outage without a restore.
    wire.cut().await;
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    etcd.ctl(&["put", "/e", "1"]).await.unwrap();
    wire.reconnect().await.unwrap();
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    expect_put(next(&mut events).await, "/e");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_restored_from_a_backup_is_listed_again() {
    let mut etcd = Etcd::start().await.unwrap();
    let mut wire = Proxy::start(&etcd.endpoint()).await.unwrap();
    for key in ["/a", "/b"] {
        etcd.ctl(&["put", key, "1"]).await.unwrap();
    }
    let backup = etcd.back_up().await.unwrap();
    let mut events = start_feed(wire.endpoint());
    expect_snapshot(next(&mut events).await, &["/a", "/b"]);
    etcd.ctl(&["del", "/b"]).await.unwrap();
    assert!(matches!(next(&mut events).await, FeedEvent::Changed(_)));
    put_back(
        &mut etcd,
        Some(&backup),
        &mut wire,
        &[["put", "elsewhere", "1"], ["put", "elsewhere", "2"]],
    )
    .await;
    expect_other_data(
        &mut events,
        "/b differs from its value at revision 4",
        &[("/a", "1"), ("/b", "1")],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_etcd_that_was_exchanged_for_full_one_is_listed_again() {
    let mut etcd = Etcd::start().await.unwrap();
    let mut wire = Proxy::start(&etcd.endpoint()).await.unwrap();
    etcd.ctl(&["put", "elsewhere", "1"]).await.unwrap();
    let mut events = start_feed(wire.endpoint());
    expect_snapshot(next(&mut events).await, &[]);
    put_back(
        &mut etcd,
        None,
        &mut wire,
        &[["put", "/a", "1"], ["put", "elsewhere", "1"]],
    )
    .await;
    expect_other_data(
        &mut events,
        "/ differs from its value at revision 2",
        &[("/a", "1")],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_that_lost_its_data_is_listed_again() {
    let mut etcd = Etcd::start().await.unwrap();
    for key in ["/a", "/b", "/c"] {
        etcd.ctl(&["put", key, "1"]).await.unwrap();
    }
    let mut events = start_feed(etcd.endpoint());
    expect_snapshot(next(&mut events).await, &["/a", "/b", "/c"]);
    etcd.kill().await.unwrap();
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    etcd.start_empty().await.unwrap();
    let FeedEvent::Replaced { reason } = after_outage(&mut events).await else {
        panic!("nothing was noticed")
    };
    assert!(
        reason.starts_with("the store is at revision 1, before revision 4"),
        "{reason}"
    );
    expect_snapshot(next(&mut events).await, &[]);
    etcd.ctl(&["put", "/d", "1"]).await.unwrap();
    expect_put(next(&mut events).await, "/d");
}
