//! Builds stored objects of micro services, with flomesh's labels and annotations.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_proto::message::{
    endpoints::{
        EndpointSubset, Endpoints,
        endpoint_subset::{EndpointAddress, EndpointPort},
    },
    service::{
        Service,
        service::{ServicePort, service_port::IntOrString},
    },
};

use crate::{
    aggregator::{MicroService, ServicePort as Port, TargetPorts},
    catalog::{AppProtocol, Protocol},
    endpoint_annotation,
    stored::{CLUSTER_IPS_ANNOTATION, Id, REGISTRY_LABEL},
};

/// `CloudSourcedServiceLabel`.
const CLOUD_SOURCED: &str = "cloud-sourced-service";
/// `CloudServiceLabel`.
const CLOUD_SERVICE: &str = "cloud-service";
/// `CloudServiceInheritedFromAnnotation`.
const INHERITED_FROM: &str = "flomesh.io/cloud-service-inherited-from";
/// `MeshServiceSyncAnnotation`: excludes the service from being synced back.
const MESH_SYNC: &str = "flomesh.io/mesh-service-sync";

/// The type of services with endpoints.
const CLUSTER_IP: &str = "ClusterIP";
/// The type of services that are an alias of a host name.
const EXTERNAL_NAME: &str = "ExternalName";

type Labels = BTreeMap<String, String>;

/// The registry in the labels of an object of this connector.
pub(super) fn registry(labels: &Labels) -> &str {
    labels
        .get(REGISTRY_LABEL)
        .map(String::as_str)
        .unwrap_or_default()
}

/// The registry and the source service of a service of this connector.
pub(super) fn origin(service: &Service) -> (&str, &str) {
    let source = service
        .annotations
        .get(INHERITED_FROM)
        .map(String::as_str)
        .unwrap_or_default();
    (registry(&service.labels), source)
}

pub(super) fn service(
    id: &Id,
    registry: &str,
    micro_service: &MicroService,
    cluster_ips: &[IpAddr],
) -> Service {
    let mut annotations = micro_service.annotations.clone();
    annotations.extend(address_annotations(micro_service));
    annotations.insert(INHERITED_FROM.to_owned(), micro_service.source.clone());
    annotations.insert(MESH_SYNC.to_owned(), "false".to_owned());
    let mut service = Service {
        name: id.1.to_string(),
        namespace: id.0.to_string(),
        port: micro_service
            .ports
            .iter()
            .map(|(port, app_protocol)| service_port(*port, *app_protocol))
            .collect(),
        // Without a selector: the endpoints are written here, and nothing else may add pods.
        service_type: CLUSTER_IP.to_owned(),
        labels: labels(registry, (CLOUD_SOURCED, "true")),
        annotations,
        ..Service::default()
    };
    match &micro_service.external_name {
        None => set_cluster_ips(&mut service, cluster_ips),
        Some(host) => {
            EXTERNAL_NAME.clone_into(&mut service.service_type);
            service.external_name.clone_from(host);
        }
    }
    service
}

/// A stored service with this namespace and name, changed to have no endpoints. An `ExternalName` service becomes a `ClusterIP`
/// service.
pub(super) fn without_endpoints(id: &Id, stored: &Service, cluster_ips: &[IpAddr]) -> Service {
    let mut service = Service {
        namespace: id.0.to_string(),
        name: id.1.to_string(),
        ..stored.clone()
    };
    service
        .annotations
        .retain(|name, _| endpoint_annotation::address(name).is_none());
    if service.service_type == EXTERNAL_NAME {
        CLUSTER_IP.clone_into(&mut service.service_type);
        service.external_name.clear();
    }
    set_cluster_ips(&mut service, cluster_ips);
    service
}

/// Sets the addresses, and the annotation from which they are restored.
fn set_cluster_ips(service: &mut Service, cluster_ips: &[IpAddr]) {
    service.cluster_ips = cluster_ips.iter().map(IpAddr::to_string).collect();
    service.cluster_ip = service
        .cluster_ips
        .first()
        .map_or("None", String::as_str)
        .to_owned();
    if cluster_ips.is_empty() {
        service.annotations.remove(CLUSTER_IPS_ANNOTATION);
    } else {
        service.annotations.insert(
            CLUSTER_IPS_ANNOTATION.to_owned(),
            service.cluster_ips.join(","),
        );
    }
}

pub(super) fn endpoints(id: &Id, registry: &str, micro_service: &MicroService) -> Endpoints {
    let subsets = micro_service
        .endpoints
        .iter()
        .map(|(target_ports, addresses)| {
            let (ready, not_ready): (Vec<_>, Vec<_>) =
                addresses.iter().partition(|(_, ready)| **ready);
            let address = |(address, _): (&IpAddr, &bool)| EndpointAddress {
                ip: address.to_string(),
                ..EndpointAddress::default()
            };
            let port = |(port, target): (&Port, &u16)| EndpointPort {
                name: port_name(
                    *port,
                    micro_service.ports.get(port).copied().unwrap_or_default(),
                ),
                port: i32::from(*target),
                protocol: port.0.to_string(),
            };
            EndpointSubset {
                addresses: ready.into_iter().map(address).collect(),
                not_ready_addresses: not_ready.into_iter().map(address).collect(),
                ports: target_ports.iter().map(port).collect(),
            }
        });
    Endpoints {
        name: id.1.to_string(),
        namespace: id.0.to_string(),
        endpoint_subsets: subsets.collect(),
        labels: labels(registry, (CLOUD_SERVICE, &id.1)),
    }
}

/// The endpoints in the annotations of a stored service (flomesh's `UpsertEndpoints`); none without such an annotation, or if they
/// do not match its ports.
pub(super) fn annotated_endpoints(id: &Id, service: &Service) -> Option<Endpoints> {
    let ports: BTreeMap<Port, AppProtocol> = service.port.iter().filter_map(stored_port).collect();
    let mut micro_service = MicroService {
        ports,
        ..MicroService::default()
    };
    for (name, value) in &service.annotations {
        let Some(address) = endpoint_annotation::address(name) else {
            continue;
        };
        for target_ports in target_ports(&micro_service, &endpoint_annotation::ports(value)?) {
            micro_service
                .endpoints
                .entry(target_ports)
                .or_default()
                .insert(address, true);
        }
    }
    let has_endpoints = !micro_service.endpoints.is_empty();
    has_endpoints.then(|| endpoints(id, registry(&service.labels), &micro_service))
}

/// Maps the ports of an instance to ports of the service, one by one: all of them to the only port of the service, or, if it has
/// several, each to that of the same number.
fn target_ports(micro_service: &MicroService, instance_ports: &BTreeSet<u16>) -> Vec<TargetPorts> {
    let ports: Vec<&Port> = micro_service.ports.keys().collect();
    let to_target_port = |target: &u16| match ports[..] {
        [only] => Some((*only, *target)),
        _ => ports
            .iter()
            .find(|(_, number)| number == target)
            .map(|port| (**port, *target)),
    };
    instance_ports
        .iter()
        .filter_map(to_target_port)
        .map(|port| TargetPorts::from([port]))
        .collect()
}

/// The reverse of [`service_port`].
fn stored_port(port: &ServicePort) -> Option<(Port, AppProtocol)> {
    let protocol = match port.protocol.as_str() {
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    let app_protocol = match port.app_protocol.as_str() {
        "http" => AppProtocol::Http,
        "grpc" => AppProtocol::Grpc,
        _ => AppProtocol::Other,
    };
    Some(((protocol, u16::try_from(port.port).ok()?), app_protocol))
}

fn labels(registry: &str, (name, value): (&str, &str)) -> Labels {
    let labels = [(REGISTRY_LABEL, registry), (name, value)];
    labels
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// One annotation for each ready address, with its ports.
fn address_annotations(micro_service: &MicroService) -> BTreeMap<String, String> {
    let mut ports_of = BTreeMap::<IpAddr, BTreeSet<u16>>::new();
    for (target_ports, addresses) in &micro_service.endpoints {
        for (address, _) in addresses.iter().filter(|(_, ready)| **ready) {
            ports_of
                .entry(*address)
                .or_default()
                .extend(target_ports.values());
        }
    }
    ports_of
        .into_iter()
        .map(|(address, ports)| {
            (
                endpoint_annotation::name(address),
                endpoint_annotation::value(&ports),
            )
        })
        .collect()
}

fn service_port(port: Port, app_protocol: AppProtocol) -> ServicePort {
    let (protocol, number) = port;
    let app_protocol_name = if protocol == Protocol::Tcp {
        app_protocol.as_str()
    } else {
        ""
    };
    ServicePort {
        name: port_name(port, app_protocol),
        protocol: protocol.to_string(),
        port: i32::from(number),
        target_port: Some(IntOrString {
            int_val: i32::from(number),
            ..IntOrString::default()
        }),
        app_protocol: app_protocol_name.to_owned(),
        ..ServicePort::default()
    }
}

/// flomesh's `http80` and `grpc9090`; for others the transport protocol. It is the port's name in the endpoints too.
fn port_name((protocol, number): Port, app_protocol: AppProtocol) -> String {
    let prefix = match (protocol, app_protocol) {
        (Protocol::Tcp, AppProtocol::Http) => "http",
        (Protocol::Tcp, AppProtocol::Grpc) => "grpc",
        (Protocol::Tcp, AppProtocol::Other) => "tcp",
        (Protocol::Udp, _) => "udp",
        (Protocol::Sctp, _) => "sctp",
    };
    format!("{prefix}{number}")
}
