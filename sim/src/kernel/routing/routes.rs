//! Routes: what the kernel accepts, and when one goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnetwork::IpNetwork;

use super::{
    constants::{LOOPBACK, PODS, ROUTE_HEADER},
    nexthops::NextHops,
    object::{Object, family_of},
};
use crate::kernel::{
    errno::{Errno, Result, refuse},
    uapi::NFPROTO_IPV4,
};

pub(super) const RTA_DST: u16 = 1;
pub(super) const RTA_OIF: u16 = 4;
pub(super) const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
pub(super) const RTA_TABLE: u16 = 15;
const RTA_NH_ID: u16 = 30;

pub(super) const RTN_UNICAST: u8 = 1;
pub(super) const RTN_LOCAL: u8 = 2;
pub(super) const MAIN_TABLE: u32 = 254;
pub(super) const LOCAL_TABLE: u32 = 255;

/// Places in `struct rtmsg`.
const PREFIX: usize = 1;
const TOS: usize = 3;
const TABLE: usize = 4;
pub(super) const PROTOCOL: usize = 5;
const SCOPE: usize = 6;
pub(super) const KIND: usize = 7;

/// What no two routes have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RouteKey {
    table: u32,
    destination: IpAddr,
    prefix: u8,
    tos: u8,
    priority: u32,
}

impl RouteKey {
    /// Whether it is of the route of a table to this one address.
    pub(super) fn is_to(&self, address: IpAddr, table: u32) -> bool {
        (self.destination, self.table) == (address, table)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) object: Object,
    /// It has lost its source, and goes.
    pub(super) is_dead: bool,
}

impl Route {
    /// The route of a message, if the kernel accepts it.
    pub(super) fn new(
        object: Object,
        links: &BTreeMap<u32, bool>,
        addresses: &BTreeMap<IpAddr, u32>,
        nexthops: &NextHops,
    ) -> Result<Self> {
        let (interface, group) = (object.number(RTA_OIF), object.number(RTA_NH_ID));
        if group != 0 && !nexthops.contains(group) {
            return refuse(Errno::EINVAL);
        }
        if interface != 0 {
            match links.get(&interface) {
                None => return refuse(Errno::ENODEV),
                Some(false) => return refuse(Errno::ENETDOWN),
                Some(true) => {}
            }
        }
        if object.header[KIND] == RTN_UNICAST && interface == 0 && group == 0 {
            return refuse(Errno::ENODEV);
        }
        if object
            .address(RTA_PREFSRC)
            .is_some_and(|source| !addresses.contains_key(&source))
        {
            return refuse(Errno::EINVAL);
        }
        Ok(Self {
            object,
            is_dead: false,
        })
    }

    pub(super) fn key(&self) -> Result<RouteKey> {
        key_of(&self.object)
    }

    pub(super) fn kind(&self) -> u8 {
        self.object.header[KIND]
    }

    pub(super) fn group(&self) -> Option<u32> {
        Some(self.object.number(RTA_NH_ID)).filter(|id| *id != 0)
    }

    /// Whether it uses this interface, or one of these next hops. Local routes stay: `lo` never goes.
    pub(super) fn uses(&self, interface: u32, nexthops: &BTreeSet<u32>) -> bool {
        let own = self.object.number(RTA_OIF);
        own != 0 && own != LOOPBACK && own == interface
            || self.group().is_some_and(|group| nexthops.contains(&group))
    }

    /// The node has lost an address: a route of IPv4 with this source goes, one of IPv6 loses its source.
    pub(super) fn lose_source(&mut self, address: IpAddr) {
        if self.object.address(RTA_PREFSRC) == Some(address) {
            if self.object.header[0] == NFPROTO_IPV4 {
                self.is_dead = true;
            } else {
                self.object.attributes.remove(&RTA_PREFSRC);
            }
        }
    }

    /// Whether a request to delete a route means this one: what the request names has to be equal.
    pub(super) fn is_meant_by(&self, key: &RouteKey, wanted: &Object) -> bool {
        let Ok(wanted_key) = key_of(wanted) else {
            return false;
        };
        let has = |kind: u16| {
            wanted
                .attributes
                .get(&kind)
                .is_none_or(|payload| self.object.attributes.get(&kind) == Some(payload))
        };
        let is_same = |at: usize| [0, self.object.header[at]].contains(&wanted.header[at]);
        let is_any_priority = !wanted.attributes.contains_key(&RTA_PRIORITY);
        let priority = if is_any_priority {
            key.priority
        } else {
            wanted_key.priority
        };
        RouteKey {
            priority,
            ..wanted_key
        } == *key
            && is_same(PROTOCOL)
            && is_same(KIND)
            && (wanted.header[0] != NFPROTO_IPV4 || is_same(SCOPE))
            && [RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_NH_ID]
                .into_iter()
                .all(has)
    }
}

fn key_of(object: &Object) -> Result<RouteKey> {
    let Some(destination) = object.address(RTA_DST) else {
        return refuse(Errno::EINVAL);
    };
    let table = match object.number(RTA_TABLE) {
        0 => u32::from(object.header[TABLE]),
        table => table,
    };
    let (prefix, tos) = (object.header[PREFIX], object.header[TOS]);
    Ok(RouteKey {
        table,
        destination,
        prefix,
        tos,
        priority: object.number(RTA_PRIORITY),
    })
}

/// The ranges of the pods of this node, on their interface.
fn pod_ranges() -> impl Iterator<Item = IpNetwork> {
    let ranges: [(IpAddr, u8); 2] = [
        (Ipv4Addr::new(10, 244, 1, 0).into(), 24),
        (Ipv6Addr::new(0xfd44, 1, 0, 0, 0, 0, 0, 0).into(), 64),
    ];
    ranges
        .into_iter()
        .filter_map(|(network, prefix)| IpNetwork::new(network, prefix).ok())
}

/// Whether an address is that of a pod of this node.
pub(super) fn is_local_pod(address: IpAddr) -> bool {
    pod_ranges().any(|range| range.contains(address))
}

/// The routes to the pods of this node in the main table.
pub(super) fn pod_routes() -> impl Iterator<Item = Object> {
    pod_ranges().map(|range| {
        let mut header = vec![0; ROUTE_HEADER];
        (header[0], header[PREFIX], header[KIND]) =
            (family_of(range.ip()), range.prefix(), RTN_UNICAST);
        let mut route = Object {
            header,
            attributes: BTreeMap::new(),
        };
        route.set_number(RTA_TABLE, MAIN_TABLE);
        route.set_address(RTA_DST, range.ip());
        route.set_number(RTA_OIF, PODS);
        route
    })
}

/// The router to all hosts but this one's pods, in the family of an address.
pub const fn router(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(192, 168, 1, 254)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe)),
    }
}
