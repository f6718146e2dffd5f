//! Objects round-trip through their manifests.

use std::collections::BTreeMap;

use contiv_proto::message::{
    endpoints, endpointslice, externalworkload, ipalloc, namespace, node, pod, service, vppnode,
};
use proptest::{collection::vec, option, prelude::*};

use super::*;

const AFFINITY: [(&str, u32); 2] = [("None", 0), ("ClientIP", 77)];

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9-]{0,8}"
}

/// Any text, also what YAML could take for another type.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        "[ \\t\\n#:'\"&*!|>%@,{}\\[\\]?-]{0,6}",
        prop::sample::select(vec![
            "yes",
            "no",
            "on",
            "null",
            "~",
            "1",
            "0x1F",
            "1e3",
            ".inf",
            "---",
            "2024-05-01",
            "true",
            "<<",
            "="
        ])
        .prop_map(str::to_owned),
    ]
}

fn words() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(text(), text(), 0..4)
}

fn ipv4() -> impl Strategy<Value = String> {
    any::<[u8; 3]>().prop_map(|[a, b, c]| format!("10.{a}.{b}.{c}"))
}

fn ipv6() -> impl Strategy<Value = String> {
    any::<u64>()
        .prop_map(|low| std::net::Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(low)).to_string())
}

fn address() -> impl Strategy<Value = String> {
    prop_oneof![ipv4(), ipv6()]
}

fn range() -> impl Strategy<Value = String> {
    (address(), 0..=32_u8).prop_map(|(address, length)| format!("{address}/{length}"))
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn protocol() -> impl Strategy<Value = String> {
    one_of(&["TCP", "UDP", "SCTP"])
}

fn created() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), 1..4_000_000_000_i64]
}

fn target_port() -> impl Strategy<Value = service::service::service_port::IntOrString> {
    use service::service::service_port::{IntOrString, int_or_string::Type};
    prop_oneof![
        (1..=65535).prop_map(|int_val| IntOrString {
            int_val,
            ..Default::default()
        }),
        "[a-z0-9]{1,5}".prop_map(|string_val| IntOrString {
            r#type: Type::String.into(),
            string_val,
            ..Default::default()
        }),
    ]
}

prop_compose! {
    fn service_port()(protocol in protocol(), target_port in option::of(target_port()), node_port in 0..=65535,
        app_protocol in text()) -> service::service::ServicePort
    {
        service::service::ServicePort { name: String::new(), protocol, port: 0, target_port, node_port, app_protocol }
    }
}

prop_compose! {
    fn service()(name in name(), namespace in name(), ports in vec(service_port(), 0..4),
        cluster_ips in (option::of(ipv4()), option::of(ipv6())), external_ips in vec(address(), 0..3),
        service_type in one_of(&["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
        (labels, annotations, selector) in (words(), words(), words()),
        (external_name, class, distribution) in (text(), text(), text()),
        (external, internal) in (one_of(&["", "Cluster", "Local"]), one_of(&["", "Cluster", "Local"])),
        ingress in vec((prop_oneof![Just(String::new()), address()], text(), one_of(&["", "VIP", "Proxy"])), 0..3),
        ranges in vec(range(), 0..3), affinity in prop::sample::select(&AFFINITY[..]),
        created in created(),
        families in prop::sample::subsequence(vec!["IPv4", "IPv6"], 0..=2), publish in any::<bool>(), health in 0..=65535)
        -> service::Service
    {
        let ports = ports.into_iter().zip(1..).map(|(port, i)| service::service::ServicePort {
            name: format!("p{i}"), port: i, node_port: if port.node_port > 0 { i } else { 0 }, ..port });
        let cluster_ips: Vec<_> = [cluster_ips.0, cluster_ips.1].into_iter().flatten().collect();
        let ingress = ingress.into_iter().map(|(ip, hostname, ip_mode)| {
            service::service::LoadBalancerIngress { ip, hostname, ip_mode } });
        service::Service {
            name, namespace, port: ports.collect(), selector, labels, annotations, service_type, external_ips,
            cluster_ip: cluster_ips.first().cloned().unwrap_or_default(), cluster_ips,
            lb_ingress_ips: Vec::new(), load_balancer_ingress: ingress.collect(),
            session_affinity: affinity.0.to_owned(), session_affinity_timeout: affinity.1,
            loadbalancer_ip: String::new(), loadbalancer_source_ranges: ranges,
            external_traffic_policy: external, internal_traffic_policy: internal, health_check_node_port: health,
            publish_not_ready_addresses: publish, creation_timestamp: created, external_name,
            load_balancer_class: class, traffic_distribution: distribution,
            ip_families: families.into_iter().map(str::to_owned).collect(),
        }
    }
}

prop_compose! {
    fn reference()(kind in text(), namespace in text(), name in text(), uid in text(), api_version in text(),
        resource_version in text()) -> endpoints::ObjectReference
    {
        endpoints::ObjectReference { kind, namespace, name, uid, api_version, resource_version }
    }
}

fn endpoint_address() -> impl Strategy<Value = endpoints::endpoint_subset::EndpointAddress> {
    (address(), text(), text(), option::of(reference())).prop_map(
        |(ip, host_name, node_name, target_ref)| endpoints::endpoint_subset::EndpointAddress {
            ip,
            host_name,
            node_name,
            target_ref,
        },
    )
}

fn endpoints() -> impl Strategy<Value = endpoints::Endpoints> {
    let port = (text(), 1..=65535, protocol()).prop_map(|(name, port, protocol)| {
        endpoints::endpoint_subset::EndpointPort {
            name,
            port,
            protocol,
        }
    });
    let subset = (
        vec(endpoint_address(), 0..3),
        vec(endpoint_address(), 0..3),
        vec(port, 0..3),
    )
        .prop_map(
            |(addresses, not_ready_addresses, ports)| endpoints::EndpointSubset {
                addresses,
                not_ready_addresses,
                ports,
            },
        );
    (name(), name(), vec(subset, 0..3), words()).prop_map(
        |(name, namespace, endpoint_subsets, labels)| endpoints::Endpoints {
            name,
            namespace,
            endpoint_subsets,
            labels,
        },
    )
}

prop_compose! {
    fn endpoint()(address in ipv4(), conditions in option::of(any::<[Option<bool>; 3]>()),
        (host_name, node_name, zone) in (text(), text(), text()), target_ref in option::of(reference()),
        hints in option::of((vec(text(), 0..3), vec(text(), 0..3)))) -> endpointslice::endpoint_slice::Endpoint
    {
        use endpointslice::endpoint_slice::{Conditions, Endpoint, Hints};
        Endpoint {
            addresses: vec![address], host_name, node_name, zone, target_ref,
            conditions: conditions.map(|[ready, serving, terminating]| Conditions { ready, serving, terminating }),
            hints: hints.map(|(for_zones, for_nodes)| Hints { for_zones, for_nodes }),
        }
    }
}

prop_compose! {
    fn slice()(name in name(), namespace in name(), service in option::of("[a-z]{1,9}"), mut labels in words(),
        annotations in words(), endpoints in vec(endpoint(), 0..4),
        ports in vec((text(), option::of(1..=65535), protocol(), text()), 0..3)) -> endpointslice::EndpointSlice
    {
        if let Some(service) = &service {
            labels.insert("kubernetes.io/service-name".to_owned(), service.clone());
        }
        let port = |(name, port, protocol, app_protocol)| endpointslice::endpoint_slice::Port {
            name: Some(name), port, protocol, app_protocol };
        endpointslice::EndpointSlice {
            name, namespace, service_name: service.unwrap_or_default(), address_type: "IPv4".to_owned(), endpoints,
            ports: ports.into_iter().map(port).collect(), labels, annotations,
        }
    }
}

prop_compose! {
    fn workload()((name, namespace) in (name(), name()), (labels, annotations) in (words(), words()),
        (identity, server_name) in ("\\PC{1,9}", "\\PC{1,9}"), workload_ips in vec(address(), 0..=2),
        ports in prop::collection::btree_map("[a-z]{1,15}", (1..=65535, protocol()), 0..3), unnamed in 1..=65535,
        conditions in vec((text(), one_of(&["True", "False", "Unknown"]), [created(), created()], text()), 0..3),
        creation_timestamp in created()) -> externalworkload::ExternalWorkload
    {
        use externalworkload::external_workload::{Condition, MeshTls, Port};
        let port = |(name, (port, protocol))| Port { name, port, protocol };
        let unnamed = Port { name: String::new(), port: unnamed, protocol: "UDP".to_owned() };
        let condition = |(reason, status, [last_probe_time, last_transition_time], message): (_, _, [i64; 2], _)| Condition {
            r#type: "Ready".to_owned(), status, last_probe_time, last_transition_time, reason, message };
        externalworkload::ExternalWorkload {
            name, namespace, mesh_tls: Some(MeshTls { identity, server_name }), workload_ips, labels, annotations,
            ports: ports.into_iter().map(port).chain([unnamed]).collect(), creation_timestamp,
            conditions: conditions.into_iter().map(condition).collect(),
        }
    }
}

prop_compose! {
    fn pod()(name in name(), namespace in name(), ips in vec(address(), 0..3), host in address(), labels in words(),
        annotations in words(), node_name in text(), host_network in any::<bool>(), phase in text(),
        containers in vec((text(), vec((text(), 0..=65535, 1..=65535, 0..=2), 0..3)), 0..3)) -> pod::Pod
    {
        use pod::pod::{Container, container::Port};
        let port = |(name, host_port, container_port, protocol)| Port {
            name, host_port, container_port, protocol, host_ip_address: String::new() };
        let container = |(name, ports): (String, Vec<_>)| Container {
            name, port: ports.into_iter().map(port).collect() };
        pod::Pod {
            name, namespace, label: Vec::new(), ip_address: ips.first().cloned().unwrap_or_default(),
            ip_addresses: ips, host_ip_address: host, labels, annotations, node_name, host_network, phase,
            container: containers.into_iter().map(container).collect(),
        }
    }
}

prop_compose! {
    fn node()(name in name(), ranges in vec(range(), 0..3), provider_id in text(), labels in words(),
        addresses in vec((1..=5, address()), 0..4), info in option::of((text(), text(), text())),
        deletion_timestamp in 0_i64..=4_000_000_000, taints in vec((name(), text(), text()), 0..3)) -> node::Node
    {
        let info = info.map(|(machine_id, os_image, kube_proxy_version)| node::NodeSystemInfo {
            machine_id, os_image, kube_proxy_version, ..Default::default() });
        let address = |(r#type, address)| node::NodeAddress { r#type, address };
        node::Node {
            name, pod_cidr: ranges.first().cloned().unwrap_or_default(), pod_cidrs: ranges, provider_id, labels,
            addresses: addresses.into_iter().map(address).collect(), node_info: info, deletion_timestamp,
            taints: taints.into_iter().map(|(key, value, effect)| node::Taint { key, value, effect }).collect(),
        }
    }
}

fn namespace() -> impl Strategy<Value = namespace::Namespace> {
    (name(), words()).prop_map(|(name, labels)| {
        let label = |(key, value)| namespace::namespace::Label { key, value };
        namespace::Namespace {
            name,
            label: labels.into_iter().map(label).collect(),
        }
    })
}

fn vpp_node() -> impl Strategy<Value = vppnode::VppNode> {
    (
        1..=u32::MAX,
        name(),
        prop_oneof![Just(String::new()), address()],
        vec(range(), 0..3),
    )
        .prop_map(|(id, name, ip_address, ip_addresses)| vppnode::VppNode {
            id,
            name,
            ip_address,
            ip_addresses,
        })
}

fn allocation() -> impl Strategy<Value = ipalloc::CustomIpAllocation> {
    let interface = (name(), text(), address(), any::<bool>()).prop_map(
        |(name, network, ip_address, service_endpoint)| ipalloc::CustomPodInterface {
            name,
            network,
            ip_address,
            service_endpoint,
        },
    );
    (name(), name(), vec(interface, 0..3)).prop_map(
        |(pod_name, pod_namespace, custom_interfaces)| ipalloc::CustomIpAllocation {
            pod_name,
            pod_namespace,
            custom_interfaces,
        },
    )
}

fn any_object() -> impl Strategy<Value = Object> {
    prop_oneof![
        service().prop_map(Object::from),
        endpoints().prop_map(Object::from),
        slice().prop_map(Object::from),
        workload().prop_map(Object::from),
        pod().prop_map(Object::from),
        node().prop_map(Object::from),
        namespace().prop_map(Object::from),
        vpp_node().prop_map(Object::from),
        allocation().prop_map(Object::from),
    ]
}

proptest! {
    #[test]
    fn every_object_survives_its_manifest(objects in vec(any_object(), 1..4)) {
        let mut expected = BTreeMap::new();
        for object in objects {
            expected.entry(object.key().unwrap()).or_insert(object);
        }
        let values: Vec<_> = expected.values().map(to_value).collect();
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": values});
        for text in [to_yaml(&values).unwrap(), list.to_string(), serde_json::to_string_pretty(&list).unwrap()] {
            let parsed = parse(&text);
            prop_assert_eq!(&parsed.problems, &vec![], "{}", text);
            prop_assert_eq!(&parsed.warnings, &vec![], "{}", text);
            let found: BTreeMap<_, _> = parsed.objects.into_iter().map(|o| (o.key, o.object)).collect();
            prop_assert_eq!(&found, &expected, "{}", text);
        }
    }
}
