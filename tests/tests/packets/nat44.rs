//! Scenarios of Contiv's tests of its nat44 renderer, and of its options, that can only be checked with packets: the interface and
//! source address of packets that leave the cluster, fragments, idle flows, and answers that arrive at another interface. The
//! numbers are those of `contiv_scenarios.rs` in the tests of `contiv-model`.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{
        Family, Lab, LabError, Namespace, Outcome, Protocol, Range, Responder, Result, Server,
        isolated, ranges, wait_until,
    },
};

/// The port of servers that are reached directly, not through a service.
const PORT: u16 = 7070;
/// The time without an answer after which a packet counts as dropped.
const NO_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);
/// The interface of the tunnel between the nodes.
const TUNNEL: &str = "vxlan0";
/// Addresses of hosts behind the client, on none of the networks of the lab.
const FAR: [&str; 2] = ["198.18.0.1", "2001:db8:18::1"];
/// The addresses on the second network: those of the node, and those of the other machine.
const SECOND: [[&str; 2]; 2] = [
    ["203.0.113.1", "2001:db8:203::1"],
    ["203.0.113.2", "2001:db8:203::2"],
];

/// Scenario 11.
#[test]
fn pods_of_a_node_without_gateway_reach_routed_destinations() -> Result<()> {
    isolated(
        "nat44::pods_of_a_node_without_gateway_reach_routed_destinations",
        |lab| {
            let _responders = Responder::start_all([&lab.client, &lab.pod1], PORT)?;
            let (state, web) = state_with_web(lab)?;
            let _backends = Responder::start_all(lab.pods(), TARGET_PORT)?;
            for family in ["-4", "-6"] {
                lab.node.exec(&["ip", family, "route", "del", "default"])?;
            }
            let agent = start(lab, &state, &["--masquerade-egress"])?;
            for (family, protocol) in flows() {
                assert_eq!(
                    seen_by(
                        "client",
                        &lab.pod2,
                        protocol,
                        lab.client.host.socket(family, PORT)
                    )?,
                    node_address(lab, family)
                );
                let outcome =
                    lab.pod2
                        .ask_within(protocol, far_address(family), NO_ANSWER_TIMEOUT)?;
                // A time-out counts too: UDP sockets are not told of this ICMP error, and the kernel limits the rate of ICMPv6
                // errors.
                let refused = matches!(outcome, Outcome::Unreachable | Outcome::TimedOut);
                assert!(
                    refused,
                    "{family:?} {protocol:?}: nothing leaves: {outcome:?}"
                );
                lab.pod2
                    .ask(protocol, web.address(lab, Frontend::ClusterIp, family))?
                    .answer()?;
            }
            agent.stop().map(drop)
        },
    )
}

/// Scenarios 1 and 12. Contiv excludes its tunnels by identity mappings. Here no exclusion is needed: the packets of the tunnel
/// are the node's own, and the packets inside stay in the cluster.
#[test]
fn pods_keep_their_addresses_in_tunnels_between_nodes() -> Result<()> {
    isolated(
        "nat44::pods_keep_their_addresses_in_tunnels_between_nodes",
        |lab| {
            let _responder = Responder::start(&lab.client, PORT)?;
            let _backends = Responder::start_all([&lab.pod3], TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            state.put(&web)?;
            add_tunnel(&lab.node, &lab.node2, 1, &ranges::PODS2)?;
            add_tunnel(&lab.node2, &lab.node, 2, &ranges::PODS)?;
            let agent = start(lab, &state, &["--masquerade-egress"])?;
            for (family, protocol) in flows() {
                let pod = lab.pod2.host.address(family);
                let direct = lab.pod3.host.socket(family, TARGET_PORT);
                for to in [direct, web.address(lab, Frontend::ClusterIp, family)] {
                    let before = received(&lab.node, TUNNEL)?;
                    assert_eq!(seen_by("pod3", &lab.pod2, protocol, to)?, pod, "{to}");
                    assert!(
                        received(&lab.node, TUNNEL)? > before,
                        "{to}: the answer arrived at another interface"
                    );
                }
                let outside = lab.client.host.socket(family, PORT);
                assert_eq!(
                    seen_by("client", &lab.pod2, protocol, outside)?,
                    node_address(lab, family)
                );
            }
            agent.stop().map(drop)
        },
    )
}

/// Scenario 13.
#[test]
fn egress_of_pods_has_the_address_of_the_gateways_interface() -> Result<()> {
    isolated(
        "nat44::egress_of_pods_has_the_address_of_the_gateways_interface",
        |lab| {
            let _responder = Responder::start(&lab.client, PORT)?;
            let (state, _) = state_with_web(lab)?;
            add_second_network(lab, &lab.client)?;
            lab.client.exec_with_input(
                &["ip", "-batch", "-"],
                // `nodad`: the address can be used immediately.
                &FAR.map(|address| {
                    let nodad = if address.contains(':') { " nodad" } else { "" };
                    format!("addr add {address} dev lo{nodad}")
                })
                .join("\n"),
            )?;
            let servers = flows().map(|(family, protocol)| {
                Server::start(&lab.client, "far", protocol, far_address(family))
            });
            let _servers = servers.collect::<Result<Vec<Server>>>()?;
            for (family, [_, gateway]) in ["-4", "-6"].into_iter().zip(second_network_by_family()) {
                lab.node
                    .exec(&["ip", family, "route", "replace", "default", "via", gateway])?;
            }
            let agent = start(lab, &state, &["--masquerade-egress"])?;
            for (family, protocol) in flows() {
                let [ours, _] = second_network_by_family()[usize::from(family == Family::V6)];
                assert_eq!(
                    seen_by("far", &lab.pod2, protocol, far_address(family))?.to_string(),
                    ours
                );
                let other = seen_by(
                    "client",
                    &lab.pod2,
                    protocol,
                    lab.client.host.socket(family, PORT),
                )?;
                assert_eq!(
                    other,
                    node_address(lab, family),
                    "on the network of the main interface"
                );
            }
            agent.stop().map(drop)
        },
    )
}

/// Scenario 14.
#[test]
fn egress_of_pods_is_masqueraded_without_a_known_node_address() -> Result<()> {
    isolated(
        "nat44::egress_of_pods_is_masqueraded_without_a_known_node_address",
        |lab| {
            let _responder = Responder::start(&lab.client, PORT)?;
            let (state, _) = state_with_web(lab)?;
            state.delete_node(lab.node.host)?;
            let ranges = Family::BOTH
                .map(|family| ranges::PODS.cidr(family))
                .join(",");
            let agent = start(
                lab,
                &state,
                &["--masquerade-egress", &format!("--pod-cidrs={ranges}")],
            )?;
            let snapshot = agent.http("GET", "/snapshot")?.json()?;
            assert_eq!(
                snapshot["node"]["node_ips"],
                serde_json::json!([]),
                "{snapshot}"
            );
            for (family, protocol) in flows() {
                assert_eq!(
                    seen_by(
                        "client",
                        &lab.pod2,
                        protocol,
                        lab.client.host.socket(family, PORT)
                    )?,
                    node_address(lab, family)
                );
            }
            agent.stop().map(drop)
        },
    )
}

/// Scenario 16.
#[test]
fn agent_without_services_masquerades_egress() -> Result<()> {
    isolated("nat44::agent_without_services_masquerades_egress", |lab| {
        let _responder = Responder::start(&lab.client, PORT)?;
        let _backends = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let (state, web) = state_with_web(lab)?;
        let agent = start(
            lab,
            &state,
            &["--masquerade-egress", "--service-proxy-name=nobody"],
        )?;
        for (family, protocol) in flows() {
            assert_eq!(
                seen_by(
                    "client",
                    &lab.pod2,
                    protocol,
                    lab.client.host.socket(family, PORT)
                )?,
                node_address(lab, family)
            );
            for frontend in [Frontend::ClusterIp, Frontend::ExternalIp] {
                let to = web.address(lab, frontend, family);
                let outcome = lab.pod2.ask_within(protocol, to, NO_ANSWER_TIMEOUT)?;
                assert!(!matches!(outcome, Outcome::Answered { .. }), "{outcome:?}");
            }
        }
        assert_eq!(agent.http("GET", "/services")?.body, "[]");
        agent.stop().map(drop)
    })
}

/// `disableNATVirtualReassembly`: Contiv could drop fragments.
#[test]
fn fragmented_datagrams_reach_their_backend_and_so_do_answers() -> Result<()> {
    isolated(
        "nat44::fragmented_datagrams_reach_their_backend_and_so_do_answers",
        |lab| {
            let (state, web) = state_with_web(lab)?;
            for pod in [&lab.pod1, &lab.pod3] {
                for family in Family::BOTH {
                    let failed =
                        |error| LabError::system(format!("listen in {}", pod.host.name), error);
                    let socket = pod.run(|| {
                        UdpSocket::bind(pod.host.socket(family, TARGET_PORT)).map_err(failed)
                    })?;
                    // Ends with the process of the test.
                    thread::spawn(move || echo(&socket));
                }
            }
            let agent = start(lab, &state, &[])?;
            for (from, frontend) in [
                (&lab.pod2, Frontend::ClusterIp),
                (&lab.node, Frontend::ClusterIp),
                (&lab.client, Frontend::ExternalIp),
                (&lab.client, Frontend::NodePort),
            ] {
                for family in Family::BOTH {
                    let to = web.address(lab, frontend, family);
                    let before = fragments(from, family)?;
                    for length in [2000, 4000, 60_000] {
                        // Each from a new port, so that both backends get connections.
                        for _ in 0..8 {
                            let answered = from.run(|| {
                                exchange(to, length).map_err(|error| {
                                    LabError::system(
                                        format!("{} -> {to}, {length} bytes", from.host.name),
                                        error,
                                    )
                                })
                            })?;
                            assert_eq!(answered, length, "{} -> {to}", from.host.name);
                        }
                    }
                    assert!(
                        fragments(from, family)? > before + 3 * 8,
                        "{} sent no fragments",
                        from.host.name
                    );
                }
            }
            agent.stop().map(drop)
        },
    )
}

/// `cleanupIdleNATSessions`: here conntrack's timeouts do that.
#[test]
fn idle_flows_are_forgotten_by_the_kernel() -> Result<()> {
    isolated("nat44::idle_flows_are_forgotten_by_the_kernel", |lab| {
        let (state, web) = state_with_web(lab)?;
        let _backends = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let agent = start(lab, &state, &[])?;
        lab.node
            .exec(&["sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=1"])?;
        lab.node.exec(&[
            "sysctl",
            "-qw",
            "net.netfilter.nf_conntrack_udp_timeout_stream=1",
        ])?;
        for family in Family::BOTH {
            let to = web.address(lab, Frontend::ClusterIp, family);
            lab.pod2.ask(Protocol::Udp, to)?.answer()?;
            let (name, to) = (
                if family == Family::V4 { "ipv4" } else { "ipv6" },
                to.ip().to_string(),
            );
            let flows = || {
                let listed =
                    lab.node
                        .exec(&["conntrack", "--dump", "--family", name, "--orig-dst", &to]);
                listed.is_ok_and(|flows| flows.contains("udp"))
            };
            wait_until("the flow is gone", EVENT_TIMEOUT, || !flows())?;
        }
        agent.stop().map(drop)
    })
}

/// Contiv translates answers back only at the interfaces of backends. Here they may arrive at any interface, as they do on nodes
/// with several networks.
#[test]
fn answers_through_an_interface_without_backends_are_translated_back() -> Result<()> {
    isolated(
        "nat44::answers_through_an_interface_without_backends_are_translated_back",
        |lab| {
            let _backends = Responder::start_all([&lab.pod3], TARGET_PORT)?;
            let state = Manifests::new(lab)?;
            let web = Service::new("web", 80, &[lab.pod3.host]);
            state.put(&web)?;
            add_second_network(lab, &lab.node2)?;
            for (family, [ours, _]) in Family::BOTH.into_iter().zip(second_network_by_family()) {
                lab.node2.exec(&[
                    "ip",
                    "route",
                    "replace",
                    &ranges::PODS.cidr(family),
                    "via",
                    ours,
                ])?;
            }
            // Services answer at the interfaces of pods; `eth1` is neither an interface of services nor of backends.
            let flags = [
                "--service-interfaces=external",
                "--external-interfaces=pod*",
            ];
            let agent = start(lab, &state, &flags)?;
            let snapshot = agent.http("GET", "/snapshot")?.json()?;
            for set in ["frontend_interfaces", "backend_interfaces"] {
                assert!(
                    !snapshot[set].to_string().contains("eth1"),
                    "{set}: {}",
                    snapshot[set]
                );
            }
            for (family, protocol) in flows() {
                let before = received(&lab.node, "eth1")?;
                let seen = seen_by(
                    "pod3",
                    &lab.pod1,
                    protocol,
                    web.address(lab, Frontend::ClusterIp, family),
                )?;
                assert_eq!(seen, lab.pod1.host.address(family));
                assert!(
                    received(&lab.node, "eth1")? > before,
                    "the answer arrived at another interface"
                );
            }
            agent.stop().map(drop)
        },
    )
}

/// Manifests with a service that has two backends: a pod of this node, and a pod of the other node.
fn state_with_web(lab: &Lab) -> Result<(Manifests, Service)> {
    let state = Manifests::new(lab)?;
    let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
    state.put(&web)?;
    Ok((state, web))
}

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

fn flows() -> impl Iterator<Item = (Family, Protocol)> {
    Family::BOTH
        .into_iter()
        .flat_map(|family| [Protocol::Tcp, Protocol::Udp].map(|protocol| (family, protocol)))
}

/// The client address that the server of this name sees.
fn seen_by(server: &str, from: &Namespace, protocol: Protocol, to: SocketAddr) -> Result<IpAddr> {
    let flow = format!("{} -> {to}, {protocol:?}", from.host.name);
    let failed = |error: LabError| LabError::Unexpected(format!("{flow}: {error}"));
    let answer = from.ask(protocol, to)?.answer().map_err(failed)?;
    assert_eq!(answer.by, server, "{flow}");
    Ok(answer.seen_source.ip())
}

const fn node_address(lab: &Lab, family: Family) -> IpAddr {
    lab.node.host.address(family)
}

fn far_address(family: Family) -> SocketAddr {
    let address = FAR[usize::from(family == Family::V6)];
    SocketAddr::new(address.parse().unwrap_or(IpAddr::from([0; 4])), PORT)
}

/// The addresses on the second network, IPv4 first: for each family those of the node and of the other machine.
const fn second_network_by_family() -> [[&'static str; 2]; 2] {
    let [[ours4, ours6], [theirs4, theirs6]] = SECOND;
    [[ours4, theirs4], [ours6, theirs6]]
}

/// Adds one end of the VXLAN tunnel, through which the node `from` reaches the pods of the node `to`. The ends are numbered 1
/// and 2.
fn add_tunnel(from: &Namespace, to: &Namespace, number: u8, pods: &Range) -> Result<()> {
    let (local, remote, other) = (from.host.v4, to.host.v4, 3 - number);
    let script = format!(
        "link add {TUNNEL} type vxlan id 10 dstport 4789 local {local} remote {remote}\n\
         addr add 192.168.30.{number}/24 dev {TUNNEL}\naddr add fd00:192:168:30::{number}/64 dev {TUNNEL} nodad\n\
         link set {TUNNEL} up\nroute replace {} via 192.168.30.{other}\nroute replace {} via fd00:192:168:30::{other}\n",
        pods.cidr(Family::V4),
        pods.cidr(Family::V6)
    );
    from.exec_with_input(&["ip", "-batch", "-"], &script)
        .map(drop)
}

/// A second network, with the node and another machine: `eth1` of both.
fn add_second_network(lab: &Lab, other: &Namespace) -> Result<()> {
    let link = format!(
        "link add eth1 type veth peer name eth1 netns {}",
        other.host.name
    );
    let script = |addresses: [&str; 2]| {
        let [v4, v6] = addresses;
        format!("addr add {v4}/24 dev eth1\naddr add {v6}/64 dev eth1 nodad\nlink set eth1 up\n")
    };
    let [ours, theirs] = SECOND;
    lab.node
        .exec_with_input(&["ip", "-batch", "-"], &format!("{link}\n{}", script(ours)))?;
    other
        .exec_with_input(&["ip", "-batch", "-"], &script(theirs))
        .map(drop)
}

/// Sends everything back.
fn echo(socket: &UdpSocket) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
        // The client notices that no answer came.
        let _ = socket.send_to(&buffer[..length], peer);
    }
}

/// Sends a datagram and returns the length of the answer, if it has the same content.
fn exchange(to: SocketAddr, length: usize) -> io::Result<usize> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(EVENT_TIMEOUT))?;
    let sent: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
    socket.send(&sent)?;
    let mut received = vec![0; 1 << 16];
    let answered = socket.recv(&mut received)?;
    Ok(if received[..answered] == sent {
        answered
    } else {
        0
    })
}

/// How many fragments a host has sent.
fn fragments(host: &Namespace, family: Family) -> Result<u64> {
    let found = if family == Family::V4 {
        let text = host.exec(&["cat", "/proc/net/snmp"])?;
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
        let (names, values) = (
            lines.next().unwrap_or_default(),
            lines.next().unwrap_or_default(),
        );
        let column = names.split(' ').position(|name| name == "FragCreates");
        column.and_then(|column| values.split(' ').nth(column)?.parse().ok())
    } else {
        let text = host.exec(&["cat", "/proc/net/snmp6"])?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Ip6FragCreates"));
        line.and_then(|value| value.trim().parse().ok())
    };
    found.ok_or_else(|| LabError::Unexpected("the kernel does not count fragments".to_owned()))
}

/// How many packets an interface has received.
fn received(host: &Namespace, interface: &str) -> Result<u64> {
    let text = host.exec(&["cat", "/proc/net/dev"])?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("{interface}:")));
    let found = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    found.ok_or_else(|| LabError::Unexpected(format!("no interface {interface}")))
}
