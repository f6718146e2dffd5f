//! Delayed keys.

use super::*;

#[tokio::test(start_paused = true)]
async fn delayed_key_wakes_its_worker_on_schedule() {
    let queue = WorkQueue::new("test");
    queue.add_after("c", ms(30));
    queue.add_after("a", ms(10));
    queue.add_after("b", ms(20));
    assert_eq!((queue.len(), queue.delayed()), (0, 3));
    assert_eq!(schedule(&queue).await, [(10, "a"), (20, "b"), (30, "c")]);
}

#[tokio::test(start_paused = true)]
async fn key_that_is_added_earlier_than_those_waited_for_comes_first() {
    let queue = WorkQueue::new("test");
    queue.add_after("late", ms(1000));
    let start = Instant::now();
    let waiting = {
        let queue = queue.clone();
        tokio::spawn(async move { *queue.get().await.unwrap() })
    };
    tokio::time::sleep(ms(10)).await;
    queue.add_after("early", ms(5));
    assert_eq!(waiting.await.unwrap(), "early");
    assert_eq!(start.elapsed(), ms(15));
}

#[tokio::test(start_paused = true)]
async fn deduplication_keeps_earlier_time() {
    let queue = WorkQueue::new("test");
    queue.add_after("a", ms(10));
    queue.add_after("a", ms(50));
    queue.add_after("b", ms(50));
    queue.add_after("b", ms(20));
    assert_eq!(schedule(&queue).await, [(10, "a"), (20, "b")]);
}

/// In consul a deferred entry survives an immediate one, and the key is processed twice.
#[tokio::test(start_paused = true)]
async fn now_is_earlier_than_any_delay() {
    let queue = WorkQueue::new("test");
    queue.add_after("a", ms(10));
    queue.add("a");
    queue.add_after("a", ms(10));
    assert_eq!(schedule(&queue).await, [(0, "a")]);
}

#[tokio::test(start_paused = true)]
async fn no_delay_is_now() {
    let queue = WorkQueue::new("test");
    queue.add_after("a", Duration::ZERO);
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn delay_without_end_is_half_year_and_overflows_nothing() {
    let queue = WorkQueue::new("test");
    queue.add_after("a", Duration::MAX);
    queue.add_debounced(
        "c",
        Debounce {
            quiet: Duration::MAX,
            max_delay: Duration::MAX,
        },
    );
    let start = Instant::now();
    assert!(queue.get().await.is_some());
    assert_eq!(start.elapsed().as_secs(), 180 * 24 * 60 * 60);
}

#[tokio::test(start_paused = true)]
async fn retries_come_after_their_back_off_and_end_with_budget() {
    let policy = RetryPolicy {
        budget: Some(5),
        ..RetryPolicy::default()
    };
    let queue = WorkQueue::with("test", policy, None);
    queue.add("a");
    let start = Instant::now();
    let mut attempts = Vec::new();
    loop {
        let work = queue.get().await.unwrap();
        attempts.push(start.elapsed().as_millis());
        if queue.retry(*work) == Retry::Dropped {
            break;
        }
    }
    // Tokio's clock counts whole milliseconds.
    assert_eq!(attempts, [0, 5, 15, 35, 75, 155]);
    assert_eq!(schedule(&queue).await, []);
    queue.add("a");
    assert_eq!(
        take_ready(&queue).await,
        ["a"],
        "an added key is handed out again after its failures"
    );
}

#[tokio::test(start_paused = true)]
async fn many_more_delayed_keys_than_workers_never_deadlock() {
    let queue = WorkQueue::new("test");
    for key in 0..1000 {
        queue.add_after(key, ms(key % 7));
    }
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut count = 0;
                while let Some(work) = queue.get().await {
                    count += 1;
                    if count % 2 == 0 {
                        queue.add_after(*work + 1000, ms(3));
                    }
                    if count == 300 {
                        return count;
                    }
                }
                count
            })
        })
        .collect();
    for worker in workers {
        assert_eq!(worker.await.unwrap(), 300);
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_get_loses_no_due_key() {
    let queue = WorkQueue::new("test");
    let waiting = |limit| {
        let queue = queue.clone();
        tokio::spawn(async move {
            tokio::time::timeout(limit, queue.get())
                .await
                .ok()
                .flatten()
                .map(|work| *work)
        })
    };
    // Both wait for any key; the first is the one that is notified of the delayed key.
    let (gone, stays) = (waiting(ms(5)), waiting(ms(1000)));
    tokio::time::sleep(ms(1)).await;
    queue.add_after("a", ms(20));
    assert_eq!(gone.await.unwrap(), None);
    assert_eq!(stays.await.unwrap(), Some("a"));
}
