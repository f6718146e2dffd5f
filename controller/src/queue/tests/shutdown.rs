//! The two ways to end a queue: draining, and immediate shutdown.

use super::*;

#[tokio::test(start_paused = true)]
async fn immediate_shutdown_drops_waiting_keys_and_refuses_new_ones() {
    let queue = WorkQueue::new("test");
    queue.add("a");
    let work = queue.get().await.unwrap();
    for key in ["a", "b"] {
        queue.add(key);
    }
    queue.add_after("c", ms(1));
    queue.shut_down();
    queue.add("d");
    drop(work);
    assert!(queue.get().await.is_none());
    assert_eq!((queue.len(), queue.delayed()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn shutdown_wakes_every_waiting_worker() {
    let queue = WorkQueue::<&str>::new("test");
    queue.add_after("later", ms(1000));
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    tokio::time::sleep(ms(1)).await;
    queue.shut_down();
    for worker in workers {
        assert!(worker.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn drain_hands_out_waiting_keys_and_returns_when_all_are_done() {
    let queue = WorkQueue::new("test");
    for key in ["a", "b"] {
        queue.add(key);
    }
    queue.add_after("later", ms(1));
    let work = queue.get().await.unwrap();
    queue.add("a");
    let draining = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.drain().await })
    };
    tokio::time::sleep(ms(10)).await;
    queue.add("c");
    assert!(!draining.is_finished());
    drop(work);
    let rest = [queue.get().await.unwrap(), queue.get().await.unwrap()];
    assert_eq!(rest.each_ref().map(|work| **work), ["b", "a"]);
    tokio::time::sleep(ms(10)).await;
    assert!(
        !draining.is_finished(),
        "the last two are still being worked on"
    );
    drop(rest);
    draining.await.unwrap();
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn drain_does_not_wait_for_delayed_keys() {
    let queue = WorkQueue::new("test");
    queue.add_after("later", Duration::from_secs(1));
    let start = Instant::now();
    queue.drain().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn immediate_shutdown_ends_a_drain() {
    let queue = WorkQueue::new("test");
    for key in ["a", "b"] {
        queue.add(key);
    }
    let work = queue.get().await.unwrap();
    let draining = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.drain().await })
    };
    tokio::time::sleep(ms(1)).await;
    queue.shut_down();
    drop(work);
    draining.await.unwrap();
    assert!(queue.get().await.is_none());
}
