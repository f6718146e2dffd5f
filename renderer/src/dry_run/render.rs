//! A snapshot as text, in the three formats of `contiv render`. Deterministic: the same snapshot gives the same bytes.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use contiv_model::{Backend, ContivService, ServicePort, Snapshot, TrafficPolicy};
use serde_json::{Value, json};

use crate::nftables;

/// The ruleset that the nftables renderer would program, in nft's language; `nft -f` loads it.
pub fn nft(snapshot: &Snapshot) -> String {
    nftables::ruleset(snapshot)
}

/// The services as renderers see them, and their elements.
pub fn json(snapshot: &Snapshot) -> Value {
    let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (set, element) in nftables::element_lines(snapshot) {
        sets.entry(set).or_default().push(element);
    }
    json!({ "desired": snapshot, "elements": sets })
}

/// The titles of the columns of [`rows`].
pub const COLUMNS: [&str; 6] = ["SERVICE", "PORT", "ADDRESS", "TYPE", "POLICY", "BACKENDS"];

/// A table for people: one row for each address of each service port, with the backends for external clients.
pub fn rows(snapshot: &Snapshot) -> Vec<[String; COLUMNS.len()]> {
    let mut rows = Vec::new();
    for service in snapshot.services.values() {
        for port in &service.ports {
            for (address, family, kind, policy) in addresses(service, port) {
                rows.push([
                    service.id.to_string(),
                    port.name.to_string(),
                    address,
                    kind.to_owned(),
                    format!("{policy:?}"),
                    backends(port, family, policy),
                ]);
            }
        }
    }
    rows
}

/// A line of the table: address, its family (none for all), type, policy.
type Line = (String, Option<bool>, &'static str, TrafficPolicy);

fn addresses(service: &ContivService, port: &ServicePort) -> Vec<Line> {
    let at = |address: &IpAddr| {
        (
            format!("{}/{}", SocketAddr::new(*address, port.port), port.protocol),
            Some(address.is_ipv4()),
        )
    };
    let line = |(text, family), kind, policy| (text, family, kind, policy);
    let cluster = service
        .cluster_ips
        .iter()
        .map(|ip| line(at(ip), "cluster", service.internal_policy));
    let external = service.external_ips.iter().map(|ip| {
        let is_of_balancer = service.load_balancer_ips.contains(ip);
        let kind = if is_of_balancer {
            "load balancer"
        } else {
            "external"
        };
        line(at(ip), kind, service.external_policy)
    });
    let node_port = port.node_port.map(|number| {
        line(
            (format!("*:{number}/{}", port.protocol), None),
            "node port",
            service.external_policy,
        )
    });
    cluster.chain(external).chain(node_port).collect()
}

/// The first few backends for an external client, from an address of this family with this policy.
fn backends(port: &ServicePort, ipv4: Option<bool>, policy: TrafficPolicy) -> String {
    const MAX_SHOWN_BACKENDS: usize = 4;
    let of_family = |backend: &&Backend| ipv4.is_none_or(|ipv4| backend.address.is_ipv4() == ipv4);
    let for_policy = match policy {
        TrafficPolicy::Cluster => port.cluster_backends(),
        TrafficPolicy::Local => port.local_backends(),
    };
    let all: Vec<&Backend> = for_policy.into_iter().filter(of_family).collect();
    if all.is_empty() {
        let is_elsewhere = port.cluster_backends().iter().any(of_family);
        return if is_elsewhere {
            "none on this node: dropped"
        } else {
            "none: rejected"
        }
        .to_owned();
    }
    let mut shown: Vec<String> = all
        .iter()
        .take(MAX_SHOWN_BACKENDS)
        .map(|backend| backend.endpoint().to_string())
        .collect();
    if all.len() > MAX_SHOWN_BACKENDS {
        shown.push(format!("and {} more", all.len() - MAX_SHOWN_BACKENDS));
    }
    shown.join(", ")
}
