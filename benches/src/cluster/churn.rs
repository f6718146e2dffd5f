//! Measures a constant rate of 1,000 changes a second.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use contiv_store::{Operation, Store, StoreError};
use contiv_tests::{
    agent::Agent,
    lab::{Lab, LabError, Result},
};
use tokio::{task::JoinSet, time::MissedTickBehavior};

use super::{Client, process, unexpected};
use crate::{
    figures::{Figure, Limit, Quantity},
    netlink::Commits,
    statistics::Samples,
    workload::{Workload, marker_number},
};

const CHANGES_PER_SECOND: u32 = 1000;
/// The number of the first marker, outside of the range of other measurements.
const FIRST_MARKER: u32 = 1 << 20;
/// Without a commit for this long, no further one is expected.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// When each change was acknowledged or committed.
type ChangeTimes = BTreeMap<u32, Instant>;

/// The parameters of a measurement, and its limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) section: &'static str,
    /// The name of its figures.
    pub(crate) name: &'static str,
    pub(crate) duration: Duration,
    /// For the 99th percentile of the time until the kernel has a change.
    pub(crate) limit: Duration,
}

/// One numbered change.
pub(crate) struct Change {
    pub(crate) writes: Vec<Operation>,
    /// Whether it adds a backend at the marker address of its number, by which its commit is recognised.
    pub(crate) has_marker: bool,
}

/// Makes 1,000 changes a second.
pub(crate) fn measure(
    lab: &Lab,
    client: &Client,
    agent: &Agent<'_>,
    workload: Workload,
    load: Load,
    change: impl Fn(u32) -> Change + Send,
) -> Result<Vec<Figure>> {
    let Load { section, name, duration, limit } = load;
    let before = (process::memory(agent.id())?, process::processor_time(agent.id())?);
    let is_over = AtomicBool::new(false);
    let (written, committed, busy) = thread::scope(|scope| {
        let listener = scope.spawn(|| lab.node.run(|| listen(&is_over)));
        let written = lab.node.run(|| client.runtime.block_on(write(client, duration, change)));
        let busy = process::processor_time(agent.id()).map(|time| time.saturating_sub(before.1));
        is_over.store(true, Ordering::Relaxed);
        let committed = listener.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        Ok::<_, LabError>((written?, committed?, busy?))
    })?;
    let missing = written.markers.keys().filter(|number| !committed.contains_key(number)).count();
    let latency = |(number, acknowledged): (&u32, &Instant)| {
        committed.get(number).map(|committed| committed.saturating_duration_since(*acknowledged))
    };
    let latencies: Samples = written.markers.iter().filter_map(latency).collect();

    let figure = |metric: &str, measured: Quantity| {
        Figure::new(section, format!("{name}, {metric}"), (workload.services, workload.backends), measured)
    };
    let at_most = |limit| Limit::AtMost(limit);
    let count = |number: usize| Quantity::Count(f64::from(u32::try_from(number).unwrap_or(u32::MAX)));
    let rate = f64::from(written.changes) / duration.as_secs_f64();
    let after = process::memory(agent.id())?;
    let growth = Quantity::Mebibytes(after.resident.number() - before.0.resident.number());
    Ok(vec![
        figure("changes a second", Quantity::Count(rate)),
        figure("changes that were never committed", count(missing)).with_limit(at_most(Quantity::Count(0.0))),
        figure("p50", latencies.median().into()),
        figure("p99", latencies.percentile(99).into()).with_limit(at_most(limit.into())),
        figure("processors busy", Quantity::Cores(busy.as_secs_f64() / duration.as_secs_f64()))
            .with_limit(at_most(Quantity::Cores(0.5))),
        figure("growth of memory", growth).with_limit(at_most(Quantity::Mebibytes(5.0))),
    ])
}

/// The changes that etcd acknowledged.
struct AcknowledgedChanges {
    changes: u32,
    /// When etcd acknowledged those with a marker.
    markers: ChangeTimes,
}

/// Writes changes at a constant rate, even if etcd is slow.
async fn write(
    client: &Client,
    duration: Duration,
    change: impl Fn(u32) -> Change,
) -> Result<AcknowledgedChanges> {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut requests = JoinSet::new();
    let changes = CHANGES_PER_SECOND * u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
    for number in FIRST_MARKER..FIRST_MARKER + changes {
        ticks.tick().await;
        let Change { writes, has_marker } = change(number);
        let store = client.store.clone();
        requests.spawn(async move {
            let acknowledged_at = store.commit(writes).await.map(|_| Instant::now())?;
            Ok(has_marker.then_some((number, acknowledged_at)))
        });
    }
    let acknowledged: Result<Vec<_>, StoreError> = requests.join_all().await.into_iter().collect();
    let markers = acknowledged.map_err(unexpected)?.into_iter().flatten().collect();
    Ok(AcknowledgedChanges { changes, markers })
}

/// Records when each change was committed, until the end and as long afterwards as commits arrive.
fn listen(is_over: &AtomicBool) -> Result<ChangeTimes> {
    let mut commits = Commits::listen()?;
    let mut commit_times = ChangeTimes::new();
    loop {
        match commits.next(LAST_COMMIT_TIMEOUT)? {
            Some(commit) => {
                let markers = commit.backends.iter().filter_map(|backend| marker_number(*backend));
                for number in markers.filter(|number| *number >= FIRST_MARKER) {
                    commit_times.entry(number).or_insert(commit.at);
                }
            }
            None if is_over.load(Ordering::Relaxed) => return Ok(commit_times),
            None => {}
        }
    }
}
