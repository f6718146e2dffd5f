//! The progress that is reported to a watchdog.

use super::*;

#[tokio::test(start_paused = true)]
async fn idle_or_working_controllers_are_no_stall() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let mut manager = Manager::new(store.shared(), Lease::always_leader());
    manager.register(logging(&log).build().unwrap()).unwrap();
    let progress = manager.progress();
    let silent = Stall::Silent("controller t".to_owned());
    assert_eq!(progress.stall().await, Some(silent.clone()));
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    settle().await;
    assert_eq!(progress.stall().await, None);
    put(&store, "/t/1", "a").await;
    assert_eq!(progress.stall().await, None);
    stop.cancel();
    running.await.unwrap();
    assert_eq!(progress.stall().await, Some(silent));
}

#[tokio::test(start_paused = true)]
async fn reconciler_that_hangs_is_stall_after_five_minutes_and_named() {
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let hangs = Controller::for_type(&texts("t")).with_reconciler(|_: Context<String>, _: Key| {
        std::future::pending::<Result<Outcome, BoxError>>()
    });
    let mut manager = Manager::new(store.shared(), Lease::always_leader());
    manager.register(hangs.build().unwrap()).unwrap();
    let progress = manager.progress();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(progress.stall().await, None);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let said = progress.stall().await.map(|stall| stall.to_string());
    assert_eq!(
        said.as_deref(),
        Some("controller t has been working on one object for 302 s")
    );
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_task_that_ends_or_is_blocked_is_named() {
    let (probe, reporter) = liveness_channel();
    let progress = Progress::new(Vec::new(), Queues::default()).with("the election", probe);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let blocked = reporter.report_while(ended);
    let silent = Stall::Silent("the election".to_owned());
    // A task that is never polled looks like one whose thread is blocked.
    assert_eq!(progress.stall().await, Some(silent.clone()));
    let task = tokio::spawn(blocked);
    assert_eq!(progress.stall().await, None);
    end.send(()).unwrap();
    task.await.unwrap().unwrap();
    assert_eq!(progress.stall().await, Some(silent));
}
