//! How long the pages for people take.

use std::time::Duration;

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, State},
    lab::{Lab, LabError, Result},
};

use crate::{
    cluster::{Client, remove_state},
    figures::{Figure, Limit, Quantity},
    statistics::{Samples, timed},
    workload::{Workload, cluster_ip},
};

/// The section of these figures in the table.
pub const SECTION: &str = "page";
const REPETITIONS: usize = 9;
const LIMIT: Duration = Duration::from_millis(200);

/// Asks for each kind of page again and again.
///
/// # Errors
/// When the agent does not start, or does not answer.
pub fn measure(lab: &Lab, services: usize) -> Result<Vec<Figure>> {
    let workload = Workload {
        services,
        backends: 4,
    };
    remove_state()?;
    let etcd = Etcd::start(lab)?;
    Client::new()?.fill(lab, workload)?;
    let agent = Agent::start_as_service(lab, &AgentOptions::with_store(etcd.url()))?;
    let last = services - 1;
    let name = format!("service-{last:06}");
    let service = format!("/page/services/default/{name}");
    let by_name = format!("/?q={name}");
    let by_address = format!("/?q={}", cluster_ip(last));
    let paths = [
        ("the first page", "/"),
        ("search of a name", &*by_name),
        ("search of an address", &by_address),
        ("those with problems", "/?show=problems"),
        ("sorted by backends", "/?sort=backends"),
        ("sorted by served", "/?sort=served"),
        ("sorted by silent", "/?sort=silent"),
        ("sorted by refused", "/?sort=refused"),
        ("page 500", "/?page=500"),
        ("a service", &service),
    ];
    let mut figures = Vec::new();
    for (name, path) in paths {
        let mut answers = Vec::new();
        for _ in 0..REPETITIONS {
            let (duration, response) = timed(|| agent.http("GET", path));
            let response = response?;
            if response.status != 200 {
                return Err(LabError::Unexpected(format!("{path}: {}", response.body)));
            }
            answers.push(duration);
        }
        let answers: Samples = answers.into_iter().collect();
        let measured = answers.percentile(99);
        figures.push(
            Figure::new(SECTION, name, (services, workload.backends), measured)
                .with_limit(Limit::AtMost(Quantity::from(LIMIT))),
        );
    }
    agent.stop()?;
    lab.node.exec(&["nft", "delete table inet contiv"])?;
    Ok(figures)
}
