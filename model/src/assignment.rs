//! Decides which renderer carries the connections of a service to its backends. This is the only place that decides it. Pure.
//!
//! Routes take a packet to a backend unchanged. So they can carry only a service whose backends accept its very address and
//! port; all other services need the address translation of `nftables`. Routes carry either all addresses of a service or none.
//! Node ports are addresses of the node, and always translated.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    Assignment, Backend, Balance, Carrier, ContivService, DirectRoutingBlocker, ServiceId,
    ServicePort,
};

/// Assigns `service` to renderers. `asked`: routes should carry it, by its annotation or by default. `route_runs`: the renderer
/// `route` runs. `shared`: an address that another service has too, and that service. A service without ports needs no carrier.
pub fn assign(
    service: &ContivService,
    asked: bool,
    route_runs: bool,
    shared: Option<(IpAddr, ServiceId)>,
) -> Assignment {
    let has_addresses = !service.ports.is_empty() && service.addresses().next().is_some();
    let has_node_ports = service.ports.iter().any(|port| port.node_port.is_some());
    let asked = asked && has_addresses;
    let reason = if asked {
        direct_routing_blocker(service, route_runs, shared)
    } else {
        None
    };
    Assignment {
        addresses: if asked && reason.is_none() {
            Carrier::Route
        } else {
            Carrier::Nftables
        },
        node_ports: has_node_ports.then_some(Carrier::Nftables),
        reason: reason.map(Box::new),
    }
}

/// Why routes cannot carry a service. None if they can.
fn direct_routing_blocker(
    service: &ContivService,
    route_runs: bool,
    shared: Option<(IpAddr, ServiceId)>,
) -> Option<DirectRoutingBlocker> {
    if !route_runs {
        return Some(DirectRoutingBlocker::NoRenderer);
    }
    if service.session_affinity_timeout != 0 {
        return Some(DirectRoutingBlocker::Affinity);
    }
    if service.balance == Balance::ClientAddress {
        return Some(DirectRoutingBlocker::ClientBalance);
    }
    if !service.source_ranges.is_empty() {
        return Some(DirectRoutingBlocker::SourceRanges);
    }
    if let Some((address, other)) = shared {
        return Some(DirectRoutingBlocker::SharedAddress(address, other));
    }
    let other_port = service.ports.iter().find_map(|port| {
        let other = port
            .backends
            .iter()
            .find(|backend| backend.port != port.port)?;
        Some(DirectRoutingBlocker::OtherPort {
            port: port.port,
            target: other.port,
        })
    });
    if other_port.is_some() {
        return other_port;
    }
    let mut backends = service
        .ports
        .iter()
        .map(|port| port.backends.iter().map(routing_properties).collect());
    if let Some(first) = backends.next() {
        let first: BTreeMap<IpAddr, _> = first;
        if backends.any(|other| other != first) {
            return Some(DirectRoutingBlocker::BackendsDiffer);
        }
    }
    let is_mixed = |ipv4: bool| {
        let local = local_backends(&service.ports, ipv4);
        local.iter().any(|backend| backend.host_network)
            && local.iter().any(|backend| !backend.host_network)
    };
    (is_mixed(true) || is_mixed(false)).then_some(DirectRoutingBlocker::PodsAndNode)
}

/// The properties of a backend that matter to a route; the port does not.
fn routing_properties(backend: &Backend) -> (IpAddr, (u16, bool, bool, bool)) {
    (
        backend.address,
        (
            backend.weight,
            backend.local,
            backend.host_network,
            backend.state.is_ready(),
        ),
    )
}

/// The backends of a family on this node: the ready ones, or else those terminating. They take all traffic while there are any.
/// For routes failing ones are ready.
fn local_backends(ports: &[ServicePort], ipv4: bool) -> BTreeSet<&Backend> {
    let mut found = BTreeSet::new();
    for port in ports {
        let local = || {
            port.backends
                .iter()
                .filter(|backend| backend.local && backend.address.is_ipv4() == ipv4)
        };
        let has_ready = local().any(|backend| backend.state.is_ready());
        found.extend(local().filter(|backend| backend.state.is_ready() == has_ready));
    }
    found
}

#[cfg(test)]
mod tests;
