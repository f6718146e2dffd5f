//! The routing of this node, answered by its kernel. Sources: the kernel's `include/uapi/linux/rtnetlink.h`, `inet_rtm_getroute()` and
//! `inet6_rtm_getroute()`, and for the check of sources `__fib_validate_source()`.

use std::{collections::BTreeMap, net::IpAddr};

use contiv_model::{InterfaceName, Protocol};
use ipnetwork::IpNetwork;
use nix::libc::{EACCES, EHOSTUNREACH, EINVAL, ENETUNREACH, EXDEV};
use serde::Serialize;

use super::{
    AddressKind, Network, PathError, Route, RouteQuery,
    kernel_socket::{KernelSocket, address_of, family_of, native_number, number_at, octets},
    links::{self, Link, LinkedInterface, Links},
    neighbours::{self, InterfaceAddress, OwnAddress},
    settings::{KernelSettings, ReversePathFilter},
};
use crate::{
    kernel::NetlinkProtocol,
    linux::Linux,
    netlink::{Attributes, Writer},
};

const RTM_GETROUTE: u16 = 26;
/// The length of `struct rtmsg`, and the offset of its type.
const ROUTE_HEADER: usize = 12;
const ROUTE_TYPE: usize = 7;
const ROUTE_FLAGS: usize = 8;
/// `RTM_F_FIB_MATCH`: the whole route is asked for, and not the choice among its next hops.
const FIB_MATCH: u32 = 0x2000;

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_MARK: u16 = 16;
const RTA_VIA: u16 = 18;
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;
/// `RTAX_MTU`, below `RTA_METRICS`
const RTAX_MTU: u16 = 2;
/// `struct rtvia` begins with the family of its address.
const VIA_FAMILY: usize = 2;

/// The length of `struct rtnexthop`, and the offsets of its flags, its weight less one, and its interface.
const NEXT_HOP_HEADER: usize = 8;
const NEXT_HOP_FLAGS: usize = 2;
const NEXT_HOP_INTERFACE: usize = 4;
/// `RTNH_F_DEAD`: the kernel does not choose it. `RTNH_F_LINKDOWN`: its link is down.
const NEXT_HOP_DEAD: u8 = 1;
const NEXT_HOP_LINK_DOWN: u8 = 16;

const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const RTN_ANYCAST: u8 = 4;
const RTN_MULTICAST: u8 = 5;

/// Asks the kernel of the network namespace in which it was opened. Its settings are those of the calling thread's, which must be the
/// same.
#[derive(Debug)]
pub struct KernelNetwork {
    socket: KernelSocket,
    links: Links,
    settings: KernelSettings,
    kinds: BTreeMap<IpAddr, AddressKind>,
}

/// Where packets of a client come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientOrigin {
    /// This node itself.
    ThisNode,
    /// Probably this interface: by it this node reaches the client.
    Interface(InterfaceName),
    /// Perhaps this interface: the client's address is in its network, but the route to the client leads elsewhere.
    Network(InterfaceName),
    /// Nobody knows: this node has no route to the client.
    Unknown(Route),
}

/// An interface in use through which nothing passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DownLink {
    /// Its name.
    pub name: InterfaceName,
    /// The networks of its addresses.
    pub networks: Vec<IpNetwork>,
    /// It leads to a pod: it is of the kind veth, and has no network.
    pub is_of_pod: bool,
    /// It is the only one with a network that leads out of this node.
    pub is_only_one: bool,
}

/// One of several next hops of a route, among which the kernel chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextHop {
    /// The interface.
    pub interface: InterfaceName,
    /// The neighbour; none if the destination is one.
    pub gateway: Option<IpAddr>,
    /// The link is down, and the kernel chooses it all the same.
    pub is_link_down: bool,
}

/// The answer to a lookup.
type Answer = Result<Vec<u8>, i32>;

impl KernelNetwork {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn open() -> Result<Self, PathError> {
        let mut socket = KernelSocket::open(NetlinkProtocol::Route)?;
        let links = Links::list(&mut socket)?;
        Ok(Self {
            socket,
            links,
            settings: KernelSettings::of(Linux::shared()),
            kinds: BTreeMap::new(),
        })
    }

    /// The interface with this name, as it was when this was opened.
    pub fn link(&self, name: &InterfaceName) -> Option<&Link> {
        self.links.by_name(name)
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.iter()
    }

    /// Settings of the kernel.
    pub const fn settings(&self) -> &KernelSettings {
        &self.settings
    }

    /// Where packets of a client come from: the interface on whose link it is known or whose network it is in, else that of the route
    /// back to it.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn client_origin(&mut self, client: IpAddr) -> Result<ClientOrigin, PathError> {
        let route = self.route(&to(client))?;
        if route == Route::Local {
            return Ok(ClientOrigin::ThisNode);
        }
        let on_link = self.interfaces_of_neighbour(client)?;
        let in_network = self.interfaces_into_network_of(client)?;
        let of_route = match &route {
            Route::Unicast { interface, .. } => Some(interface),
            _ => None,
        };
        let is_of_route = |seen: &[InterfaceName]| of_route.is_some_and(|it| seen.contains(it));
        let is_undecided = on_link.is_empty() && in_network.is_empty();
        Ok(match route {
            Route::Unicast { interface, .. }
                if is_undecided || is_of_route(&on_link) || is_of_route(&in_network) =>
            {
                ClientOrigin::Interface(interface)
            }
            route => match (on_link.into_iter().next(), in_network.into_iter().next()) {
                (Some(interface), _) => ClientOrigin::Interface(interface),
                (None, Some(interface)) => ClientOrigin::Network(interface),
                (None, None) => ClientOrigin::Unknown(route),
            },
        })
    }

    /// The interface by which packets of a link come in: the bridge, for a port of one.
    pub fn input_of(&self, name: InterfaceName) -> InterfaceName {
        let master = self
            .links
            .by_name(&name)
            .and_then(|link| link.master.clone());
        master
            .filter(|master| self.is_bridge(master))
            .unwrap_or(name)
    }

    fn is_bridge(&self, name: &InterfaceName) -> bool {
        let link = self.links.by_name(name);
        link.is_some_and(|link| link.kind.as_deref() == Some("bridge"))
    }

    /// The interfaces on whose links another machine has answered for an address. Packets of a port of a bridge come in by the bridge.
    fn interfaces_of_neighbour(
        &mut self,
        address: IpAddr,
    ) -> Result<Vec<InterfaceName>, PathError> {
        let mut seen = neighbours::interfaces_of(&mut self.socket, address)?;
        // In the order of the list of interfaces.
        seen.sort_unstable();
        let links = seen.iter().filter_map(|index| self.links.by_index(*index));
        let is_port = |link: &&Link| {
            let master = link.master.as_ref();
            master.is_some_and(|master| self.is_bridge(master))
        };
        let inputs = links
            .filter(|link| link.is_up && !link.is_loopback)
            .filter(|link| !is_port(link));
        Ok(inputs.map(|link| link.name.clone()).collect())
    }

    /// The interfaces that have an address of the network that an address is in.
    fn interfaces_into_network_of(
        &mut self,
        address: IpAddr,
    ) -> Result<Vec<InterfaceName>, PathError> {
        let own = neighbours::addresses(&mut self.socket, family_of(address))?;
        let into_it = own.iter().filter(|own| own.reaches(address));
        let links = into_it.filter_map(|own| self.links.by_index(own.interface));
        let up = links.filter(|link| link.is_up);
        Ok(up.map(|link| link.name.clone()).collect())
    }

    /// The interfaces through which nothing passes, although something uses them: those with addresses, and those of pods.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn interfaces_down(&mut self) -> Result<Vec<DownLink>, PathError> {
        let own = neighbours::addresses(&mut self.socket, 0)?;
        let own = &own;
        let addresses = |link: &Link| {
            let index = link.index;
            own.iter().filter(move |own| own.interface == index)
        };
        let is_used = |link: &Link| match link.kind.as_deref() {
            Some("veth") => true,
            // Without ports it has no carrier.
            Some("bridge" | "dummy") => false,
            _ => addresses(link).next().is_some(),
        };
        let down = self
            .links
            .iter()
            .filter(|link| !link.is_loopback && is_used(link))
            .filter(|link| !link.is_up || !link.has_carrier);
        let networks = |link: &Link| addresses(link).filter_map(OwnAddress::network).collect();
        let leads_out = |link: &&Link| {
            let is_inner = matches!(link.kind.as_deref(), Some("bridge" | "dummy"));
            let networks: Vec<IpNetwork> = networks(link);
            !link.is_loopback && !is_inner && !networks.is_empty()
        };
        let ways_out = self.links.iter().filter(leads_out).count();
        Ok(down
            .map(|link| DownLink {
                name: link.name.clone(),
                networks: networks(link),
                is_of_pod: link.kind.as_deref() == Some("veth")
                    && addresses(link).all(|own| own.network().is_none()),
                is_only_one: ways_out == 1 && leads_out(&link),
            })
            .collect())
    }

    /// Whether an interface is in a VRF, which has routes of its own.
    pub fn is_in_vrf(&self, link: &Link) -> bool {
        let master = link
            .master
            .as_ref()
            .and_then(|name| self.links.by_name(name));
        master.is_some_and(|master| master.kind.as_deref() == Some("vrf"))
    }

    pub(super) const fn socket(&mut self) -> &mut KernelSocket {
        &mut self.socket
    }

    pub(super) fn interfaces_with(
        &mut self,
        address: IpAddr,
    ) -> Result<Vec<InterfaceAddress>, PathError> {
        neighbours::interfaces_with(&mut self.socket, &self.links, address)
    }

    /// The next hops of the route of a packet that the kernel may choose; empty if there is only one.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn next_hops(&mut self, query: &RouteQuery) -> Result<Vec<NextHop>, PathError> {
        let Ok(message) = self.ask_for(query, FIB_MATCH)? else {
            return Ok(Vec::new());
        };
        let attributes = Attributes(message.get(ROUTE_HEADER..).unwrap_or_default());
        let all = attributes.get(RTA_MULTIPATH).unwrap_or_default();
        let all: Vec<(u8, u32, Option<IpAddr>)> = next_hops(all).collect();
        let hop = |(flags, index, gateway): (u8, u32, Option<IpAddr>)| {
            let link = self.links.by_index(index)?;
            let is_link_down = flags & NEXT_HOP_LINK_DOWN != 0;
            let is_left_out = is_link_down
                && self
                    .settings
                    .ignores_linkdown(&link.name, query.destination.is_ipv4());
            (flags & NEXT_HOP_DEAD == 0 && !is_left_out).then(|| NextHop {
                interface: link.name.clone(),
                gateway,
                is_link_down,
            })
        };
        Ok(all.into_iter().filter_map(hop).collect())
    }

    /// The MTU of the other end of an interface's link, if it is a veth.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    pub fn peer_mtu(&mut self, link: &Link) -> Result<Option<u32>, PathError> {
        match link.linked.filter(|_| link.kind.as_deref() == Some("veth")) {
            None => Ok(None),
            Some(LinkedInterface {
                index,
                namespace: None,
            }) => Ok(self.links.by_index(index).map(|peer| peer.mtu)),
            Some(LinkedInterface {
                index,
                namespace: Some(namespace),
            }) => links::mtu_elsewhere(&mut self.socket, index, namespace),
        }
    }

    fn ask(&mut self, query: &RouteQuery) -> Result<Answer, PathError> {
        self.ask_for(query, 0)
    }

    fn ask_for(&mut self, query: &RouteQuery, flags: u32) -> Result<Answer, PathError> {
        let input = match &query.input {
            None => None,
            Some(name) => {
                let link = self.links.by_name(name);
                Some(link.ok_or_else(|| PathError(format!("this node has no interface {name}")))?)
            }
        };
        let input = input.map(|link| link.index);
        let length = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        let source_length = query.source.map_or(0, length);
        let mut header = [0; ROUTE_HEADER];
        header[..3].copy_from_slice(&[
            family_of(query.destination),
            length(query.destination),
            source_length,
        ]);
        header[ROUTE_FLAGS..].copy_from_slice(&flags.to_ne_bytes());
        let fill = |request: &mut Writer<'_>| {
            request.bytes(RTA_DST, &octets(query.destination));
            if let Some(source) = query.source {
                request.bytes(RTA_SRC, &octets(source));
            }
            if let Some(index) = input {
                request.bytes(RTA_IIF, &index.to_ne_bytes());
            }
            if query.mark != 0 {
                request.bytes(RTA_MARK, &query.mark.to_ne_bytes());
            }
            // The kernel looks routes up for TCP and UDP, and refuses other protocols.
            if let Some((protocol, source, destination)) = query.ports
                && protocol != Protocol::Sctp
            {
                request.u8(RTA_IP_PROTO, protocol.number());
                request.bytes(RTA_SPORT, &source.to_be_bytes());
                request.bytes(RTA_DPORT, &destination.to_be_bytes());
            }
        };
        self.socket.look_up(RTM_GETROUTE, &header, fill)
    }

    /// Whether the kernel answers `EINVAL` because of the source; else the destination has a route of type blackhole.
    fn is_source_invalid(&mut self, query: &RouteQuery) -> Result<bool, PathError> {
        let Some(source) = query.source else {
            return Ok(false);
        };
        if source.is_ipv6() {
            return Ok(false);
        }
        let kind = self.address_kind(source)?;
        let Some(input) = &query.input else {
            return Ok(kind != AddressKind::Local);
        };
        if source.is_unspecified() {
            return Ok(true);
        }
        if source.is_loopback() {
            return Ok(self.settings.routes_loopback(input) != Some(true));
        }
        match kind {
            AddressKind::Local => {
                return Ok(self.settings.accepts_own_addresses(input) != Some(true));
            }
            AddressKind::Broadcast | AddressKind::Multicast => return Ok(true),
            _ => {}
        }
        let back = RouteQuery {
            mark: query.mark,
            ..to(source)
        };
        Ok(match self.settings.reverse_path_filter(input) {
            None | Some(ReversePathFilter::Off) => false,
            Some(ReversePathFilter::Loose) => !matches!(self.route(&back)?, Route::Unicast { .. }),
            Some(ReversePathFilter::Strict) => {
                !matches!(self.route(&back)?, Route::Unicast { interface, .. } if interface == *input)
            }
        })
    }

    fn read(&mut self, query: &RouteQuery, message: &[u8]) -> Result<Route, PathError> {
        let unreadable = || PathError("the kernel's answer about a route is cut short".to_owned());
        let kind = message.get(ROUTE_TYPE).ok_or_else(unreadable)?;
        let attributes = Attributes(message.get(ROUTE_HEADER..).unwrap_or_default());
        let leaves = match *kind {
            RTN_UNICAST => true,
            RTN_LOCAL | RTN_ANYCAST => false,
            RTN_BROADCAST | RTN_MULTICAST => query.input.is_none(),
            other => return Ok(Route::Failed(format!("a route of type {other}"))),
        };
        if !leaves {
            return Ok(Route::Local);
        }
        let index = native_number(attributes.get(RTA_OIF)).ok_or_else(unreadable)?;
        if self.links.by_index(index).is_none() {
            // It is newer than the list.
            self.links = Links::list(&mut self.socket)?;
        }
        let link = self.links.by_index(index).ok_or_else(unreadable)?;
        let of_route = attributes
            .nested(RTA_METRICS)
            .and_then(|metrics| native_number(metrics.get(RTAX_MTU)));
        Ok(Route::Unicast {
            interface: link.name.clone(),
            gateway: gateway(attributes),
            source: attributes.get(RTA_PREFSRC).and_then(address_of),
            mtu: of_route.or(Some(link.mtu)).filter(|mtu| *mtu != 0),
        })
    }
}

impl Network for KernelNetwork {
    fn route(&mut self, query: &RouteQuery) -> Result<Route, PathError> {
        Ok(match self.ask(query)? {
            Ok(message) => self.read(query, &message)?,
            Err(ENETUNREACH | EHOSTUNREACH) => Route::Unreachable,
            Err(EACCES) => Route::Prohibited,
            Err(EXDEV) => Route::InvalidSource,
            Err(EINVAL) if self.is_source_invalid(query)? => Route::InvalidSource,
            Err(EINVAL) if is_loopback_from_outside(query) => Route::Failed(format!(
                "{} of 127.0.0.0/8 is not accepted from an interface without route_localnet",
                query.destination
            )),
            Err(EINVAL) => Route::Blackhole,
            Err(code) => Route::Failed(std::io::Error::from_raw_os_error(code).to_string()),
        })
    }

    fn address_kind(&mut self, address: IpAddr) -> Result<AddressKind, PathError> {
        if let Some(kind) = self.kinds.get(&address) {
            return Ok(*kind);
        }
        // The kernel has no routes to these without an interface.
        let kind = if address.is_multicast() {
            AddressKind::Multicast
        } else if is_broadcast_to_all(address) {
            AddressKind::Broadcast
        } else {
            match self.ask(&to(address))? {
                Ok(message) => match message.get(ROUTE_TYPE) {
                    Some(&(RTN_LOCAL | RTN_ANYCAST)) => AddressKind::Local,
                    Some(&RTN_BROADCAST) => AddressKind::Broadcast,
                    Some(&RTN_MULTICAST) => AddressKind::Multicast,
                    _ => AddressKind::Unicast,
                },
                Err(EINVAL) => AddressKind::Blackhole,
                Err(EACCES) => AddressKind::Prohibited,
                Err(_) => AddressKind::Unreachable,
            }
        };
        self.kinds.insert(address, kind);
        Ok(kind)
    }
}

/// The neighbour of a route, or of a next hop; none if the destination is one.
fn gateway(attributes: Attributes<'_>) -> Option<IpAddr> {
    let via = attributes
        .get(RTA_VIA)
        .and_then(|via| via.get(VIA_FAMILY..));
    attributes.get(RTA_GATEWAY).or(via).and_then(address_of)
}

/// Flags, interface and neighbour of each next hop.
fn next_hops(mut bytes: &[u8]) -> impl Iterator<Item = (u8, u32, Option<IpAddr>)> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let hop = bytes.get(..length)?;
        let attributes = Attributes(hop.get(NEXT_HOP_HEADER..)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let interface = number_at(hop, NEXT_HOP_INTERFACE)?;
        Some((hop[NEXT_HOP_FLAGS], interface, gateway(attributes)))
    })
}

fn is_loopback_from_outside(query: &RouteQuery) -> bool {
    query.input.is_some() && query.destination.is_ipv4() && query.destination.is_loopback()
}

/// A packet of this node to an address, of which no more is known.
const fn to(destination: IpAddr) -> RouteQuery {
    RouteQuery {
        source: None,
        destination,
        input: None,
        mark: 0,
        ports: None,
    }
}

/// 255.255.255.255, and the network 0.0.0.0/8, which the kernel takes for the same.
fn is_broadcast_to_all(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_broadcast() || address.octets()[0] == 0,
        IpAddr::V6(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_are_read_until_one_is_cut_short() {
        let mut bytes = Vec::new();
        for (flags, index, last) in [(0, 2_u32, 1), (NEXT_HOP_LINK_DOWN, 3, 2)] {
            let start = bytes.len();
            bytes.extend_from_slice(&[0, 0, flags, 0]);
            bytes.extend_from_slice(&index.to_ne_bytes());
            Writer::new(&mut bytes).bytes(RTA_GATEWAY, &[10, 0, 0, last]);
            let length = u16::try_from(bytes.len() - start).unwrap();
            bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        }
        let ip = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let both = [
            (0, 2, ip("10.0.0.1")),
            (NEXT_HOP_LINK_DOWN, 3, ip("10.0.0.2")),
        ];
        for end in 0..=bytes.len() {
            let complete = end / (bytes.len() / 2);
            let read: Vec<_> = next_hops(&bytes[..end]).collect();
            assert_eq!(read, both[..complete], "cut off after {end}");
        }
        assert_eq!(next_hops(&[0; NEXT_HOP_HEADER]).next(), None, "no length");
    }
}
