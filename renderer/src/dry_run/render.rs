//! A snapshot as text, in the three forms of `contiv render`. The same snapshot gives the same bytes.

use std::collections::BTreeMap;

use comfy_table::{Table, presets::NOTHING};
use contiv_model::{Backend, ContivService, ServicePort, Snapshot};
use serde_json::{Value, json};

use crate::nftables;

/// What the nftables renderer would program, in nft's language; `nft -f` loads it.
pub fn nft(snapshot: &Snapshot) -> String {
    nftables::ruleset(snapshot)
}

/// The services as renderers see them, and the elements they become.
pub fn json(snapshot: &Snapshot) -> Value {
    let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (set, element) in nftables::element_lines(snapshot) {
        sets.entry(set).or_default().push(element);
    }
    json!({ "desired": snapshot, "elements": sets })
}

/// One line for each address of each service port, for people.
pub fn table(snapshot: &Snapshot) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["SERVICE", "PORT", "ADDRESS", "TYPE", "POLICY", "BACKENDS"]);
    for service in snapshot.services.values() {
        for port in &service.ports {
            for (address, kind, policy) in addresses(service, port) {
                table.add_row([
                    service.id.to_string(),
                    port.name.to_string(),
                    address,
                    kind.to_owned(),
                    policy,
                    backends(&port.backends),
                ]);
            }
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The addresses of a port, with their type and policy.
fn addresses(service: &ContivService, port: &ServicePort) -> Vec<(String, &'static str, String)> {
    let at = |address| format!("{}/{}", std::net::SocketAddr::new(address, port.port), port.protocol);
    let internal = format!("{:?}", service.internal_policy);
    let external = format!("{:?}", service.external_policy);
    let mut all = Vec::new();
    all.extend(service.cluster_ips.iter().map(|address| (at(*address), "cluster", internal.clone())));
    all.extend(service.external_ips.iter().map(|address| (at(*address), "external", external.clone())));
    all.extend(
        port.node_port.map(|number| (format!("*:{number}/{}", port.protocol), "node port", external.clone())),
    );
    all
}

fn backends(backends: &[Backend]) -> String {
    const SHOWN: usize = 4;
    if backends.is_empty() {
        return "none: rejected".to_owned();
    }
    let mut shown: Vec<String> =
        backends.iter().take(SHOWN).map(|backend| backend.endpoint().to_string()).collect();
    if backends.len() > SHOWN {
        shown.push(format!("and {} more", backends.len() - SHOWN));
    }
    shown.join(", ")
}
