//! A reader of some keys below a prefix.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{sync::Arc, time::Duration};

use contiv_store::{
    Change, Delivery, Feed, FeedEvent, FeedHandle, Inconsistency, ListPart, Operation, Store,
    Transaction,
    etcd::{EtcdAccess, EtcdStore, KeySelection},
};
use contiv_store_testing::{Etcd, LyingEtcd, deliveries::next};
use tokio::sync::mpsc::Receiver;

/// Of the keys below `/`: those below `/a/` and `/c/`, and `/n/own`.
fn selection() -> [KeySelection; 3] {
    let prefix = |prefix: &str| KeySelection::Prefix(prefix.to_owned());
    [
        prefix("/c/"),
        prefix("/a/"),
        KeySelection::Key("/n/own".to_owned()),
    ]
}

fn open(endpoint: String) -> Arc<dyn Store> {
    let store = EtcdStore::new(&[endpoint], EtcdAccess::default()).unwrap();
    Arc::new(store.with_only("/", selection()))
}

async fn put(etcd: &Etcd, key: &str, value: &str) {
    etcd.ctl(&["put", key, value]).await.unwrap();
}

/// An etcd with a key in each range, and one in none.
async fn start() -> Etcd {
    let etcd = Etcd::start().await.unwrap();
    for key in ["/a/1", "/b/1", "/c/1", "/n/own", "/n/own2"] {
        put(&etcd, key, "1").await;
    }
    etcd
}

fn keys(event: &FeedEvent) -> Vec<&str> {
    match event {
        FeedEvent::Snapshot(list) => list.entries.iter().map(|entry| &*entry.key).collect(),
        FeedEvent::Changed(batch) => batch.changes.iter().map(Change::key).collect(),
        other => panic!("expected a list or changes: {other:?}"),
    }
}

/// The keys of the next changes, until there are so many.
async fn changed(events: &mut Receiver<Delivery>, count: usize) -> Vec<String> {
    let mut changed = Vec::new();
    while changed.len() < count {
        changed.extend(keys(&next(events).await).into_iter().map(str::to_owned));
    }
    changed.sort();
    changed
}

/// A feed that has listed, and watches.
async fn watched(etcd: &Etcd, endpoint: String) -> (Receiver<Delivery>, FeedHandle) {
    let (mut events, handle) = Feed::start(open(endpoint), "/");
    let list = next(&mut events).await;
    assert_eq!(keys(&list), ["/c/1", "/a/1", "/n/own"]);
    put(etcd, "/c/1", "2").await;
    assert_eq!(changed(&mut events, 1).await, ["/c/1"]);
    (events, handle)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_selected_keys_are_listed_and_watched() {
    let etcd = start().await;
    let (mut events, handle) = watched(&etcd, etcd.endpoint()).await;
    for key in ["/b/1", "/n/own2", "/n/ow", "/b/2"] {
        put(&etcd, key, "2").await;
    }
    // In one revision: it is complete, in whatever order the ranges come.
    let put_one = |key: &str| Operation::Put {
        key: key.to_owned(),
        value: "1".into(),
    };
    let key = "/n/own".to_owned();
    let mut operations = vec![Operation::Delete { key }];
    operations.extend(["/a/2", "/b/3", "/c/2"].map(put_one));
    let transaction = Transaction {
        operations,
        ..Transaction::default()
    };
    open(etcd.endpoint()).transact(transaction).await.unwrap();
    assert_eq!(changed(&mut events, 3).await, ["/a/2", "/c/2", "/n/own"]);

    put(&etcd, "/b/1", "3").await;
    handle.request_renewal();
    assert_eq!(next(&mut events).await, FeedEvent::Up);
    put(&etcd, "/a/2", "2").await;
    assert_eq!(changed(&mut events, 1).await, ["/a/2"]);
    handle.request_resync();
    assert_eq!(
        keys(&next(&mut events).await),
        ["/c/1", "/c/2", "/a/1", "/a/2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_announce_the_keys_of_all_ranges() {
    let etcd = start().await;
    let (mut events, _handle) = Feed::start_paged(open(etcd.endpoint()), "/");
    let (mut expected, mut found) = (0, 0);
    loop {
        match next(&mut events).await {
            FeedEvent::List(ListPart::Expected(keys)) => expected = keys,
            FeedEvent::List(ListPart::Page(entries)) => found += entries.len(),
            FeedEvent::List(ListPart::Complete { .. }) => break,
            _ => {}
        }
    }
    assert_eq!((expected, found), (3, 3));
}

/// Only other keys change, and the store is compacted.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_other_keys_keep_the_position_new() {
    let etcd = start().await;
    let (mut events, handle) = watched(&etcd, etcd.endpoint()).await;
    for number in 0..5 {
        put(&etcd, "/b/1", &format!("value {number}")).await;
    }
    // What comes last is not delivered, but read before a change that is.
    put(&etcd, "/a/1", "2").await;
    assert_eq!(changed(&mut events, 1).await, ["/a/1"]);
    put(&etcd, "/b/1", "last").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    etcd.ctl(&["compact", "14"]).await.unwrap();
    handle.request_renewal();
    assert_eq!(next(&mut events).await, FeedEvent::Up);
    put(&etcd, "/n/own", "2").await;
    assert_eq!(changed(&mut events, 1).await, ["/n/own"]);
}

/// A change of one range is lost while others are delivered all the time.
#[tokio::test(flavor = "multi_thread")]
async fn lost_change_of_one_range_is_found_by_a_replay() {
    let etcd = start().await;
    let liar = LyingEtcd::start(&etcd.endpoint()).await.unwrap();
    let (mut events, _handle) = watched(&etcd, liar.endpoint()).await;
    let mut is_lost = false;
    liar.rewrite_watches(move |response| {
        let before = response.events.len();
        if !is_lost {
            response.events.retain(|event| {
                let pair = event.kv.as_ref();
                pair.is_none_or(|pair| pair.key != b"/a/1")
            });
        }
        is_lost |= response.events.len() < before;
        before == 0 || !response.events.is_empty()
    });
    put(&etcd, "/a/1", "lost").await;
    let busy = async {
        for number in 0.. {
            put(&etcd, "/c/1", &format!("value {number}")).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let noticed = async {
        loop {
            match next(&mut events).await {
                FeedEvent::Inconsistent {
                    inconsistency,
                    reason,
                } => break (inconsistency, reason),
                FeedEvent::Changed(_) => {}
                other => panic!("expected changes: {other:?}"),
            }
        }
    };
    let (inconsistency, reason) = tokio::select! {
        noticed = tokio::time::timeout(Duration::from_secs(60), noticed) => noticed.unwrap(),
        () = busy => unreachable!(),
    };
    assert_eq!(inconsistency, Inconsistency::Missed, "{reason}");
    assert!(reason.contains("/a/1"), "{reason}");
    let FeedEvent::Snapshot(list) = next(&mut events).await else {
        panic!("expected a list")
    };
    assert!(list.entries.iter().any(|entry| entry.value == "lost"));
}
