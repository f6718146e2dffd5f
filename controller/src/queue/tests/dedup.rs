//! Each key is waiting at most once and never processed by two workers.

use super::*;

#[tokio::test(start_paused = true)]
async fn key_that_waits_is_not_added_again_and_order_is_kept() {
    let queue = WorkQueue::new("test");
    for key in ["b", "a", "b", "c", "a"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(take_ready(&queue).await, ["b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn key_added_during_its_processing_is_processed_afterwards() {
    let queue = WorkQueue::new("test");
    queue.add("a");
    let work = queue.get().await.unwrap();
    queue.add("a");
    queue.add("a");
    assert_eq!(
        take_ready(&queue).await,
        Vec::<&str>::new(),
        "it is being worked on"
    );
    drop(work);
    assert_eq!(
        take_ready(&queue).await,
        ["a"],
        "once, however often it was added meanwhile"
    );
}

#[tokio::test(start_paused = true)]
async fn key_that_is_being_processed_does_not_block_others() {
    let queue = WorkQueue::new("test");
    queue.add("a");
    let work = queue.get().await.unwrap();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    assert_eq!(take_ready(&queue).await, ["b", "c"]);
    drop(work);
    assert_eq!(take_ready(&queue).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn delayed_key_that_is_being_processed_waits_for_its_worker() {
    let queue = WorkQueue::new("test");
    queue.add("a");
    let work = queue.get().await.unwrap();
    queue.add_after("a", ms(10));
    assert!(tokio::time::timeout(ms(50), queue.get()).await.is_err());
    drop(work);
    assert_eq!(schedule(&queue).await, [(0, "a")]);
}

#[tokio::test(start_paused = true)]
async fn key_that_is_due_is_not_scheduled_again() {
    let queue = WorkQueue::new("test");
    queue.add("a");
    let work = queue.get().await.unwrap();
    queue.add_after("a", ms(10));
    assert!(tokio::time::timeout(ms(50), queue.get()).await.is_err());
    queue.add_after("a", ms(10));
    drop(work);
    assert_eq!(schedule(&queue).await, [(0, "a")]);
}

#[tokio::test(start_paused = true)]
async fn key_of_a_panicked_worker_can_be_processed_again() {
    let queue = WorkQueue::new("test");
    queue.add("a");
    let task = {
        let queue = queue.clone();
        tokio::spawn(async move {
            let _work = queue.get().await.unwrap();
            panic!("test error");
        })
    };
    assert!(task.await.is_err());
    queue.add("a");
    assert_eq!(take_ready(&queue).await, ["a"]);
}

/// Consul's queue has payloads, and hands out the first one again. Here it holds only keys, and workers read the object.
#[tokio::test(start_paused = true)]
async fn worker_reads_the_newest_state_after_several_adds() {
    let queue = WorkQueue::new("test");
    let object = Mutex::new(1);
    queue.add("a");
    let first = queue.get().await.unwrap();
    for version in 2..5 {
        *object.lock() = version;
        queue.add("a");
    }
    drop(first);
    let _second = queue.get().await.unwrap();
    assert_eq!(*object.lock(), 4);
    assert!(queue.is_empty());
}

/// Consul's rate limiter changes its counts under a read lock, so that some may be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_failures_are_all_counted() {
    let policy = RetryPolicy {
        bucket: None,
        ..RetryPolicy::default()
    };
    let queue = WorkQueue::with("test", policy, None);
    let reporters: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for _ in 0..250 {
                    queue.retry("a");
                }
            })
        })
        .collect();
    for reporter in reporters {
        reporter.await.unwrap();
    }
    assert_eq!(queue.failures(&"a"), 2000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_workers_and_producers_lose_no_key_and_never_share_one() {
    let queue = WorkQueue::new("test");
    let working = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let seen = Arc::new(Mutex::new(std::collections::BTreeMap::<u32, u32>::new()));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (queue, working, seen) = (queue.clone(), Arc::clone(&working), Arc::clone(&seen));
            tokio::spawn(async move {
                while let Some(work) = queue.get().await {
                    assert!(working.lock().insert(*work), "two workers on {}", *work);
                    tokio::task::yield_now().await;
                    *seen.lock().entry(*work).or_default() += 1;
                    working.lock().remove(&*work);
                }
            })
        })
        .collect();
    for round in 0..20 {
        for key in 0..200 {
            if (round + key) % 3 == 0 {
                queue.add_after(key, ms(u64::from(key % 3)));
            } else {
                queue.add(key);
            }
        }
        tokio::time::sleep(ms(1)).await;
    }
    while queue.delayed() > 0 {
        tokio::time::sleep(ms(1)).await;
    }
    queue.drain().await;
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(seen.lock().len(), 200);
}
