//! The addresses of this node at which node ports answer, while addresses are added and removed; and on loopback.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{Family, Lab, LabError, Outcome, Protocol, Responder, Result, isolated, wait_until},
};

/// The time without an answer after which a packet counts as dropped. Answers take a few milliseconds.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit for a change to be applied. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses that are added to an interface of the node; the client has a route to them.
const ADDED: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];
/// The setting that lets loopback addresses leave and enter the node.
const SWITCH: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn start<'lab>(lab: &'lab Lab, state: &Manifests, flags: &[&str]) -> Result<Agent<'lab>> {
    let flags = flags.iter().map(ToString::to_string).collect();
    Agent::start(
        lab,
        &AgentOptions {
            flags,
            ..AgentOptions::with_store(state.url())
        },
    )
}

/// Adds an address to the node or removes it, without telling the agent.
fn change(lab: &Lab, verb: &str, address: &str) -> Result<()> {
    let nodad: &[&str] = if verb == "add" && address.contains(':') {
        &["nodad"]
    } else {
        &[]
    };
    let width = if address.contains(':') { 128 } else { 32 };
    let address = format!("{address}/{width}");
    lab.node
        .exec(&[&["ip", "address", verb, &address, "dev", "eth0"], nodad].concat())
        .map(drop)
}

fn bind(address: SocketAddr) -> Result<UdpSocket> {
    let bind = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(NO_ANSWER_TIMEOUT))?;
        Ok(socket)
    };
    bind().map_err(|error: std::io::Error| LabError::system(format!("bind to {address}"), error))
}

/// The number of protocols by which the external client gets an answer from a backend.
fn answers(lab: &Lab, address: &str, port: u16) -> Result<usize> {
    let address: IpAddr = address
        .parse()
        .map_err(|_| LabError::Unexpected(address.to_owned()))?;
    let mut count = 0;
    for protocol in Protocol::ALL {
        let outcome = lab
            .client
            .ask_within(protocol, (address, port).into(), NO_ANSWER_TIMEOUT)?;
        let answered =
            matches!(outcome, Outcome::Answered { answer, .. } if answer.by.starts_with("pod"));
        count += usize::from(answered);
    }
    Ok(count)
}

fn prepare(lab: &Lab) -> Result<(Manifests, Service)> {
    for address in ADDED {
        let family = if address.contains(':') {
            Family::V6
        } else {
            Family::V4
        };
        let via = lab.node.host.address(family).to_string();
        lab.client
            .exec(&["ip", "route", "add", address, "via", &via])?;
    }
    let state = Manifests::new(lab)?;
    let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
    state.put(&web)?;
    Ok((state, web))
}

#[test]
fn node_ports_use_new_interface_addresses_without_restart() -> Result<()> {
    isolated(
        "node_ports::node_ports_use_new_interface_addresses_without_restart",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (state, web) = prepare(lab)?;
            let _agent = start(lab, &state, &["--node-port-addresses=all"])?;
            let port = web.node_port();
            for address in Family::BOTH.map(|family| lab.node.host.address(family).to_string()) {
                assert_eq!(
                    answers(lab, &address, port)?,
                    Protocol::ALL.len(),
                    "{address}"
                );
            }
            for address in ADDED {
                for round in 0..3 {
                    change(lab, "add", address)?;
                    let answering = || {
                        answers(lab, address, port).is_ok_and(|count| count == Protocol::ALL.len())
                    };
                    wait_until(
                        &format!("{address} answers, round {round}"),
                        EVENT_TIMEOUT,
                        answering,
                    )?;
                    change(lab, "del", address)?;
                    let is_gone = || {
                        let sets = lab.node.exec(&["nft", "list", "table", "inet", "contiv"]);
                        sets.is_ok_and(|sets| !sets.contains(address))
                    };
                    wait_until(
                        &format!("{address} is gone, round {round}"),
                        EVENT_TIMEOUT,
                        is_gone,
                    )?;
                }
            }
            Ok(())
        },
    )
}

#[test]
fn node_ports_answer_only_on_addresses_that_are_configured() -> Result<()> {
    isolated(
        "node_ports::node_ports_answer_only_on_addresses_that_are_configured",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (state, web) = prepare(lab)?;
            ADDED
                .iter()
                .try_for_each(|address| change(lab, "add", address))?;
            let primary = Family::BOTH.map(|family| lab.node.host.address(family).to_string());
            let [primary4, primary6] = [primary[0].as_str(), primary[1].as_str()];
            // They are the node's own addresses too, as its external ones.
            state.write("node-node.yaml", &node_with_external_ips(lab))?;
            let cases: [(&str, &[&str]); 5] = [
                ("primary", &[primary4, primary6]),
                ("all", &[primary4, primary6, ADDED[0], ADDED[1]]),
                ("203.0.113.0/24,2001:db8:9::/48", &ADDED),
                ("primary,203.0.113.0/24", &[primary4, primary6, ADDED[0]]),
                // The other family is not restricted: all of its addresses.
                ("203.0.113.0/24", &[ADDED[0], primary6, ADDED[1]]),
            ];
            for (addresses, expected) in cases {
                let agent = start(
                    lab,
                    &state,
                    &[&format!("--node-port-addresses={addresses}")],
                )?;
                let expected: BTreeSet<&str> = expected.iter().copied().collect();
                let mut found = BTreeSet::new();
                for address in [primary4, primary6, ADDED[0], ADDED[1]] {
                    let count = answers(lab, address, web.node_port())?;
                    assert!(
                        [0, Protocol::ALL.len()].contains(&count),
                        "{address}: protocols differ"
                    );
                    if count > 0 {
                        found.insert(address);
                    }
                }
                assert_eq!(found, expected, "{addresses}");
                agent.stop()?;
            }
            Ok(())
        },
    )
}

/// The node with the addresses [`ADDED`] as its external ones.
fn node_with_external_ips(lab: &Lab) -> String {
    let [internal4, internal6] = Family::BOTH.map(|family| lab.node.host.address(family));
    let [external4, external6] = ADDED;
    format!(
        "apiVersion: v1
kind: Node
metadata: {{name: {name}}}
status:
  addresses:
  - {{type: ExternalIP, address: {external4}}}
  - {{type: InternalIP, address: {internal4}}}
  - {{type: ExternalIP, address: '{external6}'}}
  - {{type: InternalIP, address: '{internal6}'}}
",
        name = lab.node.host.name,
    )
}

/// An API server refuses such a service; a folder may have one, as after a change of its type.
#[test]
fn node_port_of_cluster_ip_service_stays_closed() -> Result<()> {
    isolated(
        "node_ports::node_port_of_cluster_ip_service_stays_closed",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (state, web) = prepare(lab)?;
            let _agent = start(lab, &state, &[])?;
            let address = lab.node.host.address(Family::V4).to_string();
            let open = || answers(lab, &address, web.node_port());
            assert_eq!(open()?, Protocol::ALL.len());
            let path = std::path::Path::new(&state.folder()).join("web.yaml");
            let text =
                std::fs::read_to_string(&path).map_err(|error| LabError::system("read", error))?;
            state.write(
                "web.yaml",
                &text.replace("type: LoadBalancer", "type: ClusterIP"),
            )?;
            wait_until("the node port is closed", EVENT_TIMEOUT, || {
                open().is_ok_and(|count| count == 0)
            })?;
            let cluster_ip = web.address(lab, Frontend::ClusterIp, Family::V4);
            let outcome = lab
                .pod2
                .ask_within(Protocol::Tcp, cluster_ip, NO_ANSWER_TIMEOUT)?;
            assert!(matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
            Ok(())
        },
    )
}

#[test]
fn health_checks_answer_on_primary_addresses_only() -> Result<()> {
    isolated(
        "node_ports::health_checks_answer_on_primary_addresses_only",
        |lab| {
            let (state, _web) = prepare(lab)?;
            ADDED
                .iter()
                .try_for_each(|address| change(lab, "add", address))?;
            state.write("node-node.yaml", &node_with_external_ips(lab))?;
            state.write(
                "balanced.yaml",
                "apiVersion: v1
kind: Service
metadata: {name: balanced, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.77
  externalTrafficPolicy: Local
  healthCheckNodePort: 31111
  ports: [{port: 80, nodePort: 30077}]
",
            )?;
            let _agent = start(lab, &state, &[])?;
            let answers =
                |address: IpAddr| lab.client.http("GET", (address, 31111).into(), "/").is_ok();
            for family in Family::BOTH {
                let address = lab.node.host.address(family);
                wait_until(
                    &format!("the health check answers on {address}"),
                    EVENT_TIMEOUT,
                    || answers(address),
                )?;
            }
            for address in ADDED {
                assert!(!answers(address.parse().unwrap()), "{address}");
            }
            Ok(())
        },
    )
}

#[test]
fn health_check_of_one_family_answers_by_both() -> Result<()> {
    isolated(
        "node_ports::health_check_of_one_family_answers_by_both",
        |lab| {
            let state = Manifests::new(lab)?;
            let services = [
                (Family::V4, "IPv4", "10.96.0.77", 31111),
                (Family::V6, "IPv6", "fd00:96::77", 31112),
            ];
            let write = |is_ready: bool| {
                services
                    .into_iter()
                    .try_for_each(|(family, name, cluster_ip, port)| {
                        let (endpoint, node) = (lab.pod1.host.address(family), lab.node.host.name);
                        let manifest = format!(
                            "apiVersion: v1
kind: Service
metadata: {{name: web{port}, namespace: default}}
spec:
  type: LoadBalancer
  clusterIP: \"{cluster_ip}\"
  externalTrafficPolicy: Local
  healthCheckNodePort: {port}
  ports: [{{port: 80}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web{port}, namespace: default, labels: {{kubernetes.io/service-name: web{port}}}}}
addressType: {name}
ports: [{{port: 8080}}]
endpoints: [{{addresses: [\"{endpoint}\"], nodeName: {node}, conditions: {{ready: {is_ready}}}}}]
"
                        );
                        state.write(&format!("web{port}.yaml"), &manifest)
                    })
            };
            write(true)?;
            let _agent = start(lab, &state, &[])?;
            for (is_ready, status) in [(true, 200), (false, 503)] {
                write(is_ready)?;
                for (asked, (.., port)) in Family::BOTH
                    .into_iter()
                    .flat_map(|asked| services.map(|it| (asked, it)))
                {
                    let endpoint = (lab.node.host.address(asked), port).into();
                    wait_until(
                        &format!("the health check answers {status} at {endpoint}"),
                        EVENT_TIMEOUT,
                        || {
                            lab.client
                                .http("GET", endpoint, "/")
                                .is_ok_and(|answer| answer.status == status)
                        },
                    )?;
                }
            }
            Ok(())
        },
    )
}

#[test]
fn node_ports_answer_on_loopback_where_that_is_configured() -> Result<()> {
    isolated(
        "node_ports::node_ports_answer_on_loopback_where_that_is_configured",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let [cluster, local] = [("cluster", 80), ("local", 81)].map(|(name, number)| {
                let service = Service::new(name, number, &[lab.pod1.host, lab.pod3.host]);
                ServiceManifest {
                    external_local: name == "local",
                    ..ServiceManifest::new(service)
                }
            });
            state.put_manifest(&cluster)?;
            state.put_manifest(&local)?;
            let ports = [&cluster, &local].map(|manifest| manifest.service.node_port());
            let ask_all = |expected: bool| -> Result<()> {
                for port in ports {
                    for protocol in Protocol::ALL {
                        let mut seen = BTreeSet::new();
                        // Enough requests to reach both backends, except once in a million runs.
                        for _ in 0..20 {
                            match lab.node.ask_within(
                                protocol,
                                (LOOPBACK, port).into(),
                                NO_ANSWER_TIMEOUT,
                            )? {
                                Outcome::Answered { answer, .. } => seen.insert(answer.by),
                                _ => break,
                            };
                        }
                        let all = if expected {
                            vec!["pod1", "pod3"]
                        } else {
                            vec![]
                        };
                        assert_eq!(
                            seen.into_iter().collect::<Vec<_>>(),
                            all,
                            "{port} {protocol:?}"
                        );
                    }
                }
                Ok(())
            };
            start(lab, &state, &[])?.stop()?;
            ask_all(false)?;
            let agent = start(lab, &state, &["--node-ports-on-loopback"])?;
            ask_all(true)?;
            agent.stop().map(drop)
        },
    )
}

#[test]
fn loopback_is_unreachable_from_outside_with_node_ports_on_it() -> Result<()> {
    isolated(
        "node_ports::loopback_is_unreachable_from_outside_with_node_ports_on_it",
        |lab| {
            let state = Manifests::new(lab)?;
            state.put(&Service::new("web", 80, &[lab.pod1.host]))?;
            let before = lab.node.exec(&["cat", SWITCH])?;
            let secret = lab.node.run(|| bind((LOOPBACK, 0).into()))?;
            let port = secret
                .local_addr()
                .map_err(|error| LabError::system("read its address", error))?
                .port();
            // The client routes 127.0.0.1 to the node, as an attacker would.
            lab.client.exec(&[
                "sh",
                "-c",
                "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet",
            ])?;
            lab.client.exec(&[
                "ip",
                "route",
                "del",
                "local",
                "127.0.0.0/8",
                "table",
                "local",
            ])?;
            lab.client.exec(&[
                "ip",
                "route",
                "flush",
                "table",
                "local",
                "match",
                "127.0.0.1/32",
            ])?;
            let via = lab.node.host.address(Family::V4).to_string();
            lab.client
                .exec(&["ip", "route", "add", "127.0.0.0/8", "via", &via])?;
            let attacker = lab
                .client
                .run(|| bind(lab.client.host.socket(Family::V4, 0)))?;
            let gets_in = || -> Result<bool> {
                let sent = attacker.send_to(b"attack", (LOOPBACK, port));
                sent.map_err(|error| LabError::system("send to loopback", error))?;
                Ok(secret.recv(&mut [0; 16]).is_ok())
            };
            let agent = start(
                lab,
                &state,
                &["--node-ports-on-loopback", "--own-table=false"],
            )?;
            assert_eq!(
                lab.node.exec(&["cat", SWITCH])?.trim(),
                "1",
                "without it node ports cannot answer there"
            );
            assert!(!gets_in()?, "the guard holds");
            // The attack works without the guard, and no agent is running to restore it.
            agent.stop()?;
            lab.node
                .exec(&["nft", "flush", "set", "inet", "contiv", "loopback4"])?;
            assert!(gets_in()?, "the test would see a way in");
            start(lab, &state, &["--node-ports-on-loopback"])?.stop()?;
            assert!(!gets_in()?, "the guard is back");

            start(lab, &state, &[])?.stop()?;
            assert_eq!(
                lab.node.exec(&["cat", SWITCH])?,
                before,
                "nobody needs it any more"
            );
            assert!(!gets_in()?);
            start(lab, &state, &["--node-ports-on-loopback"])?.stop()?;
            lab.node.exec(&[&binary()?.to_string_lossy(), "cleanup"])?;
            assert_eq!(
                lab.node.exec(&["cat", SWITCH])?,
                before,
                "cleanup takes it back too"
            );
            assert!(!gets_in()?);
            Ok(())
        },
    )
}

#[test]
fn foreign_route_localnet_switch_stays_on() -> Result<()> {
    isolated(
        "node_ports::foreign_route_localnet_switch_stays_on",
        |lab| {
            let state = Manifests::new(lab)?;
            start(lab, &state, &[])?.stop()?;
            lab.node
                .exec(&["sh", "-c", &format!("echo 1 > {SWITCH}")])?;
            start(lab, &state, &[])?.stop()?;
            assert_eq!(lab.node.exec(&["cat", SWITCH])?.trim(), "1");
            // The setting that was turned on is turned off again.
            start(lab, &state, &["--node-ports-on-loopback"])?.stop()?;
            start(lab, &state, &[])?.stop()?;
            assert_eq!(lab.node.exec(&["cat", SWITCH])?.trim(), "0");
            Ok(())
        },
    )
}

#[test]
fn node_ports_of_other_nodes_answer_here_if_configured() -> Result<()> {
    isolated(
        "node_ports::node_ports_of_other_nodes_answer_here_if_configured",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let (state, web) = prepare(lab)?;
            let local = ServiceManifest {
                external_local: true,
                ..ServiceManifest::new(Service::new("local", 81, &[lab.pod1.host]))
            };
            state.put_manifest(&local)?;
            let there = |service: &Service, family| {
                (lab.node2.host.address(family), service.node_port()).into()
            };
            // No agent runs on the other node.
            let agent = start(lab, &state, &[])?;
            for (family, protocol) in Family::BOTH
                .into_iter()
                .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
            {
                let outcome =
                    lab.pod2
                        .ask_within(protocol, there(&web, family), NO_ANSWER_TIMEOUT)?;
                assert!(
                    !matches!(outcome, Outcome::Answered { .. }),
                    "{family:?} {protocol:?}: {outcome:?}"
                );
            }
            agent.stop()?;

            let agent = start(lab, &state, &["--node-port-addresses=cluster"])?;
            for from in [&lab.pod2, &lab.node] {
                for (family, protocol) in Family::BOTH
                    .into_iter()
                    .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
                {
                    let flow = format!("{} {family:?} {protocol:?}", from.host.name);
                    let answer = from.ask(protocol, there(&web, family))?.answer();
                    assert!(
                        answer.is_ok_and(|answer| answer.by.starts_with("pod")),
                        "{flow}"
                    );
                    let answer = from
                        .ask(protocol, there(&local.service, family))?
                        .answer()?;
                    assert_eq!(answer.by, "pod1", "{flow}");
                    if from.host == lab.pod2.host {
                        assert_eq!(
                            answer.seen_source.ip(),
                            from.host.address(family),
                            "policy Local keeps it: {flow}"
                        );
                    }
                }
            }
            // The addresses of this node itself answer as before, and other ports of the other node are its own.
            let here = lab.node.host.address(Family::V4).to_string();
            assert_eq!(answers(lab, &here, web.node_port())?, Protocol::ALL.len());
            let _server = Responder::start(&lab.node2, TARGET_PORT)?;
            let other = lab.node2.host.socket(Family::V4, TARGET_PORT);
            assert_eq!(
                lab.pod2.ask(Protocol::Tcp, other)?.answer()?.by,
                lab.node2.host.name
            );

            // It follows the nodes of the cluster.
            state.delete_node(lab.node2.host)?;
            let address = lab.node2.host.address(Family::V4).to_string();
            wait_until("the other node is forgotten", EVENT_TIMEOUT, || {
                let set = lab
                    .node
                    .exec(&["nft", "list", "set", "inet", "contiv", "node-ips4"]);
                set.is_ok_and(|set| !set.contains(&address))
            })?;
            let outcome =
                lab.pod2
                    .ask_within(Protocol::Tcp, there(&web, Family::V4), NO_ANSWER_TIMEOUT)?;
            assert!(!matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
            agent.stop().map(drop)
        },
    )
}
