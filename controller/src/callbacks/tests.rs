//! The scenarios of consul-k8s' helper/controller.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::test_support::{delete, ms, put, texts};
use contiv_store_testing::MemoryStore;

type Log = Arc<Mutex<Vec<String>>>;

/// Logs each call; the first `failures` calls fail.
fn logging(log: &Log, failures: usize) -> impl Resource<String> + use<> {
    let count = Arc::new(AtomicUsize::new(0));
    let call = move |log: &Log, what: &'static str| {
        let (log, count) = (Arc::clone(log), Arc::clone(&count));
        move |key: Key, object: Arc<Object<String>>| {
            log.lock().push(format!("{what} {key} {}", object.value));
            let fails = count.fetch_add(1, Ordering::Relaxed) < failures;
            async move { if fails { Err("not yet".into()) } else { Ok(()) } }
        }
    };
    new_resource(&texts("t"), call(log, "upsert"), call(log, "delete"))
}

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock())
}

async fn settle() {
    tokio::time::sleep(ms(100)).await;
}

#[tokio::test(start_paused = true)]
async fn initial_and_later_objects_are_upserted() {
    let (store, log) = (MemoryStore::new(), Log::default());
    put(&store, "/t/foo", "initial").await;
    let closer = test_run(logging(&log, 0), store.shared());
    settle().await;
    put(&store, "/t/bar", "created").await;
    settle().await;
    put(&store, "/t/bar", "updated").await;
    settle().await;
    assert_eq!(
        take(&log),
        [
            "upsert /t/foo initial",
            "upsert /t/bar created",
            "upsert /t/bar updated"
        ]
    );
    closer.close().await;
}

#[tokio::test(start_paused = true)]
async fn delete_gets_last_known_object() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let closer = test_run(logging(&log, 0), store.shared());
    settle().await;
    put(&store, "/t/bar", "last").await;
    settle().await;
    delete(&store, "/t/bar").await;
    settle().await;
    assert_eq!(take(&log), ["upsert /t/bar last", "delete /t/bar last"]);
    closer.close().await;
}

#[tokio::test(start_paused = true)]
async fn deletion_over_compaction_is_delete_with_last_known_object() {
    let (store, log) = (MemoryStore::new(), Log::default());
    put(&store, "/t/bar", "last").await;
    let closer = test_run(logging(&log, 0), store.shared());
    settle().await;
    store.cut();
    let other = store.another_client();
    delete(&other, "/t/bar").await;
    put(&other, "/other", "x").await;
    other.compact();
    store.reconnect();
    // A list after a watch waits for up to two seconds.
    tokio::time::sleep(ms(4000)).await;
    assert_eq!(take(&log), ["upsert /t/bar last", "delete /t/bar last"]);
    closer.close().await;
}

/// The delete handler of consul-k8s queues nothing without an object.
#[tokio::test(start_paused = true)]
async fn object_that_was_never_seen_is_not_deleted() {
    let (store, log) = (MemoryStore::new(), Log::default());
    put(&store, "/t/foo", "!unreadable").await;
    let closer = test_run(logging(&log, 0), store.shared());
    settle().await;
    delete(&store, "/t/foo").await;
    store.cut();
    let other = store.another_client();
    put(&other, "/t/bar", "missed").await;
    delete(&other, "/t/bar").await;
    other.compact();
    store.reconnect();
    // A list after a watch waits for up to two seconds.
    tokio::time::sleep(ms(4000)).await;
    assert_eq!(take(&log), Vec::<String>::new());
    put(&store, "/t/baz", "seen").await;
    settle().await;
    assert_eq!(take(&log), ["upsert /t/baz seen"]);
    closer.close().await;
}

#[tokio::test(start_paused = true)]
async fn object_created_again_before_its_deletion_is_only_upserted() {
    let (store, log) = (MemoryStore::new(), Log::default());
    put(&store, "/t/bar", "first").await;
    let slow = {
        let log = Arc::clone(&log);
        new_resource(
            &texts("t"),
            move |_, object: Arc<Object<String>>| {
                let log = Arc::clone(&log);
                async move {
                    tokio::time::sleep(ms(50)).await;
                    log.lock().push(object.value.clone());
                    Ok(())
                }
            },
            |_, _| async { panic!("it is there again") },
        )
    };
    let closer = test_run(slow, store.shared());
    tokio::time::sleep(ms(10)).await;
    delete(&store, "/t/bar").await;
    put(&store, "/t/bar", "second").await;
    settle().await;
    settle().await;
    assert_eq!(take(&log), ["first", "second"]);
    closer.close().await;
}

#[tokio::test(start_paused = true)]
async fn call_that_fails_is_made_six_times_in_all() {
    for (failures, calls) in [(2, 3), (5, 6), (100, 6)] {
        let (store, log) = (MemoryStore::new(), Log::default());
        put(&store, "/t/foo", "x").await;
        let closer = test_run(logging(&log, failures), store.shared());
        tokio::time::sleep(ms(1000)).await;
        assert_eq!(take(&log).len(), calls);
        closer.close().await;
    }
}

/// In consul-k8s each version of an object is a separate item with a separate retry budget.
#[tokio::test(start_paused = true)]
async fn updates_that_come_together_are_one_call_with_newest() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let closer = test_run(logging(&log, 1), store.shared());
    settle().await;
    put(&store, "/t/foo", "1").await;
    tokio::time::sleep(ms(1)).await;
    for value in ["2", "3"] {
        put(&store, "/t/foo", value).await;
    }
    settle().await;
    let calls = take(&log);
    assert_eq!(
        (calls[0].as_str(), calls[calls.len() - 1].as_str()),
        ("upsert /t/foo 1", "upsert /t/foo 3")
    );
    assert!(calls.len() <= 3, "{calls:?}");
    closer.close().await;
}

#[tokio::test(start_paused = true)]
async fn backgrounder_is_started_stopped_and_waited_for() {
    struct Backgrounder(Log);
    impl Resource<String> for Backgrounder {
        fn resource_type(&self) -> ResourceType<String> {
            texts("t")
        }
        async fn upsert(&self, _: Key, _: Arc<Object<String>>) -> Result<(), BoxError> {
            Ok(())
        }
        async fn delete(&self, _: Key, _: Arc<Object<String>>) -> Result<(), BoxError> {
            Ok(())
        }
        async fn background(&self, context: Context<String>) -> Result<(), BoxError> {
            self.0.lock().push("started".to_owned());
            context.stop().cancelled().await;
            tokio::time::sleep(ms(500)).await;
            self.0.lock().push("stopped".to_owned());
            Ok(())
        }
    }
    let log = Log::default();
    let closer = test_run(Backgrounder(Arc::clone(&log)), MemoryStore::new().shared());
    settle().await;
    assert_eq!(take(&log), ["started"]);
    closer.close().await;
    assert_eq!(take(&log), ["stopped"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_called_after_close() {
    let (store, log) = (MemoryStore::new(), Log::default());
    let closer = test_run(logging(&log, 0), store.shared());
    settle().await;
    closer.close().await;
    put(&store, "/t/foo", "late").await;
    settle().await;
    assert_eq!(take(&log), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn has_synced_turns_true_with_the_first_list() {
    let (store, log) = (MemoryStore::new(), Log::default());
    store.cut();
    let closer = test_run(logging(&log, 0), store.shared());
    let status = closer.status().clone();
    settle().await;
    assert!(!status.has_synced() && status.last_sync_revision().is_none());
    store.reconnect();
    tokio::time::sleep(ms(1000)).await;
    assert!(status.has_synced());
    let revision = put(&store, "/t/foo", "x").await;
    settle().await;
    assert_eq!(status.last_sync_revision(), Some(revision));
    assert_eq!(status.cache().unwrap().list().len(), 1);
    closer.close().await;
    assert!(!status.has_synced());
}
