//! Decides which renderer carries the connections of a service to its backends. This is the only place that decides it. Pure.
//!
//! Routes take a packet to a backend unchanged. So they can carry only a service whose backends accept its very address and
//! port; all other services need the address translation of `nftables`. Routes carry either all addresses of a service or none.
//! Node ports are addresses of the node, and always translated.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use serde::{Deserialize, Serialize, Serializer};

use crate::{Backend, BackendState, Balance, ContivService, ServiceId, ServicePort};

/// The renderer that carries connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// The renderer `nftables`, by translating addresses.
    #[default]
    Nftables,
    /// The renderer `route`, without translation.
    Route,
    /// The renderer `nftables`, until the renderer `route` has reported that its routes are there.
    NftablesUntilRoute,
    /// After a start, until the renderer `route` has reported: the renderer that carried them before; if none did, `nftables`.
    AsBefore,
}

impl Carrier {
    /// The renderer `nftables` translates the addresses.
    pub const fn translates(self) -> bool {
        matches!(self, Self::Nftables | Self::NftablesUntilRoute | Self::AsBefore)
    }

    /// The renderer `route` has routes to the backends.
    pub const fn routes(self) -> bool {
        matches!(self, Self::Route | Self::NftablesUntilRoute | Self::AsBefore)
    }
}

/// Which renderer carries the connections of one service on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Assignment {
    /// For its addresses.
    pub addresses: Carrier,
    /// For its node ports; none where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ports: Option<Carrier>,
    /// Why routes do not carry its addresses although they should. For people; not read back.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub reason: Option<DirectRoutingBlocker>,
}

/// Why routes cannot carry a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectRoutingBlocker {
    /// The agent runs without the renderer `route`.
    NoRenderer,
    /// A service port has another target port.
    OtherPort {
        /// The service port.
        port: u16,
        /// The target port.
        target: u16,
    },
    /// Routes cannot match ports, and two ports of the service have different backends.
    BackendsDiffer,
    /// The service has session affinity.
    Affinity,
    /// Backends are chosen by the client's address.
    ClientBalance,
    /// The service has source ranges.
    SourceRanges,
    /// Another service has the same address.
    SharedAddress(IpAddr, ServiceId),
    /// Both pods of this node and the node itself are backends; one route cannot lead to both.
    PodsAndNode,
}

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
    let reason = if asked { obstacle(service, route_runs, shared) } else { None };
    Assignment {
        addresses: if asked && reason.is_none() { Carrier::Route } else { Carrier::Nftables },
        node_ports: has_node_ports.then_some(Carrier::Nftables),
        reason,
    }
}

fn obstacle(
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
        let other = port.backends.iter().find(|backend| backend.port != port.port)?;
        Some(DirectRoutingBlocker::OtherPort { port: port.port, target: other.port })
    });
    if other_port.is_some() {
        return other_port;
    }
    let mut backends =
        service.ports.iter().map(|port| port.backends.iter().map(routing_properties).collect());
    if let Some(first) = backends.next() {
        let first: BTreeMap<IpAddr, _> = first;
        if backends.any(|other| other != first) {
            return Some(DirectRoutingBlocker::BackendsDiffer);
        }
    }
    let is_mixed = |ipv4: bool| {
        let local = here(&service.ports, ipv4);
        local.iter().any(|backend| backend.host_network) && local.iter().any(|backend| !backend.host_network)
    };
    (is_mixed(true) || is_mixed(false)).then_some(DirectRoutingBlocker::PodsAndNode)
}

/// The properties of a backend that matter to a route; the port does not.
fn routing_properties(backend: &Backend) -> (IpAddr, (u16, bool, bool, BackendState)) {
    (backend.address, (backend.weight, backend.local, backend.host_network, backend.state))
}

/// The backends of a family on this node; they take all traffic while there are any.
fn here(ports: &[ServicePort], ipv4: bool) -> BTreeSet<&Backend> {
    let of_family = |backend: &&Backend| backend.address.is_ipv4() == ipv4;
    ports.iter().flat_map(ServicePort::local_backends).filter(of_family).collect()
}

impl fmt::Display for DirectRoutingBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRenderer => f.write_str("the renderer route does not run; name it in renderers"),
            Self::OtherPort { port, target } => {
                write!(f, "port {port} leads to port {target} of the backends; routes cannot change a port")
            }
            Self::BackendsDiffer => {
                f.write_str("its ports do not have the same backends; a route is for all ports of an address")
            }
            Self::Affinity => f.write_str("it has session affinity, which routes cannot give"),
            Self::ClientBalance => {
                f.write_str("its backends are chosen by the address of the client, which routes cannot do")
            }
            Self::SourceRanges => f.write_str("only some sources may connect, which routes cannot tell"),
            Self::SharedAddress(address, other) => {
                write!(f, "{other} has the address {address} too; a route leads to one service")
            }
            Self::PodsAndNode => f.write_str("this node and pods on it are backends; no route leads to both"),
        }
    }
}

impl Serialize for DirectRoutingBlocker {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
