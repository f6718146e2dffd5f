//! Stopping: work in progress and waiting keys may finish within the grace period.

use super::*;

fn slow(log: &Log, duration: Duration) -> ControllerBuilder<String> {
    let log = log.clone();
    Controller::for_type(&texts("t")).with_reconciler(move |_: Context<String>, key: Key| {
        let log = log.clone();
        async move {
            log.add(format!("{key} begins"));
            tokio::time::sleep(duration).await;
            log.add(format!("{key} ends"));
            Ok(Outcome::Done)
        }
    })
}

#[tokio::test(start_paused = true)]
async fn stop_drains_waiting_keys_before_the_end() {
    let (store, log) = (MemoryStore::new(), Log::new());
    for key in ["/t/1", "/t/2", "/t/3"] {
        put(&store, key, "a").await;
    }
    let running = run(
        &store,
        slow(&log, Duration::from_secs(4)).with_concurrency(2),
    );
    settle().await;
    running.stop().await;
    let ends: Vec<_> = log
        .take()
        .into_iter()
        .filter(|line| line.ends_with("ends"))
        .collect();
    assert_eq!(ends, ["/t/1 ends", "/t/2 ends", "/t/3 ends"]);
}

#[tokio::test(start_paused = true)]
async fn drain_is_bounded_by_the_grace_period() {
    let (store, log) = (MemoryStore::new(), Log::new());
    for key in ["/t/1", "/t/2", "/t/3", "/t/4"] {
        put(&store, key, "a").await;
    }
    let running = run(&store, slow(&log, Duration::from_secs(4)));
    settle().await;
    let start = Instant::now();
    running.stop().await;
    assert_eq!(start.elapsed(), STOP_GRACE_PERIOD);
    assert_eq!(
        log.take(),
        [
            "/t/1 begins",
            "/t/1 ends",
            "/t/2 begins",
            "/t/2 ends",
            "/t/3 begins"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn drain_neither_retries_nor_waits_for_delayed_keys() {
    let (store, log) = (MemoryStore::new(), Log::new());
    for key in ["/t/1", "/t/2"] {
        put(&store, key, "a").await;
    }
    let failing = log.clone();
    let builder =
        Controller::for_type(&texts("t")).with_reconciler(move |_: Context<String>, key: Key| {
            let log = failing.clone();
            async move {
                log.add(format!("{key} fails"));
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err("test error".into())
            }
        });
    let running = run(&store, builder);
    settle().await;
    let start = Instant::now();
    running.stop().await;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(log.take(), ["/t/1 fails", "/t/2 fails"]);
}

#[tokio::test(start_paused = true)]
async fn lost_lease_drops_waiting_keys() {
    let (store, log) = (MemoryStore::new(), Log::new());
    for key in ["/t/1", "/t/2"] {
        put(&store, key, "a").await;
    }
    let running = run(&store, slow(&log, Duration::from_secs(4)));
    settle().await;
    running.holder.revoke();
    settle().await;
    running.stop().await;
    assert_eq!(log.take(), ["/t/1 begins"]);
}

/// A key whose reconciler waits for the cache while the queue is drained.
#[tokio::test(start_paused = true)]
async fn drain_lets_reconcilers_see_their_own_writes() {
    let (store, log) = (MemoryStore::new(), Log::new());
    for key in ["/t/1", "/t/2"] {
        put(&store, key, "a").await;
    }
    let (seen, writes) = (log.clone(), store.clone());
    let builder = Controller::for_type(&texts("t")).with_reconciler(
        move |context: Context<String>, key: Key| {
            let (log, store) = (seen.clone(), writes.clone());
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let revision = put(&store, "/t/3", &key).await;
                context.cache().wait_for_revision(revision).await?;
                log.add(format!("{key} saw its write"));
                Ok(Outcome::Done)
            }
        },
    );
    let running = run(&store, builder);
    settle().await;
    running.stop().await;
    assert_eq!(
        log.take()[..2],
        ["/t/1 saw its write", "/t/2 saw its write"]
    );
}

#[tokio::test(start_paused = true)]
async fn stop_drops_work_that_outlasts_the_grace_period() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let running = run(&store, slow(&log, Duration::from_secs(3600)));
    settle().await;
    let start = Instant::now();
    running.stop().await;
    assert_eq!(start.elapsed(), STOP_GRACE_PERIOD);
    assert_eq!(log.take(), ["/t/1 begins"]);
}

#[tokio::test(start_paused = true)]
async fn manager_stops_controllers_in_every_wait() {
    let store = MemoryStore::new();
    store.cut();
    let log = Log::new();
    let fails = |log: &Log| logging(log).with_background(|_| async { Err("fails".into()) });
    for builder in [logging(&log), fails(&log)] {
        let running = run(&store, builder);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let start = Instant::now();
        running.stop().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    let running = run_without_lease(&store, logging(&log));
    running.stop().await;
}
