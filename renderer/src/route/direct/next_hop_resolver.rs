//! Asks the kernel for the next hop of a backend.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteType, RouteVia};

use super::plan::RouteTarget;
use crate::{
    netlink::NetlinkError,
    route::{
        kernel_route::{self, family, host_length, route_address},
        nexthop::Hop,
        socket::RouteSocket,
        watch::Announcer,
    },
};

/// The next hop of each backend that was looked up; none if the kernel has no route to it.
///
/// For a pod on this node it is the pod itself on its own link. For a remote pod it is the gateway of the pod network: the
/// address of its node, directly or in a tunnel.
#[derive(Debug, Default)]
pub(super) struct NextHopResolver(BTreeMap<IpAddr, Option<Hop>>);

impl NextHopResolver {
    /// Looks up the next hops of all backends that are not known yet.
    pub(super) fn look_up<'a>(
        &mut self,
        socket: &mut RouteSocket,
        targets: impl Iterator<Item = &'a RouteTarget>,
        announcer: &mut Announcer,
    ) -> Result<(), NetlinkError> {
        let mut unknown = BTreeSet::new();
        for target in targets {
            if let RouteTarget::Backends { weights, .. } = target {
                unknown.extend(
                    weights
                        .keys()
                        .filter(|backend| !self.0.contains_key(backend)),
                );
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        announcer.depend_on_routes_to(&unknown);
        let routes = socket.look_up(unknown.iter().map(|backend| request(*backend)).collect())?;
        let hops = unknown.into_iter().zip(routes);
        let hops: BTreeMap<_, _> = hops
            .map(|(backend, route)| (backend, route.and_then(|route| hop(backend, &route))))
            .collect();
        announcer.depend_on_links(hops.values().flatten().map(|hop| hop.interface));
        self.0.extend(hops);
        Ok(())
    }

    /// The next hop of a backend. A backend on this node is never behind a gateway: while its link is down, the kernel returns
    /// the default route.
    pub(super) fn hop(&self, backend: IpAddr, local: bool) -> Option<Hop> {
        self.0
            .get(&backend)
            .copied()
            .flatten()
            .filter(|hop| !local || hop.gateway == backend)
    }
}

/// The request for the route that the kernel uses for an address.
pub(in crate::route) fn request(address: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(address.is_ipv4());
    message.header.destination_prefix_length = host_length(address);
    message.attributes = vec![RouteAttribute::Destination(route_address(address))];
    message
}

/// The next hop of the kernel's route to `backend`. Without a gateway the backend is on the link itself.
fn hop(backend: IpAddr, route: &RouteMessage) -> Option<Hop> {
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let (mut interface, mut gateway) = (None, backend);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(address) => gateway = kernel_route::ip(address)?,
            RouteAttribute::Via(RouteVia::Inet6(address)) => gateway = IpAddr::V6(*address),
            RouteAttribute::Via(_) => return None,
            _ => {}
        }
    }
    Some(Hop {
        gateway,
        interface: interface?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(kind: RouteType, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.kind = kind;
        message.attributes = attributes;
        message
    }

    #[test]
    fn backend_is_its_own_gateway_unless_route_has_one() {
        let backend: IpAddr = [10, 1, 0, 2].into();
        let oif = RouteAttribute::Oif(7);
        let on_link = route(RouteType::Unicast, vec![oif.clone()]);
        assert_eq!(
            hop(backend, &on_link),
            Some(Hop {
                gateway: backend,
                interface: 7
            })
        );
        let gateway: IpAddr = [192, 0, 2, 2].into();
        let via = RouteAttribute::Gateway(route_address(gateway));
        let behind = route(RouteType::Unicast, vec![oif.clone(), via]);
        assert_eq!(
            hop(backend, &behind),
            Some(Hop {
                gateway,
                interface: 7
            })
        );
        let inet6 = RouteAttribute::Via(RouteVia::Inet6(1.into()));
        let behind = route(RouteType::Unicast, vec![oif.clone(), inet6]);
        assert_eq!(
            hop(backend, &behind),
            Some(Hop {
                gateway: IpAddr::V6(1.into()),
                interface: 7
            })
        );
        assert_eq!(
            hop(backend, &route(RouteType::Unreachable, vec![oif])),
            None
        );
    }

    #[test]
    fn local_backend_is_not_reached_through_a_gateway() {
        let [direct, behind] = [[10, 1, 0, 2], [10, 1, 0, 3]].map(IpAddr::from);
        let to = |gateway| {
            Some(Hop {
                gateway,
                interface: 7,
            })
        };
        let hops =
            NextHopResolver([(direct, to(direct)), (behind, to([192, 0, 2, 2].into()))].into());
        assert_eq!(hops.hop(direct, true), to(direct));
        assert_eq!(hops.hop(behind, true), None);
        assert_eq!(hops.hop(behind, false), to([192, 0, 2, 2].into()));
    }
}
