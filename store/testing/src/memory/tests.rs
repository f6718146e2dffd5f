use std::time::Duration;

use contiv_store::{
    Batch, Change, Condition, Leases, Operation, Store, StoreError, Transaction, WatchEvent,
    WatchStream,
};
use futures::StreamExt;
use tokio::time::Instant;

use super::*;
use crate::faults::Faults;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn put(store: &MemoryStore, key: &str, value: &str) -> i64 {
    let value = value.to_owned().into();
    store
        .commit(vec![Operation::Put {
            key: key.to_owned(),
            value,
        }])
        .await
        .unwrap()
}

async fn delete(store: &MemoryStore, key: &str) -> i64 {
    store
        .commit(vec![Operation::Delete {
            key: key.to_owned(),
        }])
        .await
        .unwrap()
}

async fn next(watch: &mut WatchStream) -> Result<Batch, StoreError> {
    match watch.next().await.unwrap()? {
        WatchEvent::Changed(batch) => Ok(batch),
        WatchEvent::Problems(problems) => panic!("{problems:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn revisions_are_those_of_etcd() {
    let store = MemoryStore::new();
    assert_eq!(store.list("/").await.unwrap().revision, 1);
    assert_eq!(put(&store, "/a", "1").await, 2);
    assert_eq!(put(&store, "/a", "2").await, 3);
    assert_eq!(delete(&store, "/none").await, 3, "nothing happened");
    let [entry] = store.list("/a").await.unwrap().entries.try_into().unwrap();
    assert_eq!((entry.create_revision, entry.mod_revision), (2, 3));
    delete(&store, "/a").await;
    put(&store, "/a", "3").await;
    assert_eq!(
        store.list("/a").await.unwrap().entries[0].create_revision,
        5
    );
}

#[tokio::test(start_paused = true)]
async fn watch_delivers_exactly_the_changes_after_its_revision() {
    let store = MemoryStore::new();
    put(&store, "/a/1", "x").await;
    put(&store, "/b/1", "x").await;
    let mut watch = store.watch("/a/", 2).await.unwrap();
    delete(&store, "/a/1").await;
    let batch = next(&mut watch).await.unwrap();
    assert_eq!(
        batch,
        Batch {
            revision: 4,
            changes: vec![Change::Delete {
                key: "/a/1".to_owned()
            }]
        }
    );
    assert!(tokio::time::timeout(ms(100), watch.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn compacted_revision_cannot_be_watched() {
    let store = MemoryStore::new();
    for _ in 0..3 {
        put(&store, "/a", "x").await;
    }
    let mut late = store.watch("/", 1).await.unwrap();
    store.compact();
    let compacted = |result| {
        matches!(
            result,
            Err(StoreError::Compacted {
                requested: 2,
                oldest: 4
            })
        )
    };
    assert!(compacted(store.watch("/", 1).await.map(drop)));
    assert!(compacted(next(&mut late).await.map(drop)));
    let mut newest = store.watch("/", 3).await.unwrap();
    assert_eq!(
        next(&mut newest).await.unwrap().revision,
        4,
        "the newest revision is not forgotten"
    );
    assert!(store.watch("/", 4).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn lease_without_keepalive_ends_and_watches_see_it() {
    let store = MemoryStore::new();
    let lease = store.grant(Duration::from_secs(10)).await.unwrap();
    let leased = Operation::PutLeased {
        key: "/leased".to_owned(),
        value: "x".into(),
        lease,
    };
    store.commit(vec![leased.clone()]).await.unwrap();
    let mut watch = store.watch("/", 2).await.unwrap();
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(store.keep_alive(lease).await.unwrap());
    assert_eq!(
        next(&mut watch).await.unwrap().changes,
        [Change::Delete {
            key: "/leased".to_owned()
        }]
    );
    assert_eq!(start.elapsed().as_secs(), 19);
    assert!(!store.keep_alive(lease).await.unwrap());
    assert!(matches!(
        store.commit(vec![leased]).await,
        Err(StoreError::Refused { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn disconnecting_one_client_does_not_affect_the_other() {
    let store = MemoryStore::new();
    let other = store.another_client();
    let mut watch = store.watch("/", 1).await.unwrap();
    store.cut();
    assert!(next(&mut watch).await.is_err());
    assert!(store.list("/").await.is_err());
    put(&other, "/a", "x").await;
    store.reconnect();
    assert_eq!(store.list("/").await.unwrap().entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_same_faults() {
    let run = |seed| async move {
        let store = MemoryStore::with_faults(Faults::seeded(seed));
        let mut results = Vec::new();
        for step in 0..50 {
            let conditions = vec![Condition::Absent {
                key: format!("/{step}"),
            }];
            let operations = vec![Operation::Put {
                key: format!("/{step}"),
                value: "x".into(),
            }];
            results.push(
                store
                    .transact(Transaction {
                        conditions,
                        operations,
                    })
                    .await
                    .map_err(|e| e.to_string()),
            );
        }
        results
    };
    let (first, second, other) = (run(1).await, run(1).await, run(2).await);
    assert_eq!(first, second);
    assert_ne!(first, other);
    assert!(first.iter().any(Result::is_err) && first.iter().any(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn transactions_etcd_refuses_are_refused() {
    let store = MemoryStore::new();
    let put = |key: &str| Operation::Put {
        key: key.to_owned(),
        value: "x".into(),
    };
    let twice = vec![
        put("/a"),
        Operation::Delete {
            key: "/a".to_owned(),
        },
    ];
    assert!(matches!(
        store.commit(twice).await,
        Err(StoreError::Refused { .. })
    ));
    let many = (0..129).map(|i| put(&format!("/{i}"))).collect();
    assert!(matches!(
        store.commit(many).await,
        Err(StoreError::Refused { .. })
    ));
    assert_eq!(store.revision(), 1);
}
