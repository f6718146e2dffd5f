//! The background task and the callbacks for start and stop.

use super::*;

#[tokio::test(start_paused = true)]
async fn background_task_starts_before_the_first_list_and_is_awaited() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    store.cut();
    let builder = logging(&log)
        .with_background({
            let log = log.clone();
            move |context: Context<String>| {
                let log = log.clone();
                async move {
                    log.add(format!("background {}", context.cache().has_synced()));
                    context.stop().cancelled().await;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    log.add("background ends");
                    Ok(())
                }
            }
        })
        .on_stop({
            let log = log.clone();
            move || log.add("stopped")
        });
    let running = run(&store, builder);
    settle().await;
    assert_eq!(log.take(), ["background false"]);
    store.reconnect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(log.take(), ["/t/1 a"]);
    running.stop().await;
    assert_eq!(log.take(), ["background ends", "stopped"]);
}

#[tokio::test(start_paused = true)]
async fn background_task_failure_restarts_all() {
    for (fails, expected) in [
        (false, vec!["background", "/t/1 a"]),
        (true, vec!["background", "background", "/t/1 a"]),
    ] {
        let (store, log) = (MemoryStore::new(), Log::new());
        put(&store, "/t/1", "a").await;
        let count = AtomicUsize::new(0);
        let builder = logging(&log).with_background({
            let log = log.clone();
            move |_| {
                log.add("background");
                let fails = fails && count.fetch_add(1, Ordering::Relaxed) == 0;
                async move { if fails { Err("fails".into()) } else { Ok(()) } }
            }
        });
        let running = run(&store, builder);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(log.take(), expected);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn start_and_stop_callbacks_are_called_each_time() {
    let log = Log::new();
    let (on_start, on_stop) = (log.clone(), log.clone());
    let builder = logging(&log)
        .on_start(move || on_start.add("start"))
        .on_stop(move || on_stop.add("stop"));
    let running = run(&MemoryStore::new(), builder);
    settle().await;
    running.holder.revoke();
    settle().await;
    assert_eq!(log.take(), ["start", "stop"]);
    running.holder.grant();
    settle().await;
    running.stop().await;
    assert_eq!(log.take(), ["start", "stop"]);
}

#[tokio::test(start_paused = true)]
async fn panic_outside_reconciler_starts_everything_again() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let count = AtomicUsize::new(0);
    let builder = logging(&log)
        .on_start(move || assert!(count.fetch_add(1, Ordering::Relaxed) > 0, "test error"));
    let running = run(&store, builder);
    settle().await;
    assert_eq!(log.take(), Vec::<String>::new());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(log.take(), ["/t/1 a"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn background_task_that_does_not_end_is_dropped_after_the_grace() {
    struct OnDrop(Log);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.add("dropped");
        }
    }
    let (store, log) = (MemoryStore::new(), Log::new());
    let builder = logging(&log).with_background({
        let log = log.clone();
        move |_: Context<String>| {
            let guard = OnDrop(log.clone());
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        }
    });
    let running = run(&store, builder);
    settle().await;
    let end = (log.start.elapsed() + STOP_GRACE_PERIOD).as_millis();
    running.stop().await;
    assert_eq!(log.timed(), [(end, "dropped".to_owned())]);
}

/// Log messages of the reconciler, a mapper, the background task and the initializer have the fields of the span.
#[tokio::test(start_paused = true)]
async fn everything_runs_in_the_span_of_the_controller() {
    let _guard = tracing::subscriber::set_default(
        tracing_subscriber::fmt()
            .with_writer(std::io::sink)
            .finish(),
    );
    let note = |log: &Log, what: &str| {
        let span = tracing::Span::current()
            .metadata()
            .map_or("none", |metadata| metadata.name());
        log.add(format!("{what} in {span}"));
    };
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    put(&store, "/w/1", "a").await;
    let logs = [(); 3].map(|()| log.clone());
    let [reconciling, mapping, background] = logs;
    let builder = Controller::for_type(&texts("t"))
        .with_span(tracing::info_span!("demo"))
        .with_watch(
            &texts("w"),
            crate::Mapper::of(move |_| {
                note(&mapping, "mapper");
                Vec::new()
            }),
        )
        .with_background(move |_: Context<String>| {
            note(&background, "background");
            async { Ok(()) }
        })
        .with_reconciler(move |_: Context<String>, _: Key| {
            note(&reconciling, "reconciler");
            async { Ok(Outcome::Done) }
        });
    let running = run(&store, builder);
    settle().await;
    put(&store, "/w/1", "b").await;
    settle().await;
    let mut lines = log.take();
    lines.sort();
    lines.dedup();
    assert_eq!(
        lines,
        ["background in demo", "mapper in demo", "reconciler in demo"]
    );
    running.stop().await;
}
