//! Measures the start, a change of every object, and single changes.

use std::{
    error::Error,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, mpsc};

use crate::{
    figures::Figures,
    source::{Source, State},
};

/// The number of single changes, one after the other.
const SINGLE_CHANGES: u64 = 5000;
/// The capacity of the channel of changes: that of the store's feed.
const CAPACITY: usize = 64;

/// The progress of the reconcilers.
#[derive(Default)]
pub(crate) struct Progress {
    runs: AtomicU64,
    newest_version: AtomicU64,
    changed: Notify,
}

impl Progress {
    /// The reconciler: it has seen an object in this version.
    pub(crate) fn reconcile(&self, version: Option<&str>) {
        let version = version.and_then(|version| version.parse().ok()).unwrap_or(0);
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.newest_version.fetch_max(version, Ordering::Relaxed);
        self.changed.notify_one();
    }

    async fn wait_until(&self, is_reached: impl Fn(&Self) -> bool) {
        while !is_reached(self) {
            self.changed.notified().await;
        }
    }
}

pub(crate) async fn measure(
    name: &'static str,
    keys: u64,
    start: impl FnOnce(Source, Arc<Progress>),
) -> Result<Figures, Box<dyn Error + Send + Sync>> {
    let initial = (0..keys).map(|index| State::new(index, index + 1)).collect();
    let (sender, changes) = mpsc::channel(CAPACITY);
    let progress = Arc::new(Progress::default());
    let before = resident()?;

    let begin = Instant::now();
    start(Source { initial, changes }, Arc::clone(&progress));
    progress.wait_until(|progress| progress.runs.load(Ordering::Relaxed) >= keys).await;
    let start_time = begin.elapsed();
    // The runtime may still free memory.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let memory = resident()?.saturating_sub(before);

    let begin = Instant::now();
    for index in 0..keys {
        sender.send(State::new(index, keys + index + 1)).await?;
    }
    progress.wait_until(|progress| progress.runs.load(Ordering::Relaxed) >= 2 * keys).await;
    let churn_time = begin.elapsed();

    let mut latencies = Vec::new();
    for index in 0..SINGLE_CHANGES {
        let version = 2 * keys + index + 1;
        let state = State::new(index * 7919 % keys, version);
        let begin = Instant::now();
        sender.send(state).await?;
        progress.wait_until(|progress| progress.newest_version.load(Ordering::Relaxed) >= version).await;
        latencies.push(begin.elapsed());
    }
    latencies.sort_unstable();
    Ok(Figures { name, keys, start_time, churn_time, latencies, memory, peak: status("VmHWM:")? })
}

/// Resident memory in KiB.
fn resident() -> Result<u64, Box<dyn Error + Send + Sync>> {
    status("VmRSS:")
}

fn status(field: &str) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
