//! A key that changes faster than anything could follow.

use std::{
    env, fs,
    time::{Duration, Instant},
};

use super::{Harness, batch, put, service, slice, snapshot};

/// Changes a second, of one key.
const CHANGES_PER_SECOND: usize = 100_000;
/// As etcd merges them for a lagging watch.
const CHANGES_PER_BATCH: usize = 1000;
/// The most memory, in addition to that of the test itself.
const MOST_BYTES: usize = 64 << 20;

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_changes_of_one_key_costs_bounded_memory() {
    let seconds = env::var("CONTIV_FLOOD_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2);
    let first = vec![service("web", 1), slice("web", 1)];
    let harness = Harness::start(vec![], vec![snapshot(1, first)]);
    harness.renderer("dry-run", |view| view.ready).await;
    let changes: Vec<_> = (0..CHANGES_PER_BATCH)
        .map(|i| put(slice("web", u8::try_from(i % 200).unwrap())))
        .collect();
    let before = resident_bytes();
    let (mut most, mut slowest) = (0, Duration::ZERO);
    let start = Instant::now();
    let mut ticks = tokio::time::interval(
        Duration::from_secs(1) / u32::try_from(CHANGES_PER_SECOND / CHANGES_PER_BATCH).unwrap(),
    );
    let batches = seconds * CHANGES_PER_SECOND / CHANGES_PER_BATCH;
    for revision in 2..2 + i64::try_from(batches).unwrap() {
        ticks.tick().await;
        harness.deliver(batch(revision, changes.clone())).await;
        let asked = Instant::now();
        harness.status().await;
        slowest = slowest.max(asked.elapsed());
        most = most.max(resident_bytes());
    }
    let rate = u128::try_from(batches * CHANGES_PER_BATCH * 1000).unwrap()
        / start.elapsed().as_millis().max(1);
    harness
        .deliver(batch(i64::MAX, vec![put(slice("web", 222))]))
        .await;
    harness
        .renderer("dry-run", |view| view.applied_revision == i64::MAX)
        .await;
    let history = harness.history(|_| true).await;
    let growth = most.saturating_sub(before);
    println!(
        "{rate} changes a second for {seconds} s, {} events: {} MiB more, asked at most {slowest:?}",
        history.last().map_or(0, |record| record.seq_num),
        growth >> 20,
    );
    assert!(growth < MOST_BYTES, "{growth} bytes");
}
