//! Services that answer at some interfaces only: those of attached pods, and those to the external network.

use std::{net::SocketAddr, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Lab, Namespace, Outcome, Protocol, Responder, Result, isolated},
};

use crate::{explained::check_explanation, flows::unexpected};

/// The time without an answer after which a packet counts as dropped.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const AGENT: &str = "127.0.0.1:9999";

#[test]
fn services_answer_at_frontend_interfaces_only_where_limited() -> Result<()> {
    isolated(
        "service_interfaces::services_answer_at_frontend_interfaces_only_where_limited",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
            state.put(&web)?;
            let local = Service::new("local", 81, &[lab.pod1.host]);
            let manifest = ServiceManifest {
                external_local: true,
                ..ServiceManifest::new(local.clone())
            };
            state.put_manifest(&manifest)?;
            let services = [&web, &local];
            let start = |flags: &[&str]| {
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
            check(lab, &agent, services, [true, true, true])?;
            attach(lab, "pod2", 200)?;
            // No interface, that of the node to itself, and the one to the other nodes.
            for name in ["nothere", "lo", "eth0"] {
                attach(lab, name, 400)?;
            }
            let attached = attached_pods(lab)?;
            assert_eq!(attached, r#"[{"interface":"pod2","pod":"default/pod2"}]"#);
            agent.stop()?;

            // Interfaces attached before the restart are used after it. The other pod is not attached, and eth0 is the main interface.
            let agent = start(&["--service-interfaces=pods,external"])?;
            assert_eq!(attached_pods(lab)?, attached);
            check(lab, &agent, services, [false, true, true])?;
            attach(lab, "pod1", 200)?;
            check(lab, &agent, services, [true, true, true])?;
            detach(lab, "pod2")?;
            check(lab, &agent, services, [true, false, true])?;
            agent.stop()?;

            let agent = start(&["--service-interfaces=pods"])?;
            check(lab, &agent, services, [true, false, false])?;
            // Pods are still reached by their own addresses.
            let direct = lab.pod3.host.socket(Family::V4, TARGET_PORT);
            assert_eq!(
                lab.pod2.ask(Protocol::Tcp, direct)?.answer()?.by,
                lab.pod3.host.name
            );
            agent.stop()?;

            let agent = start(&[
                "--service-interfaces=external",
                "--external-interfaces=pod*",
            ])?;
            check(lab, &agent, services, [true, true, false])?;
            agent.stop()?;

            let agent = start(&[])?;
            check(lab, &agent, services, [true, true, true])?;
            let chain = [
                "nft",
                "list",
                "chain",
                "inet",
                "contiv",
                "interfaces-prerouting",
            ];
            assert!(lab.node.exec(&chain).is_err(), "nothing is left of it");
            agent.stop().map(drop)
        },
    )
}

/// Checks whether pod1, pod2 and the external client get an answer from both services, at every kind of address. The node always
/// gets one. The agent's trace and the kernel's tables must agree.
fn check(lab: &Lab, agent: &Agent<'_>, services: [&Service; 2], expected: [bool; 3]) -> Result<()> {
    let sources = [&lab.pod1, &lab.pod2, &lab.client, &lab.node];
    let flows = sources.into_iter().zip(expected.into_iter().chain([true]));
    for (from, is_answered) in flows {
        for (service, frontend) in services
            .into_iter()
            .flat_map(|service| Frontend::ALL.map(|it| (service, it)))
        {
            for (family, protocol) in Family::BOTH
                .into_iter()
                .flat_map(|f| [Protocol::Tcp, Protocol::Udp].map(|p| (f, p)))
            {
                let to = service.address(lab, frontend, family);
                let flow = format!("{} to {to}, {protocol:?}", from.host.name);
                // Answers take a few milliseconds.
                let limit = if is_answered {
                    10 * NO_ANSWER_TIMEOUT
                } else {
                    NO_ANSWER_TIMEOUT / 5
                };
                let outcome = from.ask_within(protocol, to, limit)?;
                let by_pod = matches!(&outcome, Outcome::Answered { answer, .. } if answer.by.starts_with("pod"));
                assert_eq!(by_pod, is_answered, "{flow}: {outcome:?}");
                assert_eq!(
                    outcome == Outcome::TimedOut,
                    !is_answered,
                    "{flow}: {outcome:?}"
                );
                if protocol == Protocol::Tcp {
                    check_trace(lab, agent, (from, to), is_answered)?;
                }
            }
        }
    }
    Ok(())
}

/// Checks that the agent's trace and the kernel's tables agree on whether a flow is answered.
fn check_trace(
    lab: &Lab,
    agent: &Agent<'_>,
    (source, to): (&Namespace, SocketAddr),
    is_answered: bool,
) -> Result<()> {
    let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
    let from = source.host.address(family);
    let interface = match source.host.name {
        "node" => String::new(),
        "client" => "&interface=eth0".to_owned(),
        pod => format!("&interface={pod}"),
    };
    let query = format!(
        "from={from}&to={}&port={}&protocol=TCP{interface}",
        to.ip(),
        to.port()
    );
    let expected = if is_answered {
        "SERVED"
    } else {
        "where services do not answer (service-interfaces)"
    };
    check_explanation(lab, agent, &query, expected)
}

/// Attaches a pod by the interface of this name, as a CNI plugin does.
fn attach(lab: &Lab, name: &str, status: u16) -> Result<()> {
    let body =
        format!("{{\"namespace\": \"default\", \"name\": \"{name}\", \"interface\": \"{name}\"}}");
    let server = AGENT.parse().map_err(unexpected)?;
    let response = lab
        .node
        .http_with_body("POST", server, "/pods?wait=20s", &body)?;
    assert_eq!(response.status, status, "{name}: {}", response.body);
    Ok(())
}

/// The attached pods, as the agent lists them.
fn attached_pods(lab: &Lab) -> Result<String> {
    let response = lab
        .node
        .http("GET", AGENT.parse().map_err(unexpected)?, "/pods")?;
    assert_eq!(response.status, 200, "{}", response.body);
    Ok(response.body)
}

fn detach(lab: &Lab, name: &str) -> Result<()> {
    let server = AGENT.parse().map_err(unexpected)?;
    let response = lab
        .node
        .http("DELETE", server, &format!("/pods/default/{name}"))?;
    assert_eq!(response.status, 200, "{}", response.body);
    // A detachment does not wait for the renderer; the next attachment does, by an interface that concerns nothing here.
    lab.node.exec(&[
        "ip",
        "link",
        "add",
        "last",
        "type",
        "veth",
        "peer",
        "name",
        "last-peer",
    ])?;
    attach(lab, "last", 200)
}
