//! A model of routing netlink: links, addresses, routes, rules and next hops, as the kernel's `net/core/rtnetlink.c`,
//! `net/core/fib_rules.c`, `net/ipv4/fib_frontend.c`, `net/ipv6/route.c` and `net/ipv4/nexthop.c` keep them.
//!
//! Objects are stored as they were sent: a fixed header, and attributes by their type, in host byte order.

mod constants;
mod nexthops;
mod object;
mod routes;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub use self::routes::router;
use self::{
    constants::{
        ADDRESS_HEADER, DELADDR, DELNEXTHOP, DELROUTE, DELRULE, EXTERNAL, GETADDR, GETNEXTHOP,
        GETROUTE, GETRULE, IFA_LOCAL, IFF_UP, LOOPBACK, NEWADDR, NEWLINK, NEWNEXTHOP, NEWROUTE,
        NEWRULE, NEXTHOP_HEADER, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, PODS, ROUTE_HEADER,
        RULE_HEADER,
    },
    nexthops::NextHops,
    object::{Object, family_of},
    routes::{Route, RouteKey},
};
use super::{
    errno::{Errno, Result, refuse},
    message::{self, Message},
    uapi::{NFPROTO_IPV4, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTI},
};

/// A change that another program or an operator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutingChange {
    /// The interface of local pods goes down, or up.
    TogglePods,
    /// One of our routes is deleted, by its place among them.
    DeleteRoute(usize),
    /// One of our next hops or groups is deleted, by its place among them.
    DeleteNextHop(usize),
    /// One of our rules is deleted.
    DeleteRule(usize),
}

/// The routing state of the kernel.
#[derive(Debug)]
pub(super) struct Routing {
    /// The interfaces, and whether they are up.
    links: BTreeMap<u32, bool>,
    addresses: BTreeMap<IpAddr, u32>,
    routes: BTreeMap<RouteKey, Route>,
    rules: Vec<Object>,
    nexthops: NextHops,
    /// The errors of the next changes.
    pub(super) refusals: Vec<Errno>,
    /// The next dump is inconsistent.
    pub(super) is_dump_interrupted: bool,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            links: [LOOPBACK, EXTERNAL, PODS].map(|link| (link, true)).into(),
            addresses: BTreeMap::new(),
            routes: BTreeMap::new(),
            rules: Vec::new(),
            nexthops: NextHops::default(),
            refusals: Vec::new(),
            is_dump_interrupted: false,
        }
    }
}

/// Where the kernel sends packets to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forwarding {
    /// The node itself.
    Local,
    /// Dropped.
    Dropped,
    /// To one of these next hops.
    NextHops(BTreeSet<IpAddr>),
    /// By the default route.
    Default,
}

/// What a request causes besides its answers: notifications for listeners, each with the port of the origin.
type Notices = Vec<Vec<u8>>;

impl Routing {
    /// Sets the addresses of the node's external interface. Routes with another source go. Returns notifications.
    pub(super) fn set_addresses(&mut self, addresses: &BTreeSet<IpAddr>) -> Notices {
        let mut notices = Vec::new();
        let old: BTreeSet<IpAddr> = self.addresses.keys().copied().collect();
        for gone in old.difference(addresses) {
            self.addresses.remove(gone);
            notices.push(address_message(DELADDR, *gone, EXTERNAL, 0, 0, 0));
            for route in self.routes.values_mut() {
                route.lose_source(*gone);
            }
            self.routes.retain(|_, route| !route.is_dead);
        }
        for new in addresses.difference(&old) {
            self.addresses.insert(*new, EXTERNAL);
            notices.push(address_message(NEWADDR, *new, EXTERNAL, 0, 0, 0));
        }
        notices
    }

    /// Makes a change as another program. Returns notifications.
    pub(super) fn change(&mut self, change: RoutingChange) -> Notices {
        match change {
            RoutingChange::TogglePods => {
                let is_up = self.links.entry(PODS).or_default();
                *is_up ^= true;
                let is_up = *is_up;
                if !is_up {
                    let dead = self.nexthops.remove_interface(PODS);
                    self.routes.retain(|_, route| !route.uses(PODS, &dead));
                    return vec![link_message(PODS, false)];
                }
                // Who attaches pods gives them their routes again.
                let routes = routes::pod_routes().map(|route| route.message(NEWROUTE, 0, 0, 0));
                [link_message(PODS, true)]
                    .into_iter()
                    .chain(routes)
                    .collect()
            }
            RoutingChange::DeleteRoute(at) => {
                let key = self
                    .routes
                    .keys()
                    .nth(at % self.routes.len().max(1))
                    .copied();
                let route = key.and_then(|key| self.routes.remove(&key));
                route
                    .map(|route| route.object.message(DELROUTE, 0, 0, 0))
                    .into_iter()
                    .collect()
            }
            RoutingChange::DeleteNextHop(at) => {
                let Some(id) = self.nexthops.nth(at) else {
                    return Vec::new();
                };
                let (notices, dead) = self.nexthops.remove(id);
                self.routes.retain(|_, route| !route.uses(0, &dead));
                notices
            }
            RoutingChange::DeleteRule(at) => {
                if self.rules.is_empty() {
                    return Vec::new();
                }
                let rule = self.rules.remove(at % self.rules.len());
                vec![rule.message(DELRULE, 0, 0, 0)]
            }
        }
    }

    /// The objects that programs have made, a line each.
    pub(super) fn listing(&self) -> BTreeSet<String> {
        let routes = self
            .routes
            .values()
            .map(|route| format!("route {:?}", route.object));
        let rules = self.rules.iter().map(|rule| format!("rule {rule:?}"));
        routes.chain(rules).chain(self.nexthops.listing()).collect()
    }

    /// Where packets to an address go that is in a table of ours.
    pub(super) fn forwarding(&self, address: IpAddr, table: u32) -> Forwarding {
        let local = self
            .routes
            .iter()
            .find(|(key, _)| key.is_to(address, routes::LOCAL_TABLE));
        let found = local.or_else(|| {
            self.routes
                .iter()
                .find(|(key, _)| key.is_to(address, table))
        });
        let Some((_, route)) = found else {
            return Forwarding::Default;
        };
        match (route.kind(), route.group()) {
            (routes::RTN_LOCAL, _) => Forwarding::Local,
            (routes::RTN_UNICAST, Some(group)) => {
                Forwarding::NextHops(self.nexthops.gateways(group))
            }
            _ => Forwarding::Dropped,
        }
    }

    /// Handles one message of a socket. Returns its answers, and notifications.
    pub(super) fn handle(&mut self, message: &Message<'_>, port: u32) -> (Vec<Vec<u8>>, Notices) {
        if message.flags & NLM_F_DUMP == NLM_F_DUMP && is_request(message.kind) {
            return (self.dump(message, port), Vec::new());
        }
        let mut answers = Vec::new();
        let mut notices = Vec::new();
        let result = match message.kind {
            GETROUTE => self.look_up(message, port).map(|route| answers.push(route)),
            _ => self.change_by(message, port).map(|new| notices = new),
        };
        answers.push(message::acknowledgement(message, port, result.err()));
        (answers, notices)
    }

    fn change_by(&mut self, message: &Message<'_>, port: u32) -> Result<Notices> {
        if let Some(errno) = self.refusals.pop() {
            return refuse(errno);
        }
        match message.kind {
            NEWROUTE => self.add_route(message, port),
            DELROUTE => self.delete_route(message, port),
            NEWRULE => self.add_rule(message, port),
            DELRULE => self.delete_rule(message, port),
            NEWNEXTHOP => {
                let object = Object::read(message, NEXTHOP_HEADER)?;
                self.nexthops
                    .add(object.clone(), message.flags, &self.links)?;
                Ok(vec![object.message(NEWNEXTHOP, 0, 0, port)])
            }
            DELNEXTHOP => {
                let id = Object::read(message, NEXTHOP_HEADER)?.number(nexthops::NHA_ID);
                if !self.nexthops.contains(id) {
                    return refuse(Errno::ENOENT);
                }
                let (_, dead) = self.nexthops.remove(id);
                self.routes.retain(|_, route| !route.uses(0, &dead));
                Ok(Vec::new())
            }
            _ => refuse(Errno::EOPNOTSUPP),
        }
    }

    fn add_route(&mut self, message: &Message<'_>, port: u32) -> Result<Notices> {
        let object = Object::read(message, ROUTE_HEADER)?;
        let route = Route::new(object, &self.links, &self.addresses, &self.nexthops)?;
        let key = route.key()?;
        let is_there = self.routes.contains_key(&key);
        match (is_there, message.flags & NLM_F_REPLACE != 0) {
            (true, false) if message.flags & NLM_F_EXCL != 0 => return refuse(Errno::EEXIST),
            (false, true) if message.flags & NLM_F_CREATE == 0 => return refuse(Errno::ENOENT),
            _ => {}
        }
        let notice = route.object.message(NEWROUTE, 0, 0, port);
        self.routes.insert(key, route);
        Ok(vec![notice])
    }

    fn delete_route(&mut self, message: &Message<'_>, port: u32) -> Result<Notices> {
        let wanted = Object::read(message, ROUTE_HEADER)?;
        let found = self
            .routes
            .iter()
            .find(|(key, route)| route.is_meant_by(key, &wanted));
        let Some(key) = found.map(|(key, _)| *key) else {
            return refuse(Errno::ESRCH);
        };
        let notice = self
            .routes
            .remove(&key)
            .map(|route| route.object.message(DELROUTE, 0, 0, port));
        Ok(notice.into_iter().collect())
    }

    fn add_rule(&mut self, message: &Message<'_>, port: u32) -> Result<Notices> {
        let rule = Object::read(message, RULE_HEADER)?;
        if self.rules.contains(&rule) {
            return refuse(Errno::EEXIST);
        }
        let notice = rule.message(NEWRULE, 0, 0, port);
        self.rules.push(rule);
        Ok(vec![notice])
    }

    fn delete_rule(&mut self, message: &Message<'_>, port: u32) -> Result<Notices> {
        let rule = Object::read(message, RULE_HEADER)?;
        let Some(at) = self.rules.iter().position(|known| *known == rule) else {
            return refuse(Errno::ENOENT);
        };
        Ok(vec![self.rules.remove(at).message(DELRULE, 0, 0, port)])
    }

    /// The route that the kernel uses for a backend: pods of this node are on their own interface while it is up, everything
    /// else is behind the router.
    fn look_up(&self, message: &Message<'_>, port: u32) -> Result<Vec<u8>> {
        let request = Object::read(message, ROUTE_HEADER)?;
        let Some(destination) = request.address(routes::RTA_DST) else {
            return refuse(Errno::EINVAL);
        };
        let is_here = routes::is_local_pod(destination) && self.links.get(&PODS) == Some(&true);
        let interface = if is_here { PODS } else { EXTERNAL };
        let mut route = request.clone();
        route.header[routes::KIND] = routes::RTN_UNICAST;
        route.header[routes::PROTOCOL] = 0;
        route.set_number(routes::RTA_TABLE, routes::MAIN_TABLE);
        route.set_number(routes::RTA_OIF, interface);
        if !is_here {
            route.set_address(routes::RTA_GATEWAY, routes::router(destination));
        }
        Ok(route.message(NEWROUTE, 0, message.sequence, port))
    }

    fn dump(&mut self, message: &Message<'_>, port: u32) -> Vec<Vec<u8>> {
        let mut flags = NLM_F_MULTI;
        if std::mem::take(&mut self.is_dump_interrupted) {
            flags |= NLM_F_DUMP_INTR;
        }
        let family = message.family();
        let has_family = |of: u8| family == 0 || family == of;
        let sequence = message.sequence;
        let mut pieces: Vec<Vec<u8>> = match message.kind {
            GETADDR => {
                let addresses = self
                    .addresses
                    .iter()
                    .filter(|(address, _)| has_family(family_of(**address)));
                let write = |(address, link): (&IpAddr, &u32)| {
                    address_message(NEWADDR, *address, *link, flags, sequence, port)
                };
                addresses.map(write).collect()
            }
            GETROUTE => {
                let protocol = message
                    .bytes
                    .get(message::HEADER + routes::PROTOCOL)
                    .copied()
                    .unwrap_or(0);
                let routes = self
                    .routes
                    .values()
                    .map(|route| &route.object)
                    .filter(|object| {
                        has_family(object.header[0])
                            && [0, object.header[routes::PROTOCOL]].contains(&protocol)
                    });
                routes
                    .map(|object| object.message(NEWROUTE, flags, sequence, port))
                    .collect()
            }
            GETRULE => {
                let rules = self.rules.iter().filter(|rule| has_family(rule.header[0]));
                rules
                    .map(|rule| rule.message(NEWRULE, flags, sequence, port))
                    .collect()
            }
            _ => self
                .nexthops
                .all()
                .map(|object| object.message(NEWNEXTHOP, flags, sequence, port))
                .collect(),
        };
        pieces.push(message::done(flags, sequence, port));
        pieces
    }
}

const fn is_request(kind: u16) -> bool {
    matches!(kind, GETADDR | GETROUTE | GETRULE | GETNEXTHOP)
}

fn link_message(index: u32, is_up: bool) -> Vec<u8> {
    let flags = if is_up { IFF_UP } else { 0 };
    // `struct ifinfomsg`: family, padding, type, index, flags, changed flags.
    let payload = [
        [0; 4],
        index.to_ne_bytes(),
        flags.to_ne_bytes(),
        IFF_UP.to_ne_bytes(),
    ]
    .concat();
    message::raw(NEWLINK, 0, 0, 0, &payload)
}

fn address_message(
    kind: u16,
    address: IpAddr,
    interface: u32,
    flags: u16,
    sequence: u32,
    port: u32,
) -> Vec<u8> {
    let is_ipv4 = family_of(address) == NFPROTO_IPV4;
    let mut header = vec![0; ADDRESS_HEADER];
    header[0] = family_of(address);
    header[1] = if is_ipv4 { 24 } else { 64 };
    header[4..].copy_from_slice(&interface.to_ne_bytes());
    let mut object = Object {
        header,
        attributes: BTreeMap::new(),
    };
    // The kernel sends this for IPv4 always; for IPv6 it is enough for a reader.
    object.set_address(if is_ipv4 { IFA_LOCAL } else { 1 }, address);
    object.message(kind, flags, sequence, port)
}
