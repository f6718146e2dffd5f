//! The eight metrics, as they are scraped.

use prometheus_client::{encoding::text::encode, registry::Registry};

use super::*;

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

#[track_caller]
fn assert_has(text: &str, line: &str) {
    assert!(
        text.lines().any(|l| l == line),
        "no line {line:?} in\n{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn eight_metrics_have_their_names_and_queue_label() {
    let mut registry = Registry::default();
    let metrics = WorkQueueMetrics::register(&mut registry);
    let policy = RetryPolicy {
        budget: Some(1),
        ..RetryPolicy::default()
    };
    let queue = WorkQueue::with("endpoints", policy, Some(&metrics));
    queue.add("a");
    queue.add("a");
    queue.add("b");
    tokio::time::sleep(ms(50)).await;
    let a = queue.get().await.unwrap();
    tokio::time::sleep(ms(2000)).await;
    let b = queue.get().await.unwrap();
    tokio::time::sleep(ms(1000)).await;
    queue.add("c");

    let text = scrape(&registry);
    assert_has(&text, r#"workqueue_depth{name="endpoints"} 1"#);
    assert_has(&text, r#"workqueue_adds_total{name="endpoints"} 3"#);
    assert_has(
        &text,
        r#"workqueue_unfinished_work_seconds{name="endpoints"} 4.0"#,
    );
    assert_has(
        &text,
        r#"workqueue_longest_running_processor_seconds{name="endpoints"} 3.0"#,
    );
    assert_has(
        &text,
        r#"workqueue_queue_duration_seconds_count{name="endpoints"} 2"#,
    );

    assert_eq!(queue.retry(*a), Retry::After(ms(5)));
    assert_eq!(queue.retry(*a), Retry::Dropped);
    drop((a, b));
    assert_eq!(take_ready(&queue).await, ["c"]);
    let text = scrape(&registry);
    assert_has(&text, r#"workqueue_depth{name="endpoints"} 0"#);
    assert_has(&text, r#"workqueue_retries_total{name="endpoints"} 1"#);
    assert_has(&text, r#"workqueue_drops_total{name="endpoints"} 1"#);
    assert_has(
        &text,
        r#"workqueue_unfinished_work_seconds{name="endpoints"} 0.0"#,
    );
    assert_has(
        &text,
        r#"workqueue_work_duration_seconds_count{name="endpoints"} 3"#,
    );
    assert_eq!(schedule(&queue).await, [(5, "a")]);
    assert_has(
        &scrape(&registry),
        r#"workqueue_adds_total{name="endpoints"} 4"#,
    );
}

#[tokio::test(start_paused = true)]
async fn buckets_are_ten_from_10_ns_to_10_s() {
    let mut registry = Registry::default();
    let metrics = WorkQueueMetrics::register(&mut registry);
    let queue = WorkQueue::with("q", RetryPolicy::default(), Some(&metrics));
    queue.add("a");
    drop(queue.get().await);
    let text = scrape(&registry);
    let prefix = "workqueue_work_duration_seconds_bucket{le=\"";
    let bounds: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix(prefix)?.split('"').next()?.parse().ok())
        .filter(|bound: &f64| bound.is_finite() && *bound < 1e300)
        .collect();
    assert_eq!(bounds.len(), 10, "{text}");
    for (index, bound) in bounds.iter().enumerate() {
        let expected = 10_f64.powi(i32::try_from(index).unwrap() - 8);
        assert!(
            (bound / expected - 1.0).abs() < 1e-9,
            "{bound} for {expected}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_queue_reports_no_running_work() {
    let mut registry = Registry::default();
    let metrics = WorkQueueMetrics::register(&mut registry);
    drop(WorkQueue::<u32>::with(
        "gone",
        RetryPolicy::default(),
        Some(&metrics),
    ));
    assert!(!scrape(&registry).contains("workqueue_unfinished_work_seconds{name=\"gone\"}"));
}
