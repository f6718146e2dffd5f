//! The routes that a service needs on this node. Pure.

use std::{collections::BTreeSet, net::IpAddr};

use contiv_model::{ContivService, Frontend, NodeFacts, ServicePort, TrafficPolicy};

use super::options::{AddressKind, RouteOptions};

/// The purpose of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Routing daemons advertise it to the network.
    Advertise,
    /// Processes on this node reach the service through it.
    Reach,
}

/// One address, and the purpose of a route to it. There is one route for each, however many services share the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Destination {
    pub(super) purpose: Purpose,
    pub(super) address: IpAddr,
}

/// The routes of one service, independent of other services.
pub(super) fn destinations(
    service: &ContivService,
    node: &NodeFacts,
    options: &RouteOptions,
) -> BTreeSet<Destination> {
    let mut destinations = BTreeSet::new();
    for (address, kind) in addresses(service) {
        // The kernel has better routes to these, and the network must not see them at a second place.
        if node.is_local_address(address) || !is_routable(address) {
            continue;
        }
        let ports: Vec<_> = owned_ports(service, address).collect();
        if options.reach_from_node && !ports.is_empty() && source(node, address.is_ipv4()).is_some()
        {
            destinations.insert(Destination {
                purpose: Purpose::Reach,
                address,
            });
        }
        let policy = match kind {
            AddressKind::Cluster => service.internal_policy,
            AddressKind::External | AddressKind::LoadBalancer => service.external_policy,
        };
        if options.advertise.contains(kind)
            && ports
                .iter()
                .any(|port| attracts_traffic(port, policy, address.is_ipv4()))
        {
            destinations.insert(Destination {
                purpose: Purpose::Advertise,
                address,
            });
        }
    }
    destinations
}

/// The source address of this node's own connections to a service address of this family: the smallest of the node's known
/// addresses that an interface has. None if there is none.
pub(super) fn source(node: &NodeFacts, ipv4: bool) -> Option<IpAddr> {
    let usable =
        |ip: &&IpAddr| ip.is_ipv4() == ipv4 && is_routable(**ip) && node.local_ips.contains(*ip);
    node.primary_ips.iter().find(usable).copied()
}

/// Every address of the service. One that is of two kinds is listed twice.
fn addresses(service: &ContivService) -> impl Iterator<Item = (IpAddr, AddressKind)> {
    let cluster = service
        .cluster_ips
        .iter()
        .map(|address| (*address, AddressKind::Cluster));
    let external = service.external_ips.iter().map(|address| {
        let of_balancer = service.load_balancer_ips.contains(address);
        (
            *address,
            if of_balancer {
                AddressKind::LoadBalancer
            } else {
                AddressKind::External
            },
        )
    });
    cluster.chain(external)
}

/// The ports that this service, and no older one, has at the address.
fn owned_ports(service: &ContivService, address: IpAddr) -> impl Iterator<Item = &ServicePort> {
    service.ports.iter().filter(move |port| {
        let &&ServicePort { port, protocol, .. } = port;
        !service.lost.contains_key(&Frontend::Address {
            address,
            protocol,
            port,
        })
    })
}

/// True if this node should attract traffic of a family to the port. With policy Local only while a local backend is ready:
/// traffic should leave the node while the last ones terminate (KEP-1669), as with the health check.
fn attracts_traffic(port: &ServicePort, policy: TrafficPolicy, ipv4: bool) -> bool {
    let of_family = |address: IpAddr| address.is_ipv4() == ipv4;
    match policy {
        TrafficPolicy::Cluster => port
            .cluster_backends()
            .iter()
            .any(|backend| of_family(backend.address)),
        TrafficPolicy::Local => port
            .backends
            .iter()
            .any(|backend| backend.local && backend.state.is_ready() && of_family(backend.address)),
    }
}

pub(super) const fn is_routable(address: IpAddr) -> bool {
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return false;
    }
    match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_broadcast(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests;
