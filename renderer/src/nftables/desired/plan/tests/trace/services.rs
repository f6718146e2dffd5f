//! Random services that compete for few addresses, and every flow between those addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    Assignment, Backend, BackendState, Balance, Carrier, ClusterIpMasquerade, ContivService, Flow,
    Frontend, InterfaceName, InterfacePattern, NodeFacts, Protocol, ServiceId, ServicePort,
    Snapshot, TrafficPolicy,
};
use ipnetwork::IpNetwork;
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{select, subsequence},
};

const PORTS: [u16; 2] = [80, 81];
const NODE_PORTS: [u16; 2] = [30080, 30081];
const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];
const CLUSTER_IPS: [&str; 4] = ["10.96.0.1", "10.96.0.2", "fd00:96::1", "fd00:96::2"];
const NODE_IPS: [&str; 2] = ["192.168.0.1", "fd00:a::1"];
const OTHER_NODE_IPS: [&str; 2] = ["192.168.0.2", "fd00:a::2"];
const EXTERNAL_IPS: [&str; 6] = [
    "203.0.113.1",
    "203.0.113.2",
    "192.168.0.1",
    "2001:db8:1::1",
    "2001:db8:1::2",
    "fd00:a::1",
];
/// Pods, and programs in the network of the node.
const LOCAL_BACKENDS: [&str; 6] = [
    "10.244.1.1",
    "10.244.1.2",
    "192.168.0.1",
    "fd00:1::1",
    "fd00:1::2",
    "fd00:a::1",
];
const REMOTE_BACKENDS: [&str; 4] = ["10.244.2.1", "10.244.2.2", "fd00:2::1", "fd00:2::2"];
const POD_CIDRS: [&str; 2] = ["10.244.1.0/24", "fd00:1::/64"];
const POD_INTERFACES: [&str; 2] = ["cni0", "veth*"];
/// One of them in a pod range.
const LOCAL_IPS: [&str; 2] = ["10.244.1.9", "fd00:2::1"];
const INTERFACES: [&str; 3] = ["cni0", "veth7", "eth0"];
const SERVICE_INTERFACES: [&str; 2] = ["cni0", "eth*"];
const SERVICE_CIDRS: [&str; 2] = ["10.96.0.0/16", "fd00:96::/112"];
const NON_MASQUERADE_CIDRS: [&str; 4] = [
    "10.244.0.0/16",
    "198.51.100.0/24",
    "fd00::/16",
    "2001:db8:1::1/128",
];
/// As the model adds them: link-local addresses, and those of the nodes.
const ALWAYS_INSIDE: [&str; 4] = [
    "169.254.0.0/16",
    "192.168.0.0/24",
    "fe80::/10",
    "fd00:a::/64",
];
const SOURCE_RANGES: [&str; 4] = [
    "192.0.2.0/24",
    "10.244.1.0/30",
    "2001:db8:2::/48",
    "0.0.0.0/0",
];
/// Local pods, some of them backends; the node; and others, some of them in the source ranges.
const CLIENTS: [&str; 13] = [
    "10.244.1.1",
    "10.244.1.9",
    "192.168.0.1",
    "127.0.0.1",
    "10.244.2.1",
    "192.0.2.9",
    "198.51.100.7",
    "fd00:1::1",
    "fd00:1::9",
    "fd00:a::1",
    "::1",
    "fd00:2::1",
    "2001:db8:2::9",
];
const NOBODY: [&str; 4] = ["10.96.0.9", "198.51.100.1", "fd00:96::9", "0.0.0.0"];

fn all<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A random subset; often none or all.
fn some<T>(texts: &[&str]) -> impl Strategy<Value = BTreeSet<T>> + use<T>
where
    T: std::str::FromStr<Err: std::fmt::Debug> + Clone + std::fmt::Debug + Ord + 'static,
{
    let all: Vec<T> = all(texts);
    subsequence(all.clone(), 0..=all.len()).prop_map(BTreeSet::from_iter)
}

fn node() -> impl Strategy<Value = NodeFacts> {
    let masquerade = select(
        &[
            ClusterIpMasquerade::AllButPods,
            ClusterIpMasquerade::All,
            ClusterIpMasquerade::None,
        ][..],
    );
    let non_masquerade = option::of(some(&NON_MASQUERADE_CIDRS).prop_map(|mut ranges| {
        ranges.extend(all::<IpNetwork>(&ALWAYS_INSIDE));
        ranges
    }));
    let ranges = (some(&POD_CIDRS), some(&SERVICE_CIDRS), non_masquerade);
    let service_interfaces = prop_oneof![
        3 => Just(None),
        1 => some(&SERVICE_INTERFACES).prop_map(|mut names| {
            names.extend(all::<InterfacePattern>(&["lo"]));
            Some(names)
        }),
    ];
    let masquerade = (masquerade, service_interfaces);
    let node_ips = (some(&NODE_IPS), some(&OTHER_NODE_IPS));
    (
        node_ips,
        some(&LOCAL_IPS),
        ranges,
        some(&POD_INTERFACES),
        masquerade,
    )
        .prop_map(
            |(
                (node_ips, other_node_ips),
                local_ips,
                (pod_cidrs, service_cidrs, non_masquerade_cidrs),
                pod_interfaces,
                (cluster_ip_masquerade, service_interfaces),
            )| {
                NodeFacts {
                    node_ips,
                    other_node_ips,
                    local_ips,
                    pod_cidrs,
                    pod_interfaces,
                    cluster_ip_masquerade,
                    service_cidrs,
                    non_masquerade_cidrs,
                    service_interfaces,
                    ..NodeFacts::default()
                }
            },
        )
}

fn backend() -> impl Strategy<Value = Backend> {
    let addresses: Vec<IpAddr> = all(&[&LOCAL_BACKENDS[..], &REMOTE_BACKENDS].concat());
    (
        select(addresses),
        8080..8082_u16,
        any::<bool>(),
        0..4_u16,
        state(),
    )
        .prop_map(|(address, port, in_topology, weight, state)| Backend {
            local: LOCAL_BACKENDS.contains(&address.to_string().as_str()),
            in_topology,
            weight,
            state,
            ..Backend::new(SocketAddr::new(address, port))
        })
}

fn state() -> impl Strategy<Value = BackendState> {
    use BackendState::{Failing, Ready, Terminating};
    select(vec![Ready, Ready, Terminating, Failing])
}

/// As the model produces them: each endpoint once, and topology leaves at least one ready endpoint of each family.
fn backends() -> impl Strategy<Value = Vec<Backend>> {
    vec(backend(), 0..5).prop_map(|mut backends| {
        backends.sort();
        backends.dedup_by_key(|backend| backend.endpoint());
        for ipv4 in [true, false] {
            let is_ready = |backend: &Backend| {
                backend.address.is_ipv4() == ipv4 && backend.state == BackendState::Ready
            };
            if !backends
                .iter()
                .any(|backend| is_ready(backend) && backend.in_topology)
            {
                backends
                    .iter_mut()
                    .filter(|backend| is_ready(backend))
                    .for_each(|it| it.in_topology = true);
            }
        }
        backends
    })
}

fn port() -> impl Strategy<Value = ServicePort> {
    (
        select(&PORTS[..]),
        select(&PROTOCOLS[..]),
        option::of(select(&NODE_PORTS[..])),
        backends(),
    )
        .prop_map(|(port, protocol, node_port, backends)| ServicePort {
            port,
            protocol,
            name: "".into(),
            node_port,
            backends,
        })
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    select(&[TrafficPolicy::Cluster, TrafficPolicy::Local][..])
}

fn service() -> impl Strategy<Value = ContivService> {
    let addresses = (
        some::<IpAddr>(&CLUSTER_IPS),
        some::<IpAddr>(&EXTERNAL_IPS),
        any::<bool>(),
    );
    let balance = select(&[Balance::Random, Balance::ClientAddress][..]);
    let carrier = prop_oneof![4 => Just(Carrier::Nftables), 1 => Just(Carrier::Route)];
    let choice = (
        prop_oneof![Just(0), 1..9_u32],
        any::<bool>(),
        balance,
        carrier,
    );
    let sources = (
        some::<IpAddr>(&EXTERNAL_IPS),
        some(&SOURCE_RANGES),
        any::<bool>(),
    );
    (
        addresses,
        (policy(), policy()),
        choice,
        sources,
        vec(port(), 1..3),
    )
        .prop_map(
            |(
                (cluster_ips, mut external_ips, are_external_too),
                policies,
                choice,
                sources,
                mut ports,
            )| {
                if are_external_too {
                    external_ips.extend(&cluster_ips);
                }
                // Port numbers of a service are unique.
                ports.sort();
                ports.dedup_by_key(|port| (port.port, port.protocol));
                ports.dedup_by(|one, other| {
                    one.node_port.is_some()
                        && (one.node_port, one.protocol) == (other.node_port, other.protocol)
                });
                ContivService {
                    internal_policy: policies.0,
                    external_policy: policies.1,
                    session_affinity_timeout: choice.0,
                    affinity_shared: choice.1,
                    balance: choice.2,
                    assignment: Assignment {
                        addresses: choice.3,
                        ..Assignment::default()
                    },
                    load_balancer_ips: sources.0.intersection(&external_ips).copied().collect(),
                    source_ranges: sources.1,
                    source_ranges_on_node_ports: sources.2,
                    cluster_ips: cluster_ips.into(),
                    external_ips: external_ips.into(),
                    ports,
                    ..ContivService::new(ServiceId::new("default", "web"))
                }
            },
        )
}

/// Services that compete for few addresses; as in the model, the older one gets an address that both want.
pub(super) fn snapshot() -> impl Strategy<Value = Snapshot> {
    (node(), vec(service(), 1..4)).prop_map(|(node, services)| {
        let mut holders: BTreeMap<Frontend, ServiceId> = BTreeMap::new();
        let mut snapshot = Snapshot {
            node,
            ..Snapshot::default()
        };
        for (number, mut service) in services.into_iter().enumerate() {
            service.id = ServiceId::new("default", format!("web{number}"));
            for frontend in service.frontends() {
                let holder = holders
                    .entry(frontend)
                    .or_insert_with(|| service.id.clone());
                if *holder != service.id {
                    service.lost.insert(frontend, holder.clone());
                }
            }
            snapshot
                .services
                .insert(service.id.clone(), Arc::new(service));
        }
        snapshot
    })
}

/// Every flow between the addresses above.
pub(super) fn flows() -> Vec<Flow> {
    let to: BTreeSet<IpAddr> = all(&[
        &CLUSTER_IPS[..],
        &NODE_IPS,
        &OTHER_NODE_IPS,
        &EXTERNAL_IPS,
        &NOBODY,
    ]
    .concat())
    .into_iter()
    .collect();
    let to: Vec<SocketAddr> = to
        .into_iter()
        .flat_map(|address| {
            [PORTS, NODE_PORTS]
                .concat()
                .into_iter()
                .map(move |port| (address, port).into())
        })
        .collect();
    let mut flows = Vec::new();
    for from in all::<IpAddr>(&CLIENTS) {
        for to in &to {
            let by_protocol = PROTOCOLS
                .into_iter()
                .filter_map(|protocol| Flow::new(from, *to, protocol).ok());
            for (number, flow) in by_protocol.enumerate() {
                let interface = INTERFACES[number % INTERFACES.len()];
                // A packet that arrives at an interface is from another client.
                let is_this_node = from.is_loopback()
                    || [NODE_IPS, LOCAL_IPS].concat().contains(&&*from.to_string());
                let by_interface = (!is_this_node)
                    .then(|| flow.clone().by_interface(InterfaceName::new(interface)));
                flows.extend(by_interface.into_iter().chain([flow]));
            }
        }
    }
    flows
}
