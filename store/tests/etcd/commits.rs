//! Lists, watches and transactions of the etcd backend, with a real etcd.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use contiv_store::{
    Batch, Change, Condition, Feed, FeedEvent, Leases, ListPart, Operation, Store, StoreError,
    Transaction, WatchEvent, WatchStream, commit_in_chunks,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, Proxy};
use futures::StreamExt;
use tokio::time::timeout;

const PREFIX: &str = "/vnf-agent/contiv-ksr/";

async fn start() -> (Etcd, EtcdStore) {
    let etcd = Etcd::start().await.unwrap();
    let store = EtcdStore::new(&[etcd.endpoint()], EtcdAccess::default()).unwrap();
    (etcd, store)
}

fn put(key: impl Into<String>, value: impl Into<Bytes>) -> Operation {
    Operation::Put {
        key: key.into(),
        value: value.into(),
    }
}

async fn next(watch: &mut WatchStream) -> Batch {
    match timeout(Duration::from_secs(10), watch.next())
        .await
        .expect("nothing within 10 s")
    {
        Some(Ok(WatchEvent::Changed(batch))) => batch,
        other => panic!("expected changes: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_written_by_etcdctl_are_listed_and_watched() {
    let (etcd, store) = start().await;
    etcd.ctl(&[
        "put",
        "/vnf-agent/contiv-ksr/k8s/node/n1",
        "{\"name\":\"n1\"}",
    ])
    .await
    .unwrap();
    etcd.ctl(&["put", "/vnf-agent/contiv-ksr0", "after the prefix"])
        .await
        .unwrap();
    let snapshot = store.list(PREFIX).await.unwrap();
    let [entry] = snapshot.entries.as_slice() else {
        panic!("{snapshot:?}")
    };
    assert_eq!(
        (entry.key.as_str(), &entry.value[..]),
        (
            "/vnf-agent/contiv-ksr/k8s/node/n1",
            &b"{\"name\":\"n1\"}"[..]
        )
    );
    assert_eq!(
        (entry.create_revision, entry.mod_revision, snapshot.revision),
        (2, 2, 3)
    );

    let mut watch = store.watch(PREFIX, snapshot.revision).await.unwrap();
    etcd.ctl(&["put", "/elsewhere", "x"]).await.unwrap();
    etcd.ctl(&["put", "/vnf-agent/contiv-ksr/k8s/node/n1", "{}"])
        .await
        .unwrap();
    etcd.ctl(&["del", "/vnf-agent/contiv-ksr/k8s/node/n1"])
        .await
        .unwrap();
    // Changes during the start of the watch may arrive in one batch.
    let mut changes = Vec::new();
    loop {
        let batch = next(&mut watch).await;
        changes.extend(batch.changes);
        if batch.revision == 6 {
            break;
        }
    }
    let [Change::Put(entry), deleted] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(
        (&entry.value[..], entry.create_revision, entry.mod_revision),
        (&b"{}"[..], 2, 5)
    );
    assert_eq!(
        *deleted,
        Change::Delete {
            key: "/vnf-agent/contiv-ksr/k8s/node/n1".to_owned()
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_many_pages_has_one_revision_during_writes() {
    const KEYS: usize = 6_000;
    let (_etcd, store) = start().await;
    // One transaction always gives two keys on distant pages the same value.
    let pair = |i: usize, round: usize| {
        vec![
            put(format!("/a/{i:05}"), round.to_string()),
            put(format!("/z/{i:05}"), round.to_string()),
        ]
    };
    let first = (0..KEYS).flat_map(|i| pair(i, 0)).collect();
    commit_in_chunks(&store, first).await.unwrap();

    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 1.. {
                store.commit(pair(round % KEYS, round)).await.unwrap();
            }
        }
    });
    let mut revisions = Vec::new();
    for _ in 0..5 {
        let snapshot = store.list("/").await.unwrap();
        let (a, z) = snapshot.entries.split_at(KEYS);
        assert_eq!((a.len(), z.len()), (KEYS, KEYS));
        for (a, z) in a.iter().zip(z) {
            assert_eq!(a.key.replace("/a/", "/z/"), z.key);
            assert_eq!((&a.value, a.mod_revision), (&z.value, z.mod_revision));
            assert!(a.mod_revision <= snapshot.revision);
        }
        revisions.push(snapshot.revision);
    }
    writer.abort();
    assert!(
        revisions.windows(2).all(|pair| pair[0] < pair[1]),
        "nothing was written between two lists: {revisions:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn paged_feed_delivers_each_entry_once() {
    let (_etcd, store) = start().await;
    // More than a page of one type, and some of others.
    let key = |kind: &str, i: usize| put(format!("{PREFIX}k8s/{kind}/{i:05}"), i.to_string());
    let keys = (0..1200)
        .map(|i| key("endpoints", i))
        .chain((0..700).flat_map(|i| [key("pod", i), key("service", i)]));
    commit_in_chunks(&store, keys.collect()).await.unwrap();
    let snapshot = store.list(PREFIX).await.unwrap();
    let (mut events, _feed) = Feed::start_paged(Arc::new(store), PREFIX);
    let mut next = async || events.recv().await.unwrap().event;
    assert_eq!(next().await, FeedEvent::List(ListPart::Started));
    let expected = snapshot.entries.len();
    assert_eq!(next().await, FeedEvent::List(ListPart::Expected(expected)));
    let mut pages = Vec::new();
    let revision = loop {
        match next().await {
            FeedEvent::List(ListPart::Page(entries)) => pages.push(entries),
            FeedEvent::List(ListPart::Complete { revision, .. }) => break revision,
            other => panic!("{other:?}"),
        }
    };
    assert!(pages.len() > 3, "{} pages", pages.len());
    let mut all = pages.concat();
    all.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!((revision, all), (snapshot.revision, snapshot.entries));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_misses_nothing_after_its_revision() {
    let (_etcd, store) = start().await;
    let start = store.list("/").await.unwrap().revision;
    for i in 0..300 {
        store
            .commit(vec![put(format!("/{i}"), "before")])
            .await
            .unwrap();
    }
    let mut watch = store.watch("/", start).await.unwrap();
    for i in 300..600 {
        store
            .commit(vec![put(format!("/{i}"), "after")])
            .await
            .unwrap();
    }
    let mut keys = Vec::new();
    let mut last = start;
    while keys.len() < 600 {
        let batch = next(&mut watch).await;
        assert!(batch.revision > last);
        last = batch.revision;
        keys.extend(batch.changes.into_iter().map(|change| match change {
            Change::Put(entry) => entry.key,
            Change::Delete { key } => panic!("{key} was never deleted"),
        }));
    }
    let expected: Vec<_> = (0..600).map(|i| format!("/{i}")).collect();
    assert_eq!(keys, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_transaction_is_watched_as_one_batch() {
    let (_etcd, store) = start().await;
    let start = store.list("/").await.unwrap().revision;
    // Six transactions of 1 MB: etcd sends them in fragments to a later watch.
    for round in 0..6_u8 {
        let value = Bytes::from(vec![b'0' + round; 10_000]);
        store
            .commit(
                (0..100)
                    .map(|i| put(format!("/{i}"), value.clone()))
                    .collect(),
            )
            .await
            .unwrap();
    }
    let mut watch = store.watch("/", start).await.unwrap();
    let mut seen = 0;
    while seen < 600 {
        let batch = next(&mut watch).await;
        assert_eq!(batch.changes.len() % 100, 0, "a revision was split");
        seen += batch.changes.len();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_is_atomic() {
    let (_etcd, store) = start().await;
    let revision = store
        .commit(vec![put("/a", "1"), put("/b", "1")])
        .await
        .unwrap();
    let snapshot = store.list("/").await.unwrap();
    assert!(
        snapshot
            .entries
            .iter()
            .all(|entry| entry.mod_revision == revision)
    );

    // etcd refuses a transaction that writes the same key twice.
    let error = store
        .commit(vec![put("/c", "1"), put("/a", "2"), put("/a", "3")])
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert_eq!(store.list("/").await.unwrap(), snapshot);

    let swap = vec![
        Operation::Delete {
            key: "/a".to_owned(),
        },
        Operation::Delete {
            key: "/none".to_owned(),
        },
        put("/d", "1"),
    ];
    store.commit(swap).await.unwrap();
    let keys: Vec<_> = store
        .list("/")
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| entry.key)
        .collect();
    assert_eq!(keys, ["/b", "/d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_with_failed_condition_names_its_key() {
    let (_etcd, store) = start().await;
    let created = store.commit(vec![put("/a", "1")]).await.unwrap();
    let written = store
        .commit(vec![put("/a", "2"), put("/b", "1")])
        .await
        .unwrap();
    let absent = |key: &str| Condition::Absent {
        key: key.to_owned(),
    };
    let unchanged = |mod_revision| Condition::Unchanged {
        key: "/a".to_owned(),
        mod_revision,
    };
    let since = |create_revision| Condition::Since {
        key: "/a".to_owned(),
        create_revision,
    };
    let transact = |conditions| {
        store.transact(Transaction {
            conditions,
            operations: vec![put("/result", "x")],
        })
    };

    let before = store.list("/").await.unwrap();
    for (conditions, failed) in [
        (vec![absent("/none"), absent("/b")], "/b"),
        (vec![since(created), unchanged(created)], "/a"),
        (vec![unchanged(written), since(written)], "/a"),
        (
            vec![Condition::Unchanged {
                key: "/none".to_owned(),
                mod_revision: written,
            }],
            "/none",
        ),
    ] {
        let error = transact(conditions).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Conflict { key } if key == failed),
            "{error:?}"
        );
    }
    assert_eq!(
        store.list("/").await.unwrap(),
        before,
        "nothing was written"
    );
    transact(vec![absent("/none"), unchanged(written), since(created)])
        .await
        .unwrap();
    assert_eq!(store.list("/result").await.unwrap().entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_lease_deletes_its_keys() {
    let (_etcd, store) = start().await;
    let lease = store.grant(Duration::from_secs(60)).await.unwrap();
    let leased = Operation::PutLeased {
        key: "/leased".to_owned(),
        value: "x".into(),
        lease,
    };
    store
        .commit(vec![leased.clone(), put("/other", "x")])
        .await
        .unwrap();
    assert!(store.keep_alive(lease).await.unwrap());
    store.revoke(lease).await.unwrap();
    let keys: Vec<_> = store
        .list("/")
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| entry.key)
        .collect();
    assert_eq!(keys, ["/other"]);
    assert!(!store.keep_alive(lease).await.unwrap());
    store
        .revoke(lease)
        .await
        .expect("revoking it again is no error");
    assert!(matches!(
        store.commit(vec![leased]).await.unwrap_err(),
        StoreError::Refused { .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_operations_are_refused_unless_in_chunks() {
    let (_etcd, store) = start().await;
    let operations: Vec<_> = (0..300).map(|i| put(format!("/{i:03}"), "x")).collect();
    let error = store
        .commit(operations.clone())
        .await
        .unwrap_err()
        .to_string();
    let expected = "the store refused to commit 300 operations at once: a transaction holds 128 at most; \
                    commit them in chunks";
    assert_eq!(error, expected);
    assert_eq!(store.list("/").await.unwrap().entries, vec![]);
    let revision = commit_in_chunks(&store, operations).await.unwrap();
    let snapshot = store.list("/").await.unwrap();
    assert_eq!((snapshot.entries.len(), snapshot.revision), (300, revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_from_compacted_revision_fails_as_compacted() {
    let (etcd, store) = start().await;
    for i in 0..10 {
        store.commit(vec![put("/a", i.to_string())]).await.unwrap();
    }
    etcd.ctl(&["compact", "9"]).await.unwrap();
    let error = store.watch("/", 3).await.map(drop).unwrap_err();
    assert!(
        matches!(error, StoreError::Compacted { requested: 3, .. }),
        "{error}"
    );
    assert_eq!(store.list("/").await.unwrap().entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_at_compacted_revision_is_not_lost() {
    let (etcd, store) = start().await;
    let revision = store
        .commit(vec![put("/a", "1"), put("/b", "1")])
        .await
        .unwrap();
    let deletion = store
        .commit(vec![Operation::Delete {
            key: "/a".to_owned(),
        }])
        .await
        .unwrap();
    assert_eq!(deletion, revision + 1);
    etcd.ctl(&["compact", &deletion.to_string()]).await.unwrap();
    // The watch either delivers the deletion or fails as compacted.
    let result = match store.watch("/", revision).await {
        Ok(mut watch) => timeout(Duration::from_secs(10), watch.next())
            .await
            .unwrap()
            .unwrap(),
        Err(error) => Err(error),
    };
    match result {
        Ok(WatchEvent::Changed(batch)) => {
            assert_eq!(
                batch.changes,
                [Change::Delete {
                    key: "/a".to_owned()
                }]
            );
        }
        Err(StoreError::Compacted { .. }) => {}
        other => panic!("{other:?}"),
    }
    let mut watch = store.watch("/", deletion).await.unwrap();
    store.commit(vec![put("/b", "2")]).await.unwrap();
    let batch = next(&mut watch).await;
    assert!(
        matches!(batch.changes.as_slice(), [Change::Put(entry)] if entry.value == "2"),
        "{batch:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn list_larger_than_message_limit_uses_smaller_pages() {
    let (_etcd, store) = start().await;
    // 70 MB; the client accepts 16 MiB in one message.
    let value = Bytes::from(vec![b'x'; 1_400_000]);
    for i in 0..50 {
        store
            .commit(vec![put(format!("/{i:02}"), value.clone())])
            .await
            .unwrap();
    }
    let snapshot = store.list("/").await.unwrap();
    assert_eq!(snapshot.entries.len(), 50);
    assert!(snapshot.entries.iter().all(|entry| entry.value == value));
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_etcd_is_reported_as_unavailable() {
    let (mut etcd, store) = start().await;
    store.commit(vec![put("/a", "1")]).await.unwrap();
    etcd.kill().await.unwrap();
    let error = timeout(Duration::from_secs(11), store.list("/"))
        .await
        .expect("the call did not end")
        .unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable { endpoint, .. } if *endpoint == etcd.endpoint()),
        "{error}"
    );
    etcd.start_again().await.unwrap();
    assert_eq!(store.list("/").await.unwrap().entries.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_member_is_skipped_and_all_dead_ones_are_reported() {
    let (mut etcd, _) = start().await;
    let mut dead = Proxy::start(&etcd.endpoint()).await.unwrap();
    dead.cut().await;
    // The first member is chosen at random: ten rounds cover both choices.
    for _ in 0..10 {
        let store =
            EtcdStore::new(&[dead.endpoint(), etcd.endpoint()], EtcdAccess::default()).unwrap();
        let revision = store.commit(vec![put("/a", "1")]).await.unwrap();
        assert_eq!(store.list("/").await.unwrap().revision, revision);
        assert_eq!(
            next(&mut store.watch("/", revision - 1).await.unwrap())
                .await
                .revision,
            revision
        );
    }
    let store = EtcdStore::new(&[dead.endpoint(), etcd.endpoint()], EtcdAccess::default()).unwrap();
    etcd.kill().await.unwrap();
    let error = store.list("/").await.unwrap_err().to_string();
    for endpoint in [dead.endpoint(), etcd.endpoint()] {
        assert!(
            error.contains(&format!("{endpoint}: tcp connect error")),
            "{error}"
        );
    }
}
