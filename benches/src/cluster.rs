//! End-to-end measurements: a real etcd, a real agent, and the kernel's own notification of each commit.

mod change;
pub(crate) mod churn;
mod client;
pub(crate) mod process;
mod restart;
mod scenario;

use std::{fs, thread, time::Duration};

use contiv_store::Store;
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, ROOT, Service, State, TARGET_PORT},
    lab::{Lab, LabError, Responder, Result, scratch},
};

use crate::{
    figures::{Figure, Limit, Quantity},
    statistics::{Samples, timed},
    workload::{Variant, Workload},
};
pub(crate) use client::{Client, put, unexpected};
use scenario::LIST_TIMEOUT;
pub use scenario::{SECTION, Scenario};

/// The number of measured starts; fewer if a start takes seconds.
const fn starts(workload: Workload) -> usize {
    match workload.services * workload.backends {
        0..=100_000 => 5,
        100_001..1_000_000 => 3,
        _ => 1,
    }
}

/// How long a few changes a second are made.
const FEW: Duration = Duration::from_secs(20);

/// The largest memory of a start, as a multiple of that at rest.
const MAX_PEAK: f64 = 1.5;

/// The time after which the allocator has returned the memory of the start.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(13);

/// Fills an etcd, starts an agent, and measures.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab, scenario: Scenario) -> Result<Vec<Figure>> {
    let Scenario {
        workload, section, ..
    } = scenario;
    remove_state()?;
    let etcd = Etcd::start(lab)?;
    let store = Client::new()?;
    store.fill(lab, workload)?;
    let options = AgentOptions::with_store(etcd.url());
    let figure = |name: &str, measured: Quantity, limit: Option<Limit>| {
        let figure = Figure::new(
            section,
            name,
            (workload.services, workload.backends),
            measured,
        );
        limit.into_iter().fold(figure, Figure::with_limit)
    };

    let mut figures = Vec::new();
    let mut start_limit = scenario.start;
    if scenario.list_alone {
        let list = client_lists(lab, &store)?;
        if let Some(Limit::AtMost(Quantity::Seconds(seconds))) = &mut start_limit {
            // The agent cannot be quicker than etcd.
            *seconds = seconds.max(1.5 * list.as_secs_f64());
        }
        figures.push(figure(
            "list of the same keys alone, in pages",
            list.into(),
            None,
        ));
    }
    let mut cold = Vec::new();
    let mut restarts = Vec::new();
    let mut listing_restarts = Vec::new();
    for _ in 0..starts(workload) {
        remove_agent_state()?;
        let (duration, agent) = timed(|| Agent::start_as_service(lab, &options));
        cold.push(duration);
        let agent = agent?;
        agent.wait_until_saved()?;
        agent.stop()?;
        let (duration, agent) = timed(|| Agent::start_as_service(lab, &options));
        restarts.push(duration);
        agent?.stop()?;
        remove_agent_state()?;
        let (duration, agent) = timed(|| Agent::start_as_service(lab, &options));
        listing_restarts.push(duration);
        agent?.stop()?;
        lab.node.exec(&["nft", "delete table inet contiv"])?;
        // The kernel frees deleted objects asynchronously.
        thread::sleep(Duration::from_millis(500));
    }
    let median = |times: Vec<Duration>| times.into_iter().collect::<Samples>().median().into();
    let agent = Agent::start_as_service(lab, &options)?;
    agent.wait_until_listed(LIST_TIMEOUT)?;
    thread::sleep(SETTLE_TIME);
    let memory = process::memory(agent.id())?;
    figures.extend([
        figure("start from etcd until ready", median(cold), start_limit),
        figure(
            "restart over existing rules",
            median(restarts),
            scenario.restart,
        ),
        figure(
            "restart over existing rules, nothing saved",
            median(listing_restarts),
            None,
        ),
        figure("memory", memory.resident, scenario.memory),
        // The floor is the memory at rest.
        figure("memory at its peak", memory.peak, None)
            .beside(memory.resident)
            .with_limit(Limit::TimesFloor(MAX_PEAK)),
    ]);
    figures.extend(change::measure(lab, &store, &agent, scenario)?);
    if let Some(duration) = scenario.churn {
        let change = |number| {
            let service = number as usize * 7919 % workload.services;
            let writes = put(workload.slice(service, 0, Variant::Replaced(number)));
            churn::Change {
                writes,
                has_marker: true,
            }
        };
        let limit = Duration::from_millis(20);
        let load = churn::Load {
            section,
            name: "churn",
            rate: 1000,
            duration,
            cores: 0.5,
            limit,
        };
        let few = churn::Load {
            name: "few changes",
            rate: 20,
            duration: duration.min(FEW),
            cores: 0.02,
            ..load
        };
        figures.extend(churn::measure(lab, &store, &agent, workload, few, change)?);
        figures.extend(churn::measure(lab, &store, &agent, workload, load, change)?);
    }
    agent.stop()?;
    if scenario.restart_under_load {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let web = Service::new(
            "web",
            80,
            &[lab.pod1.host, lab.pod2.host, lab.pod3.host, lab.pod4.host],
        );
        etcd.put(&web)?;
        figures.extend(restart::measure(lab, &options, &web, scenario)?);
    }
    lab.node.exec(&["nft", "delete table inet contiv"])?;
    Ok(figures)
}

/// The time of a list by a client that only reads.
fn client_lists(lab: &Lab, client: &Client) -> Result<Duration> {
    let (duration, listed) = timed(|| {
        lab.node.run(|| {
            client
                .runtime
                .block_on(client.store.list(ROOT))
                .map_err(unexpected)
        })
    });
    listed.map(|_| duration)
}

/// Removes the files of the previous size. An agent with that mirror would treat its services as lost and keep them.
pub(crate) fn remove_state() -> Result<()> {
    remove_folder("etcd")?;
    remove_agent_state()
}

/// Removes what the previous agent has saved.
fn remove_agent_state() -> Result<()> {
    remove_folder("agent-state")
}

fn remove_folder(name: &str) -> Result<()> {
    let left = scratch(name)?;
    if !left.exists() {
        return Ok(());
    }
    fs::remove_dir_all(&left)
        .map_err(|error| LabError::system(format!("remove {}", left.display()), error))
}
