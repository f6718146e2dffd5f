//! The address that masqueraded connections come from: the one that the node is known by, where the kernel would choose another
//! to which answers do not return.

use std::{net::SocketAddr, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Frontend, Manifests, NodeManifest, Service, State, TARGET_PORT},
    lab::{
        Family, Lab, LabError, Outcome, Protocol, Responder, Result, Server, isolated, ranges,
        wait_until,
    },
};

/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
/// Both ends of the link of [`routed_on_host`], with its length: the node, and the next machine.
const LINKS: [[&str; 3]; 2] = [
    ["169.254.50.2", "169.254.50.1", "30"],
    ["fd00:50::2", "fd00:50::1", "126"],
];

fn ip(namespace: &contiv_tests::lab::Namespace, commands: &[String]) -> Result<()> {
    namespace
        .exec_with_input(&["ip", "-batch", "-"], &commands.join("\n"))
        .map(drop)
}

/// Gives the node the form of a machine that is routed on the host: its address is on `lo`, its link has another one, to which
/// the network has no route, and the default route names the first as source.
fn routed_on_host(lab: &Lab) -> Result<()> {
    for (family, [link, gateway, length]) in Family::BOTH.into_iter().zip(LINKS) {
        let address = lab.node.host.address(family);
        let (network, single) = match family {
            Family::V4 => (ranges::EXTERNAL.v4_length, 32),
            Family::V6 => (ranges::EXTERNAL.v6_length, 128),
        };
        let pods2 = ranges::PODS2.cidr(family);
        ip(
            &lab.node,
            &[
                format!("addr del {address}/{network} dev eth0"),
                format!("addr add {address}/{single} dev lo nodad"),
                format!("addr add {link}/{length} dev eth0 nodad"),
                format!("route replace {pods2} via {gateway} src {address}"),
                format!("route replace default via {gateway} src {address}"),
            ],
        )?;
        ip(
            &lab.node2,
            &[
                format!("addr add {gateway}/{length} dev eth0 nodad"),
                format!("route replace {address}/{single} via {link} dev eth0"),
                format!(
                    "route replace {} via {link} dev eth0",
                    ranges::PODS.cidr(family)
                ),
                format!("route add blackhole {link}/{single}"),
            ],
        )?;
        let mut of_client = vec![format!(
            "route replace {address}/{single} via {link} dev eth0 onlink"
        )];
        for range in [
            ranges::SERVICES,
            ranges::EXTERNAL_IPS,
            ranges::LOAD_BALANCERS,
        ] {
            of_client.push(format!(
                "route replace {} via {link} dev eth0 onlink",
                range.cidr(family)
            ));
        }
        ip(&lab.client, &of_client)?;
    }
    Ok(())
}

/// The elements of the map of one family.
fn sources(lab: &Lab, family: Family) -> Result<String> {
    let map = match family {
        Family::V4 => "masquerade-sources4",
        Family::V6 => "masquerade-sources6",
    };
    lab.node
        .exec(&["nft", "list", "map", "inet", "contiv", map])
}

fn wait_for_source(lab: &Lab, family: Family, expected: &str) -> Result<()> {
    wait_until(&format!("the map has {expected}"), EVENT_TIMEOUT, || {
        sources(lab, family).is_ok_and(|map| map.contains(expected))
    })
    .map(drop)
}

#[test]
fn address_on_loopback_is_source_where_routes_name_it() -> Result<()> {
    isolated(
        "masquerade_sources::address_on_loopback_is_source_where_routes_name_it",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            state.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            // The agent follows addresses and routes.
            routed_on_host(lab)?;
            for family in Family::BOTH {
                let address = lab.node.host.address(family);
                wait_for_source(lab, family, &format!("\"eth0\" : {address}"))?;
            }
            for (from, frontend) in [
                (&lab.client, Frontend::NodePort),
                (&lab.client, Frontend::LoadBalancer),
                (&lab.client, Frontend::ExternalIp),
                (&lab.client, Frontend::ClusterIp),
                (&lab.node, Frontend::ClusterIp),
                (&lab.node, Frontend::NodePort),
                (&lab.pod1, Frontend::NodePort),
            ] {
                for (family, protocol) in Family::BOTH
                    .into_iter()
                    .flat_map(|f| Protocol::ALL.map(|p| (f, p)))
                {
                    let server = web.address(lab, frontend, family);
                    let flow = format!(
                        "{} -> {server} ({frontend:?}, {protocol:?})",
                        from.host.name
                    );
                    let failed = |error: LabError| LabError::Unexpected(format!("{flow}: {error}"));
                    let answer = from.ask(protocol, server)?.answer().map_err(failed)?;
                    assert_eq!(
                        answer.seen_source.ip(),
                        lab.node.host.address(family),
                        "{flow}"
                    );
                }
            }
            let trace = |to: SocketAddr| {
                let (from, to) = (
                    lab.client.host.address(Family::V4).to_string(),
                    format!("{to}/tcp"),
                );
                lab.node.exec(&[
                    &binary()?.to_string_lossy(),
                    "trace",
                    "--from",
                    &from,
                    "--to",
                    &to,
                ])
            };
            let text = trace(web.address(lab, Frontend::NodePort, Family::V4))?;
            let expected = format!("masqueraded as {}", lab.node.host.address(Family::V4));
            assert!(text.contains(&expected), "{text}");

            // The Node object says another address, which is none of this node: the kernel chooses, as ever.
            state.put_node(&NodeManifest {
                host: lab.pod4.host,
                pods: None,
                zone: None,
            })?;
            let elsewhere = std::fs::read_to_string(format!("{}/pod4-node.yaml", state.folder()));
            let elsewhere =
                elsewhere.map_err(|error| LabError::system("read a manifest", error))?;
            state.write(
                "node-node.yaml",
                &elsewhere.replace("name: pod4", "name: node"),
            )?;
            wait_until("the map is empty", EVENT_TIMEOUT, || {
                Family::BOTH
                    .iter()
                    .all(|family| sources(lab, *family).is_ok_and(|map| !map.contains("eth0")))
            })?;
            agent.stop().map(drop)
        },
    )
}

#[test]
fn alias_on_loopback_is_source_of_no_connection() -> Result<()> {
    isolated(
        "masquerade_sources::alias_on_loopback_is_source_of_no_connection",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            // As most servers it listens on all addresses, so the kernel chooses the one that it answers from.
            let any = |family| match family {
                Family::V4 => SocketAddr::from(([0; 4], TARGET_PORT)),
                Family::V6 => SocketAddr::from(([0_u16; 8], TARGET_PORT)),
            };
            let _servers = Family::BOTH.map(|family| {
                Server::start(&lab.node2, lab.node2.host.name, Protocol::Udp, any(family))
            });
            let _own = Server::start(
                &lab.node,
                lab.node.host.name,
                Protocol::Udp,
                any(Family::V6),
            )?;
            ip(
                &lab.node,
                &[
                    "addr add 10.99.0.1/32 dev lo".into(),
                    "addr add fd00:99::1/128 dev lo".into(),
                ],
            )?;
            // A network as of Calico: the interfaces of pods have no address.
            ip(&lab.node, &["addr flush dev pod1 scope global".into()])?;
            ip(
                &lab.node,
                &[
                    format!("route replace {}/32 dev pod1", lab.pod1.host.v4),
                    format!("route replace {}/128 dev pod1", lab.pod1.host.v6),
                    "addr add fe80::1/64 dev pod1 nodad".into(),
                ],
            )?;
            // The node resolves the gateway of IPv6 only at an interface that has it.
            ip(
                &lab.pod1,
                &["route replace default via fe80::1 dev eth0".into()],
            )?;
            let state = Manifests::new(lab)?;
            let own = Service::new("own", 81, &[lab.node.host]);
            let here = Service::new("here", 82, &[lab.pod1.host]);
            state.put(&own)?;
            state.put(&here)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for family in Family::BOTH {
                let address = lab.node.host.address(family);
                for frontend in Frontend::ALL {
                    let server = own.address(lab, frontend, family);
                    let outcome = lab.node.ask(Protocol::Udp, server)?;
                    let Outcome::Answered { answer, .. } = outcome else {
                        return Err(LabError::Unexpected(format!(
                            "own backend at {server} ({frontend:?}): {outcome:?}"
                        )));
                    };
                    // The server listens in both families by one socket.
                    assert_eq!(
                        answer.seen_source.ip().to_canonical(),
                        address,
                        "own backend at {server} ({frontend:?})"
                    );
                }
                for from in [&lab.client, &lab.node] {
                    let server = here.address(lab, Frontend::NodePort, family);
                    let answer = from.ask(Protocol::Udp, server)?.answer()?;
                    assert_eq!(
                        answer.seen_source.ip(),
                        address,
                        "{} to {server}",
                        from.host.name
                    );
                }
            }
            agent.stop().map(drop)
        },
    )
}

#[test]
fn own_connection_to_own_backend_keeps_address_and_port() -> Result<()> {
    isolated(
        "masquerade_sources::own_connection_to_own_backend_keeps_address_and_port",
        |lab| {
            let _responder = Responder::start(&lab.node, TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let own = Service::new("own", 81, &[lab.node.host]);
            state.put(&own)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for (family, protocol) in Family::BOTH
                .into_iter()
                .flat_map(|f| [Protocol::Tcp, Protocol::Udp].map(|p| (f, p)))
            {
                for frontend in Frontend::ALL {
                    let mut session = lab
                        .node
                        .open(protocol, own.address(lab, frontend, family))?;
                    let seen = session.ask()?.seen_source;
                    assert_eq!(
                        seen,
                        session.local_address()?,
                        "{frontend:?} {family:?} {protocol:?}"
                    );
                }
            }
            agent.stop().map(drop)
        },
    )
}

#[test]
fn overlay_with_address_of_its_own_masquerades_with_it() -> Result<()> {
    isolated(
        "masquerade_sources::overlay_with_address_of_its_own_masquerades_with_it",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            // As flannel's: the tunnel has the first address of the node's range, and the other node's range is behind it.
            let ends = [
                ["10.244.1.0", "10.244.2.0"],
                ["fd00:10:244:1::", "fd00:10:244:2::"],
            ];
            lab.node.exec(&[
                "ip",
                "link",
                "add",
                "flannel.1",
                "type",
                "veth",
                "peer",
                "name",
                "flannel.1",
                "netns",
                "node2",
            ])?;
            for (namespace, here, there, range) in [
                (&lab.node, 0, 1, &ranges::PODS2),
                (&lab.node2, 1, 0, &ranges::PODS),
            ] {
                ip(namespace, &["link set flannel.1 up".into()])?;
                for ((family, ends), single) in Family::BOTH.into_iter().zip(ends).zip([32, 128]) {
                    let (here, there) = (ends[here], ends[there]);
                    ip(
                        namespace,
                        &[
                            format!("addr add {here}/{single} dev flannel.1 nodad"),
                            format!("route replace {there}/{single} dev flannel.1"),
                            format!(
                                "route replace {} via {there} dev flannel.1 onlink",
                                range.cidr(family)
                            ),
                        ],
                    )?;
                }
            }
            // The network between the nodes does not know the pods.
            for family in Family::BOTH {
                let single = if family == Family::V4 { 32 } else { 128 };
                ip(
                    &lab.node2,
                    &[format!(
                        "route add blackhole {}/{single}",
                        lab.node.host.address(family)
                    )],
                )?;
            }
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            state.put(&web)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
            for (family, ends) in Family::BOTH.into_iter().zip(ends) {
                for (from, frontend) in [
                    (&lab.client, Frontend::NodePort),
                    (&lab.node, Frontend::ClusterIp),
                ] {
                    let server = web.address(lab, frontend, family);
                    let answer = from.ask(Protocol::Tcp, server)?.answer()?;
                    assert_eq!(
                        answer.seen_source.ip().to_string(),
                        ends[0],
                        "{} to {server}",
                        from.host.name
                    );
                }
                assert!(!sources(lab, family)?.contains("flannel"));
            }
            agent.stop().map(drop)
        },
    )
}
