//! All names, addresses and ranges of the lab.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The families of addresses. Everything in the lab has one address of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IP version 4.
    V4,
    /// IP version 6.
    V6,
}

impl Family {
    /// Both, for loops.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// The transport protocols that the lab can speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
    /// Associations, of which the lab implements the beginning.
    Sctp,
}

impl Protocol {
    /// All of them, for loops.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];
}

/// A machine or pod of the lab: the name of its namespace, and its addresses.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    /// The name of the namespace; for a node also its name in the cluster.
    pub name: &'static str,
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// IPv6 address.
    pub v6: Ipv6Addr,
    /// The node it runs on; a machine is its own node.
    pub node: &'static str,
}

impl Host {
    /// Its address of one family.
    pub const fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => IpAddr::V4(self.v4),
            Family::V6 => IpAddr::V6(self.v6),
        }
    }

    /// Its address of one family, with a port.
    pub const fn socket(&self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(family), port)
    }
}

/// One range of addresses in each family.
#[derive(Debug, PartialEq, Eq)]
pub struct Range {
    /// First IPv4 address.
    pub v4: Ipv4Addr,
    /// Prefix length of the IPv4 range.
    pub v4_length: u8,
    /// First IPv6 address.
    pub v6: Ipv6Addr,
    /// Prefix length of the IPv6 range.
    pub v6_length: u8,
}

impl Range {
    /// The range of one family, as in `10.96.0.0/16`.
    pub fn cidr(&self, family: Family) -> String {
        match family {
            Family::V4 => format!("{}/{}", self.v4, self.v4_length),
            Family::V6 => format!("{}/{}", self.v6, self.v6_length),
        }
    }

    /// The address `offset` after the first one.
    pub const fn address(&self, family: Family, offset: u8) -> IpAddr {
        match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(self.v4.to_bits() + offset as u32)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(self.v6.to_bits() + offset as u128)),
        }
    }
}

/// This node: the agent under test runs here.
pub(crate) const NODE: Host = on_external("node", 1);
/// The other node. No agent runs there; it only routes.
pub(crate) const NODE2: Host = on_external("node2", 2);
/// An external client, on the network of the nodes.
pub(crate) const CLIENT: Host = on_external("client", 100);
/// The next hop of the node's default route. No host has this address, so untranslated packets get no answer.
pub(crate) const GATEWAY: Host = on_external("gateway", 254);

/// Pods of this node.
pub(crate) const PODS: [Host; 2] = [pod("pod1", 1, 10), pod("pod2", 1, 11)];
/// Pods of the other node.
pub(crate) const PODS2: [Host; 2] = [pod("pod3", 2, 10), pod("pod4", 2, 11)];

/// A node's address on the veth of each of its pods.
pub(crate) const fn pod_gateway(node: u8) -> Host {
    pod("pod gateway", node, 1)
}

/// Ranges of addresses. The client reaches the last three via `node`.
pub mod ranges {
    use super::{Ipv4Addr, Ipv6Addr, Range};

    /// The network of both nodes and the client.
    pub const EXTERNAL: Range = Range {
        v4: Ipv4Addr::new(172, 31, 0, 0),
        v4_length: 24,
        v6: Ipv6Addr::new(0xfd00, 0x172, 0x31, 0, 0, 0, 0, 0),
        v6_length: 64,
    };
    /// Pods of this node.
    pub const PODS: Range = super::pod_range(1);
    /// Pods of the other node.
    pub const PODS2: Range = super::pod_range(2);
    /// Cluster IPs.
    pub const SERVICES: Range = Range {
        v4: Ipv4Addr::new(10, 96, 0, 0),
        v4_length: 16,
        v6: Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0),
        v6_length: 112,
    };
    /// External IPs.
    pub const EXTERNAL_IPS: Range = Range {
        v4: Ipv4Addr::new(192, 0, 2, 0),
        v4_length: 24,
        v6: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0),
        v6_length: 64,
    };
    /// Load-balancer addresses.
    pub const LOAD_BALANCERS: Range = Range {
        v4: Ipv4Addr::new(198, 51, 100, 0),
        v4_length: 24,
        v6: Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0),
        v6_length: 64,
    };
}

const fn on_external(name: &'static str, number: u8) -> Host {
    Host {
        name,
        v4: Ipv4Addr::new(172, 31, 0, number),
        v6: Ipv6Addr::new(0xfd00, 0x172, 0x31, 0, 0, 0, 0, same_digits(number)),
        node: name,
    }
}

const fn pod(name: &'static str, node: u8, number: u8) -> Host {
    Host {
        name,
        v4: Ipv4Addr::new(10, 244, node, number),
        v6: Ipv6Addr::new(
            0xfd00,
            0x10,
            0x244,
            node as u16,
            0,
            0,
            0,
            same_digits(number),
        ),
        node: if node == 1 { NODE.name } else { NODE2.name },
    }
}

const fn pod_range(node: u8) -> Range {
    Range {
        v4: Ipv4Addr::new(10, 244, node, 0),
        v4_length: 24,
        v6: Ipv6Addr::new(0xfd00, 0x10, 0x244, node as u16, 0, 0, 0, 0),
        v6_length: 64,
    }
}

/// The number whose hexadecimal digits are the decimal digits of `number`, so that the addresses of both families look alike:
/// `.10` and `::10`.
const fn same_digits(number: u8) -> u16 {
    let number = number as u16;
    number / 100 * 0x100 + number / 10 % 10 * 0x10 + number % 10
}
