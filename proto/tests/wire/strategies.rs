//! One proptest strategy per message: every field takes its default and other values.

use std::collections::BTreeMap;

use contiv_proto::message::{
    endpoints::{
        EndpointSubset, Endpoints, ObjectReference,
        endpoint_subset::{EndpointAddress, EndpointPort},
    },
    endpointslice::{
        EndpointSlice,
        endpoint_slice::{Conditions, Endpoint, Hints, Port as SlicePort},
    },
    externalworkload::{
        ExternalWorkload,
        external_workload::{Condition, MeshTls, Port as WorkloadPort},
    },
    ipalloc::{CustomIpAllocation, CustomPodInterface},
    namespace::{Namespace, namespace},
    node::{Node, NodeAddress, NodeSystemInfo, Taint},
    pod::{
        Pod,
        pod::{self, Container, container::Port},
    },
    service::{
        Service,
        service::{LoadBalancerIngress, ServicePort, service_port::IntOrString},
    },
    vppnode::VppNode,
};
use proptest::{collection::vec, prelude::*, sample::select};

/// Names of objects: never empty, never like the beginning of JSON, as in Kubernetes.
fn name() -> impl Strategy<Value = String> {
    "[a-z0-9][a-z0-9.-]{0,130}"
}

/// Any other text.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "\\PC{0,4}", any::<String>()]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..3)
}

fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(text(), text(), 0..3)
}

fn number() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), 1..65536, any::<i32>()]
}

prop_compose! {
    pub(crate) fn pods()(
        (name, namespace) in (name(), name()),
        label in vec((text(), text()).prop_map(|(key, value)| pod::Label { key, value }), 0..3),
        (ip_address, host_ip_address) in (text(), text()),
        container in vec(containers(), 0..3),
        (annotations, labels) in (map(), map()),
        (node_name, ip_addresses, host_network, phase) in (text(), texts(), any::<bool>(), text()),
    ) -> Pod {
        Pod {
            name, namespace, label, ip_address, host_ip_address, container, annotations, labels, node_name,
            ip_addresses, host_network, phase,
        }
    }
}

prop_compose! {
    fn containers()(name in text(), port in vec(container_ports(), 0..3)) -> Container {
        Container { name, port }
    }
}

prop_compose! {
    fn container_ports()(
        name in text(), host_port in number(), container_port in number(), protocol in 0..3, host_ip_address in text(),
    ) -> Port {
        Port { name, host_port, container_port, protocol, host_ip_address }
    }
}

prop_compose! {
    pub(crate) fn services()(
        (name, namespace, port) in (name(), name(), vec(service_ports(), 0..3)),
        (selector, cluster_ip, service_type, external_ips) in (map(), text(), text(), texts()),
        (lb_ingress_ips, session_affinity, loadbalancer_ip) in (texts(), text(), text()),
        (loadbalancer_source_ranges, external_traffic_policy) in (texts(), text()),
        (health_check_node_port, session_affinity_timeout) in (number(), prop_oneof![Just(0), any::<u32>()]),
        (annotations, internal_traffic_policy, cluster_ips) in (map(), text(), texts()),
        load_balancer_ingress in vec(load_balancer_ingress(), 0..3),
        (publish_not_ready_addresses, labels) in (any::<bool>(), map()),
        creation_timestamp in prop_oneof![Just(0), any::<i64>()],
        (external_name, load_balancer_class, traffic_distribution, ip_families) in (text(), text(), text(), texts()),
    ) -> Service {
        Service {
            name, namespace, port, selector, cluster_ip, service_type, external_ips, lb_ingress_ips, session_affinity,
            loadbalancer_ip, loadbalancer_source_ranges, external_traffic_policy, health_check_node_port,
            session_affinity_timeout, annotations, internal_traffic_policy, cluster_ips, load_balancer_ingress,
            publish_not_ready_addresses, labels, creation_timestamp, external_name, load_balancer_class,
            traffic_distribution, ip_families,
        }
    }
}

prop_compose! {
    fn service_ports()(
        (name, protocol, port, node_port, app_protocol) in (text(), text(), number(), number(), text()),
        target_port in prop::option::of((0..2, number(), text())),
    ) -> ServicePort {
        let target_port =
            target_port.map(|(r#type, int_val, string_val)| IntOrString { r#type, int_val, string_val });
        ServicePort { name, protocol, port, target_port, node_port, app_protocol }
    }
}

prop_compose! {
    fn load_balancer_ingress()(ip in text(), hostname in text(), ip_mode in text()) -> LoadBalancerIngress {
        LoadBalancerIngress { ip, hostname, ip_mode }
    }
}

prop_compose! {
    pub(crate) fn endpoints()(
        (name, namespace, labels) in (name(), name(), map()),
        endpoint_subsets in vec(endpoint_subsets(), 0..3),
    ) -> Endpoints {
        Endpoints { name, namespace, endpoint_subsets, labels }
    }
}

prop_compose! {
    fn endpoint_subsets()(
        addresses in vec(endpoint_addresses(), 0..3),
        not_ready_addresses in vec(endpoint_addresses(), 0..3),
        ports in vec((text(), number(), text()), 0..3),
    ) -> EndpointSubset {
        let ports = ports.into_iter().map(|(name, port, protocol)| EndpointPort { name, port, protocol }).collect();
        EndpointSubset { addresses, not_ready_addresses, ports }
    }
}

prop_compose! {
    fn endpoint_addresses()(
        (ip, host_name, node_name) in (text(), text(), text()),
        target_ref in prop::option::of(references()),
    ) -> EndpointAddress {
        EndpointAddress { ip, host_name, node_name, target_ref }
    }
}

prop_compose! {
    fn references()(
        (kind, namespace, name, uid, api_version, resource_version) in
            (text(), text(), text(), text(), text(), text()),
    ) -> ObjectReference {
        ObjectReference { kind, namespace, name, uid, api_version, resource_version }
    }
}

prop_compose! {
    pub(crate) fn endpoint_slices()(
        (name, namespace, service_name, address_type) in (name(), name(), text(), text()),
        endpoints in vec(slice_endpoints(), 0..3),
        ports in vec((prop::option::of(text()), prop::option::of(number()), text(), text()), 0..3),
        (labels, annotations) in (map(), map()),
    ) -> EndpointSlice {
        let ports = ports
            .into_iter()
            .map(|(name, port, protocol, app_protocol)| SlicePort { name, port, protocol, app_protocol })
            .collect();
        EndpointSlice { name, namespace, service_name, address_type, endpoints, ports, labels, annotations }
    }
}

prop_compose! {
    fn slice_endpoints()(
        (addresses, host_name, node_name, zone) in (texts(), text(), text(), text()),
        conditions in prop::option::of(any::<(Option<bool>, Option<bool>, Option<bool>)>()),
        target_ref in prop::option::of(references()),
        hints in prop::option::of((texts(), texts())),
    ) -> Endpoint {
        let conditions =
            conditions.map(|(ready, serving, terminating)| Conditions { ready, serving, terminating });
        let hints = hints.map(|(for_zones, for_nodes)| Hints { for_zones, for_nodes });
        Endpoint { addresses, conditions, host_name, node_name, zone, target_ref, hints }
    }
}

prop_compose! {
    pub(crate) fn external_workloads()(
        (name, namespace, workload_ips) in (name(), name(), texts()),
        mesh_tls in prop::option::of((text(), text())),
        ports in vec((text(), number(), text()), 0..3),
        conditions in vec(conditions(), 0..3),
        (labels, annotations, creation_timestamp) in (map(), map(), prop_oneof![Just(0), any::<i64>()]),
    ) -> ExternalWorkload {
        let mesh_tls = mesh_tls.map(|(identity, server_name)| MeshTls { identity, server_name });
        let ports =
            ports.into_iter().map(|(name, port, protocol)| WorkloadPort { name, port, protocol }).collect();
        ExternalWorkload {
            name, namespace, mesh_tls, ports, workload_ips, conditions, labels, annotations, creation_timestamp,
        }
    }
}

prop_compose! {
    fn conditions()(
        (r#type, status, reason, message) in (text(), text(), text(), text()),
        (last_probe_time, last_transition_time) in any::<(i64, i64)>(),
    ) -> Condition {
        Condition { r#type, status, last_probe_time, last_transition_time, reason, message }
    }
}

prop_compose! {
    pub(crate) fn nodes()(
        (name, pod_cidr, provider_id, pod_cidrs, labels) in (name(), text(), text(), texts(), map()),
        addresses in vec((0..6, text()), 0..3),
        node_info in prop::option::of(system_infos()),
        deletion_timestamp in prop_oneof![Just(0), any::<i64>()],
        taints in vec((text(), text(), text()), 0..3),
    ) -> Node {
        let addresses = addresses.into_iter().map(|(r#type, address)| NodeAddress { r#type, address }).collect();
        let taints = taints.into_iter().map(|(key, value, effect)| Taint { key, value, effect }).collect();
        Node {
            name, pod_cidr, provider_id, addresses, node_info, pod_cidrs, labels, deletion_timestamp, taints,
        }
    }
}

prop_compose! {
    fn system_infos()(
        (machine_id, system_uuid, boot_id, kernel_version, os_image) in (text(), text(), text(), text(), text()),
        (container_runtime_version, kubelet_version, kube_proxy_version) in (text(), text(), text()),
        (operating_system, architecture) in (text(), text()),
    ) -> NodeSystemInfo {
        NodeSystemInfo {
            machine_id, system_uuid, boot_id, kernel_version, os_image, container_runtime_version, kubelet_version,
            kube_proxy_version, operating_system, architecture,
        }
    }
}

prop_compose! {
    pub(crate) fn namespaces()(name in name(), label in vec((text(), text()), 0..3)) -> Namespace {
        let label = label.into_iter().map(|(key, value)| namespace::Label { key, value }).collect();
        Namespace { name, label }
    }
}

prop_compose! {
    pub(crate) fn vpp_nodes()(
        id in prop_oneof![select(&[1, u32::MAX][..]), 1..=u32::MAX],
        (name, ip_address, ip_addresses) in (text(), text(), texts()),
    ) -> VppNode {
        VppNode { id, name, ip_address, ip_addresses }
    }
}

prop_compose! {
    pub(crate) fn ip_allocations()(
        (pod_name, pod_namespace) in (name(), name()),
        custom_interfaces in vec((text(), text(), text(), any::<bool>()), 0..3),
    ) -> CustomIpAllocation {
        let custom_interfaces = custom_interfaces
            .into_iter()
            .map(|(name, network, ip_address, service_endpoint)| {
                CustomPodInterface { name, network, ip_address, service_endpoint }
            })
            .collect();
        CustomIpAllocation { pod_name, pod_namespace, custom_interfaces }
    }
}
