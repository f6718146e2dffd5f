//! How long the agent takes to say why a connection fails.

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
    workload::{PORT, Workload, cluster_ip},
};

/// The section of these figures in the table.
pub const SECTION: &str = "why";
const QUESTIONS: usize = 100;
const LIMIT: Duration = Duration::from_millis(100);

/// Asks about connections of a pod to services all over the store.
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
    let from = lab.pod1.host.v4;
    let mut answers = Vec::new();
    for question in 0..QUESTIONS {
        let to = cluster_ip(question * services / QUESTIONS);
        let path = format!("/why?from={from}&to={to}&port={PORT}&protocol=tcp");
        let (duration, response) = timed(|| agent.http("GET", &path));
        let response = response?;
        if response.status != 200 {
            return Err(LabError::Unexpected(format!("{path}: {}", response.body)));
        }
        answers.push(duration);
    }
    agent.stop()?;
    lab.node.exec(&["nft", "delete table inet contiv"])?;
    let answers: Samples = answers.into_iter().collect();
    let figure = |name, measured: Duration| {
        Figure::new(SECTION, name, (services, workload.backends), measured)
    };
    Ok(vec![
        figure("an answer, p50", answers.median()),
        figure("an answer, p99", answers.percentile(99))
            .with_limit(Limit::AtMost(Quantity::from(LIMIT))),
    ])
}
