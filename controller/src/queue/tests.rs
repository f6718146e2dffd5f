//! On a paused clock: time passes only when everybody waits.

mod debounce;
mod dedup;
mod delays;
mod ends;
mod laws;
mod metrics;

use super::*;

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The keys that can be had at this moment, each done at once.
pub(super) async fn now(queue: &WorkQueue<&'static str>) -> Vec<&'static str> {
    let mut keys = Vec::new();
    while let Ok(Some(work)) = tokio::time::timeout(Duration::ZERO, queue.get()).await {
        keys.push(*work);
    }
    keys
}

/// When each key comes from here on, until none does for an hour.
pub(super) async fn schedule(queue: &WorkQueue<&'static str>) -> Vec<(u128, &'static str)> {
    let start = Instant::now();
    let mut keys = Vec::new();
    while let Ok(Some(work)) = tokio::time::timeout(Duration::from_secs(3600), queue.get()).await {
        keys.push((start.elapsed().as_millis(), *work));
    }
    keys
}
