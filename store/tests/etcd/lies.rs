//! An etcd that says something untrue, one thing at a time. Each must be noticed, with the name of the key, and end with what the
//! store really has.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_store::{
    Delivery, Feed, FeedEvent, FeedHandle, Inconsistency, Store,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, LyingEtcd, deliveries::next};
use etcd_client::proto::{PbEvent, PbKeyValue, PbWatchResponse};
use tokio::{sync::mpsc::Receiver, time::timeout};

/// How soon a lie must be noticed.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);

/// An etcd with the keys `/a`, `/b` and `/c`, and a feed of it that has listed them.
struct Stage {
    etcd: Etcd,
    liar: LyingEtcd,
    events: Receiver<Delivery>,
    handle: FeedHandle,
}

impl Stage {
    async fn start() -> Self {
        let etcd = Etcd::start().await.unwrap();
        for key in ["/a", "/b", "/c"] {
            etcd.ctl(&["put", key, "1"]).await.unwrap();
        }
        let liar = LyingEtcd::start(&etcd.endpoint()).await.unwrap();
        let store: Arc<dyn Store> =
            Arc::new(EtcdStore::new(&[liar.endpoint()], EtcdAccess::default()).unwrap());
        let (mut events, handle) = Feed::start(store, "/");
        let FeedEvent::Snapshot(list) = next(&mut events).await else {
            panic!("expected a list")
        };
        assert_eq!(list.entries.len(), 3);
        let mut stage = Self {
            etcd,
            liar,
            events,
            handle,
        };
        // So that the watch is open.
        stage.put_delivered("/c", "2").await;
        stage
    }

    async fn put(&self, key: &str, value: &str) {
        self.etcd.ctl(&["put", key, value]).await.unwrap();
    }

    /// Writes a key, and waits until the feed has delivered it.
    async fn put_delivered(&mut self, key: &str, value: &str) {
        self.put(key, value).await;
        assert!(matches!(
            next(&mut self.events).await,
            FeedEvent::Changed(_)
        ));
    }

    /// Changes the events of the next message for which `rewrite` returns true.
    fn rewrite_events(&self, mut rewrite: impl FnMut(&mut Vec<PbEvent>) -> bool + Send + 'static) {
        let mut is_told = false;
        self.liar
            .rewrite_watches(move |response: &mut PbWatchResponse| {
                let had_events = !response.events.is_empty();
                if !is_told && had_events {
                    is_told = rewrite(&mut response.events);
                }
                !had_events || !response.events.is_empty()
            });
    }

    /// Expects that the lie is noticed, by this, and then what the store really has.
    async fn expect_repair(mut self, expected: Inconsistency, key: &str) {
        let repaired = timeout(NOTICE_LIMIT, async {
            loop {
                match next(&mut self.events).await {
                    FeedEvent::Inconsistent {
                        inconsistency,
                        reason,
                    } => break (inconsistency, reason),
                    FeedEvent::Changed(_) => {}
                    other => panic!("expected that the lie is noticed: {other:?}"),
                }
            }
        });
        let (inconsistency, reason) = repaired.await.unwrap();
        assert_eq!(inconsistency, expected, "{reason}");
        assert!(reason.contains(key), "{reason}");
        let FeedEvent::Snapshot(list) = next(&mut self.events).await else {
            panic!("expected a list")
        };
        let truth = EtcdStore::new(&[self.etcd.endpoint()], EtcdAccess::default()).unwrap();
        assert_eq!(list, truth.list("/").await.unwrap());
    }
}

fn is_of(event: &PbEvent, key: &str) -> bool {
    event
        .kv
        .as_ref()
        .is_some_and(|pair| pair.key == key.as_bytes())
}

/// Loses the next event of this key.
fn losing(key: &'static str) -> impl FnMut(&mut Vec<PbEvent>) -> bool + Send + 'static {
    move |events| {
        let before = events.len();
        events.retain(|event| !is_of(event, key));
        events.len() < before
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_put_is_noticed_at_the_next_put_of_the_key() {
    let stage = Stage::start().await;
    stage.rewrite_events(losing("/a"));
    stage.put("/a", "2").await;
    stage.put("/a", "3").await;
    stage.expect_repair(Inconsistency::Version, "/a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_delete_is_noticed_when_the_key_is_created_again() {
    let stage = Stage::start().await;
    stage.rewrite_events(losing("/a"));
    stage.etcd.ctl(&["del", "/a"]).await.unwrap();
    stage.put("/b", "2").await;
    stage.put("/a", "2").await;
    stage.expect_repair(Inconsistency::Version, "/a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_creation_is_noticed_when_the_key_changes() {
    for change in [&["put", "/d", "2"][..], &["del", "/d"]] {
        let stage = Stage::start().await;
        stage.rewrite_events(losing("/d"));
        stage.put("/d", "1").await;
        stage.etcd.ctl(change).await.unwrap();
        stage.expect_repair(Inconsistency::Version, "/d").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_events_are_noticed() {
    let stage = Stage::start().await;
    let mut held = Vec::new();
    stage.rewrite_events(move |events| {
        let is_second = !held.is_empty();
        if is_second {
            events.append(&mut held);
        } else {
            held.append(events);
        }
        is_second
    });
    stage.put("/a", "2").await;
    stage.put("/b", "2").await;
    stage.expect_repair(Inconsistency::Order, "/a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_old_event_is_noticed() {
    let mut stage = Stage::start().await;
    let mut old = Vec::new();
    stage.rewrite_events(move |events| {
        if old.is_empty() {
            old.clone_from(events);
            return false;
        }
        let is_last = is_of(&events[0], "/c");
        if is_last {
            events.append(&mut old);
        }
        is_last
    });
    for (key, value) in [("/a", "2"), ("/b", "2")] {
        stage.put_delivered(key, value).await;
    }
    stage.put("/c", "3").await;
    stage.expect_repair(Inconsistency::Order, "/a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_repeated_in_its_revision_is_noticed() {
    let stage = Stage::start().await;
    stage.rewrite_events(|events| {
        events.extend_from_within(..);
        true
    });
    stage.put("/a", "2").await;
    stage.expect_repair(Inconsistency::Order, "/a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_without_one_of_its_keys_is_noticed() {
    let stage = Stage::start().await;
    let mut is_told = false;
    stage.liar.rewrite_pages(move |page| {
        if !std::mem::replace(&mut is_told, true) {
            page.kvs.retain(|pair| pair.key != b"/b");
        }
    });
    stage.handle.request_resync();
    stage
        .expect_repair(Inconsistency::Count, "/: a page of 3 keys")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_older_than_it_says_is_noticed() {
    let mut stage = Stage::start().await;
    stage.put_delivered("/a", "2").await;
    stage.put_delivered("/b", "2").await;
    stage.liar.read_next_at(5);
    stage.handle.request_resync();
    stage.expect_repair(Inconsistency::OldList, "/a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_with_a_key_deleted_before_is_noticed() {
    let mut stage = Stage::start().await;
    stage.etcd.ctl(&["del", "/b"]).await.unwrap();
    assert!(matches!(
        next(&mut stage.events).await,
        FeedEvent::Changed(_)
    ));
    stage.liar.read_next_at(5);
    stage.handle.request_resync();
    stage.expect_repair(Inconsistency::OldList, "/b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_of_an_older_revision_is_noticed() {
    let mut stage = Stage::start().await;
    stage.put_delivered("/d", "1").await;
    let mut is_told = false;
    stage.liar.read_next_at(5);
    stage.liar.rewrite_pages(move |page| {
        if !std::mem::replace(&mut is_told, true)
            && let Some(header) = &mut page.header
        {
            header.revision = 5;
        }
    });
    stage.handle.request_resync();
    stage.expect_repair(Inconsistency::OldList, "/").await;
}

/// What no later message contradicts is in the history: it is compared while the store is watched.
#[tokio::test(flavor = "multi_thread")]
async fn lies_without_contradiction_are_noticed_within_a_minute() {
    let lost_last_put = async {
        let stage = Stage::start().await;
        stage.rewrite_events(losing("/a"));
        stage.put("/a", "2").await;
        stage.expect_repair(Inconsistency::Missed, "/a").await;
    };
    let lost_deletion = async {
        let stage = Stage::start().await;
        stage.rewrite_events(losing("/a"));
        stage.etcd.ctl(&["del", "/a"]).await.unwrap();
        stage.put("/b", "2").await;
        stage.put("/b", "3").await;
        stage.expect_repair(Inconsistency::Missed, "/a").await;
    };
    let altered_value = async {
        let stage = Stage::start().await;
        stage.rewrite_events(|events| {
            let Some(pair) = &mut events[0].kv else {
                return false;
            };
            pair.value = b"3".to_vec();
            true
        });
        stage.put("/a", "2").await;
        stage.expect_repair(Inconsistency::Altered, "/a").await;
    };
    let invented_deletion = async {
        let stage = Stage::start().await;
        stage.rewrite_events(|events| {
            let mut invented = events[0].clone();
            if let Some(pair) = &mut invented.kv {
                *pair = PbKeyValue {
                    key: b"/a".to_vec(),
                    mod_revision: pair.mod_revision,
                    ..PbKeyValue::default()
                };
            }
            invented.r#type = 1;
            events.push(invented);
            true
        });
        stage.put("/b", "2").await;
        stage
            .expect_repair(Inconsistency::NotInHistory, "revision 6")
            .await;
    };
    tokio::join!(
        lost_last_put,
        lost_deletion,
        altered_value,
        invented_deletion
    );
}

/// A truthful store is not listed again.
#[tokio::test(flavor = "multi_thread")]
async fn truthful_store_is_compared_without_a_difference() {
    let mut stage = Stage::start().await;
    let start = Instant::now();
    let mut value = 0;
    while start.elapsed() < Duration::from_secs(55) {
        value += 1;
        stage
            .put(["/a", "/b", "/c"][value % 3], &value.to_string())
            .await;
        let event = next(&mut stage.events).await;
        assert!(matches!(event, FeedEvent::Changed(_)), "{event:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
