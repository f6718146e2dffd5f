//! Many changes a second, for a while.

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
    workload::{Workload, newcomer},
};

const CHANGES_PER_SECOND: u32 = 1000;
/// The first of the newcomers' numbers, which no other measurement uses.
const FIRST: u32 = 1 << 20;
/// Without a commit for this long, no further one is expected.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(2);

/// When each change was acknowledged or committed.
type ChangeTimes = BTreeMap<u32, Instant>;

/// What is done, and what is wanted of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) section: &'static str,
    /// The name of its figures.
    pub(crate) name: &'static str,
    pub(crate) duration: Duration,
    /// For the 99th percentile of the time until the kernel has a change.
    pub(crate) limit: Duration,
}

/// The change of a number.
pub(crate) struct Change {
    pub(crate) writes: Vec<Operation>,
    /// Whether it brings the newcomer of its number, by which its commit is recognised.
    pub(crate) brings_newcomer: bool,
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
    let over = AtomicBool::new(false);
    let (written, committed, busy) = thread::scope(|scope| {
        let listener = scope.spawn(|| lab.node.run(|| listen(&over)));
        let written = lab.node.run(|| client.runtime.block_on(write(client, duration, change)));
        let busy = process::processor_time(agent.id()).map(|time| time.saturating_sub(before.1));
        over.store(true, Ordering::Relaxed);
        let committed = listener.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        Ok::<_, LabError>((written?, committed?, busy?))
    })?;
    let missing = written.newcomers.keys().filter(|number| !committed.contains_key(number)).count();
    let latency = |(number, acknowledged): (&u32, &Instant)| {
        committed.get(number).map(|committed| committed.saturating_duration_since(*acknowledged))
    };
    let latencies: Samples = written.newcomers.iter().filter_map(latency).collect();

    let figure = |what: &str, seen: Quantity| {
        Figure::new(section, format!("{name}, {what}"), (workload.services, workload.backends), seen)
    };
    let at_most = |limit| Limit::AtMost(limit);
    let count = |number: usize| Quantity::Count(f64::from(u32::try_from(number).unwrap_or(u32::MAX)));
    let rate = f64::from(written.changes) / duration.as_secs_f64();
    let after = process::memory(agent.id())?;
    let growth = Quantity::Mebibytes(after.resident.number() - before.0.resident.number());
    Ok(vec![
        figure("changes a second", Quantity::Count(rate)),
        figure("changes that were never committed", count(missing)).wanting(at_most(Quantity::Count(0.0))),
        figure("p50", latencies.median().into()),
        figure("p99", latencies.percentile(99).into()).wanting(at_most(limit.into())),
        figure("processors busy", Quantity::Cores(busy.as_secs_f64() / duration.as_secs_f64()))
            .wanting(at_most(Quantity::Cores(0.5))),
        figure("growth of memory", growth).wanting(at_most(Quantity::Mebibytes(5.0))),
    ])
}

/// The changes that etcd has acknowledged.
struct Written {
    changes: u32,
    /// When those with a newcomer were.
    newcomers: ChangeTimes,
}

/// Writes changes at a constant rate, even if etcd is slow.
async fn write(client: &Client, duration: Duration, change: impl Fn(u32) -> Change) -> Result<Written> {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    let changes = CHANGES_PER_SECOND * u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
    for number in FIRST..FIRST + changes {
        ticks.tick().await;
        let Change { writes, brings_newcomer } = change(number);
        let store = client.store.clone();
        under_way.spawn(async move {
            let moment = store.commit(writes).await.map(|_| Instant::now())?;
            Ok(brings_newcomer.then_some((number, moment)))
        });
    }
    let acknowledged: Result<Vec<_>, StoreError> = under_way.join_all().await.into_iter().collect();
    let newcomers = acknowledged.map_err(unexpected)?.into_iter().flatten().collect();
    Ok(Written { changes, newcomers })
}

/// Records when each change was committed, until the end and as long afterwards as commits arrive.
fn listen(over: &AtomicBool) -> Result<ChangeTimes> {
    let mut commits = Commits::listen()?;
    let mut moments = ChangeTimes::new();
    loop {
        match commits.next(LAST_COMMIT_TIMEOUT)? {
            Some(commit) => {
                let newcomers = commit.backends.iter().filter_map(|backend| newcomer(*backend));
                for number in newcomers.filter(|number| *number >= FIRST) {
                    moments.entry(number).or_insert(commit.at);
                }
            }
            None if over.load(Ordering::Relaxed) => return Ok(moments),
            None => {}
        }
    }
}
