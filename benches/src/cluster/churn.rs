//! Measures a constant rate of changes.

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

/// The number of the first marker, outside of the range of other measurements.
const FIRST_MARKER: u32 = 1 << 20;
/// Without a commit for this long, no further one is expected.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// When each change was acknowledged or committed.
type ChangeTimes = BTreeMap<u32, Instant>;

/// The parameters of a measurement, and its limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) section: &'static str,
    /// The name of its figures.
    pub(crate) name: &'static str,
    /// Changes a second.
    pub(crate) rate: u32,
    pub(crate) duration: Duration,
    /// For the agent's processor time, in processors.
    pub(crate) cores: f64,
    /// For the 99th percentile of the time until the kernel has a change.
    pub(crate) limit: Duration,
}

/// One numbered change.
pub(crate) struct Change {
    pub(crate) writes: Vec<Operation>,
    /// Whether it adds a backend at the marker address of its number, by which its commit is recognised.
    pub(crate) has_marker: bool,
}

/// Makes changes at a constant rate.
pub(crate) fn measure(
    lab: &Lab,
    client: &Client,
    agent: &Agent<'_>,
    workload: Workload,
    load: Load,
    change: impl Fn(u32) -> Change + Send,
) -> Result<Vec<Figure>> {
    let Load {
        section,
        name,
        rate,
        duration,
        cores,
        limit,
    } = load;
    let before = (
        process::memory(agent.id())?,
        process::processor_time(agent.id())?,
    );
    let is_over = AtomicBool::new(false);
    let (written, committed, busy) = thread::scope(|scope| {
        let listener = scope.spawn(|| lab.node.run(|| listen(&is_over)));
        let written = lab.node.run(|| {
            client
                .runtime
                .block_on(write(client, rate, duration, change))
        });
        let busy = process::processor_time(agent.id()).map(|time| time.saturating_sub(before.1));
        is_over.store(true, Ordering::Relaxed);
        let committed = listener
            .join()
            .unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        Ok::<_, LabError>((written?, committed?, busy?))
    })?;
    let missing = written
        .keys()
        .filter(|number| !committed.contains_key(number))
        .count();
    let latency = |(number, acknowledged): (&u32, &Instant)| {
        committed
            .get(number)
            .map(|committed| committed.saturating_duration_since(*acknowledged))
    };
    let latencies: Samples = written.iter().filter_map(latency).collect();

    let figure = |metric: &str, measured: Quantity| {
        Figure::new(
            section,
            format!("{name}, {metric}"),
            (workload.services, workload.backends),
            measured,
        )
    };
    let at_most = |limit| Limit::AtMost(limit);
    let count =
        |number: usize| Quantity::Count(f64::from(u32::try_from(number).unwrap_or(u32::MAX)));
    let after = process::memory(agent.id())?;
    let growth = Quantity::Mebibytes(after.resident.number() - before.0.resident.number());
    Ok(vec![
        figure("changes a second", Quantity::Count(f64::from(rate))),
        figure("changes that were never committed", count(missing))
            .with_limit(at_most(Quantity::Count(0.0))),
        figure("p50", latencies.median().into()),
        figure("p99", latencies.percentile(99).into()).with_limit(at_most(limit.into())),
        figure(
            "processors busy",
            Quantity::Cores(busy.as_secs_f64() / duration.as_secs_f64()),
        )
        .with_limit(at_most(Quantity::Cores(cores))),
        figure("growth of memory", growth).with_limit(at_most(Quantity::Mebibytes(5.0))),
    ])
}

/// Writes changes at a constant rate, even if etcd is slow. Returns when those with a marker were acknowledged.
async fn write(
    client: &Client,
    rate: u32,
    duration: Duration,
    change: impl Fn(u32) -> Change,
) -> Result<ChangeTimes> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut requests = JoinSet::new();
    let changes = rate * u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
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
    Ok(acknowledged
        .map_err(unexpected)?
        .into_iter()
        .flatten()
        .collect())
}

/// Records when each change was committed, until the end and as long afterwards as commits arrive.
fn listen(is_over: &AtomicBool) -> Result<ChangeTimes> {
    let mut commits = Commits::listen()?;
    let mut commit_times = ChangeTimes::new();
    loop {
        match commits.next(LAST_COMMIT_TIMEOUT)? {
            Some(commit) => {
                let markers = commit
                    .backends
                    .iter()
                    .filter_map(|backend| marker_number(*backend));
                for number in markers.filter(|number| *number >= FIRST_MARKER) {
                    commit_times.entry(number).or_insert(commit.at);
                }
            }
            None if is_over.load(Ordering::Relaxed) => return Ok(commit_times),
            None => {}
        }
    }
}
