//! Services.

mod warnings;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use contiv_proto::{check, message::service as proto};
use ipnetwork::IpNetwork;

use super::{
    annotations,
    error::{Problems, Validated},
    field,
};
use crate::{
    Addresses, ServiceId, TrafficPolicy,
    object::{Seniority, Service, ServicePortSpec, ServiceType},
};

/// Kubernetes' default for `ClientIP` affinity without a timeout: three hours.
const DEFAULT_AFFINITY_TIMEOUT: u32 = 10_800;

/// With this label another proxy serves the service.
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";

const SERVICE_TYPES: [(&str, ServiceType); 5] = [
    ("ClusterIP", ServiceType::ClusterIp),
    ("NodePort", ServiceType::NodePort),
    ("LoadBalancer", ServiceType::LoadBalancer),
    ("ExternalName", ServiceType::ExternalName),
    ("", ServiceType::ClusterIp),
];

const POLICIES: [(&str, TrafficPolicy); 3] = [
    ("Cluster", TrafficPolicy::Cluster),
    ("Local", TrafficPolicy::Local),
    ("", TrafficPolicy::Cluster),
];

const AFFINITIES: [(&str, bool); 3] = [("None", false), ("ClientIP", true), ("", false)];

const FAMILIES: [(&str, ()); 2] = [("IPv4", ()), ("IPv6", ())];

const IP_MODES: [(&str, bool); 3] = [("VIP", true), ("Proxy", false), ("", true)];

pub(super) fn validate(message: &proto::Service, create_revision: i64) -> Validated<Service> {
    let mut problems = Problems::default();
    problems.check("metadata.namespace", check::name(&message.namespace));
    problems.check("metadata.name", check::name(&message.name));

    let service_type = problems.word(
        "spec.type",
        &message.service_type,
        &SERVICE_TYPES,
        ServiceType::default(),
    );
    let affinity = problems.word(
        "spec.sessionAffinity",
        &message.session_affinity,
        &AFFINITIES,
        false,
    );
    let mut policy = |field, text| problems.word(field, text, &POLICIES, TrafficPolicy::default());
    let external_policy = policy(
        "spec.externalTrafficPolicy",
        &message.external_traffic_policy,
    );
    let internal_policy = policy(
        "spec.internalTrafficPolicy",
        &message.internal_traffic_policy,
    );
    for (i, family) in message.ip_families.iter().enumerate() {
        problems.word(format_args!("spec.ipFamilies[{i}]"), family, &FAMILIES, ());
    }

    // The ports of an alias are ignored, so they need not be valid.
    let ports = if service_type == ServiceType::ExternalName {
        Vec::new()
    } else {
        ports(message, service_type, &mut problems)
    };
    let service = Service {
        id: ServiceId::new(message.namespace.as_str(), message.name.as_str()),
        service_type,
        headless: message.cluster_ip == "None" || message.cluster_ips.iter().any(|ip| ip == "None"),
        cluster_ips: cluster_ips(message, &mut problems),
        external_ips: external_ips(message, &mut problems),
        load_balancer_ips: load_balancer_ips(message, service_type, &mut problems),
        ports,
        external_policy,
        internal_policy,
        source_ranges: source_ranges(message, service_type, &mut problems),
        health_check_node_port: health_check_node_port(
            message,
            service_type,
            external_policy,
            &mut problems,
        ),
        session_affinity_timeout: match (affinity, message.session_affinity_timeout) {
            (false, _) => 0,
            (true, 0) => DEFAULT_AFFINITY_TIMEOUT,
            (true, timeout) => timeout,
        },
        options: annotations::options(&message.annotations, &mut problems),
        labels: labels(message),
        proxy_name: message
            .labels
            .get(PROXY_NAME_LABEL)
            .map(|name| name.as_str().into()),
        seniority: Seniority::new(
            Some(message.creation_timestamp).filter(|created| *created != 0),
            create_revision,
        ),
    };
    warnings::warn(message, &service, &mut problems);
    problems.finish(service)
}

fn labels(message: &proto::Service) -> BTreeMap<Arc<str>, Arc<str>> {
    message
        .labels
        .iter()
        .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
        .collect()
}

fn cluster_ips(message: &proto::Service, problems: &mut Problems) -> Addresses {
    let single = [(ClusterIpPath(None), &message.cluster_ip)];
    let many = message
        .cluster_ips
        .iter()
        .enumerate()
        .map(|(i, ip)| (ClusterIpPath(Some(i)), ip));
    let mut ips = Addresses::new();
    for (path, text) in single.into_iter().chain(many) {
        if matches!(text.as_str(), "" | "None") {
            continue;
        }
        let Some(ip) = problems.address(&path, text, check::routable_address) else {
            continue;
        };
        match ips.iter().find(|other: &&IpAddr| other.is_ipv4() == ip.is_ipv4() && **other != ip) {
            Some(other) => problems.leave_out(
                path,
                format!("{ip} is of the same family as {other}; a service has at most one cluster address per family"),
            ),
            None => ips.insert(ip),
        }
    }
    ips
}

/// The path of a cluster IP: one of many, or the single one.
struct ClusterIpPath(Option<usize>);

impl fmt::Display for ClusterIpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("spec.clusterIP"),
            Some(i) => write!(f, "spec.clusterIPs[{i}]"),
        }
    }
}

fn external_ips(message: &proto::Service, problems: &mut Problems) -> Addresses {
    let checked = message
        .external_ips
        .iter()
        .enumerate()
        .filter_map(|(i, ip)| {
            problems.address(
                format_args!("spec.externalIPs[{i}]"),
                ip,
                check::routable_address,
            )
        });
    checked.collect()
}

/// The ingress addresses that this node answers for. An ingress may have a host name and no address.
fn load_balancer_ips(
    message: &proto::Service,
    service_type: ServiceType,
    problems: &mut Problems,
) -> Addresses {
    let mut ips = BTreeSet::new();
    if message.load_balancer_ingress.is_empty() {
        for (i, ip) in message
            .lb_ingress_ips
            .iter()
            .enumerate()
            .filter(|(_, ip)| !ip.is_empty())
        {
            ips.extend(problems.address(
                format_args!("status.loadBalancer.ingress[{i}].ip"),
                ip,
                check::routable_address,
            ));
        }
    }
    for (i, ingress) in message
        .load_balancer_ingress
        .iter()
        .enumerate()
        .filter(|(_, ing)| !ing.ip.is_empty())
    {
        let path = format_args!("status.loadBalancer.ingress[{i}]");
        let ip = problems.address(
            format_args!("{path}.ip"),
            &ingress.ip,
            check::routable_address,
        );
        // As in kube-proxy: with any other mode nodes need not answer for the address.
        let is_vip = problems.word(
            format_args!("{path}.ipMode"),
            &ingress.ip_mode,
            &IP_MODES,
            false,
        );
        ips.extend(ip.filter(|_| is_vip));
    }
    // The status of a former load balancer may still have them.
    if service_type == ServiceType::LoadBalancer {
        ips.into()
    } else {
        Addresses::new()
    }
}

/// Surrounding blanks are allowed, as in Kubernetes. A range that is not one is left out only if another of its family stays:
/// a family without ranges is open to everyone.
fn source_ranges(
    message: &proto::Service,
    service_type: ServiceType,
    problems: &mut Problems,
) -> BTreeSet<IpNetwork> {
    let (mut ranges, mut bad) = (BTreeSet::new(), Vec::new());
    for (i, text) in message.loadbalancer_source_ranges.iter().enumerate() {
        match problems.decimal(
            format_args!("spec.loadBalancerSourceRanges[{i}]"),
            text,
            check::range,
        ) {
            Ok(range) => drop(ranges.insert(range)),
            Err(problem) => bad.push((i, text, problem)),
        }
    }
    for (i, text, problem) in bad {
        let field = format_args!("spec.loadBalancerSourceRanges[{i}]");
        let is_ipv6 = text.contains(':');
        if ranges
            .iter()
            .any(|range: &IpNetwork| range.is_ipv6() == is_ipv6)
        {
            problems.tolerate(field, format!("{problem}; it is left out"));
        } else {
            problems.add(field, problem.to_string());
        }
    }
    if service_type == ServiceType::LoadBalancer {
        ranges
    } else {
        BTreeSet::new()
    }
}

/// Kubernetes allocates one to load balancers with external policy Local (`NeedsHealthCheck`).
fn health_check_node_port(
    message: &proto::Service,
    service_type: ServiceType,
    external_policy: TrafficPolicy,
    problems: &mut Problems,
) -> Option<u16> {
    if message.health_check_node_port == 0 {
        return None;
    }
    let port = problems.check(
        "spec.healthCheckNodePort",
        field::port(message.health_check_node_port),
    );
    let is_needed =
        service_type == ServiceType::LoadBalancer && external_policy == TrafficPolicy::Local;
    port.filter(|_| is_needed)
}

fn ports(
    message: &proto::Service,
    service_type: ServiceType,
    problems: &mut Problems,
) -> Vec<ServicePortSpec> {
    let mut ports: Vec<ServicePortSpec> = Vec::with_capacity(message.port.len());
    let mut by_port = BTreeMap::new();
    let mut by_node_port = BTreeMap::new();
    for (i, port) in message.port.iter().enumerate() {
        let path = format_args!("spec.ports[{i}]");
        problems.check(
            format_args!("{path}.name"),
            check::name_characters(&port.name),
        );
        let number = problems.check(format_args!("{path}.port"), field::port(port.port));
        let protocol = problems.known(
            format_args!("{path}.protocol"),
            field::protocol(&port.protocol),
        );
        let node_port = match port.node_port {
            0 => Some(None),
            number => problems
                .check(format_args!("{path}.nodePort"), field::port(number))
                .map(Some),
        };
        let (Some(number), Some(protocol), Some(node_port)) = (number, protocol, node_port) else {
            continue;
        };
        // A service whose type was changed may still have them.
        let node_port = node_port.filter(|_| warnings::has_node_ports(service_type));

        if let Some(first) = by_port.insert((number, protocol), i) {
            problems.add(
                format_args!("{path}.port"),
                format!("{number}/{protocol} is the port of spec.ports[{first}] already; give each its own"),
            );
        }
        if let Some(node_port) = node_port {
            problems.mark_reachable();
            if let Some(first) = by_node_port.insert((node_port, protocol), i) {
                problems.add(
                    format_args!("{path}.nodePort"),
                    format!(
                        "{node_port}/{protocol} is the node port of spec.ports[{first}] already; give each its own"
                    ),
                );
            }
        }
        ports.push(ServicePortSpec {
            port: number,
            protocol,
            name: port.name.as_str().into(),
            node_port,
        });
    }
    ports
}
