//! Many nodes at one etcd: watchers as agents open them, directly and behind `etcd grpc-proxy`, and a hundred real agents that start
//! at once.

mod agents;
mod arrivals;
mod descriptors;
mod fan_out;
mod prometheus;
mod scenario;
mod server;
mod table;
mod watchers;
mod writers;

use contiv_tests::lab::{Lab, Result};

use crate::{
    figures::{Figure, Limit, Quantity},
    progress,
    workload::Workload,
};
use agents::{AGENTS, FleetStart};
pub use scenario::SECTION;
use scenario::{Scenario, Topology};
use server::Server;
pub use table::tables;

/// The most requests of an agent that goes on from its saved state.
const RESTART_REQUESTS: f64 = 10.0;
/// What etcd may send to such an agent, as a part of what it sends at a first start.
const RESTART_BYTES: f64 = 0.05;

/// Measures the agents, then all topologies.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab, is_quick: bool, figures: &mut Vec<Figure>) -> Result<()> {
    let scenario = Scenario::new(is_quick);
    progress(&format!(
        "fleet, {AGENTS} agents, {} services",
        scenario.services
    ));
    let workload = Workload {
        services: scenario.services,
        backends: 4,
    };
    let measured = measure_agents(lab, workload)?;
    progress(&format!("\n{}", tables(&measured)));
    figures.extend(measured);
    for topology in scenario.topologies {
        let Topology { watchers, proxies } = topology;
        progress(&format!("fleet, {watchers} watchers, {proxies} proxies"));
        let measured = fan_out::measure(lab, *topology, scenario.phases)?;
        progress(&format!("\n{}", tables(&measured)));
        figures.extend(measured);
    }
    Ok(())
}

/// A start of all agents without anything saved, and one over the unchanged store.
fn measure_agents(lab: &Lab, workload: Workload) -> Result<Vec<Figure>> {
    let server = Server::start(lab, workload, 0)?;
    agents::put_nodes(lab, &server)?;
    let first = agents::start_and_stop(lab, &server, "start")?;
    let again = agents::start_and_stop(lab, &server, "restart")?;
    for (name, start) in [("start", &first), ("restart", &again)] {
        for (message, count) in &start.warnings {
            progress(&format!("warning at the {name}, {count} times: {message}"));
        }
    }
    let of_start = |start: &FleetStart| {
        let of_each = |sum: f64| sum / f64::from(AGENTS);
        [
            ("first is ready", start.first_ready.into()),
            ("last is ready", start.last_ready.into()),
            (
                "etcd's processor time an agent",
                Quantity::Seconds(of_each(start.usage.etcd.as_secs_f64())),
            ),
            (
                "bytes an agent",
                Quantity::Bytes(of_each(start.usage.sent_bytes)),
            ),
            (
                "requests an agent",
                Quantity::Count(of_each(start.usage.requests)),
            ),
            ("memory of etcd at its peak", start.peak),
            (
                "warnings of all agents",
                Quantity::Count(count(start.warnings.values().sum())),
            ),
        ]
    };
    let figure = |start: &str, what: &str, measured: Quantity| {
        let name = format!("{start}{what}");
        Figure::new(
            SECTION,
            name,
            (workload.services, workload.backends),
            measured,
        )
    };
    let first = of_start(&first);
    let starts = first.map(|(what, measured)| figure(table::START, what, measured));
    let restarts = of_start(&again).into_iter().zip(first);
    let restarts = restarts.map(|((what, measured), (_, floor))| {
        let figure = figure(table::RESTART, what, measured).beside(floor);
        match what {
            "bytes an agent" => figure.with_limit(Limit::TimesFloor(RESTART_BYTES)),
            "requests an agent" => {
                figure.with_limit(Limit::AtMost(Quantity::Count(RESTART_REQUESTS)))
            }
            _ => figure,
        }
    });
    Ok(starts.into_iter().chain(restarts).collect())
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
