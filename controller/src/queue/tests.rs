//! Work queues on tokio's paused clock: time passes only while all tasks wait.

mod debounce;
mod dedup;
mod delays;
mod laws;
mod metrics;
mod shutdown;

use super::*;

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Takes all keys that are ready now, and finishes each at once.
pub(super) async fn take_ready(queue: &WorkQueue<&'static str>) -> Vec<&'static str> {
    let mut keys = Vec::new();
    while let Ok(Some(work)) = tokio::time::timeout(Duration::ZERO, queue.get()).await {
        keys.push(*work);
    }
    keys
}

/// When each key is handed out from now on, until none is for an hour.
pub(super) async fn schedule(queue: &WorkQueue<&'static str>) -> Vec<(u128, &'static str)> {
    let start = Instant::now();
    let mut keys = Vec::new();
    while let Ok(Some(work)) = tokio::time::timeout(Duration::from_secs(3600), queue.get()).await {
        keys.push((start.elapsed().as_millis(), *work));
    }
    keys
}
