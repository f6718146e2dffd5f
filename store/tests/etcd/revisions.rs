//! Revisions that are compacted while they are read, and revisions reported to a watch without a change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use contiv_store::{
    Feed, FeedEvent, Operation, Store, WatchEvent, commit_in_chunks,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, EtcdOptions};
use futures::StreamExt;
use tokio::time::timeout;

const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

fn store_of(etcd: &Etcd) -> EtcdStore {
    EtcdStore::new(&[etcd.endpoint()], EtcdAccess::default()).unwrap()
}

fn put(key: impl Into<String>) -> Operation {
    Operation::Put {
        key: key.into(),
        value: Bytes::from_static(b"1"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_compacted_repeatedly_is_never_partial() {
    const KEYS: usize = 40_000;
    let etcd = Arc::new(Etcd::start().await.unwrap());
    let store = store_of(&etcd);
    commit_in_chunks(&store, (0..KEYS).map(|i| put(format!("/{i:05}"))).collect())
        .await
        .unwrap();
    let rests = Arc::new(AtomicBool::new(false));
    let compacting = tokio::spawn({
        let (etcd, store, rests) = (Arc::clone(&etcd), store.clone(), Arc::clone(&rests));
        async move {
            while !rests.load(Ordering::Relaxed) {
                let revision = store.commit(vec![put("/00000")]).await.unwrap();
                etcd.ctl(&["compact", &revision.to_string()]).await.unwrap();
            }
        }
    });
    let (mut events, handle) = Feed::start(Arc::new(store), "/");
    let mut was_compacted = false;
    while !was_compacted {
        match timeout(EVENT_TIMEOUT, events.recv())
            .await
            .expect("a list never fails")
            .unwrap()
            .event
        {
            FeedEvent::Down { reason } => {
                assert!(
                    reason.contains("its revisions were compacted 5 times"),
                    "{reason}"
                );
                was_compacted = true;
            }
            // The list was faster.
            FeedEvent::Snapshot(snapshot) => {
                assert_eq!(snapshot.entries.len(), KEYS);
                handle.request_resync();
            }
            _ => {}
        }
    }
    rests.store(true, Ordering::Relaxed);
    compacting.await.unwrap();
    let whole = async {
        loop {
            if let FeedEvent::Snapshot(snapshot) = events.recv().await.unwrap().event {
                return snapshot.entries.len();
            }
        }
    };
    assert_eq!(timeout(EVENT_TIMEOUT, whole).await.unwrap(), KEYS);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_notification_advances_a_quiet_watch() {
    let flags = ["--experimental-watch-progress-notify-interval=1s"];
    let etcd = Etcd::start_with(EtcdOptions {
        flags: &flags,
        ..EtcdOptions::default()
    })
    .await
    .unwrap();
    let store = store_of(&etcd);
    let known = store.commit(vec![put("/ours/a")]).await.unwrap();
    let mut watch = store.watch("/ours/", known).await.unwrap();
    let newest = store.commit(vec![put("/theirs/a")]).await.unwrap();
    let reached = async {
        loop {
            let WatchEvent::Changed(batch) = watch.next().await.unwrap().unwrap() else {
                continue;
            };
            assert_eq!(batch.changes, [], "nothing of ours has changed");
            if batch.revision >= newest {
                return batch.revision;
            }
        }
    };
    assert_eq!(timeout(EVENT_TIMEOUT, reached).await.unwrap(), newest);
}
