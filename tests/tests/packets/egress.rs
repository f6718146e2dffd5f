//! Connections of pods to destinations outside the cluster: masqueraded if configured, except for excluded destinations.

use std::{net::IpAddr, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Manifests, NodeManifest, State},
    lab::{
        Family, Lab, LabError, Namespace, Outcome, Protocol, Responder, Result, isolated, ranges,
        wait_until,
    },
};

use crate::explained::check_explanation;

const PORT: u16 = 7070;
/// The time without an answer after which a packet counts as dropped.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn pod_egress_has_the_node_address_if_configured() -> Result<()> {
    isolated(
        "egress::pod_egress_has_the_node_address_if_configured",
        |lab| {
            let servers = [&lab.client, &lab.node2, &lab.pod1, &lab.pod3];
            let _responders = Responder::start_all(servers, PORT)?;
            let state = Manifests::new(lab)?;
            state.delete_node(lab.node2.host)?;
            let start = |flags: &[&str]| {
                // A client that reuses a port would match the conntrack entry of an earlier flow.
                lab.node.exec(&["conntrack", "--flush"])?;
                let flags = flags.iter().map(ToString::to_string).collect();
                Agent::start(
                    lab,
                    &AgentOptions {
                        flags,
                        ..AgentOptions::with_store(state.url())
                    },
                )
            };

            let agent = start(&[])?;
            check_source(lab, &agent, &lab.client, &Source::NoReply)?;
            assert!(!has_chain(lab), "without the setting there is no chain");
            agent.stop()?;

            let by_interface = [
                "--masquerade-egress",
                "--local-detect=interfaces:pod1,pod2*",
            ];
            for flags in [&["--masquerade-egress"][..], &by_interface] {
                let agent = start(flags)?;
                check_source(lab, &agent, &lab.client, &Source::Node)?;
                assert!(has_chain(lab));
                check_source(lab, &agent, &lab.node2, &Source::Node)?;
                check_source(lab, &agent, &lab.pod3, &Source::Node)?;
                check_source(lab, &agent, &lab.pod1, &Source::Pod)?;
                // The other node joins the cluster.
                let joining = lab.node2.host;
                state.put_node(&NodeManifest {
                    host: joining,
                    pods: Some(&ranges::PODS2),
                    zone: None,
                })?;
                let address = joining.address(Family::V6);
                let list = [
                    "nft",
                    "list",
                    "set",
                    "inet",
                    "contiv",
                    "non-masquerade-cidrs6",
                ];
                wait_until("the node is in the cluster", EVENT_TIMEOUT, || {
                    lab.node
                        .exec(&list)
                        .is_ok_and(|set| set.contains(&address.to_string()))
                })?;
                lab.node.exec(&["conntrack", "--flush"])?;
                check_source(lab, &agent, &lab.client, &Source::Node)?;
                check_source(lab, &agent, &lab.node2, &Source::Pod)?;
                check_source(lab, &agent, &lab.pod3, &Source::Pod)?;
                agent.stop()?;
                state.delete_node(joining)?;
            }

            let excluded = format!(
                "--non-masquerade-cidrs={},{}",
                ranges::EXTERNAL.cidr(Family::V4),
                ranges::EXTERNAL.cidr(Family::V6)
            );
            let agent = start(&["--masquerade-egress", &excluded])?;
            check_source(lab, &agent, &lab.client, &Source::NoReply)?;
            check_source(lab, &agent, &lab.node2, &Source::Pod)?;
            check_source(lab, &agent, &lab.pod3, &Source::Node)?;
            agent.stop()?;

            let agent = start(&[])?;
            check_source(lab, &agent, &lab.client, &Source::NoReply)?;
            check_source(lab, &agent, &lab.pod3, &Source::Pod)?;
            assert!(
                !has_chain(lab),
                "a restart without the setting removes the chain"
            );
            agent.stop().map(drop)
        },
    )
}

/// The host whose address a server sees as the client's.
enum Source {
    Pod,
    Node,
    /// None is seen: replies to the pod's own address do not return.
    NoReply,
}

/// Sends from pod2 to a server over TCP and UDP. Compares the outcome, the agent's trace and the kernel's tables with `expected`.
fn check_source(lab: &Lab, agent: &Agent<'_>, server: &Namespace, expected: &Source) -> Result<()> {
    for (family, protocol) in Family::BOTH
        .into_iter()
        .flat_map(|f| [Protocol::Tcp, Protocol::Udp].map(|p| (f, p)))
    {
        let to = server.host.socket(family, PORT);
        let flow = format!("{} to {to}, {protocol:?}", lab.pod2.host.name);
        let failed = |error: LabError| LabError::Unexpected(format!("{flow}: {error}"));
        let from = |host: &Namespace| host.host.address(family);
        let seen = match expected {
            Source::Pod => Some(from(&lab.pod2)),
            Source::Node => Some(from(&lab.node)),
            Source::NoReply => None,
        };
        if let Some(seen) = seen {
            let answer = lab.pod2.ask(protocol, to)?.answer().map_err(failed)?;
            assert_eq!(
                (answer.by.as_str(), answer.seen_source.ip()),
                (server.host.name, seen),
                "{flow}"
            );
        } else {
            let outcome = lab.pod2.ask_within(protocol, to, NO_ANSWER_TIMEOUT)?;
            assert!(
                !matches!(outcome, Outcome::Answered { .. }),
                "{flow}: {outcome:?}"
            );
        }
        check_trace(
            lab,
            agent,
            (from(&lab.pod2), to.ip()),
            protocol,
            matches!(expected, Source::Node),
        )?;
    }
    Ok(())
}

/// Checks that the agent's trace and the kernel's tables agree on whether a flow is masqueraded.
fn check_trace(
    lab: &Lab,
    agent: &Agent<'_>,
    (from, to): (IpAddr, IpAddr),
    protocol: Protocol,
    is_masqueraded: bool,
) -> Result<()> {
    let name = if protocol == Protocol::Tcp {
        "TCP"
    } else {
        "UDP"
    };
    let query = format!("from={from}&to={to}&port={PORT}&protocol={name}&interface=pod2");
    let expected = if is_masqueraded {
        "EGRESS"
    } else {
        "UNTOUCHED"
    };
    check_explanation(lab, agent, &query, expected)
}

fn has_chain(lab: &Lab) -> bool {
    lab.node
        .exec(&[
            "nft",
            "list",
            "chain",
            "inet",
            "contiv",
            "egress-postrouting",
        ])
        .is_ok()
}
