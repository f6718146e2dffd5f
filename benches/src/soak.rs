//! A soak test: a real agent follows a real etcd at a constant rate of changes for a long time, and its resource usage is
//! sampled. Growth shows in the plot and in a comparison of the first part with the last.

mod samples;
mod trend;

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use contiv_store::Store;
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, State},
    lab::{Lab, LabError, Result},
};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::{sync::Semaphore, time::MissedTickBehavior};

use crate::{
    cluster::{Client, process, put, unexpected},
    netlink::Commits,
    plot::{self, Line},
    progress,
    workload::{Variant, Workload, marker_number},
};
use samples::{ChangeTracker, Sample};
pub use trend::Trend;

/// The number of the first marker, outside of the range of other measurements.
const FIRST_MARKER: u32 = 1 << 21;
/// Numbers are reused after this many, when their earlier changes are complete.
const NUMBERS: u32 = 1 << 20;
/// The interval of samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// The limit of pending requests to etcd: an etcd that hangs must not fill the memory of this process.
const MAX_PENDING_REQUESTS: usize = 256;
/// How long the listener waits before it checks whether the run is over.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(500);

/// The length and size of a soak test.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Soak {
    /// Seconds of changes.
    pub seconds: u64,
    /// Changes a second.
    pub rate: u32,
    /// Services, with four backends each.
    pub services: usize,
}

/// The results.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The settings.
    pub soak: Soak,
    /// Changes that etcd acknowledged.
    pub acknowledged: usize,
    /// Acknowledged changes that never reached the kernel.
    pub lost: usize,
    /// The trends of the sampled values.
    pub trends: Vec<Trend>,
    /// One every few seconds.
    pub samples: Vec<Sample>,
}

/// Runs a soak test and writes `soak.json` and `soak.svg`.
///
/// # Errors
/// When an operation of the lab fails. Growth is not an error.
pub fn run(lab: &Lab, soak: Soak, folder: &Path) -> Result<Outcome> {
    let workload = Workload {
        services: soak.services,
        backends: 4,
    };
    let etcd = Etcd::start(lab)?;
    let client = Client::new()?;
    client.fill(lab, workload)?;
    let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
    let moments = Arc::new(Mutex::new(ChangeTracker::default()));
    let over = AtomicBool::new(false);
    let samples = thread::scope(|scope| {
        let listener = scope.spawn(|| lab.node.run(|| listen(&moments, &over)));
        let writer = scope.spawn(|| {
            lab.node.run(|| {
                client
                    .runtime
                    .block_on(write(&client, workload, soak, &moments))
            })
        });
        let samples = sample(&agent, &etcd, soak, &moments, || {
            writer.is_finished() || listener.is_finished()
        });
        over.store(true, Ordering::Relaxed);
        let join = |thread: thread::ScopedJoinHandle<'_, Result<()>>| {
            thread
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        };
        join(writer)?;
        join(listener)?;
        samples
    })?;
    agent.stop()?;
    let moments = moments.lock();
    let (acknowledged, lost) = (moments.acknowledged, moments.never_committed());
    let outcome = Outcome {
        soak,
        acknowledged,
        lost,
        trends: trend::of(&samples),
        samples,
    };
    write_down(&outcome, folder)?;
    Ok(outcome)
}

/// Writes changes at a constant rate, even if etcd is slow.
async fn write(
    client: &Client,
    workload: Workload,
    soak: Soak,
    moments: &Arc<Mutex<ChangeTracker>>,
) -> Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / soak.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let under_way = Arc::new(Semaphore::new(MAX_PENDING_REQUESTS));
    let total = u64::from(soak.rate) * soak.seconds;
    for number in (0..NUMBERS)
        .cycle()
        .take(usize::try_from(total).unwrap_or(usize::MAX))
    {
        ticks.tick().await;
        let service = number as usize * 7919 % workload.services;
        let number = FIRST_MARKER + number;
        let change = put(workload.slice(service, 0, Variant::Replaced(number)));
        let permit = Arc::clone(&under_way)
            .acquire_owned()
            .await
            .map_err(unexpected)?;
        let (store, moments) = (client.store.clone(), Arc::clone(moments));
        moments.lock().sent(number, Instant::now());
        tokio::spawn(async move {
            let result = store.commit(change).await;
            moments.lock().acknowledged(number, result.is_ok());
            drop(permit);
        });
    }
    // When all permits are available, no request is pending.
    let all = u32::try_from(MAX_PENDING_REQUESTS).unwrap_or(u32::MAX);
    under_way
        .acquire_many(all)
        .await
        .map(drop)
        .map_err(unexpected)
}

/// Records when each change was committed.
fn listen(moments: &Mutex<ChangeTracker>, over: &AtomicBool) -> Result<()> {
    let mut commits = Commits::listen()?;
    loop {
        match commits.next(RECEIVE_TIMEOUT)? {
            Some(commit) => {
                let markers = commit
                    .backends
                    .iter()
                    .filter_map(|backend| marker_number(*backend));
                let mut moments = moments.lock();
                markers
                    .filter(|number| *number >= FIRST_MARKER)
                    .for_each(|number| moments.committed(number, commit.at));
            }
            None if over.load(Ordering::Relaxed) => return Ok(()),
            None => {}
        }
    }
}

/// Samples until the end.
fn sample(
    agent: &Agent<'_>,
    etcd: &Etcd<'_>,
    soak: Soak,
    moments: &Mutex<ChangeTracker>,
    is_over: impl Fn() -> bool,
) -> Result<Vec<Sample>> {
    let start = Instant::now();
    let mut samples: Vec<Sample> = Vec::new();
    let mut busy = process::processor_time(agent.id())?;
    while !is_over() {
        thread::sleep(SAMPLE_INTERVAL);
        let now = process::processor_time(agent.id())?;
        let (latencies, waiting) = moments.lock().take();
        let sample = Sample {
            seconds: start.elapsed().as_secs_f64(),
            resident_mebibytes: process::memory(agent.id())?.resident.number(),
            descriptors: process::descriptors(agent.id())?,
            threads: process::threads(agent.id())?,
            cores: now.saturating_sub(busy).as_secs_f64() / SAMPLE_INTERVAL.as_secs_f64(),
            load: process::load()?,
            changes: latencies.len(),
            waiting,
            p50_milliseconds: latencies.percentile(50).as_secs_f64() * 1e3,
            p99_milliseconds: latencies.percentile(99).as_secs_f64() * 1e3,
        };
        busy = now;
        if samples.len().is_multiple_of(12) {
            progress(&format!("{sample:?}"));
            // Old revisions are not needed, and etcd would reach its quota.
            etcd.compact()?;
        }
        samples.push(sample);
        if start.elapsed() > Duration::from_secs(soak.seconds * 2 + 60) {
            return Err(LabError::Unexpected(
                "etcd takes changes in too slowly to be of use".to_owned(),
            ));
        }
    }
    Ok(samples)
}

fn write_down(outcome: &Outcome, folder: &Path) -> Result<()> {
    let json = serde_json::to_vec_pretty(outcome).map_err(unexpected)?;
    let path = folder.join("soak.json");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, json))
        .map_err(|error| LabError::system(format!("write {}", path.display()), error))?;
    let line = |of: fn(&Sample) -> f64| -> Vec<(f64, f64)> {
        outcome
            .samples
            .iter()
            .map(|sample| (sample.seconds / 60.0, of(sample)))
            .collect()
    };
    let descriptors =
        |sample: &Sample| f64::from(u32::try_from(sample.descriptors).unwrap_or(u32::MAX));
    let panels: [(&str, Vec<(&str, Line)>); 4] = [
        (
            "memory, MiB",
            vec![("resident", line(|sample| sample.resident_mebibytes))],
        ),
        ("file descriptors", vec![("open", line(descriptors))]),
        (
            "request to etcd → commit in the kernel, ms",
            vec![
                ("p50", line(|sample| sample.p50_milliseconds)),
                ("p99", line(|sample| sample.p99_milliseconds)),
            ],
        ),
        (
            "processors: the agent's, and the load of the whole machine",
            vec![
                ("agent", line(|sample| sample.cores)),
                ("load", line(|sample| sample.load)),
            ],
        ),
    ];
    plot::draw_over_time(&panels, &folder.join("soak.svg"))
}
