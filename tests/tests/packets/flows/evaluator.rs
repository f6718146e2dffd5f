//! The flow matrix, evaluated by the agent: `GET /trace` must agree with the packets and explain the outcome.

use std::collections::BTreeMap;

use contiv_model::{Trace, trace::Verdict};
use contiv_tests::{
    agent::Agent,
    lab::{Lab, LabError, Result},
};

use super::{
    matrix::Flow,
    outcomes::{FlowOutcome, expected_outcome, unexpected},
};

/// The agent's trace of every flow.
pub(crate) fn traces(lab: &Lab, agent: &Agent<'_>, flows: &[Flow]) -> Result<Vec<Trace>> {
    flows.iter().map(|flow| trace(lab, agent, flow)).collect()
}

fn trace(lab: &Lab, agent: &Agent<'_>, flow: &Flow) -> Result<Trace> {
    let flow = flow.to_model(lab).map_err(unexpected)?;
    let interface = flow
        .interface()
        .map(|name| format!("&interface={name}"))
        .unwrap_or_default();
    let (from, to, port, protocol) = (flow.from(), flow.to(), flow.port(), flow.protocol());
    let path = format!("/trace?from={from}&to={to}&port={port}&protocol={protocol}{interface}");
    serde_json::from_value(agent.http("GET", &path)?.json()?).map_err(unexpected)
}

/// Describes the traces that differ from the expected outcome of their flows.
pub(crate) fn mismatches(lab: &Lab, flows: &[Flow], traces: &[Trace]) -> Vec<String> {
    let mismatch = |(flow, trace): (&Flow, &Trace)| {
        let (expected, found) = (expected_outcome(lab, flow), outcome(lab, flow, trace));
        (found.as_ref().ok() != Some(&expected))
            .then(|| format!("{flow}: expected {expected:?}, the trace says {found:?}"))
    };
    flows.iter().zip(traces).filter_map(mismatch).collect()
}

fn outcome(lab: &Lab, flow: &Flow, trace: &Trace) -> Result<FlowOutcome> {
    match &trace.verdict {
        Verdict::Backends(delivery) => {
            let backends = delivery
                .candidates
                .iter()
                .map(|it| (it.address, delivery.is_hidden_from(it)));
            FlowOutcome::by_addresses(lab, flow, backends)
        }
        Verdict::Rejected(_) => Ok(FlowOutcome::Rejected),
        Verdict::Dropped(_) => Ok(FlowOutcome::Dropped),
        verdict @ (Verdict::Routed | Verdict::Egress | Verdict::Untouched) => {
            Err(LabError::Unexpected(format!("{verdict:?}")))
        }
    }
}

/// Flows with an insufficient explanation: none, or the same as for a flow with another outcome. The requested addresses and
/// the name of the service explain nothing and are left out.
pub(crate) fn unexplained(lab: &Lab, flows: &[Flow], traces: &[Trace]) -> Vec<String> {
    let mut outcomes: BTreeMap<String, FlowOutcome> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for (flow, trace) in flows.iter().zip(traces) {
        let text = trace.to_string();
        let is_explanation =
            |line: &&str| !line.starts_with("flow ") && !line.starts_with("service ");
        let words: Vec<&str> = text.lines().filter(is_explanation).collect();
        let has_line = |label: &str| {
            words.iter().any(|line| {
                line.strip_prefix(label)
                    .is_some_and(|it| !it.trim().is_empty())
            })
        };
        if !["client ", "verdict ", "why "].into_iter().all(has_line) {
            unexplained.push(format!(
                "{flow}: the client, the verdict or the reason is missing in:\n{text}"
            ));
        }
        let expected = expected_outcome(lab, flow);
        let first = outcomes
            .entry(words.join("\n"))
            .or_insert_with(|| expected.clone());
        if *first != expected {
            unexplained.push(format!(
                "{flow}: ends with {expected:?}, explained as {first:?} is:\n{text}"
            ));
        }
    }
    unexplained
}
