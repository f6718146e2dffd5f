//! Values that are larger than the client accepts, in an etcd that allows them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use contiv_store::{
    Change, Feed, FeedEvent, Operation, Snapshot, Store, WatchEvent,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, EtcdOptions, deliveries::next};
use futures::StreamExt;
use tokio::time::timeout;

async fn start() -> (Etcd, EtcdStore) {
    let flags = ["--max-request-bytes=33554432"];
    let etcd = Etcd::start_with(EtcdOptions {
        flags: &flags,
        ..EtcdOptions::default()
    })
    .await
    .unwrap();
    let store = EtcdStore::new(&[etcd.endpoint()], EtcdAccess::default()).unwrap();
    (etcd, store)
}

fn huge() -> Bytes {
    vec![b'x'; 20 << 20].into()
}

async fn put(store: &EtcdStore, key: &str, value: impl Into<Bytes>) {
    store
        .commit(vec![Operation::Put {
            key: key.to_owned(),
            value: value.into(),
        }])
        .await
        .unwrap();
}

/// The keys, and the size of each value.
fn sizes(snapshot: &Snapshot) -> Vec<(&str, usize)> {
    snapshot
        .entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.len()))
        .collect()
}

fn sources(snapshot: &Snapshot) -> Vec<&str> {
    snapshot
        .problems
        .iter()
        .map(|problem| problem.source.as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_are_too_large_are_named_and_rest_is_listed() {
    let (_etcd, store) = start().await;
    for i in 0..40 {
        put(&store, &format!("/{i:02}"), "small").await;
    }
    put(&store, "/17", huge()).await;
    put(&store, "/39", huge()).await;
    let snapshot = store.list("/").await.unwrap();
    assert_eq!(sources(&snapshot), ["/17", "/39"]);
    assert!(
        snapshot.problems[0]
            .reason
            .contains("larger than 16777216 bytes"),
        "{:?}",
        snapshot.problems
    );
    assert_eq!(snapshot.entries.len(), 40);
    for (i, (key, size)) in sizes(&snapshot).into_iter().enumerate() {
        assert_eq!(
            (key, size),
            (
                format!("/{i:02}").as_str(),
                if i == 17 || i == 39 { 0 } else { 5 }
            )
        );
    }
    assert_eq!(
        snapshot.entries[39].mod_revision, snapshot.revision,
        "its revision is known"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_is_too_large_does_not_stop_feed() {
    let (_etcd, store) = start().await;
    let (mut events, _handle) = Feed::start(Arc::new(store.clone()), "/");
    assert!(matches!(next(&mut events).await, FeedEvent::Snapshot(_)));
    put(&store, "/huge", huge()).await;
    let FeedEvent::Snapshot(snapshot) = next(&mut events).await else {
        panic!("expected a list")
    };
    assert_eq!(
        (sources(&snapshot), sizes(&snapshot)),
        (vec!["/huge"], vec![("/huge", 0)])
    );
    put(&store, "/other", "1").await;
    let FeedEvent::Changed(batch) = next(&mut events).await else {
        panic!("expected a change")
    };
    assert_eq!(
        batch.changes.iter().map(Change::key).collect::<Vec<_>>(),
        ["/other"]
    );
    put(&store, "/huge", "small").await;
    let FeedEvent::Changed(batch) = next(&mut events).await else {
        panic!("expected a change")
    };
    assert_eq!(
        batch.changes.iter().map(Change::key).collect::<Vec<_>>(),
        ["/huge"]
    );
    assert_eq!(next(&mut events).await, FeedEvent::Problems(vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn lagging_watch_gets_large_values_with_whole_revisions() {
    const REVISIONS: i64 = 40;
    let etcd = Etcd::start().await.unwrap();
    let store = EtcdStore::new(&[etcd.endpoint()], EtcdAccess::default()).unwrap();
    put(&store, "/first", "1").await;
    let known = store.list("/").await.unwrap().revision;
    let put_of = |i: i64| Operation::Put {
        key: format!("/{i:02}"),
        value: vec![b'x'; 400 << 10].into(),
    };
    for revision in 0..REVISIONS {
        store
            .commit((0..3).map(|i| put_of(revision + i)).collect())
            .await
            .unwrap();
    }
    let mut watch = store.watch("/", known).await.unwrap();
    let (mut seen, mut batches, mut largest) = (Vec::new(), 0, 0);
    while seen.len() < 3 * 40 {
        let event = timeout(Duration::from_secs(60), watch.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        let WatchEvent::Changed(batch) = event else {
            panic!("{event:?}")
        };
        let revisions = batch.changes.iter().map(|change| match change {
            Change::Put(entry) => entry.mod_revision,
            Change::Delete { .. } => panic!("nothing was deleted"),
        });
        seen.extend(revisions);
        assert_eq!(
            seen.len() % 3,
            0,
            "all changes of a revision are in one batch"
        );
        assert_eq!(seen.last(), Some(&batch.revision));
        (batches, largest) = (batches + 1, largest.max(batch.size()));
    }
    let expected: Vec<i64> = (1..=REVISIONS).flat_map(|i| [known + i; 3]).collect();
    assert_eq!(seen, expected, "in order, and each once");
    assert!(
        batches > 4 && largest < 8 << 20,
        "{batches} batches, the largest of {largest} bytes"
    );
}
