//! Placement of controllers, and their behaviour when the lease is won and lost.

use futures::{FutureExt, future::BoxFuture};

use super::*;

#[tokio::test(start_paused = true)]
async fn singleton_runs_only_while_lease_is_held() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let running = run_without_lease(&store, logging(&log));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(log.take(), Vec::<String>::new());
    running.holder.grant();
    settle().await;
    assert_eq!(log.take(), ["/t/1 a"]);
    running.holder.revoke();
    settle().await;
    put(&store, "/t/2", "without a leader").await;
    delete(&store, "/t/1").await;
    settle().await;
    assert_eq!(log.take(), Vec::<String>::new());
    running.holder.grant();
    settle().await;
    assert_eq!(log.take(), ["/t/2 without a leader"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn controller_on_each_node_needs_no_lease() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let running = run_without_lease(&store, logging(&log).with_placement(Placement::EachNode));
    settle().await;
    assert_eq!(log.take(), ["/t/1 a"]);
    running.stop().await;
}

/// In consul the old task can end after the new one has begun.
#[tokio::test(start_paused = true)]
async fn old_run_ends_before_a_new_one_starts() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let builder = logging(&log).with_background({
        let log = log.clone();
        let number = AtomicUsize::new(0);
        move |_| {
            let number = number.fetch_add(1, Ordering::Relaxed);
            log.add(format!("begin {number}"));
            let guard = OnDrop(log.clone(), format!("end {number}"));
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        }
    });
    let running = run(&store, builder);
    settle().await;
    for _ in 0..2 {
        running.holder.revoke();
        running.holder.grant();
        settle().await;
    }
    running.stop().await;
    assert_eq!(
        log.take(),
        ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]
    );
}

struct OnDrop(Log, String);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add(self.1.as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn lease_lost_during_a_run_resets_the_backoff() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let (start, runs) = (log.clone(), AtomicUsize::new(0));
    // The first runs fail at once, so the pauses grow; the eighth goes on; and later ones fail again.
    let builder = logging(&log).with_background(move |_| {
        start.add("begins");
        let run = runs.fetch_add(1, Ordering::Relaxed);
        async move {
            if run == 7 {
                std::future::pending::<()>().await;
            }
            Err("fails".into())
        }
    });
    let running = run(&store, builder);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(log.take().len(), 8);
    running.holder.revoke();
    settle().await;
    running.holder.grant();
    tokio::time::sleep(ms(1500)).await;
    assert!(log.take().len() > 1, "after the first pause");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_lease_drops_running_work_and_resets_the_backoff() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let builder = Controller::for_type(&texts("t")).with_reconciler({
        let log = log.clone();
        move |_: Context<String>, _: Key| {
            let log = log.clone();
            async move {
                log.add("begins");
                tokio::time::sleep(Duration::from_secs(60)).await;
                log.add("ends");
                Ok(Outcome::Done)
            }
        }
    });
    let running = run(&store, builder);
    settle().await;
    running.holder.revoke();
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(log.take(), ["begins"]);
    running.stop().await;

    // Each run fails at once, so the pauses grow until the lease is lost.
    let log = Log::new();
    let start = log.clone();
    let builder = logging(&log).with_background(move |_| {
        start.add("begins");
        async { Err("fails".into()) }
    });
    let running = run(&store, builder);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let before = log.timed().len();
    assert!((7..=9).contains(&before), "{before}");
    running.holder.revoke();
    settle().await;
    running.holder.grant();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(log.timed().len() >= 3, "the pauses are short again");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn writer_of_run_is_fenced_by_lease_under_which_it_began() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let create_revision = put(&store, "/lease", "me").await;
    put(&store, "/t/1", "todo").await;
    let builder = Controller::for_type(&texts("t")).with_reconciler({
        let log = log.clone();
        move |context: Context<String>, key: Key| {
            let log = log.clone();
            async move {
                let object = context.cache().get(&key).ok_or("gone")?;
                if object.value == "todo" {
                    match context.writer().update(&object, "done").await {
                        Ok(()) => log.add("written"),
                        Err(error) => log.add(error.to_string()),
                    }
                }
                Ok(Outcome::Done)
            }
        }
    });
    let running = run_without_lease(&store, builder);
    running.holder.grant_with(crate::Fence {
        key: "/lease".to_owned(),
        create_revision,
    });
    settle().await;
    assert_eq!(log.take(), ["written"]);
    delete(&store, "/lease").await;
    put(&store, "/t/1", "todo").await;
    settle().await;
    assert_eq!(
        log.take(),
        ["another one holds /lease now; nothing was written"]
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn warm_standby_resumes_without_listing_again() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let owners = texts("o");
    let builder = logging(&log)
        .with_watch(
            &owners,
            crate::Mapper::map_owner(|owned: &String| Some(owned.as_str().into())),
        )
        .with_warm_standby();
    put(&store, "/t/1", "old").await;
    let running = run_without_lease(&store, builder);
    settle().await;
    put(&store, "/t/1", "new").await;
    put(&store, "/t/2", "while it waited").await;
    put(&store, "/o/1", "/t/3").await;
    settle().await;
    assert_eq!(
        log.take(),
        Vec::<String>::new(),
        "it may not reconcile without the lease"
    );
    // A controller that had to list now could not start.
    store.cut();
    running.holder.grant();
    settle().await;
    let mut lines = log.take();
    lines.sort();
    assert_eq!(lines, ["/t/1 new", "/t/2 while it waited", "/t/3 -"]);
    running.stop().await;
}

/// Counts as a standby, and logs the count when it starts.
struct Counting {
    log: Log,
    count: usize,
}

/// Prepares runs that count from zero.
struct CountingFrom(Log);

impl crate::Runnable for CountingFrom {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn prepare(self: Arc<Self>, _: &Arc<dyn Store>) -> Box<dyn crate::Run> {
        Box::new(Counting {
            log: self.0.clone(),
            count: 0,
        })
    }
}

impl crate::Run for Counting {
    fn warm_up(&mut self) -> BoxFuture<'_, BoxError> {
        async move {
            while self.count < 3 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.count += 1;
            }
            std::future::pending().await
        }
        .boxed()
    }

    fn start(self: Box<Self>, setup: crate::Setup) -> BoxFuture<'static, Result<(), BoxError>> {
        async move {
            self.log.add(format!("continues from {}", self.count));
            if self.count == 0 {
                return Err("fails".into());
            }
            setup.stop.cancelled().await;
            self.log.add("stopped");
            Ok(())
        }
        .boxed()
    }
}

/// Ignores requests to stop.
struct NeverStops(Log);

impl crate::Runnable for NeverStops {
    fn name(&self) -> &'static str {
        "never-stops"
    }

    fn prepare(self: Arc<Self>, _: &Arc<dyn Store>) -> Box<dyn crate::Run> {
        Box::new(NeverStops(self.0.clone()))
    }
}

struct Dropped(Log);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add("dropped");
    }
}

impl crate::Run for NeverStops {
    fn start(self: Box<Self>, _: crate::Setup) -> BoxFuture<'static, Result<(), BoxError>> {
        async move {
            self.0.add("started");
            let _dropped = Dropped(self.0.clone());
            std::future::pending().await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn runnable_that_does_not_stop_is_dropped() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let (holder, lease) = Lease::manual();
    let mut manager = Manager::new(store.shared(), lease).with_grace_period(Duration::from_secs(5));
    manager.register(NeverStops(log.clone())).unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(manager.run(stop.clone()));
    holder.grant();
    settle().await;
    holder.revoke();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        log.timed(),
        [(0, "started".to_owned()), (1100, "dropped".to_owned())]
    );
    holder.grant();
    settle().await;
    stop.cancel();
    task.await.unwrap();
    assert_eq!(
        log.timed(),
        [(2100, "started".to_owned()), (8200, "dropped".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn runnable_keeps_its_preparation_and_restarts_on_failure() {
    let (store, log) = (MemoryStore::new(), Log::new());
    let (holder, lease) = Lease::manual();
    let mut manager = Manager::new(store.shared(), lease);
    manager.register(CountingFrom(log.clone())).unwrap();
    let twice = manager.register(CountingFrom(Log::new()));
    assert_eq!(
        twice,
        Err(ManagerError::DuplicateController {
            name: "counting".to_owned()
        })
    );
    assert!(format!("{manager:?}").contains(r#"registered: ["counting"]"#));
    assert_eq!(manager.validate_dependencies(), Ok(()));
    let stop = CancellationToken::new();
    let task = tokio::spawn(manager.run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        log.take(),
        Vec::<String>::new(),
        "it may not run without the lease"
    );
    holder.grant();
    settle().await;
    assert_eq!(log.take(), ["continues from 3"]);
    // Won again immediately: that run ends, and there was no time to prepare the next one.
    holder.grant();
    settle().await;
    assert_eq!(log.take(), ["stopped", "continues from 0"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Pauses between restarts are random.
    let restarts = log.take();
    assert!(
        !restarts.is_empty() && restarts.iter().all(|line| line == "continues from 0"),
        "{restarts:?}"
    );
    holder.revoke();
    tokio::time::sleep(Duration::from_secs(10)).await;
    holder.grant();
    settle().await;
    stop.cancel();
    task.await.unwrap();
    assert_eq!(log.take(), ["continues from 3", "stopped"]);
}
