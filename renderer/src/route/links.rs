//! How connections of this node itself leave.

use super::{
    apply,
    desired::Desired,
    kernel_route::{KernelRoute, NextHop},
    options::RouteOptions,
    plan::{Destination, Purpose},
    socket::RouteSocket,
};
use crate::netlink::NetlinkError;

/// The interface and the source address of this node's own connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Links {
    pub(super) v4: Option<NextHop>,
    pub(super) v6: Option<NextHop>,
}

impl Links {
    /// The current ones; none if no connection leaves through them.
    pub(super) fn find(
        socket: &mut RouteSocket,
        options: &RouteOptions,
        desired: &Desired,
    ) -> Result<Self, NetlinkError> {
        if !options.reach_from_node {
            return Ok(Self::default());
        }
        let interfaces = apply::interfaces(socket)?;
        let link = |ipv4| {
            let source = desired.source(ipv4)?;
            interfaces.get(&source).map(|interface| NextHop::Link {
                interface: *interface,
                source,
            })
        };
        Ok(Self {
            v4: link(true),
            v6: link(false),
        })
    }

    /// The route to a destination; none while this node has no source address for it.
    pub(super) fn route(
        self,
        options: &RouteOptions,
        destination: Destination,
    ) -> Option<KernelRoute> {
        let Destination { purpose, address } = destination;
        Some(match purpose {
            Purpose::Advertise => KernelRoute {
                table: options.advertise_table,
                address,
                next_hop: NextHop::Blackhole,
            },
            Purpose::Reach => KernelRoute {
                table: options.node_table,
                address,
                next_hop: if address.is_ipv4() { self.v4 } else { self.v6 }?,
            },
        })
    }
}
