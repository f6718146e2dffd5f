//! The quiet period and its limit, with the scenarios of consul-k8s' coalesce package.

use super::*;

const DEBOUNCE: Debounce = Debounce {
    quiet: ms(100),
    max_delay: ms(500),
};

#[tokio::test(start_paused = true)]
async fn quiet_period_makes_one_of_many() {
    let queue = WorkQueue::new("test");
    let start = Instant::now();
    for _ in 0..3 {
        queue.add_debounced("sync", DEBOUNCE);
        tokio::time::sleep(ms(20)).await;
    }
    assert_eq!(*queue.get().await.unwrap(), "sync");
    assert_eq!(start.elapsed(), ms(140), "100 ms after the third");
    assert_eq!(schedule(&queue).await, []);
}

#[tokio::test(start_paused = true)]
async fn constant_additions_are_handled_after_the_maximum_delay() {
    let queue = WorkQueue::new("test");
    let start = Instant::now();
    let producer = {
        let queue = queue.clone();
        tokio::spawn(async move {
            loop {
                queue.add_debounced("sync", DEBOUNCE);
                tokio::time::sleep(ms(30)).await;
            }
        })
    };
    assert_eq!(*queue.get().await.unwrap(), "sync");
    assert_eq!(start.elapsed(), ms(500));
    producer.abort();
}

#[tokio::test(start_paused = true)]
async fn ending_queue_ends_wait() {
    let queue = WorkQueue::new("test");
    queue.add_debounced("sync", DEBOUNCE);
    let start = Instant::now();
    let waiting = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.get().await.is_none() })
    };
    tokio::time::sleep(ms(50)).await;
    queue.shut_down();
    assert!(waiting.await.unwrap());
    assert_eq!(start.elapsed(), ms(50));
}

#[tokio::test(start_paused = true)]
async fn addition_without_debounce_does_not_wait() {
    let queue = WorkQueue::new("test");
    queue.add_debounced("sync", DEBOUNCE);
    queue.add("sync");
    queue.add_debounced("sync", DEBOUNCE);
    assert_eq!(schedule(&queue).await, [(0, "sync")]);
}

#[tokio::test(start_paused = true)]
async fn earlier_time_is_kept_and_later_one_gives_way() {
    let queue = WorkQueue::new("test");
    queue.add_after("early", ms(10));
    queue.add_debounced("early", DEBOUNCE);
    queue.add_after("late", ms(5000));
    queue.add_debounced("late", DEBOUNCE);
    assert_eq!(schedule(&queue).await, [(10, "early"), (100, "late")]);
}

#[tokio::test(start_paused = true)]
async fn each_key_is_debounced_for_itself() {
    let queue = WorkQueue::new("test");
    queue.add_debounced("a", DEBOUNCE);
    tokio::time::sleep(ms(50)).await;
    queue.add_debounced("b", DEBOUNCE);
    assert_eq!(schedule(&queue).await, [(50, "a"), (100, "b")]);
}
