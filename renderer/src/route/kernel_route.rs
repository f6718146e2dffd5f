//! A route of the kernel, and its message. Source: the kernel's `include/uapi/linux/rtnetlink.h`.

use std::{fmt, net::IpAddr};

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
        RouteType,
    },
};

pub(super) use crate::route_protocol::PROTOCOL;

/// The metric of our routes. The kernel's default differs between the families.
pub(super) const METRIC: u32 = 1024;
/// The kernel answers only for addresses with a route in this table.
pub(super) const LOCAL_TABLE: u32 = 255;
/// The index of `lo`, in every network namespace.
const LOOPBACK: u32 = 1;

/// A route to one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KernelRoute {
    pub(super) table: u32,
    pub(super) address: IpAddr,
    pub(super) next_hop: NextHop,
}

/// The next hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextHop {
    /// Drops packets: the route is only there to be read.
    Blackhole,
    /// Drops packets, and the sender gets an error.
    Unreachable,
    /// This node itself.
    Local,
    /// A link, with the source address of connections.
    Link { interface: u32, source: IpAddr },
    /// The members of a group, with the source address of this node's own connections.
    Group { id: u32, source: Option<IpAddr> },
}

impl NextHop {
    /// True if connections reach a backend.
    pub(super) const fn reaches_backend(self) -> bool {
        match self {
            Self::Blackhole | Self::Unreachable => false,
            Self::Local | Self::Link { .. } | Self::Group { .. } => true,
        }
    }
}

/// A route with our protocol number in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundRoute {
    /// None if it has another form than ours: that of an older version, or made by others with our number.
    pub(super) route: Option<KernelRoute>,
    message: RouteMessage,
}

impl KernelRoute {
    /// The message that adds the route.
    pub(super) fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(self.address.is_ipv4()),
            destination_prefix_length: host_length(self.address),
            protocol: RouteProtocol::Other(PROTOCOL),
            kind: match self.next_hop {
                NextHop::Blackhole => RouteType::BlackHole,
                NextHop::Unreachable => RouteType::Unreachable,
                NextHop::Local => RouteType::Local,
                NextHop::Link { .. } | NextHop::Group { .. } => RouteType::Unicast,
            },
            scope: match self.next_hop {
                NextHop::Link { .. } if self.address.is_ipv4() => RouteScope::Link,
                NextHop::Local if self.address.is_ipv4() => RouteScope::Host,
                _ => RouteScope::Universe,
            },
            ..RouteHeader::default()
        };
        message.attributes = vec![
            RouteAttribute::Table(self.table),
            RouteAttribute::Destination(route_address(self.address)),
            RouteAttribute::Priority(METRIC),
        ];
        let (interface, group, source) = match self.next_hop {
            NextHop::Blackhole | NextHop::Unreachable => (None, None, None),
            NextHop::Local => (Some(LOOPBACK), None, None),
            NextHop::Link { interface, source } => (Some(interface), None, Some(source)),
            NextHop::Group { id, source } => (None, Some(id), source),
        };
        message
            .attributes
            .extend(interface.map(RouteAttribute::Oif));
        message.attributes.extend(group.map(RouteAttribute::NhId));
        message
            .attributes
            .extend(source.map(|source| RouteAttribute::PrefSource(route_address(source))));
        message
    }
}

impl FoundRoute {
    /// From a message of the kernel; none if the route is not ours.
    pub(super) fn new(message: RouteMessage) -> Option<Self> {
        is_ours(&message).then(|| Self {
            route: read(&message),
            message,
        })
    }

    /// The table of the route.
    pub(super) fn table(&self) -> u32 {
        table(&self.message)
    }

    /// The message that deletes exactly this route.
    pub(super) fn deletion(&self) -> RouteMessage {
        let mut message = self.message.clone();
        let has_group = message
            .attributes
            .iter()
            .any(|attribute| matches!(attribute, RouteAttribute::NhId(_)));
        // The kernel reports the others, but does not accept them.
        message.attributes.retain(|attribute| {
            matches!(
                attribute,
                RouteAttribute::Table(_)
                    | RouteAttribute::Destination(_)
                    | RouteAttribute::Priority(_)
                    | RouteAttribute::NhId(_)
                    | RouteAttribute::PrefSource(_)
            ) || !has_group && matches!(attribute, RouteAttribute::Gateway(_))
        });
        message
    }
}

/// The request for all our routes of a family, in all tables. With strict checking the kernel leaves out all others.
pub(super) fn dump_request(ipv4: bool) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(ipv4);
    message.header.protocol = RouteProtocol::Other(PROTOCOL);
    RouteNetlinkMessage::GetRoute(message)
}

/// True if a route is ours.
pub(super) fn is_ours(message: &RouteMessage) -> bool {
    message.header.protocol == RouteProtocol::Other(PROTOCOL)
}

/// The table of a route.
pub(super) fn table(message: &RouteMessage) -> u32 {
    let named = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    named.unwrap_or_else(|| message.header.table.into())
}

/// The destination of a route.
pub(super) fn destination(message: &RouteMessage) -> Option<IpAddr> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => ip(address),
            _ => None,
        })
}

pub(super) const fn family(ipv4: bool) -> AddressFamily {
    if ipv4 {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn read(message: &RouteMessage) -> Option<KernelRoute> {
    let address = destination(message)?;
    let (mut metric, mut interface, mut source, mut group) = (None, None, None, None);
    let mut reaches_backend = false;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Priority(priority) => metric = Some(*priority),
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::PrefSource(address) => source = ip(address),
            RouteAttribute::NhId(id) => group = Some(*id),
            RouteAttribute::Gateway(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::Encap(_) => reaches_backend = true,
            RouteAttribute::Metrics(_) => return None,
            _ => {}
        }
    }
    // For a group the kernel also reports the members' next hops.
    if reaches_backend && group.is_none() {
        return None;
    }
    let next_hop = match message.header.kind {
        // For IPv6 the kernel adds the loopback interface.
        RouteType::BlackHole => NextHop::Blackhole,
        RouteType::Unreachable => NextHop::Unreachable,
        RouteType::Local => NextHop::Local,
        RouteType::Unicast => match group {
            Some(id) => NextHop::Group { id, source },
            None => NextHop::Link {
                interface: interface?,
                source: source?,
            },
        },
        _ => return None,
    };
    let is_of_our_form = metric == Some(METRIC)
        && message.header.destination_prefix_length == host_length(address)
        && message.header.source_prefix_length == 0
        && message.header.tos == 0;
    is_of_our_form.then(|| KernelRoute {
        table: table(message),
        address,
        next_hop,
    })
}

pub(super) const fn host_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

pub(super) const fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

pub(super) const fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

impl fmt::Display for KernelRoute {
    /// In the format of `ip route`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            address,
            next_hop,
        } = self;
        match next_hop {
            NextHop::Blackhole => write!(f, "blackhole {address} table {table}")?,
            NextHop::Unreachable => write!(f, "unreachable {address} table {table}")?,
            NextHop::Local => write!(f, "local {address} dev lo table {table}")?,
            NextHop::Link { interface, source } => {
                write!(f, "{address} dev if{interface} table {table} src {source}")?;
            }
            NextHop::Group { id, source } => {
                write!(f, "{address} nhid {id} table {table}")?;
                if let Some(source) = source {
                    write!(f, " src {source}")?;
                }
            }
        }
        write!(f, " proto {PROTOCOL} metric {METRIC}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> [KernelRoute; 8] {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let link = |source: &str| NextHop::Link {
            interface: 7,
            source: ip(source),
        };
        [
            KernelRoute {
                table: 67,
                address: ip("198.51.100.1"),
                next_hop: NextHop::Blackhole,
            },
            KernelRoute {
                table: 67,
                address: ip("2001:db8::1"),
                next_hop: NextHop::Blackhole,
            },
            KernelRoute {
                table: 69,
                address: ip("198.51.100.1"),
                next_hop: NextHop::Unreachable,
            },
            KernelRoute {
                table: 69,
                address: ip("198.51.100.1"),
                next_hop: NextHop::Local,
            },
            KernelRoute {
                table: 69,
                address: ip("2001:db8::1"),
                next_hop: NextHop::Group {
                    id: 7,
                    source: None,
                },
            },
            KernelRoute {
                table: 69,
                address: ip("198.51.100.1"),
                next_hop: NextHop::Group {
                    id: 7,
                    source: Some(ip("192.0.2.1")),
                },
            },
            KernelRoute {
                table: 100_068,
                address: ip("10.96.0.1"),
                next_hop: link("192.0.2.1"),
            },
            KernelRoute {
                table: 100_068,
                address: ip("fd00:96::1"),
                next_hop: link("fd00::1"),
            },
        ]
    }

    #[test]
    fn route_sent_is_recognized_when_read() {
        for route in routes() {
            assert_eq!(FoundRoute::new(route.message()).unwrap().route, Some(route));
        }
    }

    #[test]
    fn foreign_route_is_never_taken_for_ours() {
        let mut message = routes()[0].message();
        message.header.protocol = RouteProtocol::Bird;
        assert_eq!(FoundRoute::new(message), None);
    }

    #[test]
    fn route_of_another_form_is_found_but_not_desired() {
        let [blackhole, .., link] = routes();
        let changed = |route: KernelRoute, change: fn(&mut RouteMessage)| {
            let mut message = route.message();
            change(&mut message);
            FoundRoute::new(message).unwrap().route
        };
        assert_eq!(
            changed(blackhole, |message| message
                .header
                .destination_prefix_length = 24),
            None
        );
        assert_eq!(
            changed(blackhole, |message| message.header.kind =
                RouteType::Prohibit),
            None
        );
        assert_eq!(
            changed(blackhole, |message| message.attributes.truncate(2)),
            None,
            "no metric"
        );
        let gateway = RouteAttribute::Gateway(RouteAddress::Inet6(1.into()));
        let mut message = link.message();
        message.attributes.push(gateway);
        assert_eq!(FoundRoute::new(message).unwrap().route, None);
    }

    #[test]
    fn deletion_names_table_address_metric_and_our_protocol() {
        let [.., link] = routes();
        let deletion = FoundRoute::new(link.message()).unwrap().deletion();
        assert_eq!(deletion.header.protocol, RouteProtocol::Other(PROTOCOL));
        assert_eq!(
            (table(&deletion), destination(&deletion)),
            (link.table, Some(link.address))
        );
        assert!(
            deletion
                .attributes
                .contains(&RouteAttribute::Priority(METRIC))
        );
    }

    #[test]
    fn route_reads_as_ip_command_has_it() {
        let [v4, _, unreachable, local, _, group, link, _] = routes();
        assert_eq!(
            v4.to_string(),
            "blackhole 198.51.100.1 table 67 proto 67 metric 1024"
        );
        assert_eq!(
            unreachable.to_string(),
            "unreachable 198.51.100.1 table 69 proto 67 metric 1024"
        );
        assert_eq!(
            local.to_string(),
            "local 198.51.100.1 dev lo table 69 proto 67 metric 1024"
        );
        assert_eq!(
            group.to_string(),
            "198.51.100.1 nhid 7 table 69 src 192.0.2.1 proto 67 metric 1024"
        );
        assert_eq!(
            link.to_string(),
            "10.96.0.1 dev if7 table 100068 src 192.0.2.1 proto 67 metric 1024"
        );
    }
}
