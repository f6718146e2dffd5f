//! The last known state of deleted objects, and objects that cannot be read.

use super::*;

#[tokio::test(start_paused = true)]
async fn last_known_object_is_there_until_its_deletion_was_reconciled() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let failures = Arc::new(AtomicUsize::new(0));
    let builder = Controller::for_type(&texts("t")).with_reconciler({
        let log = log.clone();
        move |context: Context<String>, key: Key| {
            let (log, failures) = (log.clone(), Arc::clone(&failures));
            async move {
                let known = context.last_known(&key).map(|object| object.value.clone());
                log.add(format!("{known:?}"));
                if known.is_some() && failures.fetch_add(1, Ordering::Relaxed) == 0 {
                    return Err("fails once".into());
                }
                Ok(Outcome::Done)
            }
        }
    });
    let running = run(&store, builder);
    settle().await;
    delete(&store, "/t/1").await;
    settle().await;
    assert_eq!(log.take(), ["None", r#"Some("a")"#, r#"Some("a")"#]);
    put(&store, "/t/1", "b").await;
    settle().await;
    assert_eq!(log.take(), ["None"]);
    running.stop().await;
}

/// The reconciler would treat the object as deleted and delete what belongs to it.
#[tokio::test(start_paused = true)]
async fn never_readable_object_is_not_treated_as_deleted() {
    let (store, log) = (MemoryStore::new(), Log::new());
    for key in ["/t/1", "/t/2", "/t/3"] {
        put(&store, key, "!unreadable").await;
    }
    // Another source requests the key too.
    put(&store, "/w/1", "x").await;
    let watched = texts("w");
    let builder =
        logging(&log).with_watch(&watched, crate::Mapper::replace_type(&watched, &texts("t")));
    let running = run(&store, builder);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(log.take(), Vec::<String>::new());
    put(&store, "/t/1", "fixed").await;
    settle().await;
    assert_eq!(log.take(), ["/t/1 fixed"]);
    delete(&store, "/t/2").await;
    settle().await;
    assert_eq!(log.take(), ["/t/2 -"], "now it really is gone");
    store.cut();
    let other = store.another_client();
    delete(&other, "/t/3").await;
    put(&other, "/other", "x").await;
    other.compact();
    store.reconnect();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(log.take(), ["/t/3 -"]);
    running.stop().await;
}
