//! The agent proves its rules by connections of its own, and says which step fails.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Manifests, Service, State},
    lab::{Lab, Result, isolated, wait_for, wait_until},
};
use serde_json::Value;

const HEALTHZ: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);
/// Several checks take less.
const LIMIT: Duration = Duration::from_secs(30);
/// The addresses of the agent's own service, and to where they lead.
const WAYS: [(&str, &str); 2] = [("169.254.77.77", "127.0.0.1"), ("100::77:77", "::1")];

fn agent(lab: &Lab) -> Result<Agent<'_>> {
    let state = Manifests::new(lab)?;
    state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
    let flags = vec![
        "--self-check".to_owned(),
        "--own-table=false".to_owned(),
        format!("--healthz-listen={HEALTHZ}"),
    ];
    Agent::start(
        lab,
        &AgentOptions {
            flags,
            ..AgentOptions::with_store(state.url())
        },
    )
}

/// Waits for a failure, or for its end.
fn wait_for_failure(agent: &Agent<'_>) -> Result<String> {
    wait_for("the agent finds that it fails", LIMIT, || {
        let status = agent.status().ok()?;
        Some(status["self_check"]["reason"].as_str()?.to_owned())
    })
}

fn wait_for_success(agent: &Agent<'_>) -> Result<()> {
    let is_gone = || {
        agent
            .status()
            .is_ok_and(|status| status["self_check"] == Value::Null)
    };
    wait_until("the agent reaches itself", LIMIT, is_gone).map(drop)
}

fn healthz(lab: &Lab) -> Result<u16> {
    Ok(lab.node.http("GET", HEALTHZ, "/healthz")?.status)
}

#[test]
fn own_connections_pass_the_rules_in_both_families() -> Result<()> {
    isolated(
        "self_check::own_connections_pass_the_rules_in_both_families",
        |lab| {
            let agent = agent(lab)?;
            for (frontend, listener) in WAYS {
                let family = if frontend.contains(':') {
                    "ipv6"
                } else {
                    "ipv4"
                };
                let is_translated = || {
                    let list = ["conntrack", "-L", "-f", family, "-d", frontend];
                    let found = lab.node.exec(&list);
                    found.is_ok_and(|flows| flows.contains(&format!("src={listener} ")))
                };
                wait_until(&format!("a connection to {frontend}"), LIMIT, is_translated)?;
            }
            assert_eq!(agent.status()?["self_check"], Value::Null);
            assert_eq!(healthz(lab)?, 200);
            // It is no service of the store.
            let services = agent.http("GET", "/services")?.json()?;
            assert_eq!(services.as_array().map(Vec::len), Some(1), "{services}");
            let verify = [&*binary()?.to_string_lossy(), "verify"].map(str::to_owned);
            let equal = lab.node.exec(&[&verify[0], &verify[1]])?;
            assert!(equal.contains("equal"), "{equal}");
            agent.stop().map(drop)
        },
    )
}

#[test]
fn rule_that_stops_own_connections_makes_the_node_unhealthy_and_is_named() -> Result<()> {
    isolated(
        "self_check::rule_that_stops_own_connections_makes_the_node_unhealthy_and_is_named",
        |lab| {
            let agent = agent(lab)?;
            for (hook, family, address) in [
                ("filter hook output priority raw", "ip", WAYS[0].0),
                ("filter hook output priority raw", "ip6", WAYS[1].0),
            ] {
                lab.node.exec(&[
                    "nft",
                    &format!(
                        "table {family} fw {{ chain base {{ type {hook}; {family} daddr {address} drop; }}; }}"
                    ),
                ])?;
                let reason = wait_for_failure(&agent)?;
                assert!(
                    reason.contains(address) && reason.contains("fw") && reason.contains("drops"),
                    "{reason}"
                );
                assert_eq!(healthz(lab)?, 503);
                let status = lab.node.run(|| {
                    std::process::Command::new(binary()?)
                        .arg("status")
                        .output()
                        .map_err(|error| contiv_tests::lab::LabError::Unexpected(error.to_string()))
                })?;
                let text = String::from_utf8_lossy(&status.stdout);
                assert!(text.contains("fails for") && text.contains("fw"), "{text}");
                assert_eq!(status.status.code(), Some(1), "{text}");
                let metrics = agent.http("GET", "/metrics")?.body;
                assert!(
                    metrics.contains("\ncontiv_self_check_failing 1\n"),
                    "{metrics}"
                );
                lab.node
                    .exec(&["nft", &format!("delete table {family} fw")])?;
                wait_for_success(&agent)?;
                assert_eq!(healthz(lab)?, 200);
            }
            let history = agent
                .http("GET", "/controller/event-history?last=50")?
                .json()?;
            let events = history.as_array().into_iter().flatten();
            let of_check: Vec<&str> = events
                .filter(|event| event["kind"] == "self-check")
                .filter_map(|event| event["description"].as_str())
                .collect();
            assert_eq!(
                of_check.len(),
                4,
                "two failures and their ends: {of_check:?}"
            );
            agent.stop().map(drop)
        },
    )
}

#[test]
fn untracked_own_connections_are_named() -> Result<()> {
    isolated("self_check::untracked_own_connections_are_named", |lab| {
        let agent = agent(lab)?;
        lab.node.exec(&[
                "nft",
                "table ip fw { chain base { type filter hook output priority raw; ip daddr 169.254.77.77 notrack; }; }",
            ])?;
        let reason = wait_for_failure(&agent)?;
        assert!(reason.contains("notrack"), "{reason}");
        agent.stop().map(drop)
    })
}
