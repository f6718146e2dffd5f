//! What the kernel tells the agent about the network of a node, compared with what it tells other programs.

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use contiv_model::{InterfaceName, Protocol};
use contiv_renderer::packet_path::{
    AddressKind, ClientOrigin, KernelNetwork, KnownFlow, LinkState, Listening, NeighbourState,
    Network, NodeInspector, PathError, ProbeResult, ReversePathFilter, Route, RouteQuery, TcpState,
    probe,
};
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, ServiceManifest, State, TARGET_PORT},
    lab::{
        Family, Lab, LabError, Namespace, Protocol as LabProtocol, Responder, Result, isolated,
        wait_until,
    },
};
use serde_json::Value;

/// Routes of all types, and rules that look at more than the destination.
const UNUSUAL_ROUTES: &str = "route add blackhole 10.3.0.0/24
route add unreachable 10.4.0.0/24
route add prohibit 10.5.0.0/24
route add 10.6.0.0/24 via 172.31.0.2 mtu 1234
route add blackhole fd00:3::/64
route add unreachable fd00:4::/64
route add prohibit fd00:5::/64
route add 10.7.0.0/24 via inet6 fd00:172:31::2 dev eth0
rule add fwmark 7 table 77
route add blackhole 10.8.0.0/24 table 77
rule add ipproto tcp dport 99 table 78
route add prohibit 10.8.0.0/24 table 78";

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands in for a closure in map_err"
)]
fn failed(error: PathError) -> LabError {
    LabError::Unexpected(error.to_string())
}

fn address(text: &str) -> IpAddr {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn interface(name: &str) -> InterfaceName {
    InterfaceName::new(name)
}

/// The output of a command with `-j`.
fn json(namespace: &Namespace, command: &[&str]) -> Result<Value> {
    let text = namespace.exec(command)?;
    serde_json::from_str(&text).map_err(|error| LabError::Unexpected(format!("{error}: {text}")))
}

/// What this reads on the node.
fn inspect<T: Send>(
    lab: &Lab,
    read: impl FnOnce(&mut NodeInspector) -> Result<T, PathError> + Send,
) -> Result<T> {
    lab.node.run(|| {
        NodeInspector::open()
            .and_then(|mut inspector| read(&mut inspector))
            .map_err(failed)
    })
}

/// The route of a packet as the node's kernel tells it, and as `ip route get` prints it.
fn assert_same_route(lab: &Lab, from: Option<(&str, &str)>, to: &str) -> Result<Route> {
    let query = RouteQuery {
        source: from.map(|(source, _)| address(source)),
        destination: address(to),
        input: from.map(|(_, input)| interface(input)),
        mark: 0,
        ports: None,
    };
    let route = lab.node.run(|| {
        KernelNetwork::open()
            .and_then(|mut network| network.route(&query))
            .map_err(failed)
    })?;
    let mut command = vec!["ip", "-j", "route", "get", to];
    if let Some((source, input)) = from {
        command.extend(["from", source, "iif", input]);
    }
    let printed = match json(&lab.node, &command) {
        Ok(printed) => printed[0].clone(),
        Err(error) => Value::String(error.to_string()),
    };
    let same = match &route {
        Route::Local => printed["type"] == "local",
        Route::Unicast {
            interface,
            gateway,
            source,
            ..
        } => {
            let text = |address: &Option<IpAddr>| address.map(|address| address.to_string());
            let via = printed["gateway"].as_str();
            let via = via.or_else(|| printed["via"]["host"].as_str());
            printed["dev"] == *interface.0
                && via.map(str::to_owned) == text(gateway)
                && printed["prefsrc"].as_str().map(str::to_owned) == text(source)
        }
        Route::Unreachable => {
            let text = printed.to_string();
            text.contains("No route to host") || text.contains("Network is unreachable")
        }
        Route::Prohibited => printed.to_string().contains("Permission denied"),
        Route::Blackhole | Route::InvalidSource | Route::Failed(_) => {
            printed.to_string().contains("Invalid argument")
        }
    };
    assert!(same, "{from:?} {to}: {route:?}, but ip prints {printed}");
    Ok(route)
}

#[test]
fn routes_are_those_of_ip_route_get() -> Result<()> {
    isolated(
        "packet_path::facts::routes_are_those_of_ip_route_get",
        |lab| {
            lab.node
                .exec_with_input(&["ip", "-batch", "-"], UNUSUAL_ROUTES)?;
            let pod = |host| Some((host, "pod1"));
            let v4 = lab.pod1.host.v4.to_string();
            let v6 = lab.pod1.host.v6.to_string();
            for (from, expected) in [(None, Route::Blackhole), (pod(&*v4), Route::Blackhole)] {
                assert_eq!(assert_same_route(lab, from, "10.3.0.1")?, expected);
                assert_eq!(
                    assert_same_route(lab, from, "10.4.0.1")?,
                    Route::Unreachable
                );
                assert_eq!(assert_same_route(lab, from, "10.5.0.1")?, Route::Prohibited);
                assert_eq!(assert_same_route(lab, from, "172.31.0.1")?, Route::Local);
            }
            for from in [None, pod(&*v6)] {
                assert_eq!(assert_same_route(lab, from, "fd00:3::1")?, Route::Blackhole);
                assert_eq!(
                    assert_same_route(lab, from, "fd00:4::1")?,
                    Route::Unreachable
                );
                assert_eq!(
                    assert_same_route(lab, from, "fd00:5::1")?,
                    Route::Prohibited
                );
                assert_eq!(
                    assert_same_route(lab, from, "fd00:172:31::1")?,
                    Route::Local
                );
            }
            for (from, to) in [
                (None, "10.244.1.10"),
                (None, "10.244.2.10"),
                (None, "fd00:10:244:2::10"),
                (None, "192.0.2.1"),
                (Some(("10.244.1.11", "pod2")), "10.244.1.10"),
                (Some(("172.31.0.100", "eth0")), "10.244.1.10"),
                (None, "10.7.0.1"),
            ] {
                let route = assert_same_route(lab, from, to)?;
                assert!(
                    matches!(route, Route::Unicast { .. }),
                    "{from:?} {to}: {route:?}"
                );
            }
            let limited = assert_same_route(lab, None, "10.6.0.1")?;
            assert!(
                matches!(
                    limited,
                    Route::Unicast {
                        mtu: Some(1234),
                        ..
                    }
                ),
                "{limited:?}"
            );
            let own = assert_same_route(lab, Some(("172.31.0.1", "pod1")), "10.244.2.10")?;
            assert_eq!(own, Route::InvalidSource, "an address of the node");
            let spoofed = Some(("10.244.2.10", "pod1"));
            assert!(matches!(
                assert_same_route(lab, spoofed, "10.244.1.11")?,
                Route::Unicast { .. }
            ));
            let strict = "echo 1 >/proc/sys/net/ipv4/conf/pod1/rp_filter";
            lab.node.exec(&["sh", "-c", strict])?;
            assert_eq!(
                assert_same_route(lab, spoofed, "10.244.1.11")?,
                Route::InvalidSource
            );
            assert!(matches!(
                assert_same_route(lab, pod(&*v4), "10.244.1.11")?,
                Route::Unicast { .. }
            ));
            assert_eq!(
                assert_same_route(lab, pod(&*v4), "10.3.0.1")?,
                Route::Blackhole
            );
            let loopback = assert_same_route(lab, pod(&*v4), "127.0.0.1")?;
            assert!(matches!(loopback, Route::Failed(_)), "{loopback:?}");
            Ok(())
        },
    )
}

#[test]
fn addresses_have_the_kind_of_their_route() -> Result<()> {
    isolated(
        "packet_path::facts::addresses_have_the_kind_of_their_route",
        |lab| {
            lab.node
                .exec_with_input(&["ip", "-batch", "-"], UNUSUAL_ROUTES)?;
            lab.node.run(|| {
                let mut network = KernelNetwork::open().map_err(failed)?;
                for (text, expected) in [
                    ("172.31.0.1", AddressKind::Local),
                    ("172.31.0.255", AddressKind::Broadcast),
                    ("0.0.0.1", AddressKind::Broadcast),
                    ("224.0.0.1", AddressKind::Multicast),
                    ("10.244.1.10", AddressKind::Unicast),
                    ("10.3.0.1", AddressKind::Blackhole),
                    ("10.4.0.1", AddressKind::Unreachable),
                    ("10.5.0.1", AddressKind::Prohibited),
                    ("fd00:172:31::1", AddressKind::Local),
                    ("fd00:3::1", AddressKind::Blackhole),
                    ("ff02::1", AddressKind::Multicast),
                ] {
                    let kind = network.address_kind(address(text)).map_err(failed)?;
                    assert_eq!(kind, expected, "{text}");
                }
                Ok(())
            })
        },
    )
}

#[test]
fn route_depends_on_mark_and_port() -> Result<()> {
    isolated(
        "packet_path::facts::route_depends_on_mark_and_port",
        |lab| {
            lab.node
                .exec_with_input(&["ip", "-batch", "-"], UNUSUAL_ROUTES)?;
            lab.node.run(|| {
                let mut network = KernelNetwork::open().map_err(failed)?;
                let mut route = |mark, port| {
                    let query = RouteQuery {
                        source: None,
                        destination: address("10.8.0.1"),
                        input: None,
                        mark,
                        ports: Some((Protocol::Tcp, 4000, port)),
                    };
                    network.route(&query).map_err(failed)
                };
                assert!(matches!(route(0, 80)?, Route::Unicast { .. }));
                assert_eq!(route(7, 80)?, Route::Blackhole);
                assert_eq!(route(0, 99)?, Route::Prohibited);
                Ok(())
            })
        },
    )
}

#[test]
fn links_and_neighbours_are_those_of_ip() -> Result<()> {
    isolated(
        "packet_path::facts::links_and_neighbours_are_those_of_ip",
        |lab| {
            let script = "link add br9 type bridge\nlink add port9 type veth peer name peer9\nlink set port9 master br9\n\
                      link set port9 up mtu 1400\nlink add vxlan9 type vxlan id 9 dstport 4789 remote 172.31.0.2\n\
                      link set pod2 down\nneigh add 10.244.1.77 lladdr 02:00:00:00:00:01 nud permanent dev pod1\n\
                      addr add 10.9.9.9/32 dev br9\naddr add 10.9.9.9/32 dev eth0";
            lab.node.exec_with_input(&["ip", "-batch", "-"], script)?;
            // Nobody has the second address.
            for to in ["172.31.0.100:9", "172.31.0.77:9"] {
                let to = to.parse().expect("an address");
                lab.node
                    .ask_within(LabProtocol::Udp, to, Duration::from_millis(200))?;
            }
            lab.node
                .exec(&["tc", "qdisc", "add", "dev", "pod1", "clsact"])?;
            let filter = "filter add dev pod1 egress protocol ip u32 match ip dst 10.255.0.0/16 action mirred egress redirect dev lo";
            lab.node.exec_with_input(&["tc", "-batch", "-"], filter)?;
            let printed = json(&lab.node, &["ip", "-d", "-j", "link"])?;
            inspect(lab, |inspector| {
                for link in printed.as_array().into_iter().flatten() {
                    let name = link["ifname"].as_str().unwrap_or_default();
                    let found = inspector.link(&interface(name)).expect("the link");
                    let flags = link["flags"].as_array().cloned().unwrap_or_default();
                    let has = |flag: &str| flags.iter().any(|found| found == flag);
                    let state = format!("{:?}", found.state).to_lowercase();
                    assert_eq!(
                        link["operstate"].as_str().map(str::to_lowercase).as_deref(),
                        Some(&*state),
                        "{link}"
                    );
                    assert_eq!(
                        (found.is_up, found.has_carrier, found.is_loopback),
                        (has("UP"), has("LOWER_UP"), has("LOOPBACK")),
                        "{link}"
                    );
                    assert_eq!(link["mtu"], found.mtu, "{link}");
                    assert_eq!(
                        link["master"].as_str(),
                        found.master.as_ref().map(|name| &*name.0),
                        "{link}"
                    );
                    assert_eq!(
                        link["linkinfo"]["info_kind"].as_str(),
                        found.kind.as_deref(),
                        "{link}"
                    );
                    assert!(!found.has_xdp, "{link}");
                }
                let state = |name: &str| inspector.link(&interface(name)).map(|link| link.state);
                assert_eq!(
                    (state("pod2"), state("lo")),
                    (Some(LinkState::Down), Some(LinkState::Unknown))
                );
                assert_eq!(inspector.link(&interface("absent")), None);

                let filters = inspector.traffic_filters(&interface("pod1"))?;
                assert_eq!(
                    (&*filters.ingress, &*filters.egress),
                    (&[][..], &["u32".to_owned()][..])
                );
                assert!(inspector.traffic_filters(&interface("eth0"))?.is_empty());

                let neighbour = |inspector: &mut NodeInspector, name: &str, text: &str| {
                    inspector.neighbour(&interface(name), address(text))
                };
                let fixed = neighbour(inspector, "pod1", "10.244.1.77")?.expect("a neighbour");
                assert_eq!(
                    (fixed.state, fixed.link_address.as_deref()),
                    (NeighbourState::Permanent, Some("02:00:00:00:00:01"))
                );
                let client = neighbour(inspector, "eth0", &lab.client.host.v4.to_string())?
                    .expect("a neighbour");
                assert!(
                    client.link_address.is_some() && client.state != NeighbourState::Failed,
                    "{client:?}"
                );
                let nobody = neighbour(inspector, "eth0", "172.31.0.77")?.expect("a neighbour");
                assert!(
                    nobody.link_address.is_none()
                        && matches!(
                            nobody.state,
                            NeighbourState::Failed | NeighbourState::Incomplete
                        )
                        && nobody.age < 60,
                    "{nobody:?}"
                );
                assert_eq!(neighbour(inspector, "eth0", "172.31.0.78")?, None);

                let mut names: Vec<_> = inspector
                    .interfaces_with(address("10.9.9.9"))?
                    .into_iter()
                    .map(|found| found.interface.0)
                    .collect();
                names.sort();
                assert_eq!(
                    names.iter().map(|name| &**name).collect::<Vec<_>>(),
                    ["br9", "eth0"]
                );
                assert!(inspector.interfaces_with(address("10.9.9.8"))?.is_empty());

                let origin = |inspector: &mut NodeInspector, text: &str| {
                    inspector.network().client_origin(address(text))
                };
                assert_eq!(origin(inspector, "10.9.9.9")?, ClientOrigin::ThisNode);
                assert_eq!(
                    origin(inspector, "10.244.1.10")?,
                    ClientOrigin::Interface(interface("pod1"))
                );
                Ok(())
            })
        },
    )
}

#[test]
fn address_that_another_machine_has_is_a_duplicate() -> Result<()> {
    isolated(
        "packet_path::facts::address_that_another_machine_has_is_a_duplicate",
        |lab| {
            lab.node.exec(&[
                "sh",
                "-c",
                "echo 1 >/proc/sys/net/ipv6/conf/eth0/accept_dad",
            ])?;
            let taken = lab.node2.host.v6.to_string();
            lab.node
                .exec(&["ip", "addr", "add", &format!("{taken}/64"), "dev", "eth0"])?;
            let find = || inspect(lab, |inspector| inspector.interfaces_with(address(&taken)));
            let first = find()?;
            assert!(first[0].is_tentative || first[0].is_duplicate, "{first:?}");
            wait_until(
                "the kernel finds the other machine",
                Duration::from_secs(5),
                || find().is_ok_and(|found| found.iter().all(|address| address.is_duplicate)),
            )?;
            Ok(())
        },
    )
}

#[test]
fn active_settings_are_found() -> Result<()> {
    isolated("packet_path::facts::active_settings_are_found", |lab| {
        let (pod1, pod2) = (interface("pod1"), interface("pod2"));
        inspect(lab, |inspector| {
            let settings = inspector.settings();
            assert_eq!(
                settings.reverse_path_filter(&pod1),
                Some(ReversePathFilter::Off)
            );
            assert_eq!(
                (
                    settings.is_forwarding(&pod1, true),
                    settings.is_forwarding(&pod1, false)
                ),
                (Some(true), Some(true))
            );
            assert_eq!(
                (
                    settings.routes_loopback(&pod1),
                    settings.accepts_own_addresses(&pod1)
                ),
                (Some(false), Some(false))
            );
            assert_eq!(settings.is_ipv6_disabled(&pod1), Some(false));
            assert_eq!(settings.text("net/ipv4/absent"), None);
            Ok(())
        })?;
        let change = "cd /proc/sys/net; echo 1 >ipv4/conf/pod1/rp_filter; echo 0 >ipv4/conf/pod1/forwarding; echo 1 >ipv4/conf/pod1/route_localnet
            echo 1 >ipv4/conf/all/accept_local; echo 1 >ipv6/conf/pod1/disable_ipv6; echo 0 >ipv6/conf/all/forwarding
            echo '20000 30000' >ipv4/ip_local_port_range; echo 25000-25010 >ipv4/ip_local_reserved_ports";
        lab.node.exec(&["sh", "-ec", change])?;
        inspect(lab, |inspector| {
            let settings = inspector.settings();
            let filters = || [&pod1, &pod2].map(|pod| settings.reverse_path_filter(pod));
            assert_eq!(
                filters(),
                [
                    Some(ReversePathFilter::Strict),
                    Some(ReversePathFilter::Off)
                ]
            );
            assert_eq!(
                [&pod1, &pod2].map(|pod| settings.is_forwarding(pod, true)),
                [Some(false), Some(true)]
            );
            assert_eq!(settings.is_forwarding(&pod2, false), Some(false));
            assert_eq!(
                [&pod1, &pod2].map(|pod| settings.routes_loopback(pod)),
                [Some(true), Some(false)]
            );
            assert_eq!(settings.accepts_own_addresses(&pod2), Some(true));
            assert_eq!(
                [&pod1, &pod2].map(|pod| settings.is_ipv6_disabled(pod)),
                [Some(true), Some(false)]
            );
            assert_eq!(settings.local_ports(), Some((20_000, 30_000)));
            assert_eq!(settings.reserved_ports().as_deref(), Some("25000-25010"));
            Ok(())
        })?;
        lab.node
            .exec(&["sh", "-ec", "echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter"])?;
        inspect(lab, |inspector| {
            let filter = inspector.settings().reverse_path_filter(&pod1);
            assert_eq!(filter, Some(ReversePathFilter::Loose), "the larger one");
            Ok(())
        })
    })
}

#[test]
fn flows_are_those_of_conntrack() -> Result<()> {
    isolated("packet_path::facts::flows_are_those_of_conntrack", |lab| {
        let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod3.host]);
        state.put_manifest(&ServiceManifest::new(web.clone()))?;
        let _agent = Agent::start(lab, &AgentOptions::with_store(state.url()))?;
        for family in Family::BOTH {
            let frontend = web.address(lab, Frontend::ExternalIp, family);
            let (client, backend) = (
                lab.client.host.address(family),
                lab.pod3.host.socket(family, TARGET_PORT),
            );
            let node = lab.node.host.address(family);
            let mut tcp = lab.client.open(LabProtocol::Tcp, frontend)?;
            tcp.ask()?;
            lab.client.ask(LabProtocol::Udp, frontend)?.answer()?;
            let (flows, to_client, used, tracked) = inspect(lab, |inspector| {
                let flows = inspector.flows(Protocol::Tcp, client, frontend)?;
                let others = inspector.flows(Protocol::Tcp, client, backend)?;
                assert_eq!(others.count, 0, "{others:?}");
                let to_client = inspector.flows_to(Protocol::Udp, client)?;
                let used = inspector.source_ports_used(Protocol::Tcp, node)?;
                Ok((flows, to_client, used, inspector.settings().conntrack()))
            })?;
            let KnownFlow {
                client: found,
                destination,
                server,
                tcp_state,
                seen_source,
                ..
            } = flows.flows[0].clone();
            assert_eq!((flows.count, flows.open), (1, 1), "{flows:?}");
            assert_eq!(used.get(&backend), Some(&1), "{used:?}");
            assert_eq!(
                (found, destination, server),
                (tcp.local_address()?, frontend, backend)
            );
            assert_eq!(
                (tcp_state, seen_source.ip()),
                (Some(TcpState::Established), node)
            );
            assert!(
                flows.flows[0].is_answered
                    && flows.flows[0].is_assured
                    && flows.flows[0].is_destination_translated
                    && flows.flows[0].is_source_translated
            );
            assert_eq!(to_client.count, 0);
            let listed = lab.node.exec(&[
                "conntrack",
                "-L",
                "-f",
                if frontend.is_ipv4() { "ipv4" } else { "ipv6" },
                "-p",
                "tcp",
                "-s",
                &client.to_string(),
            ])?;
            let text = format!(
                "src={client} dst={} sport={} dport={} src={} dst={node} sport={} dport={} [ASSURED]",
                frontend.ip(),
                found.port(),
                frontend.port(),
                backend.ip(),
                backend.port(),
                seen_source.port()
            );
            assert!(listed.contains(&text), "{text} is not in {listed}");
            assert!(
                tracked.is_some_and(|table| table.entries >= 2),
                "both connections"
            );

            // Nothing is translated, and nobody answers. A refused one is forgotten at once.
            let refused = lab.pod4.host.socket(family, 81);
            lab.node.ask(LabProtocol::Tcp, refused)?.refusal()?;
            let drop_all = [
                "ip",
                "route",
                "replace",
                "blackhole",
                &refused.ip().to_string(),
            ];
            lab.node2.exec(&drop_all)?;
            let silent = lab.pod4.host.socket(family, 82);
            lab.node
                .ask_within(LabProtocol::Tcp, silent, Duration::from_millis(100))?;
            let (refused, silent) = inspect(lab, |inspector| {
                let refused = inspector.flows(Protocol::Tcp, node, refused)?;
                Ok((refused, inspector.flows(Protocol::Tcp, node, silent)?))
            })?;
            assert_eq!((refused.count, silent.count), (0, 1));
            let silent = &silent.flows[0];
            assert!(
                !silent.is_destination_translated
                    && !silent.is_source_translated
                    && !silent.is_answered,
                "{silent:?}"
            );
            let state = (silent.tcp_state, silent.zone);
            assert_eq!(state, (Some(TcpState::SynSent), 0));
            assert!(silent.seconds_left.is_some_and(|seconds| seconds > 100));

            // Of the unanswered ones only those of services are listed.
            let backend_ip = backend.ip().to_string();
            lab.node2
                .exec(&["ip", "route", "replace", "blackhole", &backend_ip])?;
            let wait = Duration::from_millis(100);
            lab.client.ask_within(LabProtocol::Tcp, frontend, wait)?;
            let unanswered = inspect(lab, NodeInspector::unanswered_flows)?;
            let found: Vec<_> = unanswered
                .iter()
                .filter(|flow| flow.destination.is_ipv4() == frontend.is_ipv4())
                .map(|flow| (flow.protocol, flow.client.ip(), flow.destination))
                .collect();
            assert_eq!(found, [(Protocol::Tcp, client, frontend)], "{unanswered:?}");
        }
        Ok(())
    })
}

#[test]
fn listeners_are_those_of_ss() -> Result<()> {
    isolated("packet_path::facts::listeners_are_those_of_ss", |lab| {
        let node = lab.node.host.v4;
        let open = |address: &str| {
            let address: SocketAddr = address.parse().expect("an address");
            lab.node.run(|| {
                TcpListener::bind(address).map_err(|error| LabError::system("listen", error))
            })
        };
        let _listeners = [
            open("127.0.0.1:7001")?,
            open("0.0.0.0:7002")?,
            open("[::]:7003")?,
            open("[fd00:172:31::1]:7004")?,
        ];
        let _udp = lab.node.run(|| {
            std::net::UdpSocket::bind((node, 7005)).map_err(|error| LabError::system("bind", error))
        })?;
        // A queue of one, which nobody empties.
        let crowded = lab.node.run(|| {
            let socket = nix::sys::socket::socket(
                nix::sys::socket::AddressFamily::Inet,
                nix::sys::socket::SockType::Stream,
                nix::sys::socket::SockFlag::empty(),
                None,
            )
            .map_err(|error| LabError::system("open a socket", error))?;
            let address = nix::sys::socket::SockaddrIn::new(0, 0, 0, 0, 7006);
            nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &address)
                .map_err(|error| LabError::system("bind", error))?;
            let backlog = nix::sys::socket::Backlog::new(1)
                .map_err(|error| LabError::system("listen", error))?;
            nix::sys::socket::listen(&socket, backlog)
                .map_err(|error| LabError::system("listen", error))?;
            Ok(socket)
        })?;
        let _waiting = [
            lab.node
                .open(LabProtocol::Tcp, SocketAddr::new(node.into(), 7006))?,
            lab.node
                .open(LabProtocol::Tcp, SocketAddr::new(node.into(), 7006))?,
        ];
        let listening = |protocol, address: SocketAddr| {
            inspect(lab, |inspector| inspector.listening(protocol, address))
        };
        let at = |port| SocketAddr::new(node.into(), port);
        assert_eq!(
            listening(Protocol::Tcp, at(7001))?,
            Listening::Elsewhere(vec![address("127.0.0.1")])
        );
        for port in [7002, 7003] {
            let found = listening(Protocol::Tcp, at(port))?;
            assert!(
                matches!(&found, Listening::Here(socket) if !socket.is_full() && socket.waiting == 0),
                "{port}: {found:?}"
            );
        }
        assert_eq!(
            listening(Protocol::Tcp, at(7004))?,
            Listening::Elsewhere(vec![address("fd00:172:31::1")])
        );
        assert!(matches!(
            listening(Protocol::Tcp, lab.node.host.socket(Family::V6, 7004))?,
            Listening::Here(_)
        ));
        assert!(matches!(
            listening(Protocol::Udp, at(7005))?,
            Listening::Here(_)
        ));
        assert_eq!(listening(Protocol::Tcp, at(7005))?, Listening::Nowhere);
        let Listening::Here(socket) = listening(Protocol::Tcp, at(7006))? else {
            panic!("nobody listens")
        };
        let printed = lab.node.exec(&["ss", "-Hltn", "sport = :7006"])?;
        let mut columns = printed.split_whitespace().skip(1).map(str::parse);
        assert_eq!(
            (columns.next(), columns.next()),
            (Some(Ok(socket.waiting)), Some(Ok(socket.limit))),
            "{printed}"
        );
        assert!(socket.is_full(), "{socket:?}");
        drop(crowded);
        Ok(())
    })
}

#[test]
fn probe_tells_how_a_backend_answers() -> Result<()> {
    isolated(
        "packet_path::facts::probe_tells_how_a_backend_answers",
        |lab| {
            let _responder = Responder::start(&lab.pod3, TARGET_PORT)?;
            let try_from_node = |address| lab.node.run(|| Ok(probe(address)));
            for family in Family::BOTH {
                assert_eq!(
                    try_from_node(lab.pod3.host.socket(family, TARGET_PORT))?,
                    ProbeResult::Answered
                );
                assert_eq!(
                    try_from_node(lab.pod3.host.socket(family, 81))?,
                    ProbeResult::Refused
                );
            }
            lab.node2
                .exec(&["ip", "route", "replace", "unreachable", "10.244.2.10"])?;
            let unreachable = try_from_node(lab.pod3.host.socket(Family::V4, TARGET_PORT))?;
            assert!(
                matches!(unreachable, ProbeResult::Unreachable(_)),
                "{unreachable:?}"
            );
            lab.node2
                .exec(&["ip", "route", "replace", "blackhole", "10.244.2.10"])?;
            assert_eq!(
                try_from_node(lab.pod3.host.socket(Family::V4, TARGET_PORT))?,
                ProbeResult::Silent
            );
            Ok(())
        },
    )
}

#[test]
fn facts_are_read_quickly_with_many_flows() -> Result<()> {
    isolated(
        "packet_path::facts::facts_are_read_quickly_with_many_flows",
        |lab| {
            // Conntrack sees packets only where rules need it.
            lab.node.exec_with_input(&["nft", "-f", "-"], "table inet t { chain c { type filter hook output priority 0; ct state new accept; }; }")?;
            let limit: u64 = lab
                .node
                .exec(&["cat", "/proc/sys/net/netfilter/nf_conntrack_max"])?
                .trim()
                .parse()
                .expect("a number");
            let count = limit.min(100_000) * 9 / 10;
            lab.node.run(|| {
                let socket = std::net::UdpSocket::bind((lab.node.host.v4, 0))
                    .map_err(|error| LabError::system("bind", error))?;
                for number in 0..count {
                    let [.., low, high] = (number % 60_000 + 1).to_be_bytes();
                    let to = if number < 60_000 {
                        lab.client.host.v4
                    } else {
                        lab.node2.host.v4
                    };
                    // A refusal of an earlier datagram is no failure.
                    let _ = socket.send_to(b"?", (to, u16::from_be_bytes([low, high])));
                }
                Ok(())
            })?;
            let (found, took) = inspect(lab, |inspector| {
                let begin = Instant::now();
                let found = inspector.flows(
                    Protocol::Udp,
                    lab.node.host.v4.into(),
                    (lab.client.host.v4, 53).into(),
                )?;
                Ok((found, begin.elapsed()))
            })?;
            let entries = inspect(lab, |inspector| Ok(inspector.settings().conntrack()))?
                .map_or(0, |table| table.entries);
            assert_eq!(found.count, 1, "{found:?}");
            assert!(entries > count / 2, "{entries}");
            assert!(
                took < Duration::from_secs(1),
                "{took:?} for {entries} flows"
            );
            println!("one of {entries} flows in {took:?}");
            let (found, took) = inspect(lab, |inspector| {
                let begin = Instant::now();
                let found = inspector.unanswered_flows()?;
                Ok((found, begin.elapsed()))
            })?;
            assert_eq!(found, [], "none is translated");
            assert!(
                took < Duration::from_secs(1),
                "{took:?} for {entries} flows"
            );
            println!("the unanswered of {entries} flows in {took:?}");
            Ok(())
        },
    )
}
