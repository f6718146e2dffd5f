//! The same matrix, asked of the agent's evaluator instead of the kernel: `GET /trace` must say what the packets showed.

use std::{collections::BTreeSet, net::IpAddr};

use contiv_tests::{
    agent::Agent,
    lab::{Lab, Protocol, Result},
};
use serde_json::Value;

use super::{
    matrix::Flow,
    oracle::{Expected, expected, is_hidden},
};

/// Asks about every flow, and says in words where the answer is not what is expected.
pub(crate) fn mismatches(lab: &Lab, agent: &Agent<'_>, flows: &[Flow]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for flow in flows {
        let from = flow.source.namespace(lab).host.address(flow.family);
        let to = flow.service.address(lab, flow.frontend, flow.family);
        let protocol = match flow.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        let path = format!("/trace?from={from}&to={}&port={}&protocol={protocol}", to.ip(), to.port());
        let answer = agent.http("GET", &path)?.json()?;
        let expected = expected(flow, lab.node.host);
        if !agrees(lab, flow, &expected, &answer["verdict"]) {
            wrong.push(format!("{flow}: expected {expected:?}, the trace says {}", answer["verdict"]));
        }
    }
    Ok(wrong)
}

fn agrees(lab: &Lab, flow: &Flow, expected: &Expected, verdict: &Value) -> bool {
    let Expected::Answered(names) = expected else {
        let word = if *expected == Expected::Rejected { "rejected" } else { "dropped" };
        return verdict.get(word).is_some();
    };
    let delivery = &verdict["backends"];
    let hidden = delivery["masquerade"].as_str().is_some_and(|masquerade| masquerade.starts_with("hidden"));
    let candidates = delivery["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let by_name = |candidate: &Value| {
        let address: IpAddr = candidate["address"].as_str()?.parse().ok()?;
        let pods = lab.pods();
        let pod = pods.iter().find(|pod| pod.host.address(flow.family) == address)?;
        Some((pod.host.name, hidden || candidate["hairpin"] == true))
    };
    let found: Option<BTreeSet<(&str, bool)>> = candidates.iter().map(by_name).collect();
    found.is_some_and(|found| found == names.iter().map(|name| (*name, is_hidden(flow, name))).collect())
}
