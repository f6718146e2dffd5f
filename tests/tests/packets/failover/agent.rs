//! The agent lets backends leave that fail, and takes them back.

use std::{net::SocketAddr, thread, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{
        Frontend::{ClusterIp, NodePort},
        Manifests, Service, ServiceManifest, State, TARGET_PORT,
    },
    lab::{
        Family, Host, Lab, Namespace, Outcome, Protocol, Responder, Result, isolated, wait_until,
    },
};

use super::{CONNECT_TIMEOUT, Fault, UNREACHED, assert_answered, outcomes};

/// How long what follows a fault is waited for.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A service with a mode of failover.
fn web(mode: &'static str, backends: &[&'static Host]) -> ServiceManifest {
    ServiceManifest {
        annotations: vec![("contiv.io/failover", mode)],
        ..ServiceManifest::new(Service::new("web", 80, backends))
    }
}

/// What the agent's history says about failover, oldest first.
fn said(agent: &Agent<'_>) -> Result<String> {
    let events = agent.http("GET", "/controller/event-history")?.json()?;
    let of_failover = events
        .as_array()
        .into_iter()
        .flatten()
        .filter(|event| event["kind"] == "failover");
    let lines =
        of_failover.map(|event| event["description"].as_str().unwrap_or_default().to_owned());
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Where the clients connect to, in both families: a pod to the cluster IP, the node itself too, and a machine outside to a node port.
fn clients<'a>(lab: &'a Lab, web: &Service) -> Vec<(&'a Namespace, SocketAddr)> {
    let ends = Family::BOTH.map(|family| {
        let address = |frontend| web.address(lab, frontend, family);
        [
            (&lab.pod1, address(ClusterIp)),
            (&lab.node, address(ClusterIp)),
            (&lab.client, address(NodePort)),
        ]
    });
    ends.concat()
}

/// Whether this backend is among the answers of many connections.
fn answers(from: &Namespace, to: SocketAddr, name: &str) -> bool {
    (0..UNREACHED).any(|_| {
        let outcome = from.ask_within(Protocol::Tcp, to, CONNECT_TIMEOUT);
        outcome
            .and_then(Outcome::answer)
            .is_ok_and(|answer| answer.by == name)
    })
}

#[test]
fn failing_backend_leaves_and_comes_back() -> Result<()> {
    isolated(
        "failover::agent::failing_backend_leaves_and_comes_back",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let manifest = web("on", &[lab.pod2.host, lab.pod3.host, lab.pod4.host]);
            manifests.put_manifest(&manifest)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            let ends = clients(lab, &manifest.service);
            // One on this node, and one on another.
            for (failing, fault) in [
                (&lab.pod2, Fault::Refuses),
                (&lab.pod3, Fault::Unreachable),
                (&lab.pod3, Fault::Silent),
            ] {
                let of = format!("{fault:?} at {}", failing.host.name);
                fault.begin(failing, TARGET_PORT)?;
                let found = thread::scope(|scope| {
                    let all: Vec<_> = ends
                        .iter()
                        .map(|(from, to)| scope.spawn(move || outcomes(from, *to, 20)))
                        .collect();
                    all.into_iter()
                        .map(|one| {
                            one.join()
                                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
                        })
                        .collect::<Result<Vec<_>>>()
                })?;
                for (outcomes, (from, to)) in found.into_iter().zip(&ends) {
                    assert_answered(outcomes, &format!("{of}, {} to {to}", from.host.name))?;
                }
                for (from, to) in &ends {
                    let left = || !answers(from, *to, failing.host.name);
                    wait_until("the backend has left", EVENT_TIMEOUT, left)?;
                }
                fault.end(failing)?;
                for (from, to) in &ends {
                    let is_back = || answers(from, *to, failing.host.name);
                    wait_until("the backend is back", EVENT_TIMEOUT, is_back)?;
                }
            }
            let history = said(&agent)?;
            for name in ["refused a connection", "does not answer", "answers again"] {
                assert!(history.contains(name), "{history}");
            }
            agent.stop().map(drop)
        },
    )
}

#[test]
fn clients_hear_it_at_once_where_no_backend_works() -> Result<()> {
    isolated(
        "failover::agent::clients_hear_it_at_once_where_no_backend_works",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let manifest = web("on", &[lab.pod2.host, lab.pod3.host]);
            manifests.put_manifest(&manifest)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            for pod in [&lab.pod2, &lab.pod3] {
                Fault::Refuses.begin(pod, TARGET_PORT)?;
            }
            for (from, to) in clients(lab, &manifest.service) {
                // The first one to hear it may have tried both.
                let hears = || {
                    let outcome = from.ask_within(Protocol::Tcp, to, CONNECT_TIMEOUT);
                    let after = outcome.and_then(Outcome::refusal);
                    after.is_ok_and(|after| after < Duration::from_millis(900))
                };
                wait_until("a client is refused at once", EVENT_TIMEOUT, hears)?;
            }
            agent.stop().map(drop)
        },
    )
}

#[test]
fn silence_of_most_backends_lets_none_leave() -> Result<()> {
    isolated(
        "failover::agent::silence_of_most_backends_lets_none_leave",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let manifest = web("on", &[lab.pod2.host, lab.pod3.host, lab.pod4.host]);
            manifests.put_manifest(&manifest)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            for pod in [&lab.pod2, &lab.pod3] {
                Fault::Silent.begin(pod, TARGET_PORT)?;
            }
            let (from, to) = clients(lab, &manifest.service)[0];
            let cut_off = || {
                // Attempts at all of them.
                let _ = outcomes(from, to, 30);
                said(&agent).is_ok_and(|history| history.contains("cut off"))
            };
            wait_until("the history says it", EVENT_TIMEOUT * 3, cut_off)?;
            let services = agent.http("GET", "/services")?.body;
            assert!(!services.contains("Failing"), "{services}");
            agent.stop().map(drop)
        },
    )
}

#[test]
fn observed_backend_stays_and_is_reported() -> Result<()> {
    isolated(
        "failover::agent::observed_backend_stays_and_is_reported",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let manifest = web("observe", &[lab.pod2.host, lab.pod3.host]);
            manifests.put_manifest(&manifest)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            Fault::Refuses.begin(&lab.pod2, TARGET_PORT)?;
            let (from, to) = clients(lab, &manifest.service)[0];
            let reported = || {
                let refused = from
                    .ask_within(Protocol::Tcp, to, CONNECT_TIMEOUT)
                    .and_then(Outcome::refusal);
                refused.is_ok() && said(&agent).is_ok_and(|history| history.contains("would leave"))
            };
            wait_until(
                "a refusal reaches a client, and is reported",
                EVENT_TIMEOUT,
                reported,
            )?;
            // It stays: connections go on being refused.
            let refused = || {
                (0..UNREACHED).any(|_| {
                    from.ask_within(Protocol::Tcp, to, CONNECT_TIMEOUT)
                        .and_then(Outcome::refusal)
                        .is_ok()
                })
            };
            assert!(refused());
            // Without failover the table is gone.
            manifests.put_manifest(&ServiceManifest {
                annotations: Vec::new(),
                ..manifest
            })?;
            wait_until("the table is gone", EVENT_TIMEOUT, || {
                let tables = lab.node.exec(&["nft", "list", "tables"]);
                tables.is_ok_and(|tables| !tables.contains("failover"))
            })?;
            agent.stop().map(drop)
        },
    )
}

#[test]
fn backend_in_the_network_of_the_node_refuses_no_client() -> Result<()> {
    isolated(
        "failover::agent::backend_in_the_network_of_the_node_refuses_no_client",
        |lab| {
            // Nothing listens on the node itself.
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let manifest = web("on", &[lab.node.host, lab.pod3.host]);
            manifests.put_manifest(&manifest)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            for (from, to) in clients(lab, &manifest.service) {
                let names = assert_answered(outcomes(from, to, 10)?, from.host.name)?;
                assert!(names.iter().all(|name| name == "pod3"), "{names:?}");
            }
            let history = said(&agent)?;
            assert!(history.contains("refused a connection"), "{history}");
            agent.stop().map(drop)
        },
    )
}

#[test]
fn clients_with_a_backend_of_their_own_reach_another_one() -> Result<()> {
    isolated(
        "failover::agent::clients_with_a_backend_of_their_own_reach_another_one",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let sticky = ServiceManifest {
                affinity: Some(600),
                ..web("on", &[lab.pod2.host, lab.pod3.host, lab.pod4.host])
            };
            let mut by_client = web("on", &[lab.pod2.host, lab.pod3.host, lab.pod4.host]);
            by_client.service = Service::new("by-client", 81, &by_client.service.backends);
            by_client
                .annotations
                .push(("contiv.io/balance", "client-address"));
            for manifest in [&sticky, &by_client] {
                manifests.put_manifest(manifest)?;
            }
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            for (manifest, fault) in [
                (&sticky, Fault::Refuses),
                (&sticky, Fault::Silent),
                (&by_client, Fault::Refuses),
                (&by_client, Fault::Silent),
            ] {
                let ends = clients(lab, &manifest.service);
                // A pod in one family, and a machine outside in the other.
                for (from, to) in [ends[0], ends[5]] {
                    let of = format!("{fault:?}, {} to {to}", from.host.name);
                    let mut before = String::new();
                    let has_one = || {
                        let names = outcomes(from, to, 4).and_then(|all| assert_answered(all, &of));
                        let names = names.unwrap_or_default();
                        names
                            .first()
                            .cloned()
                            .unwrap_or_default()
                            .clone_into(&mut before);
                        !names.is_empty() && names.iter().all(|name| *name == before)
                    };
                    wait_until("the client has one backend", EVENT_TIMEOUT, has_one)?;
                    let pods = [&lab.pod2, &lab.pod3, &lab.pod4];
                    let failing = pods.into_iter().find(|pod| pod.host.name == before);
                    let Some(failing) = failing else {
                        panic!("{before} is no backend");
                    };
                    fault.begin(failing, TARGET_PORT)?;
                    let after = assert_answered(outcomes(from, to, 4)?, &of)?;
                    assert!(!after.contains(&before), "{of}: {after:?}");
                    fault.end(failing)?;
                    let is_back = || {
                        said(&agent).is_ok_and(|said| {
                            said.matches("answers again").count()
                                == said.matches("others work").count()
                        })
                    };
                    wait_until("the backend is back", EVENT_TIMEOUT, is_back)?;
                }
            }
            agent.stop().map(drop)
        },
    )
}

#[test]
fn client_that_a_policy_keeps_away_lets_no_backend_leave() -> Result<()> {
    isolated(
        "failover::agent::client_that_a_policy_keeps_away_lets_no_backend_leave",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let manifests = Manifests::new(lab)?;
            let manifest = web("on", &[lab.pod2.host, lab.pod3.host, lab.pod4.host]);
            manifests.put_manifest(&manifest)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(manifests.url()))?;
            let ends = clients(lab, &manifest.service);
            let (denied, to) = ends[0];
            for verdict in ["reject with tcp reset", "drop"] {
                for pod in [&lab.pod2, &lab.pod3, &lab.pod4] {
                    let rules = format!(
                        "table inet denied {{ chain input {{ type filter hook input priority 0; \
                         ip saddr {} tcp dport {TARGET_PORT} {verdict}; }}; }}",
                        denied.host.v4
                    );
                    pod.exec_with_input(&["nft", "-f", "-"], &rules)?;
                }
                if verdict == "drop" {
                    let found = outcomes(denied, to, 30)?;
                    let is_silent = |outcome: &Outcome| matches!(outcome, Outcome::TimedOut);
                    assert!(found.iter().all(is_silent), "{found:?}");
                } else {
                    // Once probes were answered the client hears it at once.
                    let hears = || {
                        let outcome = denied.ask_within(Protocol::Tcp, to, CONNECT_TIMEOUT);
                        let after = outcome.and_then(Outcome::refusal);
                        after.is_ok_and(|after| after < Duration::from_millis(900))
                    };
                    wait_until("the client is refused at once", EVENT_TIMEOUT, hears)?;
                }
                for pod in [&lab.pod2, &lab.pod3, &lab.pod4] {
                    pod.exec(&["nft", "delete", "table", "inet", "denied"])?;
                }
            }
            assert_eq!(said(&agent)?, "");
            for name in ["pod2", "pod3", "pod4"] {
                let (other, to) = ends[2];
                assert!(answers(other, to, name), "{name}");
            }
            agent.stop().map(drop)
        },
    )
}
