//! Short forms for objects, and readable forms of results.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contiv_model::{
    Addresses, Backend, BackendState, ChangeSet, EndpointSliceId, Event, InterfaceName, NodeName,
    Object, ObjectKey, PodId, Processor, ProcessorConfig, Protocol, Resync, ServiceId,
    TrafficPolicy,
    object::{
        AddressType, Conditions, CustomInterface, EndpointAddress, EndpointPort, EndpointSlice,
        EndpointSubset, Endpoints, Hints, IpAllocation, Node, Pod, Seniority, Service,
        ServiceOptions, ServicePortSpec, ServiceType, SliceEndpoint, VppNode,
    },
};

/// This node in every test.
pub(crate) const MASTER: &str = "master";
/// Another node.
pub(crate) const WORKER: &str = "worker";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn ips<S: FromIterator<IpAddr>>(texts: &[&str]) -> S {
    texts.iter().map(|text| ip(text)).collect()
}

pub(crate) fn ranges(texts: &[&str]) -> BTreeSet<ipnetwork::IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn split(id: &str) -> (&str, &str) {
    id.split_once('/').unwrap()
}

/// From `namespace/name`.
pub(crate) fn service_id(id: &str) -> ServiceId {
    let (namespace, name) = split(id);
    ServiceId::new(namespace, name)
}

/// From `namespace/name`.
pub(crate) fn pod_id(id: &str) -> PodId {
    let (namespace, name) = split(id);
    PodId::new(namespace, name)
}

fn protocol(text: &str) -> Protocol {
    match text {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => panic!("{text} is no protocol"),
    }
}

/// A service port from `name:80/tcp` or, with a node port, `name:80:30080/tcp`.
pub(crate) fn mk_service_port(text: &str) -> ServicePortSpec {
    let (numbers, protocol) = text.split_once('/').unwrap();
    let parts: Vec<&str> = numbers.split(':').collect();
    ServicePortSpec {
        name: parts[0].into(),
        port: parts[1].parse().unwrap(),
        protocol: self::protocol(protocol),
        node_port: parts.get(2).map(|port| port.parse().unwrap()),
    }
}

/// An endpoint port from `name:8080/tcp`.
pub(crate) fn mk_endpoint_port(text: &str) -> EndpointPort {
    let ServicePortSpec {
        port,
        protocol,
        name,
        ..
    } = mk_service_port(text);
    EndpointPort {
        name,
        protocol,
        port,
    }
}

/// A service with these cluster addresses and ports, with the same age as all others made by this function.
pub(crate) fn mk_service(id: &str, cluster_ips: &[&str], ports: &[&str]) -> Service {
    Service {
        id: service_id(id),
        service_type: ServiceType::ClusterIp,
        headless: false,
        cluster_ips: ips(cluster_ips),
        external_ips: Addresses::new(),
        load_balancer_ips: Addresses::new(),
        source_ranges: BTreeSet::new(),
        health_check_node_port: None,
        ports: ports.iter().map(|port| mk_service_port(port)).collect(),
        external_policy: TrafficPolicy::Cluster,
        internal_policy: TrafficPolicy::Cluster,
        session_affinity_timeout: 0,
        options: ServiceOptions::default(),
        labels: BTreeMap::new(),
        proxy_name: None,
        seniority: Seniority::new(Some(1), 1),
    }
}

/// An address without further fields.
pub(crate) fn at(address: &str) -> EndpointAddress {
    EndpointAddress {
        ip: ip(address),
        node_name: None,
        pod: None,
    }
}

/// An address on a node.
pub(crate) fn on(node: &str, address: &str) -> EndpointAddress {
    EndpointAddress {
        node_name: Some(NodeName::new(node)),
        ..at(address)
    }
}

/// An address of a pod without a node.
pub(crate) fn of_pod(pod: &str, address: &str) -> EndpointAddress {
    EndpointAddress {
        pod: Some(pod_id(pod)),
        ..at(address)
    }
}

pub(crate) fn mk_subset(addresses: &[EndpointAddress], ports: &[&str]) -> EndpointSubset {
    EndpointSubset {
        addresses: addresses.to_vec(),
        ports: ports.iter().map(|port| mk_endpoint_port(port)).collect(),
    }
}

pub(crate) fn mk_endpoints(id: &str, subsets: &[EndpointSubset]) -> Endpoints {
    Endpoints {
        id: service_id(id),
        subsets: subsets.to_vec(),
    }
}

/// A ready endpoint.
pub(crate) fn ready(address: EndpointAddress) -> SliceEndpoint {
    SliceEndpoint {
        address,
        conditions: Conditions::READY,
        hints: None,
    }
}

/// An endpoint with the conditions ready, serving and terminating.
pub(crate) fn with(
    address: EndpointAddress,
    ready: bool,
    serving: bool,
    terminating: bool,
) -> SliceEndpoint {
    SliceEndpoint {
        conditions: Conditions {
            ready,
            serving,
            terminating,
        },
        ..self::ready(address)
    }
}

/// A ready endpoint with hints for these nodes and zones.
pub(crate) fn meant_for(address: EndpointAddress, nodes: &[&str], zones: &[&str]) -> SliceEndpoint {
    let hints = Hints {
        nodes: nodes.iter().map(|node| NodeName::new(*node)).collect(),
        zones: zones.iter().map(|zone| Arc::from(*zone)).collect(),
    };
    SliceEndpoint {
        hints: Some(Box::new(hints)),
        ..ready(address)
    }
}

/// An IPv4 slice, named `namespace/name`, of a service in the same namespace.
pub(crate) fn mk_slice(
    id: &str,
    service: &str,
    endpoints: &[SliceEndpoint],
    ports: &[&str],
) -> EndpointSlice {
    let (namespace, name) = split(id);
    EndpointSlice {
        id: EndpointSliceId::new(namespace, name),
        service: Some(ServiceId::new(namespace, service)),
        address_type: AddressType::Ipv4,
        is_supplement: false,
        endpoints: endpoints.into(),
        ports: ports.iter().map(|port| mk_endpoint_port(port)).collect(),
    }
}

pub(crate) fn mk_pod(id: &str, addresses: &[&str]) -> Pod {
    Pod {
        id: pod_id(id),
        ips: ips(addresses),
        host_network: false,
        weight: 1,
    }
}

pub(crate) fn mk_node(name: &str, addresses: &[&str], pod_cidrs: &[&str]) -> Node {
    Node {
        name: NodeName::new(name),
        internal_ips: addresses.iter().copied().map(ip).collect(),
        external_ips: Vec::new(),
        pod_cidrs: pod_cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
        zone: None,
        is_being_deleted: false,
    }
}

/// A node in a zone, without further fields.
pub(crate) fn mk_node_in(zone: &str, name: &str) -> Node {
    Node {
        zone: Some(zone.into()),
        ..mk_node(name, &[], &[])
    }
}

pub(crate) fn mk_vpp_node(id: u32, name: &str, addresses: &[&str]) -> VppNode {
    VppNode {
        id,
        name: NodeName::new(name),
        ips: ips(addresses),
    }
}

/// A custom interface that receives service traffic.
pub(crate) fn mk_service_endpoint(name: &str, network: &str, address: &str) -> CustomInterface {
    CustomInterface {
        name: InterfaceName::new(name),
        network: network.into(),
        ip: Some(ip(address)),
        service_endpoint: true,
    }
}

/// A custom interface that does not receive service traffic.
pub(crate) fn mk_interface(name: &str, network: &str, address: &str) -> CustomInterface {
    CustomInterface {
        service_endpoint: false,
        ..mk_service_endpoint(name, network, address)
    }
}

pub(crate) fn mk_allocation(pod: &str, interfaces: &[CustomInterface]) -> IpAllocation {
    IpAllocation {
        pod: pod_id(pod),
        interfaces: interfaces.to_vec(),
    }
}

/// An object for the processor.
pub(crate) trait IntoObject {
    fn object(self) -> Object;
}

macro_rules! into_object {
    ($($kind:ident),+) => {
        $(impl IntoObject for $kind {
            fn object(self) -> Object {
                Object::$kind(self.into())
            }
        })+
    };
}
into_object!(
    Service,
    Endpoints,
    EndpointSlice,
    Pod,
    Node,
    VppNode,
    IpAllocation
);

pub(crate) fn put(object: impl IntoObject) -> Event {
    Event::Put(object.object())
}

pub(crate) fn delete_service(id: &str) -> Event {
    Event::Delete(ObjectKey::Service(service_id(id)))
}

pub(crate) fn delete_endpoints(id: &str) -> Event {
    Event::Delete(ObjectKey::Endpoints(service_id(id)))
}

pub(crate) fn delete_pod_object(id: &str) -> Event {
    Event::Delete(ObjectKey::Pod(pod_id(id)))
}

pub(crate) fn add_pod(pod: &str, interface: &str) -> Event {
    Event::AddPod {
        pod: pod_id(pod),
        interface: InterfaceName::new(interface),
    }
}

pub(crate) fn delete_pod(pod: &str) -> Event {
    Event::DeletePod(pod_id(pod))
}

/// A processor on this node, with no objects.
pub(crate) fn mk_processor() -> Processor {
    Processor::new(ProcessorConfig {
        route_runs: true,
        ..ProcessorConfig::new(NodeName::new(MASTER))
    })
}

/// A processor after these events, one by one.
pub(crate) fn mk_processor_with(events: impl IntoIterator<Item = Event>) -> Processor {
    let mut processor = mk_processor();
    for event in events {
        processor.apply([event]);
    }
    processor
}

pub(crate) fn mk_resync(objects: impl IntoIterator<Item = Object>) -> Resync {
    Resync {
        objects: objects.into_iter().collect(),
        undecodable: BTreeSet::new(),
    }
}

/// A backend as text: `10.1.1.3:8080 local host-network terminating elsewhere x2`, with what applies.
fn describe(backend: &Backend) -> String {
    let mut text = backend.endpoint().to_string();
    for (applies, word) in [
        (backend.local, " local"),
        (backend.host_network, " host-network"),
        (backend.state == BackendState::Terminating, " terminating"),
        (backend.state == BackendState::Failing, " failing"),
        (!backend.in_topology, " elsewhere"),
    ] {
        if applies {
            text += word;
        }
    }
    if backend.weight != 1 {
        text.push_str(" x");
        text.push_str(&backend.weight.to_string());
    }
    text
}

/// The backends of each port of a service, each as `port/protocol -> backend`. Panics if the service is not rendered.
pub(crate) fn backends(processor: &Processor, id: &str) -> Vec<String> {
    let service = processor
        .service(&service_id(id))
        .unwrap_or_else(|| panic!("{id} is not rendered"));
    let ports = service.ports.iter().flat_map(|port| {
        port.backends
            .iter()
            .map(move |backend| format!("{}/{} -> {}", port.port, port.protocol, describe(backend)))
    });
    ports.collect()
}

/// The names of the interfaces in both sets: those of the clients, and those of the backends.
pub(crate) fn interfaces(processor: &Processor) -> (Vec<String>, Vec<String>) {
    let snapshot = processor.snapshot();
    let names = |set: &BTreeSet<InterfaceName>| set.iter().map(InterfaceName::to_string).collect();
    (
        names(&snapshot.frontend_interfaces),
        names(&snapshot.backend_interfaces),
    )
}

/// The ids of the services in a change set.
pub(crate) fn changed(changes: &ChangeSet) -> Vec<String> {
    changes.services.keys().map(ServiceId::to_string).collect()
}
