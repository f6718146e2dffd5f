//! Random steps over few ids, addresses and ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contiv_model::{
    Balance, Event, FailoverMode, InterfaceName, LocalDetect, LocalInterface, NodeName,
    NodePortAddresses, Object, ObjectKey, PodId, ProcessorConfig, Resync, ServiceId,
    ServiceInterfaces, TrafficPolicy,
    object::{
        AddressType, Conditions, EndpointAddress, Hints, Seniority, Service, ServiceOptions,
        ServiceType, SliceEndpoint,
    },
};
use ipnetwork::IpNetwork;
use proptest::{
    collection::{btree_map, btree_set, vec},
    option,
    prelude::*,
    sample::{select, subsequence},
};

use crate::builders::*;

/// A random event of a processor.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Apply(Vec<Event>),
    Resync(Resync),
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let apply = vec(event(), 0..5).prop_map(Step::Apply);
    let resync =
        (vec(object(), 0..12), btree_set(key(), 0..6)).prop_map(|(objects, undecodable)| {
            Step::Resync(Resync {
                objects,
                undecodable,
            })
        });
    vec(prop_oneof![12 => apply, 1 => resync], 1..16)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => object().prop_map(Event::Put),
        4 => key().prop_map(Event::Delete),
        2 => (pod(), select(&["tap1", "tap2", "eth1"][..]))
            .prop_map(|(pod, interface)| Event::AddPod { pod, interface: InterfaceName::new(interface) }),
        1 => pod().prop_map(Event::DeletePod),
        1 => pod().prop_map(Event::RevertAddPod),
        1 => address_set().prop_map(Event::LocalAddresses),
        1 => btree_map(select(&["lo", "eth0", "tap1"][..]).prop_map(InterfaceName::new), interface(), 0..3)
            .prop_map(Event::LocalInterfaces),
        3 => (service_id(), btree_set((address(), select(&[8080, 8082][..])), 0..4)).prop_map(|(service, backends)| {
            Event::FailingBackends(service, backends.into_iter().map(Into::into).collect())
        }),
    ]
}

fn interface() -> impl Strategy<Value = LocalInterface> {
    (address_set(), address_set(), any::<[bool; 3]>(), 24..33_u8).prop_map(
        |(addresses, route_sources, [has_ipv4_routes, has_ipv6_routes, is_physical], prefix)| {
            LocalInterface {
                networks: addresses
                    .iter()
                    .filter_map(|ip| IpNetwork::new(*ip, prefix).ok())
                    .collect(),
                addresses,
                route_sources,
                has_ipv4_routes,
                has_ipv6_routes,
                is_physical,
            }
        },
    )
}

/// Every setting, by default or not.
pub(super) fn config() -> impl Strategy<Value = ProcessorConfig> {
    let node_port_addresses = select(vec![
        NodePortAddresses::Primary,
        NodePortAddresses::All,
        NodePortAddresses::Cluster,
        NodePortAddresses::Within("10.1.1.0/30".parse().unwrap()),
        NodePortAddresses::Within("fd01::/64".parse().unwrap()),
    ]);
    let local_detect = prop_oneof![
        2 => Just(LocalDetect::PodCidrs),
        1 => Just(LocalDetect::None),
        1 => Just(LocalDetect::Interfaces(["tap*".parse().unwrap()].into())),
    ];
    let service_interfaces = select(vec![
        ServiceInterfaces::Pods,
        ServiceInterfaces::External,
        ServiceInterfaces::Named("eth*".parse().unwrap()),
    ]);
    let rarely = || prop::bool::weighted(0.2);
    (
        (
            1..3_u16,
            address_set(),
            rarely(),
            btree_set(node_port_addresses, 1..3),
            rarely(),
        ),
        (
            btree_set(service_interfaces, 0..2),
            cidrs(),
            rarely(),
            local_detect,
            option::weighted(0.2, zone()),
        ),
        (
            ranges(&["10.0.0.0/8", "fd00::/8"]),
            ranges(&["10.9.0.0/16", "fd09::/64"]),
            rarely(),
        ),
        (
            rarely(),
            rarely(),
            rarely(),
            rarely(),
            prop::bool::weighted(0.8),
            select(&FailoverMode::ALL[..]),
        ),
    )
        .prop_map(
            |(
                (
                    local_endpoint_weight,
                    node_ips,
                    has_node_ips,
                    node_port_addresses,
                    node_ports_on_loopback,
                ),
                (service_interfaces, pod_cidrs, has_pod_cidrs, local_detect, zone),
                (non_masquerade_cidrs, service_cidrs, masquerade_all),
                (
                    masquerade_egress,
                    source_ranges_on_node_ports,
                    contiv_local_policy,
                    route_all,
                    route_runs,
                    failover,
                ),
            )| ProcessorConfig {
                local_endpoint_weight,
                node_ips: if has_node_ips {
                    node_ips
                } else {
                    BTreeSet::new()
                },
                node_port_addresses,
                node_ports_on_loopback,
                external_interfaces: BTreeSet::new(),
                service_interfaces,
                pod_cidrs: if has_pod_cidrs {
                    pod_cidrs
                } else {
                    BTreeSet::new()
                },
                local_detect,
                masquerade_all,
                masquerade_egress,
                non_masquerade_cidrs,
                service_cidrs,
                service_proxy_name: None,
                zone,
                source_ranges_on_node_ports,
                contiv_local_policy,
                route_runs,
                route_all,
                failover,
                ..ProcessorConfig::new(NodeName::new(MASTER))
            },
        )
}

fn key() -> impl Strategy<Value = ObjectKey> {
    // The keys of any object are the ids that exist.
    object().prop_map(|object| object.key())
}

fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        4 => service().prop_map(IntoObject::object),
        2 => endpoints(),
        4 => slice(),
        2 => (pod(), address_set(), any::<bool>(), 1..3_u8).prop_map(|(id, ips, host_network, weight)| {
            contiv_model::object::Pod { id, ips, host_network, weight }.object()
        }),
        1 => (node(), address_set(), address_set(), cidrs(), option::of(zone()), prop::bool::weighted(0.1)).prop_map(
            |(name, internal_ips, external_ips, pod_cidrs, zone, is_being_deleted)| {
                let [internal_ips, external_ips] =
                    [internal_ips, external_ips].map(|ips| ips.into_iter().collect());
                contiv_model::object::Node { name, internal_ips, external_ips, pod_cidrs, zone, is_being_deleted }
                    .object()
            }
        ),
        1 => (1..4_u32, node(), address_set())
            .prop_map(|(id, name, ips)| contiv_model::object::VppNode { id, name, ips }.object()),
        2 => allocation(),
    ]
}

fn service() -> impl Strategy<Value = Service> {
    let addresses = || subsequence(vec!["10.9.0.1", "10.9.0.2", "fd09::1"], 0..3);
    let port = select(
        &[
            "a:80/tcp",
            "a:80:30080/tcp",
            "b:81:30080/tcp",
            "a:80/udp",
            "c:80/sctp",
            "b:81:30081/udp",
        ][..],
    );
    let service_type = prop_oneof![
        8 => Just(ServiceType::ClusterIp),
        2 => Just(ServiceType::NodePort),
        2 => Just(ServiceType::LoadBalancer),
        1 => Just(ServiceType::ExternalName),
    ];
    let policy = || select(&[TrafficPolicy::Cluster, TrafficPolicy::Local][..]);
    (
        service_id(),
        (addresses(), addresses(), addresses()),
        btree_set(port, 0..4),
        (
            service_type,
            prop::bool::weighted(0.1),
            prop::bool::weighted(0.1),
        ),
        (policy(), policy(), 0..2_u32),
        (option::of(1..3_i64), 1..3_i64),
        (options(), source_ranges(), option::of(32_000..32_002_u16)),
    )
        .prop_map(
            |(
                id,
                addresses,
                ports,
                (service_type, headless, other_proxy),
                policies,
                (created, revision),
                (options, source_ranges, health_check_node_port),
            )| {
                let ports: Vec<&str> = ports.into_iter().collect();
                Service {
                    service_type,
                    headless,
                    external_ips: ips(&addresses.1),
                    load_balancer_ips: ips(&addresses.2),
                    source_ranges,
                    health_check_node_port,
                    options,
                    external_policy: policies.0,
                    internal_policy: policies.1,
                    session_affinity_timeout: policies.2,
                    labels: BTreeMap::new(),
                    proxy_name: other_proxy.then(|| "other".into()),
                    seniority: Seniority::new(created, revision),
                    ..mk_service(&id.to_string(), &addresses.0, &ports)
                }
            },
        )
}

fn options() -> impl Strategy<Value = ServiceOptions> {
    (
        any::<[bool; 3]>(),
        select(&[Balance::Random, Balance::ClientAddress][..]),
        any::<Option<bool>>(),
        option::of(select(&FailoverMode::ALL[..])),
    )
        .prop_map(
            |([affinity_shared, prefer_local, reset_connections], balance, routed, failover)| {
                ServiceOptions {
                    affinity_shared,
                    balance,
                    prefer_local,
                    reset_connections,
                    routed,
                    failover,
                }
            },
        )
}

fn source_ranges() -> impl Strategy<Value = BTreeSet<ipnetwork::IpNetwork>> {
    ranges(&[
        "10.0.0.0/8",
        "192.0.2.0/24",
        "0.0.0.0/0",
        "fd00::/8",
        "::/0",
    ])
}

fn endpoints() -> impl Strategy<Value = Object> {
    let subset = (vec(endpoint_address(), 0..3), ports())
        .prop_map(|(addresses, ports)| mk_subset(&addresses, &ports));
    (service_id(), vec(subset, 0..3))
        .prop_map(|(id, subsets)| mk_endpoints(&id.to_string(), &subsets).object())
}

fn slice() -> impl Strategy<Value = Object> {
    let conditions =
        any::<(bool, bool, bool)>().prop_map(|(ready, serving, terminating)| Conditions {
            ready,
            serving,
            terminating,
        });
    // Hints decide only if all endpoints have them.
    let hints = prop_oneof![
        1 => Just(Hints::default()),
        3 => (btree_set(node(), 0..2), btree_set(zone(), 1..3)).prop_map(|(nodes, zones)| Hints { nodes, zones }),
    ];
    let endpoint =
        (endpoint_address(), conditions, hints).prop_map(|(address, conditions, hints)| {
            SliceEndpoint {
                address,
                conditions,
                hints: (!hints.is_empty()).then(|| Box::new(hints)),
            }
        });
    let address_type = prop_oneof![4 => Just(AddressType::Ipv4), 1 => Just(AddressType::Ipv6), 1 => Just(AddressType::Fqdn)];
    (
        select(&["a/s1", "a/s2", "b/s1"][..]),
        option::weighted(0.9, service_id()),
        vec(endpoint, 0..4),
        ports(),
        address_type,
        any::<bool>(),
    )
        .prop_map(
            |(id, service, endpoints, ports, address_type, is_supplement)| {
                contiv_model::object::EndpointSlice {
                    service,
                    address_type,
                    is_supplement,
                    ..mk_slice(id, "", &endpoints, &ports)
                }
                .object()
            },
        )
}

fn allocation() -> impl Strategy<Value = Object> {
    let interface = (
        select(&["eth1", "eth2"][..]),
        select(&["", "default", "stub"][..]),
        address(),
        any::<bool>(),
    );
    (pod(), vec(interface, 0..3)).prop_map(|(pod, interfaces)| {
        let interfaces = interfaces
            .into_iter()
            .map(
                |(name, network, ip, service_endpoint)| contiv_model::object::CustomInterface {
                    service_endpoint,
                    ..mk_interface(name, network, &ip.to_string())
                },
            );
        mk_allocation(&pod.to_string(), &interfaces.collect::<Vec<_>>()).object()
    })
}

fn endpoint_address() -> impl Strategy<Value = EndpointAddress> {
    (address(), option::of(node()), option::of(pod()))
        .prop_map(|(ip, node_name, pod)| EndpointAddress { ip, node_name, pod })
}

fn ports() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(
        vec![
            "a:8080/tcp",
            "a:8081/udp",
            "b:8080/tcp",
            "b:8082/tcp",
            "c:8080/sctp",
        ],
        0..4,
    )
}

fn service_id() -> impl Strategy<Value = ServiceId> {
    select(&["a/web", "a/dns", "b/web"][..]).prop_map(crate::builders::service_id)
}

fn pod() -> impl Strategy<Value = PodId> {
    select(&["a/p1", "a/p2", "b/p1"][..]).prop_map(pod_id)
}

fn node() -> impl Strategy<Value = NodeName> {
    select(&[MASTER, WORKER][..]).prop_map(NodeName::new)
}

fn zone() -> impl Strategy<Value = Arc<str>> {
    select(&["z1", "z2"][..]).prop_map(Arc::from)
}

fn address() -> impl Strategy<Value = IpAddr> {
    select(&["10.1.1.1", "10.1.1.2", "10.1.1.5", "10.1.2.1", "fd01::1"][..]).prop_map(ip)
}

fn address_set() -> impl Strategy<Value = BTreeSet<IpAddr>> {
    btree_set(address(), 0..3)
}

fn cidrs() -> impl Strategy<Value = BTreeSet<ipnetwork::IpNetwork>> {
    ranges(&["10.1.1.0/30", "10.1.1.4/30", "10.1.2.0/24", "fd01::/64"])
}

/// Up to two of these ranges.
fn ranges(of: &'static [&'static str]) -> impl Strategy<Value = BTreeSet<ipnetwork::IpNetwork>> {
    subsequence(of, 0..3).prop_map(|ranges| {
        ranges
            .into_iter()
            .map(|range| range.parse().unwrap())
            .collect()
    })
}
