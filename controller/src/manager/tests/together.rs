//! Several workers, keys and controllers, and a store with every kind of fault.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::{Mapper, Write};
use contiv_store::{Operation, Store};
use contiv_store_testing::Faults;

#[tokio::test(start_paused = true)]
async fn no_more_runs_than_concurrency_and_never_two_of_one_key() {
    let store = MemoryStore::new();
    for key in 0..10 {
        put(&store, &format!("/t/{key}"), "a").await;
    }
    let running_now = Arc::new(Mutex::new(Vec::<Key>::new()));
    let most = Arc::new(AtomicUsize::new(0));
    let builder = Controller::for_type(&texts("t"))
        .with_concurrency(3)
        .with_reconciler({
            let (running_now, most) = (Arc::clone(&running_now), Arc::clone(&most));
            move |_: Context<String>, key: Key| {
                let (running_now, most) = (Arc::clone(&running_now), Arc::clone(&most));
                async move {
                    {
                        let mut running_now = running_now.lock();
                        assert!(!running_now.contains(&key), "two runs of {key}");
                        running_now.push(Arc::clone(&key));
                        most.fetch_max(running_now.len(), Ordering::Relaxed);
                    }
                    tokio::time::sleep(ms(50)).await;
                    running_now.lock().retain(|other| *other != key);
                    Ok(Outcome::Done)
                }
            }
        });
    let running = run(&store, builder);
    for round in 0..20 {
        for key in 0..10 {
            put(&store, &format!("/t/{key}"), &round.to_string()).await;
        }
        tokio::time::sleep(ms(17)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(most.load(Ordering::Relaxed), 3);
    assert!(running_now.lock().is_empty());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn changes_while_key_waits_are_one_run() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/0", "slow").await;
    let builder = Controller::for_type(&texts("t")).with_reconciler({
        let log = log.clone();
        move |context: Context<String>, key: Key| {
            let log = log.clone();
            async move {
                let value = context.cache().get(&key).map(|object| object.value.clone());
                log.add(format!("{key} {value:?}"));
                tokio::time::sleep(ms(50)).await;
                Ok(Outcome::Done)
            }
        }
    });
    let running = run(&store, builder);
    tokio::time::sleep(ms(10)).await;
    for value in ["a", "b", "c"] {
        put(&store, "/t/1", value).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(log.take(), [r#"/t/0 Some("slow")"#, r#"/t/1 Some("c")"#]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_every_watched_type_is_listed() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    put(&store, "/w/1", "b").await;
    let watched = texts("w");
    let builder = Controller::for_type(&texts("t"))
        .with_watch(&watched, Mapper::replace_type(&watched, &texts("t")))
        .with_reconciler({
            let log = log.clone();
            move |context: Context<String>, _: Key| {
                log.add(context.cache_of(&watched).unwrap().has_synced().to_string());
                async { Ok(Outcome::Done) }
            }
        });
    let running = run(&store, builder);
    settle().await;
    assert_eq!(
        log.take(),
        ["true"],
        "and what both lists lead to is one run"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failing_controller_does_not_delay_another() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let mut manager = Manager::new(store.shared(), Lease::always_leader());
    let failing = logging(&Log::new())
        .named("failing")
        .with_background(|_| async { Err("fails".into()) });
    manager.register(failing.build().unwrap()).unwrap();
    manager.register(logging(&log).build().unwrap()).unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(manager.run(stop.clone()));
    settle().await;
    assert_eq!(log.take(), ["/t/1 a"]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_controller_counts_under_its_own_name() {
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = WorkQueueMetrics::register(&mut registry);
    let mut manager = Manager::new(store.shared(), Lease::always_leader()).with_metrics(&metrics);
    for name in ["one", "other"] {
        manager
            .register(logging(&Log::new()).named(name).build().unwrap())
            .unwrap();
    }
    let stop = CancellationToken::new();
    let task = tokio::spawn(manager.run(stop.clone()));
    settle().await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for name in ["one", "other"] {
        assert!(
            text.contains(&format!("workqueue_adds_total{{name=\"{name}\"}} 1\n")),
            "{text}"
        );
    }
    stop.cancel();
    task.await.unwrap();
}

/// Copies every text below `/t/` to `/copy/` and deletes the copies of deleted texts.
fn copying() -> ControllerBuilder<String> {
    let copies = texts("copy");
    Controller::for_type(&texts("t"))
        .with_watch(&copies, Mapper::replace_type(&copies, &texts("t")))
        .with_concurrency(3)
        .with_backoff(ms(5), ms(1000))
        .with_reconciler(move |context: Context<String>, key: Key| {
            let copies = copies.clone();
            async move {
                let desired = context.cache().get(&key).map(|object| object.value.clone());
                let copy_key = copies.key(texts("t").name_of(&key).ok_or("not of this type")?);
                let present = context.cache_of(&copies)?.get(&copy_key);
                let write = match (desired, present) {
                    (Some(desired), None) => Write::create(&copy_key, desired),
                    (Some(desired), Some(present)) if present.value != desired => {
                        Write::update(&present, desired)
                    }
                    (None, Some(present)) => Write::delete(&present),
                    _ => return Ok(Outcome::Done),
                };
                context.writer().commit(vec![write]).await?;
                Ok(Outcome::Done)
            }
        })
}

/// No change is lost despite compactions, broken watches, conflicts, lost answers, delays and a lease that is lost and won
/// again.
#[tokio::test(start_paused = true)]
async fn controllers_together_converge_despite_faults() {
    for seed in 0..20 {
        let store = MemoryStore::with_faults(Faults::seeded(seed));
        let mut random = StdRng::seed_from_u64(seed);
        let running = run(&store, copying());
        for step in 0..150 {
            let key = format!("/t/{}", random.random_range(0..6));
            let operation = if random.random_bool(0.4) {
                Operation::Delete { key }
            } else {
                Operation::Put {
                    key,
                    value: step.to_string().into(),
                }
            };
            let _ = running.store.commit(vec![operation]).await;
            match random.random_range(0..40) {
                0 => running.holder.revoke(),
                1..4 => running.holder.grant(),
                4 => running.store.compact(),
                5 => running.store.break_watches(),
                _ => {}
            }
        }
        store.stop_faults();
        running.holder.grant();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let list = async |prefix: &str| -> Vec<(String, String)> {
            let entries = store.list(prefix).await.unwrap().entries.into_iter();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            entries
                .map(|entry| (entry.key.replace(prefix, ""), text(&entry.value)))
                .collect()
        };
        assert_eq!(list("/copy/").await, list("/t/").await, "seed {seed}");
        running.stop().await;
    }
}
