//! One change at a time, from etcd's acknowledgement to the kernel's word that it is committed.

use std::time::{Duration, Instant};

use contiv_store::Store;
use contiv_tests::{
    agent::Agent,
    lab::{Lab, LabError, Result},
};
use serde_json::Value;

use super::{Client, Questions, SECTION, put, unexpected};
use crate::{
    figures::{Figure, Quantity, Wanted},
    netlink::Commits,
    statistics::Samples,
    workload::{Variant, Workload, newcomer_address},
};

/// Changes that are measured.
const CHANGES: u32 = 400;
/// Longer than any change takes.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn measure(
    lab: &Lab,
    client: &Client,
    agent: &Agent<'_>,
    questions: Questions,
) -> Result<Vec<Figure>> {
    let workload = questions.workload;
    let latencies = lab.node.run(|| latencies(client, workload))?;
    let figure =
        |name: &str, seen: Duration| Figure::new(SECTION, name, (workload.services, workload.backends), seen);
    let mut figures = Vec::new();
    for ((name, percent), wanted) in
        [("one change, p50", 50), ("one change, p99", 99)].into_iter().zip(questions.change)
    {
        let figure = figure(name, latencies.percentile(percent));
        figures.push(wanted.into_iter().fold(figure, Figure::wanting));
    }
    let inside = figure("one change, inside the agent, p50", inside(agent)?.median());
    let limit = Wanted::AtMost(Quantity::Seconds(100e-6));
    figures.push(if workload.services == 10_000 { inside.wanting(limit) } else { inside });
    Ok(figures)
}

/// From the acknowledgement to the commit. A commit that is heard of before the acknowledgement took no time.
fn latencies(client: &Client, workload: Workload) -> Result<Samples> {
    let mut commits = Commits::listen()?;
    let mut latencies = Vec::new();
    for number in 0..CHANGES {
        let service = number as usize * 7919 % workload.services;
        let change = put(workload.slice(service, 0, Variant::Replaced(number)));
        client.runtime.block_on(client.store.commit(change)).map_err(unexpected)?;
        let acknowledged = Instant::now();
        loop {
            let commit = commits.next(PATIENCE)?.ok_or_else(|| LabError::TooLate {
                what: format!("change {number} is committed"),
                limit: PATIENCE,
            })?;
            if commit.backends.contains(&newcomer_address(number)) {
                latencies.push(commit.at.saturating_duration_since(acknowledged));
                break;
            }
        }
    }
    Ok(latencies.into_iter().collect())
}

/// How long the agent worked on each of the last changes: in its loop, and in the renderer with the kernel's part.
fn inside(agent: &Agent<'_>) -> Result<Samples> {
    let history = agent.http("GET", &format!("/controller/event-history?last={CHANGES}"))?.json()?;
    let records = history.as_array().map(Vec::as_slice).unwrap_or_default();
    let duration = |record: &Value| {
        let of_loop = record["duration_ms"].as_f64()?;
        let of_renderer = record["renderers"]["nftables"]["duration_ms"].as_f64()?;
        (record["kind"] == "change").then(|| Duration::from_secs_f64((of_loop + of_renderer) / 1000.0))
    };
    Ok(records.iter().filter_map(duration).collect())
}
