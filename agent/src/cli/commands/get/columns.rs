//! The columns of each kind, as in `kubectl get`, as far as the store has the data.

use std::collections::BTreeSet;

use contiv_proto::{
    Key, Kind, Object,
    message::{
        endpoints::Endpoints,
        endpointslice::EndpointSlice,
        externalworkload::ExternalWorkload,
        ipalloc::CustomIpAllocation,
        node::{Node, node_address::Type},
        pod::Pod,
        service::Service,
        vppnode::VppNode,
    },
};
use jiff::Timestamp;

/// The maximum number of shown items of a list.
const MAX_LISTED: usize = 3;
const NONE: &str = "<none>";

/// The titles of a kind's columns, and of those that only `wide` shows.
pub(super) fn header(kind: Kind) -> (Vec<&'static str>, &'static [&'static str]) {
    let (always, wide): (&[&str], &[&str]) = match kind {
        Kind::Service => (
            &[
                "NAME",
                "TYPE",
                "CLUSTER-IP",
                "EXTERNAL-IP",
                "PORT(S)",
                "AGE",
            ],
            &["SELECTOR"],
        ),
        Kind::Endpoints => (&["NAME", "ENDPOINTS"], &[]),
        Kind::EndpointSlice => (&["NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS"], &["SERVICE"]),
        Kind::ExternalWorkload => (&["NAME", "IDENTITY", "READY", "IPS", "PORTS", "AGE"], &[]),
        Kind::Pod => (
            &["NAME", "STATUS", "IP", "NODE"],
            &["HOST-IP", "HOST-NETWORK"],
        ),
        Kind::Node => (
            &["NAME", "INTERNAL-IP", "EXTERNAL-IP", "POD-CIDR", "VERSION"],
            &["OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"],
        ),
        Kind::Namespace => (&["NAME"], &[]),
        Kind::VppNode => (&["ID", "NODE", "IPS"], &[]),
        Kind::IpAllocation => (&["POD", "INTERFACES"], &[]),
    };
    (always.to_vec(), wide)
}

/// The cells of an object, one for each title, and those that only `wide` shows.
pub(super) fn row(key: &Key, object: &Object, now: Timestamp) -> (Vec<String>, Vec<String>) {
    let (cells, wide) = match object {
        Object::Service(service) => (service_cells(service, now), vec![pairs(&service.selector)]),
        Object::Endpoints(endpoints) => (endpoints_cells(endpoints), Vec::new()),
        Object::EndpointSlice(slice) => (slice_cells(slice), vec![service_of(slice)]),
        Object::ExternalWorkload(workload) => (workload_cells(workload, now), Vec::new()),
        Object::Pod(pod) => (pod_cells(pod), wide_pod_cells(pod)),
        Object::Node(node) => (node_cells(node), wide_node_cells(node)),
        Object::Namespace(_) => (Vec::new(), Vec::new()),
        Object::VppNode(vpp_node) => (vpp_node_cells(vpp_node), Vec::new()),
        Object::IpAllocation(allocation) => (allocation_cells(allocation), Vec::new()),
    };
    (
        std::iter::once(key.name().to_owned())
            .chain(cells)
            .collect(),
        wide,
    )
}

/// As in `app=web,tier=front`.
pub(super) fn pairs<'a, M>(map: M) -> String
where
    M: IntoIterator<Item = (&'a String, &'a String)>,
{
    joined(
        &map.into_iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<BTreeSet<_>>(),
    )
}

fn service_cells(service: &Service, now: Timestamp) -> Vec<String> {
    let external = match service.service_type.as_str() {
        "ExternalName" => vec![service.external_name.clone()],
        _ => external_addresses(service),
    };
    let ports = service.port.iter().map(|port| match port.node_port {
        0 => format!("{}/{}", port.port, or_default(&port.protocol, "TCP")),
        node_port => format!(
            "{}:{node_port}/{}",
            port.port,
            or_default(&port.protocol, "TCP")
        ),
    });
    vec![
        or_default(&service.service_type, "ClusterIP"),
        or_default(&service.cluster_ip, NONE),
        if external.is_empty() {
            NONE.to_owned()
        } else {
            external.join(",")
        },
        joined(&ports.collect::<Vec<_>>()),
        age(service.creation_timestamp, now),
    ]
}

fn external_addresses(service: &Service) -> Vec<String> {
    let ingress = service.load_balancer_ingress.iter();
    let ingress = ingress.map(|ingress| or_default(&ingress.ip, &ingress.hostname));
    let old = service
        .lb_ingress_ips
        .iter()
        .filter(|_| service.load_balancer_ingress.is_empty())
        .cloned();
    let mut addresses: Vec<String> = ingress
        .chain(old)
        .chain(service.external_ips.iter().cloned())
        .collect();
    addresses.dedup();
    if addresses.is_empty() && service.service_type == "LoadBalancer" {
        addresses.push("<pending>".to_owned());
    }
    addresses
}

fn endpoints_cells(endpoints: &Endpoints) -> Vec<String> {
    let sockets = endpoints.endpoint_subsets.iter().flat_map(|subset| {
        subset.addresses.iter().flat_map(|address| {
            subset
                .ports
                .iter()
                .map(|port| socket(&address.ip, port.port))
                .collect::<Vec<_>>()
        })
    });
    vec![first_items(sockets.collect())]
}

fn slice_cells(slice: &EndpointSlice) -> Vec<String> {
    let ports = slice
        .ports
        .iter()
        .filter_map(|port| port.port)
        .map(|port| port.to_string());
    let addresses = slice
        .endpoints
        .iter()
        .flat_map(|endpoint| endpoint.addresses.iter().cloned());
    vec![
        slice.address_type.clone(),
        first_items(ports.collect()),
        first_items(addresses.collect()),
    ]
}

fn service_of(slice: &EndpointSlice) -> String {
    slice
        .labels
        .get("kubernetes.io/service-name")
        .cloned()
        .unwrap_or_else(|| NONE.to_owned())
}

fn workload_cells(workload: &ExternalWorkload, now: Timestamp) -> Vec<String> {
    let identity = workload
        .mesh_tls
        .as_ref()
        .map(|mesh_tls| mesh_tls.identity.as_str())
        .unwrap_or_default();
    let ready = workload
        .conditions
        .iter()
        .find(|condition| condition.r#type == "Ready");
    let ports = workload
        .ports
        .iter()
        .map(|port| format!("{}/{}", port.port, or_default(&port.protocol, "TCP")));
    vec![
        or_default(identity, NONE),
        ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.clone()),
        joined(&workload.workload_ips),
        first_items(ports.collect()),
        age(workload.creation_timestamp, now),
    ]
}

fn pod_cells(pod: &Pod) -> Vec<String> {
    vec![
        or_default(&pod.phase, "Unknown"),
        or_default(&pod.ip_address, NONE),
        or_default(&pod.node_name, NONE),
    ]
}

fn wide_pod_cells(pod: &Pod) -> Vec<String> {
    vec![
        or_default(&pod.host_ip_address, NONE),
        if pod.host_network { "yes" } else { "no" }.to_owned(),
    ]
}

fn node_cells(node: &Node) -> Vec<String> {
    let of_type = |address_type: Type| {
        let addresses = node
            .addresses
            .iter()
            .filter(|address| address.r#type() == address_type);
        joined(
            &addresses
                .map(|address| address.address.clone())
                .collect::<Vec<_>>(),
        )
    };
    let ranges = if node.pod_cidrs.is_empty() {
        std::slice::from_ref(&node.pod_cidr)
    } else {
        &node.pod_cidrs
    };
    let ranges: Vec<String> = ranges
        .iter()
        .filter(|range| !range.is_empty())
        .cloned()
        .collect();
    let version = node
        .node_info
        .as_ref()
        .map(|info| info.kubelet_version.as_str())
        .unwrap_or_default();
    vec![
        of_type(Type::NodeInternalIp),
        of_type(Type::NodeExternalIp),
        joined(&ranges),
        or_default(version, NONE),
    ]
}

fn wide_node_cells(node: &Node) -> Vec<String> {
    let info = node.node_info.clone().unwrap_or_default();
    [
        info.os_image,
        info.kernel_version,
        info.container_runtime_version,
    ]
    .map(|text| or_default(&text, NONE))
    .into()
}

fn vpp_node_cells(vpp_node: &VppNode) -> Vec<String> {
    let obsolete = Some(vpp_node.ip_address.clone()).filter(|address| !address.is_empty());
    let addresses = vpp_node.ip_addresses.iter().cloned().chain(obsolete);
    vec![
        or_default(&vpp_node.name, NONE),
        joined(&addresses.collect::<Vec<_>>()),
    ]
}

fn allocation_cells(allocation: &CustomIpAllocation) -> Vec<String> {
    let interfaces = allocation.custom_interfaces.iter();
    vec![first_items(
        interfaces
            .map(|interface| format!("{}={}", interface.name, interface.ip_address))
            .collect(),
    )]
}

fn socket(ip: &str, port: i32) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

fn or_default(text: &str, otherwise: &str) -> String {
    if text.is_empty() {
        otherwise.to_owned()
    } else {
        text.to_owned()
    }
}

fn joined<'a>(items: impl IntoIterator<Item = &'a String>) -> String {
    let items: Vec<&str> = items.into_iter().map(String::as_str).collect();
    if items.is_empty() {
        NONE.to_owned()
    } else {
        items.join(",")
    }
}

/// The first items of a list, as kubectl shows endpoints.
fn first_items(mut items: Vec<String>) -> String {
    let more = items.len().saturating_sub(MAX_LISTED);
    items.truncate(MAX_LISTED);
    let shown = joined(&items);
    if more == 0 {
        shown
    } else {
        format!("{shown} + {more} more...")
    }
}

/// As in kubectl: in the largest suitable unit.
fn age(creation_timestamp: i64, now: Timestamp) -> String {
    if creation_timestamp == 0 {
        return "<unknown>".to_owned();
    }
    let seconds = now.as_second().saturating_sub(creation_timestamp).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{minutes}m"),
        7200..172_800 => format!("{hours}h"),
        _ if days < 730 => format!("{days}d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use contiv_proto::message::service::service::{LoadBalancerIngress, ServicePort};

    use super::*;

    #[test]
    fn every_kind_has_cell_for_each_title() {
        let now = Timestamp::UNIX_EPOCH;
        for (kind, name) in Kind::ALL
            .into_iter()
            .map(|kind| (kind, if kind == Kind::VppNode { "1" } else { "n" }))
        {
            let key = Key::new(
                kind,
                if kind.is_namespaced() { "default" } else { "" },
                name,
            )
            .unwrap();
            let object = Object::decode(&key, b"{}").unwrap();
            let ((titles, wide_titles), (cells, wide_cells)) =
                (header(kind), row(&key, &object, now));
            assert_eq!(
                (cells.len(), wide_cells.len()),
                (titles.len(), wide_titles.len()),
                "{kind}"
            );
        }
    }

    #[test]
    fn service_shows_the_columns_of_kubectl() {
        let port = |port, node_port| ServicePort {
            port,
            node_port,
            protocol: "TCP".into(),
            ..ServicePort::default()
        };
        let service = Service {
            service_type: "LoadBalancer".into(),
            cluster_ip: "10.96.0.7".into(),
            port: vec![port(80, 30080), port(443, 0)],
            creation_timestamp: 1000,
            ..Service::default()
        };
        let now = Timestamp::from_second(1000 + 7199).unwrap();
        let cells = service_cells(&service, now);
        assert_eq!(
            cells,
            [
                "LoadBalancer",
                "10.96.0.7",
                "<pending>",
                "80:30080/TCP,443/TCP",
                "119m"
            ]
        );
        let ingress = LoadBalancerIngress {
            ip: "1.2.3.4".into(),
            ..LoadBalancerIngress::default()
        };
        let service = Service {
            load_balancer_ingress: vec![ingress],
            external_ips: vec!["5.6.7.8".into()],
            ..service
        };
        assert_eq!(service_cells(&service, now)[2], "1.2.3.4,5.6.7.8");
    }

    #[test]
    fn ages_are_in_the_largest_suitable_unit() {
        let now = Timestamp::from_second(100_000_000).unwrap();
        for (seconds, expected) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7200, "2h"),
            (200_000, "2d"),
            (99_000_000, "3y"),
        ] {
            assert_eq!(age(now.as_second() - seconds, now), expected);
        }
        assert_eq!(age(0, now), "<unknown>");
    }

    #[test]
    fn long_endpoints_list_shows_the_first_three() {
        let items = |count: usize| (0..count).map(|i| i.to_string()).collect();
        assert_eq!(first_items(items(0)), "<none>");
        assert_eq!(first_items(items(3)), "0,1,2");
        assert_eq!(first_items(items(5)), "0,1,2 + 2 more...");
    }
}
