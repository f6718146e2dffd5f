//! From etcd's acknowledgement of a change to the kernel's notification of its commit, with an agent that runs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use contiv_store::Store;
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, State},
    lab::{Lab, LabError, Result},
};

use super::{
    common::{ROUNDS, Times, by_kind, operation, service},
    mixed,
};
use crate::{
    cluster::{Client, remove_state, unexpected},
    figures::Figure,
    netlink::Commits,
    workload::{SingleChange, Workload},
};

/// Longer than any change takes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// A change that takes more than one transaction has the next within this time.
const QUIET: Duration = Duration::from_millis(3);
/// Rounds that are not measured: they tell how many transactions each kind of change takes.
const COUNTED: u32 = 5;

pub(super) fn measure(
    lab: &Lab,
    workload: Workload,
    mixed: Option<Duration>,
) -> Result<(Times, Vec<Figure>)> {
    remove_state()?;
    let etcd = Etcd::start(lab)?;
    let client = Client::new()?;
    client.fill(lab, workload)?;
    let agent = Agent::start_as_service(lab, &AgentOptions::with_store(etcd.url()))?;
    let times = lab.node.run(|| one_by_one(&client, workload))?;
    let figures = match mixed {
        Some(duration) => mixed::measure(lab, &client, &agent, workload, duration)?,
        None => Vec::new(),
    };
    agent.stop()?;
    lab.node.exec(&["nft", "delete table inet contiv"])?;
    Ok((times, figures))
}

/// Measures each change until its last transaction. The next change follows at once, so that the machine is never idle: to wake up
/// an idle processor takes longer than the change.
fn one_by_one(client: &Client, workload: Workload) -> Result<Times> {
    let mut commits = Commits::listen()?;
    while commits.next(Duration::from_millis(200))?.is_some() {}
    let (mut counts, mut times) = (BTreeMap::new(), Vec::new());
    for round in 0..COUNTED + ROUNDS {
        for kind in SingleChange::ALL {
            let late = || LabError::TooLate {
                event: format!("{} in round {round} is committed", kind.name()),
                limit: CHANGE_TIMEOUT,
            };
            let write = operation(kind.write(workload, service(workload, round), round));
            client
                .runtime
                .block_on(client.store.commit(vec![write]))
                .map_err(unexpected)?;
            let acknowledged = Instant::now();
            let mut last = commits.next(CHANGE_TIMEOUT)?.ok_or_else(late)?;
            let count: &mut u32 = counts.entry(kind).or_insert(1);
            if round < COUNTED {
                let mut seen = 1;
                while commits.next(QUIET)?.is_some() {
                    seen += 1;
                }
                *count = seen.max(*count);
                continue;
            }
            for _ in 1..*count {
                last = commits.next(CHANGE_TIMEOUT)?.ok_or_else(late)?;
            }
            // Zero if the commit is seen before the acknowledgement.
            times.push((kind, last.at.saturating_duration_since(acknowledged)));
        }
    }
    // One too many in any round is left over now. Waiting for it in each round would leave the machine idle before the first change.
    if commits.next(QUIET)?.is_some() {
        return Err(LabError::Unexpected(
            "changes took more transactions than those before them".to_owned(),
        ));
    }
    Ok(by_kind(&times))
}
