//! What the routes by each interface say about the source of packets.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use futures::TryStreamExt;
use rtnetlink::{
    Handle,
    packet_route::{
        AddressFamily,
        route::{
            RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
        },
    },
};

use crate::route_protocol::PROTOCOL;

/// The table of the addresses of this node.
const LOCAL_TABLE: u8 = 255;

/// The routes by one interface, of all tables but that of local addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InterfaceRoutes {
    /// The source addresses that they name, except those of the kernel and of this agent.
    pub(crate) sources: BTreeSet<IpAddr>,
    /// There is one of IPv4.
    pub(crate) has_ipv4: bool,
    /// There is one of IPv6, other than to link-local addresses.
    pub(crate) has_ipv6: bool,
}

/// The routes by each interface, by its index.
pub(crate) async fn list(
    handle: &Handle,
) -> Result<BTreeMap<u32, InterfaceRoutes>, rtnetlink::Error> {
    let mut interfaces = BTreeMap::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        let mut routes = handle.route().get(request).execute();
        // There may be a million of them, so they are not collected.
        while let Some(route) = routes.try_next().await? {
            add(&route, &mut interfaces);
        }
    }
    Ok(interfaces)
}

/// Adds a route to those of its interfaces.
fn add(route: &RouteMessage, interfaces: &mut BTreeMap<u32, InterfaceRoutes>) {
    let RouteHeader {
        address_family,
        kind,
        protocol,
        table,
        ..
    } = route.header;
    let is_local = table == LOCAL_TABLE;
    let is_ours = protocol == RouteProtocol::Other(PROTOCOL);
    if kind != RouteType::Unicast || is_local || is_ours || is_link_local(route) {
        return;
    }
    let mut source = None;
    let mut by = Vec::new();
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::PrefSource(RouteAddress::Inet(address)) => {
                source = Some(IpAddr::V4(*address));
            }
            RouteAttribute::PrefSource(RouteAddress::Inet6(address)) => {
                source = Some(IpAddr::V6(*address));
            }
            RouteAttribute::Oif(index) => by.push(*index),
            RouteAttribute::MultiPath(hops) => {
                by.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => {}
        }
    }
    // The kernel names the address that it adds the route of a network with.
    let source = source.filter(|_| protocol != RouteProtocol::Kernel);
    for index in by {
        let interface: &mut InterfaceRoutes = interfaces.entry(index).or_default();
        interface.sources.extend(source);
        interface.has_ipv4 |= address_family == AddressFamily::Inet;
        interface.has_ipv6 |= address_family == AddressFamily::Inet6;
    }
}

/// Every interface has such routes.
fn is_link_local(route: &RouteMessage) -> bool {
    route.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet6(to)) => {
            to.is_unicast_link_local() || to.is_multicast()
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(protocol: RouteProtocol, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.address_family = AddressFamily::Inet;
        route.header.kind = RouteType::Unicast;
        route.header.table = 254;
        route.header.protocol = protocol;
        route.attributes = attributes;
        route
    }

    fn source(address: [u8; 4]) -> RouteAttribute {
        RouteAttribute::PrefSource(RouteAddress::Inet(address.into()))
    }

    #[test]
    fn sources_of_others_than_the_kernel_and_the_agent_count() {
        let mut interfaces = BTreeMap::new();
        let oif = || RouteAttribute::Oif(2);
        add(
            &route(
                RouteProtocol::Kernel,
                vec![oif(), source([169, 254, 50, 2])],
            ),
            &mut interfaces,
        );
        add(
            &route(
                RouteProtocol::Other(PROTOCOL),
                vec![oif(), source([192, 0, 2, 1])],
            ),
            &mut interfaces,
        );
        assert_eq!(
            interfaces[&2],
            InterfaceRoutes {
                has_ipv4: true,
                ..InterfaceRoutes::default()
            }
        );
        add(
            &route(RouteProtocol::Boot, vec![oif(), source([192, 168, 50, 2])]),
            &mut interfaces,
        );
        assert_eq!(
            interfaces[&2].sources,
            [IpAddr::from([192, 168, 50, 2])].into()
        );
        let mut local = route(RouteProtocol::Boot, vec![oif(), source([192, 0, 2, 9])]);
        local.header.table = LOCAL_TABLE;
        add(&local, &mut interfaces);
        assert_eq!(
            interfaces[&2].sources.len(),
            1,
            "addresses of this node are no destination elsewhere"
        );
    }

    #[test]
    fn link_local_routes_lead_nowhere() {
        let mut interfaces = BTreeMap::new();
        let to = |address: &str| {
            RouteAttribute::Destination(RouteAddress::Inet6(address.parse().unwrap()))
        };
        for (address, expected) in [("fe80::", false), ("ff00::", false), ("fd00:244::", true)] {
            let mut route = route(
                RouteProtocol::Kernel,
                vec![RouteAttribute::Oif(3), to(address)],
            );
            route.header.address_family = AddressFamily::Inet6;
            add(&route, &mut interfaces);
            assert_eq!(
                interfaces.get(&3).is_some_and(|routes| routes.has_ipv6),
                expected,
                "{address}"
            );
        }
    }
}
