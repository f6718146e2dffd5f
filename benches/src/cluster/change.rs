//! One change at a time, from etcd's acknowledgement to the kernel's notification of the commit.

use std::time::{Duration, Instant};

use contiv_store::Store;
use contiv_tests::{
    agent::Agent,
    lab::{Lab, LabError, Result},
};
use serde_json::Value;

use super::{Client, Scenario, put, unexpected};
use crate::{
    figures::{Figure, Limit, Quantity},
    netlink::Commits,
    statistics::Samples,
    workload::{Variant, Workload, marker_address},
};

/// The number of measured changes.
const CHANGES: u32 = 400;
/// Longer than any change takes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn measure(
    lab: &Lab,
    client: &Client,
    agent: &Agent<'_>,
    scenario: Scenario,
) -> Result<Vec<Figure>> {
    let workload = scenario.workload;
    let latencies = lab.node.run(|| latencies(client, workload))?;
    let figure = |name: &str, measured: Duration| {
        Figure::new(
            scenario.section,
            name,
            (workload.services, workload.backends),
            measured,
        )
    };
    let mut figures = Vec::new();
    for ((name, percent), limit) in [("one change, p50", 50), ("one change, p99", 99)]
        .into_iter()
        .zip(scenario.change)
    {
        let figure = figure(name, latencies.percentile(percent));
        figures.push(limit.into_iter().fold(figure, Figure::with_limit));
    }
    let inside = inside(agent)?;
    let limit = Limit::AtMost(Quantity::Seconds(100e-6));
    let sent = figure(
        "one change, taken up until sent to the kernel, p50",
        inside.until_sent.median(),
    );
    figures.push(if workload.services == 10_000 {
        sent.with_limit(limit)
    } else {
        sent
    });
    figures.push(figure(
        "one change, of it the event loop, p50",
        inside.in_core.median(),
    ));
    figures.push(figure(
        "one change, renderer with the kernel, p50",
        inside.in_renderer.median(),
    ));
    Ok(figures)
}

/// The time from the acknowledgement to the commit; zero if the commit is seen before the acknowledgement.
fn latencies(client: &Client, workload: Workload) -> Result<Samples> {
    let mut commits = Commits::listen()?;
    let mut latencies = Vec::new();
    for number in 0..CHANGES {
        let service = number as usize * 7919 % workload.services;
        let change = put(workload.slice(service, 0, Variant::Replaced(number)));
        client
            .runtime
            .block_on(client.store.commit(change))
            .map_err(unexpected)?;
        let acknowledged = Instant::now();
        loop {
            let commit = commits
                .next(CHANGE_TIMEOUT)?
                .ok_or_else(|| LabError::TooLate {
                    event: format!("change {number} is committed"),
                    limit: CHANGE_TIMEOUT,
                })?;
            if commit.backends.contains(&marker_address(number)) {
                latencies.push(commit.at.saturating_duration_since(acknowledged));
                break;
            }
        }
    }
    Ok(latencies.into_iter().collect())
}

/// The agent's processing times of the last changes.
struct AgentTimes {
    /// From when the agent takes the event up until the transaction was sent to the kernel.
    until_sent: Samples,
    /// The part of it spent in the core, until the renderers have been given the change.
    in_core: Samples,
    /// The renderer's whole call, including the kernel's part.
    in_renderer: Samples,
}

/// Reads the times of the last changes from the event history.
fn inside(agent: &Agent<'_>) -> Result<AgentTimes> {
    let history = agent
        .http("GET", &format!("/controller/event-history?last={CHANGES}"))?
        .json()?;
    let records = history.as_array().map(Vec::as_slice).unwrap_or_default();
    let samples = |path: &str| -> Samples {
        let changes = records.iter().filter(|record| record["kind"] == "change");
        let milliseconds =
            changes.filter_map(|record| record.pointer(path).and_then(Value::as_f64));
        milliseconds
            .map(|milliseconds| Duration::from_secs_f64(milliseconds / 1000.0))
            .collect()
    };
    let until_sent = samples("/renderers/nftables/sent_after_ms");
    if until_sent.is_empty() {
        return Err(LabError::Unexpected(
            "the event history says of no change when it was sent".to_owned(),
        ));
    }
    Ok(AgentTimes {
        until_sent,
        in_core: samples("/duration_ms"),
        in_renderer: samples("/renderers/nftables/duration_ms"),
    })
}
