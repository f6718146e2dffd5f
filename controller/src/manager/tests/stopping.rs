//! Stopping: work in progress may finish within the grace period.

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
async fn stop_finishes_running_work_and_drops_waiting_work() {
    let (store, log) = (MemoryStore::new(), Log::new());
    for key in ["/t/1", "/t/2", "/t/3"] {
        put(&store, key, "a").await;
    }
    let running = run(&store, slow(&log, Duration::from_secs(5)).with_concurrency(2));
    settle().await;
    running.stop().await;
    assert_eq!(log.take(), ["/t/1 begins", "/t/2 begins", "/t/1 ends", "/t/2 ends"]);
}

#[tokio::test(start_paused = true)]
async fn stop_drops_work_that_outlasts_the_grace_period() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let running = run(&store, slow(&log, Duration::from_secs(3600)));
    settle().await;
    let start = Instant::now();
    running.stop().await;
    assert_eq!(start.elapsed(), STOP_GRACE);
    assert_eq!(log.take(), ["/t/1 begins"]);
}

#[tokio::test(start_paused = true)]
async fn manager_stops_controllers_in_every_wait() {
    let store = MemoryStore::new();
    store.cut();
    let log = Log::new();
    let hangs = |log: &Log| logging(log).with_initializer(|_| std::future::pending());
    let fails = |log: &Log| logging(log).with_initializer(|_| async { Err("fails".into()) });
    for builder in [logging(&log), hangs(&log), fails(&log)] {
        let running = run(&store, builder);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let start = Instant::now();
        running.stop().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    let running = run_without_lease(&store, logging(&log));
    running.stop().await;
}
