//! Tests of events that lead to a reconcile.

use tokio::sync::mpsc;

use super::*;
use crate::{Index, Mapper, Object, queue::Debounce};

/// Maps a text to the object that it names.
fn named() -> Mapper<String> {
    Mapper::of(|object| vec![format!("/t/{}", object.value).into()])
}

#[tokio::test(start_paused = true)]
async fn managed_object_is_reconciled_at_start_and_on_each_change() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    put(&store, "/u/1", "of another type").await;
    let running = run(&store, logging(&log));
    settle().await;
    assert_eq!(log.take(), ["/t/1 a"]);
    put(&store, "/t/2", "b").await;
    put(&store, "/t", "not below the prefix").await;
    settle().await;
    assert_eq!(log.take(), ["/t/2 b"]);
    put(&store, "/t/1", "c").await;
    settle().await;
    delete(&store, "/t/1").await;
    settle().await;
    assert_eq!(log.take(), ["/t/1 c", "/t/1 -"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn watched_object_maps_both_its_old_and_its_new_state() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/w/1", "x").await;
    let running = run(&store, logging(&log).with_watch(&texts("w"), named()));
    settle().await;
    assert_eq!(log.take(), ["/t/x -"]);
    put(&store, "/w/1", "y").await;
    settle().await;
    assert_eq!(log.take(), ["/t/x -", "/t/y -"]);
    delete(&store, "/w/1").await;
    settle().await;
    assert_eq!(log.take(), ["/t/y -"]);
    running.stop().await;
}

/// The reconciler would find no such object among its own and take it for deleted.
#[tokio::test(start_paused = true)]
async fn key_of_another_type_from_a_mapper_is_left_out() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let (sender, receiver) = mpsc::channel(1);
    let of_two_types = |name: &str| ["u", "t"].map(|of| texts(of).key(name)).to_vec();
    let builder = logging(&log)
        .with_watch(
            &texts("w"),
            Mapper::of(move |object: &Object<String>| of_two_types(&object.value)),
        )
        .with_custom_watch(receiver, move |_, name: &&str| {
            Ok::<_, BoxError>(of_two_types(name))
        });
    let running = run(&store, builder);
    put(&store, "/w/1", "watched").await;
    sender.send("custom").await.unwrap();
    settle().await;
    let mut lines = log.take();
    lines.sort();
    assert_eq!(lines, ["/t/custom -", "/t/watched -"]);
    running.stop().await;
}

/// Keeping only the first and the last of several states would forget the one in the middle, though an object may have been
/// reconciled because of it.
#[tokio::test(start_paused = true)]
async fn states_in_between_are_mapped_too_while_mapper_fails() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let is_broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let mapper = Mapper::new({
        let is_broken = Arc::clone(&is_broken);
        move |_, object: &Object<String>| {
            if is_broken.load(Ordering::Relaxed) {
                return Err("broken".to_owned());
            }
            Ok(vec![format!("/t/{}", object.value).into()])
        }
    });
    let running = run(&store, logging(&log).with_watch(&texts("w"), mapper));
    settle().await;
    for value in ["first", "between", "last"] {
        put(&store, "/w/1", value).await;
        settle().await;
    }
    delete(&store, "/w/1").await;
    settle().await;
    assert_eq!(log.take(), Vec::<String>::new());
    is_broken.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(log.take(), ["/t/between -", "/t/first -", "/t/last -"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn panicking_mapper_is_retried_and_blocks_no_other() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let calls = Arc::new(AtomicUsize::new(0));
    let mapper = Mapper::of({
        let calls = Arc::clone(&calls);
        move |object: &Object<String>| {
            assert!(
                object.value != "bad" || calls.fetch_add(1, Ordering::Relaxed) >= 3,
                "test error"
            );
            vec![format!("/t/{}", object.value).into()]
        }
    });
    put(&store, "/w/1", "bad").await;
    put(&store, "/w/2", "good").await;
    let running = run(&store, logging(&log).with_watch(&texts("w"), mapper));
    settle().await;
    assert_eq!(log.take(), ["/t/good -", "/t/bad -"]);
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn custom_watch_maps_its_events_also_after_a_restart() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let (sender, receiver) = mpsc::channel(10);
    let failures = AtomicUsize::new(0);
    let builder = logging(&log).with_custom_watch(receiver, move |_, name: &&str| {
        if *name == "retried" && failures.fetch_add(1, Ordering::Relaxed) < 2 {
            return Err("not yet");
        }
        Ok(vec![format!("/t/{name}").into()])
    });
    let running = run(&store, builder);
    settle().await;
    for name in ["a", "retried", "b"] {
        sender.send(name).await.unwrap();
    }
    settle().await;
    assert_eq!(log.take(), ["/t/a -", "/t/b -", "/t/retried -"]);
    running.holder.revoke();
    settle().await;
    sender.send("c").await.unwrap();
    settle().await;
    assert_eq!(log.take(), Vec::<String>::new());
    running.holder.grant();
    settle().await;
    assert_eq!(log.take(), ["/t/c -"]);
    drop(sender);
    put(&store, "/t/d", "d").await;
    settle().await;
    assert_eq!(
        log.take(),
        ["/t/d d"],
        "a source that is gone ends nothing else"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn indexes_are_current_for_reconcilers() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let by_text = Index::single("text", |object: &Object<String>| Some(object.value.clone()));
    let watched = texts("w").with_index(by_text);
    let builder = Controller::for_type(&texts("t"))
        .with_watch(&watched, named())
        .with_reconciler({
            let log = log.clone();
            move |context: Context<String>, key: Key| {
                let (log, watched) = (log.clone(), watched.clone());
                async move {
                    let name = texts("t").name_of(&key).unwrap().to_owned();
                    let named = context.cache_of(&watched)?.by_index("text", &name)?;
                    let named: Vec<&Key> = named.iter().map(|object| &object.key).collect();
                    log.add(format!("{key}: {named:?}"));
                    Ok(Outcome::Done)
                }
            }
        });
    put(&store, "/w/1", "x").await;
    put(&store, "/w/2", "x").await;
    put(&store, "/t/x", "").await;
    let running = run(&store, builder);
    settle().await;
    assert_eq!(log.take(), [r#"/t/x: ["/w/1", "/w/2"]"#]);
    put(&store, "/w/3", "x").await;
    settle().await;
    assert_eq!(
        log.take(),
        [r#"/t/x: ["/w/1", "/w/2", "/w/3"]"#],
        "the index is current when the watch is mapped"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn changes_are_reconciled_after_quiet_period() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let debounce = Debounce {
        quiet: Duration::from_secs(1),
        max_delay: Duration::from_secs(5),
    };
    let running = run(&store, logging(&log).with_debounce(debounce));
    tokio::time::sleep(ms(100)).await;
    for i in 0..4 {
        put(&store, "/t/1", &i.to_string()).await;
        tokio::time::sleep(ms(500)).await;
    }
    tokio::time::sleep(ms(2000)).await;
    assert_eq!(log.timed(), [(2600, "/t/1 3".to_owned())]);
    running.stop().await;
}
