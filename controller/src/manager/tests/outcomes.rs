//! The outcomes of a reconciler and when the key is reconciled next.

use super::*;

/// A controller of `/t/` whose n-th run returns `answer(n)`.
fn answering(
    log: &Log,
    answer: impl Fn(usize) -> Result<Outcome, BoxError> + Send + Sync + 'static,
) -> ControllerBuilder<String> {
    let (log, count, answer) = (log.clone(), AtomicUsize::new(0), Arc::new(answer));
    Controller::for_type(&texts("t")).with_reconciler(move |_: Context<String>, key: Key| {
        let (log, answer) = (log.clone(), Arc::clone(&answer));
        let run = count.fetch_add(1, Ordering::Relaxed);
        async move {
            log.add(key.as_ref());
            answer(run)
        }
    })
}

async fn times(
    builder: impl FnOnce(&Log) -> ControllerBuilder<String>,
    duration: Duration,
) -> Vec<u128> {
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let log = Log::new();
    let running = run(&store, builder(&log));
    tokio::time::sleep(duration).await;
    running.stop().await;
    log.timed().into_iter().map(|(at, _)| at).collect()
}

#[tokio::test(start_paused = true)]
async fn error_is_retried_with_back_off_until_it_is_well() {
    let answer = |run| {
        if run < 4 {
            Err("not yet".into())
        } else {
            Ok(Outcome::Done)
        }
    };
    assert_eq!(
        times(|log| answering(log, answer), ms(1000)).await,
        [0, 5, 15, 35, 75]
    );
}

#[tokio::test(start_paused = true)]
async fn panic_is_retried_as_error_is() {
    let answer = |run| {
        assert!(run > 1, "test error");
        Ok(Outcome::Done)
    };
    assert_eq!(
        times(|log| answering(log, answer), ms(1000)).await,
        [0, 5, 15]
    );
}

#[tokio::test(start_paused = true)]
async fn panic_before_first_await_is_error_too() {
    let count = AtomicUsize::new(0);
    let log = Log::new();
    let inner = log.clone();
    let builder =
        Controller::for_type(&texts("t")).with_reconciler(move |_: Context<String>, key: Key| {
            inner.add(key.as_ref());
            assert!(count.fetch_add(1, Ordering::Relaxed) > 0, "test error");
            async { Ok(Outcome::Done) }
        });
    let store = MemoryStore::new();
    put(&store, "/t/1", "a").await;
    let running = run(&store, builder);
    settle().await;
    assert_eq!(log.take().len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn requeue_after_second_is_not_before_750_ms() {
    let answer = |run| {
        Ok(if run == 0 {
            Outcome::RequeueAfter(Duration::from_secs(1))
        } else {
            Outcome::Done
        })
    };
    let times = times(|log| answering(log, answer), Duration::from_secs(10)).await;
    assert_eq!(times, [0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn requeue_error_is_a_requeue_and_no_failure() {
    let at = times(
        |log| {
            answering(log, |run| match run {
                0..=6 => Err(RequeueAfterError(ms(100)).into()),
                7 => Err(RequeueAfterError(Duration::ZERO).into()),
                _ => Ok(Outcome::Done),
            })
            .with_retry_budget(1)
        },
        ms(2_000),
    );
    assert_eq!(at.await, [0, 100, 200, 300, 400, 500, 600, 700, 700]);
}

#[tokio::test(start_paused = true)]
async fn requeue_now_is_at_once() {
    let answer = |run| {
        Ok(if run < 3 {
            Outcome::RequeueNow
        } else {
            Outcome::Done
        })
    };
    assert_eq!(
        times(|log| answering(log, answer), Duration::from_secs(10)).await,
        [0, 0, 0, 0]
    );
}

#[tokio::test(start_paused = true)]
async fn success_forgets_failures_before_it() {
    let answer = |run| match run {
        0 | 1 | 3 => Err("fails".into()),
        2 => Ok(Outcome::RequeueAfter(ms(985))),
        _ => Ok(Outcome::Done),
    };
    assert_eq!(
        times(|log| answering(log, answer), Duration::from_secs(10)).await,
        [0, 5, 15, 1000, 1005]
    );
}

#[tokio::test(start_paused = true)]
async fn retry_budget_of_5_is_6_runs_and_resync_heals_dropped_key() {
    let builder = |log: &Log| {
        let answer = |run| {
            if run < 6 {
                Err("fails".into())
            } else {
                Ok(Outcome::Done)
            }
        };
        answering(log, answer)
            .with_retry_budget(5)
            .with_resync(Some(Duration::from_secs(100)))
    };
    let times = times(builder, Duration::from_secs(101)).await;
    assert_eq!(times[..6], [0, 5, 15, 35, 75, 155]);
    let [resynced] = times[6..] else {
        panic!("{times:?}")
    };
    assert!((80_155..=100_155).contains(&resynced), "{resynced}");
}

#[tokio::test(start_paused = true)]
async fn dropped_key_without_resync_waits_for_the_next_change() {
    let answer = |_| Err("fails".into());
    let builder = |log: &Log| {
        answering(log, answer)
            .with_retry_budget(2)
            .with_resync(None)
    };
    assert_eq!(
        times(builder, Duration::from_secs(1_000_000)).await,
        [0, 5, 15]
    );
}

#[tokio::test(start_paused = true)]
async fn object_is_resynced_after_jittered_interval_again_and_again() {
    let builder = |log: &Log| {
        answering(log, |_| Ok(Outcome::Done)).with_resync(Some(Duration::from_secs(1000)))
    };
    let times = times(builder, Duration::from_secs(3000)).await;
    assert!((3..=4).contains(&times.len()), "{times:?}");
    for pair in times.windows(2) {
        let pause = pair[1] - pair[0];
        assert!((800_000..=1_000_000).contains(&pause), "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn error_does_not_lead_to_second_resync() {
    let answer = |run| {
        if run == 0 {
            Err("fails".into())
        } else {
            Ok(Outcome::Done)
        }
    };
    let builder = |log: &Log| answering(log, answer).with_resync(Some(Duration::from_secs(1000)));
    let times = times(builder, Duration::from_secs(1100)).await;
    assert_eq!(times[..2], [0, 5]);
    assert_eq!(times.len(), 3, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn deleted_object_is_not_resynced() {
    let (store, log) = (MemoryStore::new(), Log::new());
    put(&store, "/t/1", "a").await;
    let running = run(
        &store,
        logging(&log).with_resync(Some(Duration::from_secs(1000))),
    );
    settle().await;
    delete(&store, "/t/1").await;
    tokio::time::sleep(Duration::from_secs(5000)).await;
    assert_eq!(log.take(), ["/t/1 a", "/t/1 -"]);
    running.stop().await;
}
