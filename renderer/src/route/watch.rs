//! Watches foreign changes of our routes and of the links they depend on.
//!
//! The kernel removes IPv4 routes together with their link or source address without a notification of the routes; so links and
//! addresses are watched too.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    task::Poll,
    time::Duration,
};

use ipnetwork::IpNetwork;
use rtnetlink::{
    packet_core::NetlinkPayload,
    packet_route::{AddressFamily, RouteNetlinkMessage, link::LinkFlags, route::RouteMessage},
};
use tokio::sync::watch::{Receiver, Sender, channel};

use super::{
    kernel_route::{self, NextHop},
    kernel_rule,
    links::Links,
    message::Message,
    nexthop::Action,
    options::RouteOptions,
    socket::{RouteSocket, messages},
};
use crate::{
    ForeignChange, RenderError, Watch,
    kernel::{Kernel, ListenerEvent, NetlinkProtocol, Notifications},
    local_addresses::own_address,
    netlink::NetlinkError,
};

/// The groups of notifications. Source: the kernel's `include/uapi/linux/rtnetlink.h`.
mod group {
    pub(super) const LINK: u32 = 1;
    pub(super) const IPV4_IFADDR: u32 = 5;
    pub(super) const IPV4_ROUTE: u32 = 7;
    pub(super) const IPV4_RULE: u32 = 8;
    pub(super) const IPV6_IFADDR: u32 = 9;
    pub(super) const IPV6_ROUTE: u32 = 11;
    pub(super) const IPV6_RULE: u32 = 19;
    pub(super) const NEXTHOP: u32 = 32;
    pub(super) const ALL: [u32; 8] = [
        LINK,
        IPV4_IFADDR,
        IPV4_ROUTE,
        IPV4_RULE,
        IPV6_IFADDR,
        IPV6_ROUTE,
        IPV6_RULE,
        NEXTHOP,
    ];
}

/// The objects that the renderer depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchedObjects {
    tables: Vec<u32>,
    /// Interfaces that our routes use.
    interfaces: BTreeSet<u32>,
    /// Source addresses of this node's own connections.
    sources: BTreeSet<IpAddr>,
    /// Backends: a change of routes to them changes our next hops.
    backends: BTreeSet<IpAddr>,
}

impl WatchedObjects {
    pub(super) fn new(options: &RouteOptions, links: Links) -> Self {
        let link = |next_hop| match next_hop {
            NextHop::Link { interface, source } => Some((interface, source)),
            _ => None,
        };
        let links = || [links.v4, links.v6].into_iter().flatten().filter_map(link);
        Self {
            tables: vec![
                options.advertise_table,
                options.node_table,
                options.direct.table,
            ],
            interfaces: links().map(|(interface, _)| interface).collect(),
            sources: links().map(|(_, source)| source).collect(),
            backends: BTreeSet::new(),
        }
    }

    /// True if a route to one of the backends may have changed.
    fn is_for_a_backend(&self, route: &RouteMessage) -> bool {
        let length = route.header.destination_prefix_length;
        let any: IpAddr = match route.header.address_family {
            AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
            _ => Ipv6Addr::UNSPECIFIED.into(),
        };
        let Ok(range) = IpNetwork::new(kernel_route::destination(route).unwrap_or(any), length)
        else {
            return false;
        };
        self.backends
            .range(range.network()..=range.broadcast())
            .next()
            .is_some()
    }
}

/// Tells the watch what the renderer depends on, always before it does.
#[derive(Debug)]
pub(super) struct Announcer {
    links: Links,
    watched: WatchedObjects,
    watch: Option<Sender<WatchedObjects>>,
}

impl Announcer {
    pub(super) fn new(
        options: &RouteOptions,
        links: Links,
        watch: Option<Sender<WatchedObjects>>,
    ) -> Self {
        Self {
            links,
            watched: WatchedObjects::new(options, links),
            watch,
        }
    }

    pub(super) const fn links(&self) -> Links {
        self.links
    }

    pub(super) fn announce(&self) {
        if let Some(watch) = &self.watch {
            // A watch that has ended is replaced by a new one.
            let _ = watch.send(self.watched.clone());
        }
    }

    pub(super) fn depend_on_routes_to(&mut self, backends: &BTreeSet<IpAddr>) {
        self.watched.backends.extend(backends);
        self.announce();
    }

    pub(super) fn depend_on_links(&mut self, interfaces: impl Iterator<Item = u32>) {
        self.watched.interfaces.extend(interfaces);
        self.announce();
    }
}

const LISTEN: &str = "listen to notifications of the kernel";

/// Watches foreign changes.
pub(super) struct RouteWatch {
    listener: Box<dyn Notifications>,
    renderer: Receiver<WatchedObjects>,
    /// Whether each interface was last seen up.
    is_up: BTreeMap<u32, bool>,
    pending: VecDeque<ForeignChange>,
}

impl RouteWatch {
    /// Starts to watch for changes by processes other than the owner of `socket`.
    pub(super) fn start(
        kernel: &dyn Kernel,
        socket: &mut RouteSocket,
        options: &RouteOptions,
    ) -> Result<(Self, Sender<WatchedObjects>), NetlinkError> {
        let failed = |source| NetlinkError::Socket {
            action: LISTEN,
            source,
        };
        let (listener, membership) = kernel
            .listen(NetlinkProtocol::Route, &group::ALL, socket.port())
            .map_err(failed)?;
        socket.membership = Some(membership);
        let (sender, renderer) = channel(WatchedObjects::new(options, Links::default()));
        let watch = Self {
            listener,
            renderer,
            is_up: BTreeMap::new(),
            pending: VecDeque::new(),
        };
        Ok((watch, sender))
    }

    fn handle(&mut self, received: &[u8]) {
        // After the renderer is gone, the last value still counts.
        let watched = self.renderer.borrow_and_update().clone();
        for message in messages(received) {
            if let NetlinkPayload::InnerMessage(message) = message.payload
                && let Some(what) = describe_relevant(&message, &watched, &mut self.is_up)
            {
                self.pending.push_back(ForeignChange { what, by: None });
            }
        }
    }
}

impl RouteWatch {
    /// The next foreign change, if one comes within `timeout`.
    fn receive(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Poll<Option<ForeignChange>>, RenderError> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(Poll::Ready(Some(change)));
            }
            match self.listener.next_event(timeout) {
                Ok(ListenerEvent::Notifications(received)) => self.handle(&received),
                Ok(ListenerEvent::Overflow) => {
                    let what =
                        "may have changed something while notifications were lost".to_owned();
                    self.pending.push_back(ForeignChange { what, by: None });
                }
                // The renderer never leaves the groups.
                Ok(ListenerEvent::Missed) => {}
                Ok(ListenerEvent::Silence) => return Ok(Poll::Pending),
                Ok(ListenerEvent::End) => return Ok(Poll::Ready(None)),
                Err(source) => {
                    let error = NetlinkError::Socket {
                        action: LISTEN,
                        source,
                    };
                    return Err(error.with_advice("listen to changes of routes"));
                }
            }
        }
    }
}

impl Watch for RouteWatch {
    fn next(&mut self) -> Result<Option<ForeignChange>, RenderError> {
        loop {
            if let Poll::Ready(change) = self.receive(None)? {
                return Ok(change);
            }
        }
    }

    fn try_next(&mut self) -> Result<Poll<Option<ForeignChange>>, RenderError> {
        self.receive(Some(Duration::ZERO))
    }
}

/// Describes a notification for people; none if it does not matter. Pure except for the remembered state of links.
fn describe_relevant(
    message: &Message,
    watched: &WatchedObjects,
    is_up: &mut BTreeMap<u32, bool>,
) -> Option<String> {
    let is_ours = |table: u32| watched.tables.contains(&table);
    let depends_on = |index: u32| watched.interfaces.contains(&index);
    let message = match message {
        Message::Route(message) => &**message,
        Message::Nexthop(nexthop) => {
            let verb = if nexthop.action == Action::New {
                "changed"
            } else {
                "deleted"
            };
            return nexthop
                .is_ours
                .then(|| format!("{verb} the next hop {}", nexthop.id));
        }
    };
    match message {
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => {
            let table = kernel_route::table(route);
            let verb = if matches!(message, RouteNetlinkMessage::NewRoute(_)) {
                "added"
            } else {
                "deleted"
            };
            let to =
                kernel_route::destination(route).map_or("default".to_owned(), |ip| ip.to_string());
            (is_ours(table) || kernel_route::is_ours(route) || watched.is_for_a_backend(route))
                .then(|| format!("{verb} the route to {to} in table {table}"))
        }
        RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule) => {
            let table = kernel_rule::table(rule);
            (is_ours(table) || kernel_rule::is_ours(rule))
                .then(|| format!("changed a routing rule for table {table}"))
        }
        RouteNetlinkMessage::NewAddress(message) | RouteNetlinkMessage::DelAddress(message) => {
            let address = own_address(message)?;
            watched
                .sources
                .contains(&address)
                .then(|| format!("changed the address {address} of this node"))
        }
        // The state of every link is remembered: our routes may use it later, and then it matters whether it changes.
        RouteNetlinkMessage::NewLink(link) => {
            let (index, up) = (link.header.index, link.header.flags.contains(LinkFlags::Up));
            let before = is_up.insert(index, up);
            let state = if up { "up" } else { "down" };
            (depends_on(index) && before != Some(up))
                .then(|| format!("set the interface {index} {state}"))
        }
        RouteNetlinkMessage::DelLink(link) => {
            let index = link.header.index;
            is_up.remove(&index);
            depends_on(index).then(|| format!("removed the interface {index}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::{
        address::{AddressAttribute, AddressMessage},
        link::LinkMessage,
        route::RouteProtocol,
        rule::{RuleAttribute, RuleMessage},
    };

    use super::*;
    use crate::route::{kernel_route::KernelRoute, nexthop::NexthopMessage};

    fn watched() -> WatchedObjects {
        let source = "192.0.2.1".parse().unwrap();
        let links = Links {
            v4: Some(NextHop::Link {
                interface: 7,
                source,
            }),
            v6: None,
        };
        WatchedObjects::new(&RouteOptions::default(), links)
    }

    fn route(table: u32, protocol: RouteProtocol, address: &str) -> RouteMessage {
        let address = address.parse().unwrap();
        let mut message = KernelRoute {
            table,
            address,
            next_hop: NextHop::Blackhole,
        }
        .message();
        message.header.protocol = protocol;
        message
    }

    fn rule(table: u32, is_ours: bool) -> RuleMessage {
        let mut rule = kernel_rule::rule(true, table);
        rule.attributes
            .retain(|attribute| is_ours || !matches!(attribute, RuleAttribute::Protocol(_)));
        rule
    }

    fn address(text: &str) -> AddressMessage {
        let mut message = AddressMessage::default();
        message
            .attributes
            .push(AddressAttribute::Local(text.parse().unwrap()));
        message
    }

    fn link(index: u32, flags: LinkFlags) -> LinkMessage {
        let mut message = LinkMessage::default();
        (message.header.index, message.header.flags) = (index, flags);
        message
    }

    /// Each kind: about something that the renderer depends on, and about something else.
    #[test]
    fn notification_is_described_if_the_renderer_depends_on_it() {
        use RouteNetlinkMessage::{
            DelAddress, DelLink, DelRoute, DelRule, NewAddress, NewLink, NewRoute, NewRule,
        };
        const OURS: RouteProtocol = RouteProtocol::Other(kernel_route::PROTOCOL);
        const STATIC: RouteProtocol = RouteProtocol::Static;
        let watched = WatchedObjects {
            backends: ["10.1.2.3".parse().unwrap()].into(),
            ..watched()
        };
        let nexthop = |action, is_ours| {
            Message::from(NexthopMessage {
                action,
                is_ours,
                id: 5,
                nexthop: None,
            })
        };
        let cases: [(Message, Option<&str>); 19] = [
            (
                NewRoute(route(67, STATIC, "10.1.2.4")).into(),
                Some("added the route to 10.1.2.4 in table 67"),
            ),
            (
                DelRoute(route(67, STATIC, "10.1.2.4")).into(),
                Some("deleted the route to 10.1.2.4 in table 67"),
            ),
            // With our protocol number it is ours in any table.
            (
                DelRoute(route(254, OURS, "10.1.2.4")).into(),
                Some("deleted the route to 10.1.2.4 in table 254"),
            ),
            // To a backend.
            (
                NewRoute(route(254, STATIC, "10.1.2.3")).into(),
                Some("added the route to 10.1.2.3 in table 254"),
            ),
            (NewRoute(route(254, STATIC, "10.1.2.4")).into(), None),
            (
                NewRule(rule(68, false)).into(),
                Some("changed a routing rule for table 68"),
            ),
            (
                DelRule(rule(254, true)).into(),
                Some("changed a routing rule for table 254"),
            ),
            (DelRule(rule(254, false)).into(), None),
            (
                NewAddress(address("192.0.2.1")).into(),
                Some("changed the address 192.0.2.1 of this node"),
            ),
            (
                DelAddress(address("192.0.2.1")).into(),
                Some("changed the address 192.0.2.1 of this node"),
            ),
            (DelAddress(address("192.0.2.2")).into(), None),
            (
                NewLink(link(7, LinkFlags::Up)).into(),
                Some("set the interface 7 up"),
            ),
            (NewLink(link(8, LinkFlags::Up)).into(), None),
            (
                DelLink(link(7, LinkFlags::Up)).into(),
                Some("removed the interface 7"),
            ),
            (DelLink(link(8, LinkFlags::Up)).into(), None),
            (nexthop(Action::New, true), Some("changed the next hop 5")),
            (
                nexthop(Action::Delete, true),
                Some("deleted the next hop 5"),
            ),
            (nexthop(Action::New, false), None),
            (nexthop(Action::Delete, false), None),
        ];
        for (message, expected) in cases {
            let described = describe_relevant(&message, &watched, &mut BTreeMap::new());
            assert_eq!(described.as_deref(), expected, "{message:?}");
        }
    }

    /// Its last state is forgotten with it.
    #[test]
    fn link_that_returns_is_described_although_it_is_up_as_before() {
        let (watched, mut is_up) = (watched(), BTreeMap::new());
        let mut described = |message: RouteNetlinkMessage| {
            describe_relevant(&message.into(), &watched, &mut is_up).is_some()
        };
        let link = || link(7, LinkFlags::Up);
        assert!(described(RouteNetlinkMessage::NewLink(link())));
        assert!(described(RouteNetlinkMessage::DelLink(link())));
        assert!(described(RouteNetlinkMessage::NewLink(link())));
    }

    #[test]
    fn link_matters_only_when_used_and_going_up_or_down() {
        let (watched, mut is_up) = (watched(), BTreeMap::new());
        let mut pending = |index, flags| {
            let message = RouteNetlinkMessage::NewLink(link(index, flags)).into();
            describe_relevant(&message, &watched, &mut is_up).is_some()
        };
        assert!(!pending(8, LinkFlags::empty()));
        assert!(pending(7, LinkFlags::empty()));
        assert!(pending(7, LinkFlags::Up));
        assert!(
            !pending(7, LinkFlags::Up | LinkFlags::Promisc),
            "nothing that routes depend on"
        );
    }

    #[test]
    fn link_that_came_up_unused_is_reported_when_it_goes_down() {
        let link = |flags| {
            let mut message = LinkMessage::default();
            message.header.index = 7;
            message.header.flags = flags;
            Message::from(RouteNetlinkMessage::NewLink(message))
        };
        let (used, mut is_up) = (watched(), BTreeMap::new());
        let unused = WatchedObjects {
            interfaces: BTreeSet::new(),
            ..used.clone()
        };
        let (up, down) = (link(LinkFlags::Up), link(LinkFlags::empty()));
        assert!(describe_relevant(&down, &used, &mut is_up).is_some());
        assert!(describe_relevant(&up, &unused, &mut is_up).is_none());
        assert!(describe_relevant(&down, &used, &mut is_up).is_some());
    }
}
