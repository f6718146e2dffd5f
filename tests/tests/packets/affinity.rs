//! Session affinity and selection by client address: which client gets which backend, and for how long.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Host, Lab, LabError, Protocol, Responder, Result, isolated, wait_until},
};

/// The default of Kubernetes; longer than any test.
const THREE_HOURS: u32 = 10_800;
/// The number of addresses of the external client. By chance all of them draw the same of three backends once in 10^7 runs.
const CLIENTS: u8 = 16;
/// By chance this many connections get the same of three backends once in 10^9 runs.
const CONNECTIONS: usize = 20;

/// The server of each client address, from one new connection each.
type ServerByClient = BTreeMap<u8, String>;

const FAMILIES_AND_PROTOCOLS: [(Family, Protocol); 4] = [
    (Family::V4, Protocol::Tcp),
    (Family::V4, Protocol::Udp),
    (Family::V6, Protocol::Tcp),
    (Family::V6, Protocol::Udp),
];

/// Adds the addresses of the external client.
fn make_clients(lab: &Lab) -> Result<()> {
    let script: Vec<String> = (0..CLIENTS)
        .flat_map(|client| {
            Family::BOTH.map(|family| match family {
                Family::V4 => format!("addr add {}/24 dev eth0", source(client, family)),
                Family::V6 => format!("addr add {}/64 dev eth0 nodad", source(client, family)),
            })
        })
        .collect();
    lab.client
        .exec_with_input(&["ip", "-batch", "-"], &script.join("\n"))
        .map(drop)
}

fn source(client: u8, family: Family) -> String {
    match family {
        Family::V4 => format!("172.31.0.{}", 200 + client),
        Family::V6 => format!("fd00:172:31::c{client:02x}"),
    }
}

/// Sends one request to a frontend from each address of the external client.
fn ask_all(
    lab: &Lab,
    service: &Service,
    frontend: Frontend,
    at: (Family, Protocol),
) -> Result<ServerByClient> {
    let (family, protocol) = at;
    let server = service.address(lab, frontend, family);
    (0..CLIENTS)
        .map(|client| {
            // The route to the server selects the source address.
            let (to, from) = (server.ip().to_string(), source(client, family));
            let via = lab.node.host.address(family).to_string();
            let way: &[&str] = if to == via {
                &["dev", "eth0"]
            } else {
                &["via", &via]
            };
            let route = [&["ip", "route", "replace", &to], way, &["src", &from]].concat();
            lab.client.exec(&route)?;
            Ok((client, lab.client.ask(protocol, server)?.answer()?.by))
        })
        .collect()
}

/// The different backends of the answers.
fn backends_of(served: &ServerByClient) -> BTreeSet<&str> {
    served.values().map(String::as_str).collect()
}

fn sticky(
    name: &'static str,
    number: u8,
    timeout: u32,
    backends: &[&'static Host],
) -> ServiceManifest {
    ServiceManifest {
        affinity: Some(timeout),
        ..ServiceManifest::new(Service::new(name, number, backends))
    }
}

/// The number of affinity entries in the kernel, which prints the remaining time of each.
fn remembered(lab: &Lab, family: Family) -> Result<usize> {
    let map = match family {
        Family::V4 => "affinity4",
        Family::V6 => "affinity6",
    };
    let listed = lab
        .node
        .exec(&["nft", "list", "map", "inet", "contiv", map])?;
    Ok(listed.matches(" expires ").count())
}

fn three(lab: &Lab) -> [&'static Host; 3] {
    [&lab.pod1, &lab.pod2, &lab.pod3].map(|pod| pod.host)
}

fn run(
    test: &str,
    manifests: impl FnOnce(&Lab) -> Vec<ServiceManifest>,
    body: impl FnOnce(&Lab, &Manifests, Agent<'_>, &AgentOptions) -> Result<()>,
) -> Result<()> {
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        make_clients(lab)?;
        let state = Manifests::new(lab)?;
        for manifest in manifests(lab) {
            state.put_manifest(&manifest)?;
        }
        let options = AgentOptions::with_store(state.url());
        let agent = Agent::start(lab, &options)?;
        body(lab, &state, agent, &options)
    })
}

#[test]
fn client_keeps_its_backend_on_every_frontend() -> Result<()> {
    run(
        "affinity::client_keeps_its_backend_on_every_frontend",
        |lab| vec![sticky("web", 80, THREE_HOURS, &three(lab))],
        |lab, _, _agent, _| {
            let web = Service::new("web", 80, &[]);
            for at in FAMILIES_AND_PROTOCOLS {
                for frontend in Frontend::ALL {
                    let address = web.address(lab, frontend, at.0);
                    for from in [&lab.pod1, &lab.pod2, &lab.node, &lab.client] {
                        let shares = from.distribution(at.1, address, CONNECTIONS)?;
                        assert_eq!(
                            shares.len(),
                            1,
                            "{} -> {address} {at:?}: {shares:?}",
                            from.host.name
                        );
                    }
                }
                let first = ask_all(lab, &web, Frontend::NodePort, at)?;
                assert!(backends_of(&first).len() > 1, "{at:?}: {first:?}");
                assert_eq!(ask_all(lab, &web, Frontend::NodePort, at)?, first, "{at:?}");
            }
            Ok(())
        },
    )
}

#[test]
fn affinity_is_switched_on_and_off_while_service_runs() -> Result<()> {
    let plain = |lab: &Lab| ServiceManifest::new(Service::new("web", 80, &three(lab)));
    run(
        "affinity::affinity_is_switched_on_and_off_while_service_runs",
        |lab| vec![plain(lab)],
        |lab, state, _agent, _| {
            let web = Service::new("web", 80, &[]);
            let shares = |frontend| {
                let address = web.address(lab, frontend, Family::V4);
                Ok::<_, LabError>(
                    lab.client
                        .distribution(Protocol::Tcp, address, CONNECTIONS)?
                        .len(),
                )
            };
            let frontends = [
                Frontend::ClusterIp,
                Frontend::NodePort,
                Frontend::LoadBalancer,
            ];
            for frontend in frontends {
                assert!(shares(frontend)? > 1, "{frontend:?}");
            }
            for (manifest, is_sticky) in [
                (sticky("web", 80, THREE_HOURS, &three(lab)), true),
                (plain(lab), false),
            ] {
                state.put_manifest(&manifest)?;
                for frontend in frontends {
                    wait_until(
                        &format!("the change counts: {frontend:?}"),
                        Duration::from_secs(10),
                        || shares(frontend).is_ok_and(|shares| (shares == 1) == is_sticky),
                    )?;
                    assert_eq!(shares(frontend)? == 1, is_sticky, "{frontend:?}");
                }
            }
            Ok(())
        },
    )
}

#[test]
fn new_connection_renews_affinity_and_idle_client_loses_it() -> Result<()> {
    run(
        "affinity::new_connection_renews_affinity_and_idle_client_loses_it",
        |lab| vec![sticky("web", 80, 9, &three(lab))],
        |lab, _, _agent, _| {
            let web = Service::new("web", 80, &[]);
            let ask = || -> Result<Vec<String>> {
                let flows = FAMILIES_AND_PROTOCOLS
                    .iter()
                    .flat_map(|at| Frontend::ALL.map(|f| (f, *at)));
                flows
                    .map(|(frontend, (family, protocol))| {
                        let address = web.address(lab, frontend, family);
                        Ok(lab.client.ask(protocol, address)?.answer()?.by)
                    })
                    .collect()
            };
            let first = ask()?;
            // Twice five seconds exceed nine. By chance 16 draws are the same once in 10^7 runs.
            for _ in 0..2 {
                thread::sleep(Duration::from_secs(5));
                assert_eq!(ask()?, first);
            }
            let last = Instant::now();
            // Four frontends of each protocol.
            assert_eq!(
                (remembered(lab, Family::V4)?, remembered(lab, Family::V6)?),
                (8, 8)
            );
            wait_until("the client is forgotten", Duration::from_secs(20), || {
                Family::BOTH
                    .iter()
                    .all(|family| remembered(lab, *family).is_ok_and(|count| count == 0))
            })?;
            assert!(
                last.elapsed() > Duration::from_secs(5),
                "only after its timeout: {:?}",
                last.elapsed()
            );
            Ok(())
        },
    )
}

#[test]
fn affinity_ends_with_endpoint_and_others_keep_theirs() -> Result<()> {
    run(
        "affinity::affinity_ends_with_endpoint_and_others_keep_theirs",
        |lab| vec![sticky("web", 80, THREE_HOURS, &three(lab))],
        |lab, state, agent, _| {
            let web = Service::new("web", 80, &three(lab));
            let ask = |at| ask_all(lab, &web, Frontend::LoadBalancer, at);
            let before = FAMILIES_AND_PROTOCOLS.map(ask);
            let rest = sticky("web", 80, THREE_HOURS, &[lab.pod2.host, lab.pod3.host]);
            state.put_manifest(&rest)?;
            agent.wait_until_applied(&rest.service)?;
            let mut after = Vec::new();
            for (at, before) in FAMILIES_AND_PROTOCOLS.into_iter().zip(before) {
                let (before, now) = (before?, ask(at)?);
                for (client, by) in &now {
                    let kept = before[client] != "pod1";
                    assert_ne!(
                        by, "pod1",
                        "{at:?}: the very next connection goes elsewhere"
                    );
                    assert!(
                        !kept || *by == before[client],
                        "{at:?}: client {client} was of {}",
                        before[client]
                    );
                }
                after.push((at, now));
            }
            // The returning endpoint takes no client from the others.
            state.put_manifest(&sticky("web", 80, THREE_HOURS, &three(lab)))?;
            agent.wait_until_applied(&web)?;
            for (at, now) in after {
                assert_eq!(ask(at)?, now, "{at:?}");
            }
            Ok(())
        },
    )
}

/// kube-proxy's clients keep a backend that terminates until it ends (kubernetes/kubernetes#110302).
#[test]
fn terminating_backend_gets_no_new_connection_of_its_clients() -> Result<()> {
    let by_client = |backends: &[&'static Host]| ServiceManifest {
        annotations: vec![("contiv.io/balance", "client-address")],
        ..ServiceManifest::new(Service::new("hash", 81, backends))
    };
    run(
        "affinity::terminating_backend_gets_no_new_connection_of_its_clients",
        |lab| {
            vec![
                sticky("web", 80, THREE_HOURS, &three(lab)),
                by_client(&three(lab)),
            ]
        },
        |lab, state, agent, _| {
            let services = [
                Service::new("web", 80, &three(lab)),
                Service::new("hash", 81, &three(lab)),
            ];
            let ask = |service: &Service| {
                let ask = |at| ask_all(lab, service, Frontend::LoadBalancer, at);
                FAMILIES_AND_PROTOCOLS
                    .into_iter()
                    .map(ask)
                    .collect::<Result<Vec<_>>>()
            };
            let before = services.each_ref().map(ask);
            let ready = [lab.pod2.host, lab.pod3.host];
            for rest in [sticky("web", 80, THREE_HOURS, &ready), by_client(&ready)] {
                let terminating = vec![lab.pod1.host];
                let rest = ServiceManifest {
                    terminating,
                    ..rest
                };
                state.put_manifest(&rest)?;
                let path = format!("/services/default/{}", rest.service.name);
                wait_until("a backend terminates", Duration::from_secs(20), || {
                    let service = agent.http("GET", &path);
                    service.is_ok_and(|service| service.body.contains("Terminating"))
                        && agent.is_in_sync()
                })?;
            }
            for (service, before) in services.iter().zip(before) {
                let (before, now) = (before?, ask(service)?);
                let had = before
                    .iter()
                    .any(|served| backends_of(served).contains("pod1"));
                assert!(had, "{}: {before:?}", service.name);
                for (before, now) in before.iter().zip(&now) {
                    for (client, by) in now {
                        assert_ne!(by, "pod1", "{}: client {client}", service.name);
                        let kept = before[client] != "pod1";
                        assert!(
                            !kept || *by == before[client],
                            "{}: client {client}",
                            service.name
                        );
                    }
                }
            }
            Ok(())
        },
    )
}

#[test]
fn affinity_outlives_agent_and_its_restart() -> Result<()> {
    run(
        "affinity::affinity_outlives_agent_and_its_restart",
        |lab| vec![sticky("web", 80, THREE_HOURS, &three(lab))],
        |lab, _, agent, options| {
            let web = Service::new("web", 80, &[]);
            let ask = |at| ask_all(lab, &web, Frontend::ClusterIp, at);
            let mut before = Vec::new();
            for at in FAMILIES_AND_PROTOCOLS {
                before.push((at, ask(at)?));
            }
            let same = |when: &str| -> Result<()> {
                before.iter().try_for_each(|(at, before)| {
                    assert_eq!(ask(*at)?, *before, "{at:?} {when}");
                    Ok(())
                })
            };
            agent.stop()?;
            same("while it is away")?;
            let agent = Agent::start(lab, options)?;
            same("after a restart")?;
            agent.kill()?;
            let _agent = Agent::start(lab, options)?;
            same("after a crash")
        },
    )
}

#[test]
fn ports_have_affinity_each_unless_service_shares_it() -> Result<()> {
    run(
        "affinity::ports_have_affinity_each_unless_service_shares_it",
        |lab| {
            let annotations = vec![("contiv.io/session-affinity-scope", "service")];
            vec![
                sticky("each", 80, THREE_HOURS, &three(lab)),
                ServiceManifest {
                    annotations,
                    ..sticky("shared", 81, THREE_HOURS, &three(lab))
                },
            ]
        },
        |lab, state, agent, _| {
            let (each, shared) = (
                Service::new("each", 80, &[]),
                Service::new("shared", 81, &three(lab)),
            );
            for family in Family::BOTH {
                let ask = |service: &Service, protocol| {
                    ask_all(lab, service, Frontend::ExternalIp, (family, protocol))
                };
                // By chance all clients draw the same on both ports once in 10^7 runs.
                assert_ne!(
                    ask(&each, Protocol::Tcp)?,
                    ask(&each, Protocol::Udp)?,
                    "{family:?}"
                );
                let tcp = ask(&shared, Protocol::Tcp)?;
                assert_eq!(tcp, ask(&shared, Protocol::Udp)?, "{family:?}");
                assert!(backends_of(&tcp).len() > 1, "{tcp:?}");
            }
            // They still agree after a backend was removed.
            let rest = ServiceManifest {
                annotations: vec![("contiv.io/session-affinity-scope", "service")],
                ..sticky("shared", 81, THREE_HOURS, &[lab.pod1.host, lab.pod3.host])
            };
            state.put_manifest(&rest)?;
            agent.wait_until_applied(&rest.service)?;
            for family in Family::BOTH {
                let ask = |protocol| ask_all(lab, &shared, Frontend::NodePort, (family, protocol));
                assert_eq!(ask(Protocol::Tcp)?, ask(Protocol::Udp)?, "{family:?}");
            }
            Ok(())
        },
    )
}

#[test]
fn client_address_always_selects_the_same_backend() -> Result<()> {
    let by_client = |backends: &[&'static Host]| ServiceManifest {
        annotations: vec![("contiv.io/balance", "client-address")],
        ..ServiceManifest::new(Service::new("web", 80, backends))
    };
    run(
        "affinity::client_address_always_selects_the_same_backend",
        |lab| vec![by_client(&three(lab))],
        |lab, state, agent, options| {
            let web = Service::new("web", 80, &three(lab));
            let mut before = Vec::new();
            for at in FAMILIES_AND_PROTOCOLS {
                let served = ask_all(lab, &web, Frontend::NodePort, at)?;
                assert!(backends_of(&served).len() > 1, "{at:?}: {served:?}");
                assert_eq!(
                    ask_all(lab, &web, Frontend::ClusterIp, at)?,
                    served,
                    "{at:?} at the cluster IP"
                );
                assert_eq!(
                    ask_all(lab, &web, Frontend::LoadBalancer, at)?,
                    served,
                    "{at:?} at the balancer"
                );
                before.push((at, served));
            }
            let check = |gone: Option<&str>, when: &str| -> Result<()> {
                before.iter().try_for_each(|(at, before)| {
                    for (client, by) in ask_all(lab, &web, Frontend::NodePort, *at)? {
                        if gone == Some(before[&client].as_str()) {
                            assert_ne!(Some(by.as_str()), gone, "{at:?} {when}");
                        } else {
                            assert_eq!(by, before[&client], "{at:?} {when}: client {client}");
                        }
                    }
                    Ok(())
                })
            };
            let rest = by_client(&[lab.pod1.host, lab.pod3.host]);
            state.put_manifest(&rest)?;
            agent.wait_until_applied(&rest.service)?;
            check(Some("pod2"), "without pod2")?;
            state.put_manifest(&by_client(&three(lab)))?;
            agent.wait_until_applied(&web)?;
            check(None, "with pod2 again")?;
            agent.stop()?;
            let _agent = Agent::start(lab, options)?;
            check(None, "after a restart")
        },
    )
}

#[test]
fn policy_becoming_local_moves_clients_off_remote_backends() -> Result<()> {
    run(
        "affinity::policy_becoming_local_moves_clients_off_remote_backends",
        |lab| vec![sticky("web", 80, THREE_HOURS, &three(lab))],
        |lab, state, _agent, _| {
            let web = Service::new("web", 80, &three(lab));
            for at in FAMILIES_AND_PROTOCOLS {
                ask_all(lab, &web, Frontend::LoadBalancer, at)?;
            }
            let local = ServiceManifest {
                external_local: true,
                ..sticky("web", 80, THREE_HOURS, &three(lab))
            };
            state.put_manifest(&local)?;
            wait_until("the policy is applied", Duration::from_secs(10), || {
                let listed =
                    lab.node
                        .exec(&["nft", "list", "map", "inet", "contiv", "pick-chains4"]);
                listed.is_ok_and(|map| map.contains("-external-"))
            })?;
            for at in FAMILIES_AND_PROTOCOLS {
                let served = ask_all(lab, &web, Frontend::LoadBalancer, at)
                    .map_err(|error| LabError::Unexpected(format!("{at:?}: {error}")))?;
                assert!(
                    !backends_of(&served).contains("pod3"),
                    "{at:?}: pod3 is not here: {served:?}"
                );
            }
            Ok(())
        },
    )
}
