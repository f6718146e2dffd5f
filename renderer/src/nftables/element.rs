//! One element of a set or map: the unit that is compared, programmed, and printed.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use contiv_model::Protocol;
use ipnetwork::IpNetwork;

use super::layout::{Family, PickChain, Set};

/// Address, protocol and port under which a service answers. The unspecified address stands for every node-port address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrontendKey {
    pub(crate) address: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

impl FrontendKey {
    /// The key of a node port in one family.
    pub(crate) const fn node_port(family: Family, protocol: Protocol, port: u16) -> Self {
        let address = match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self { address, protocol, port }
    }

    pub(crate) const fn family(&self) -> Family {
        Family::of(&self.address)
    }

    pub(crate) const fn is_node_port(&self) -> bool {
        self.address.is_unspecified()
    }
}

impl fmt::Display for FrontendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} . {} . {}", self.address, self.protocol, self.port)
    }
}

/// What identifies an element within its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Frontend(FrontendKey),
    Slot(FrontendKey, u32),
    Address(IpAddr),
    /// The address twice.
    Pair(IpAddr),
    Range(IpNetwork),
}

/// What a map holds under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    /// The element of a set has no value.
    None,
    Backend(SocketAddr),
    Pick(PickChain),
    /// Leave the packet alone.
    Accept,
    /// Refuse the connection at once.
    Reject,
    Drop,
}

/// An element of one of the sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    pub(crate) set: Set,
    pub(crate) key: Key,
    pub(crate) value: Value,
}

impl fmt::Display for Element {
    /// As nft writes it between the braces of `elements = { … }`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            Key::Frontend(frontend) => write!(f, "{frontend}"),
            Key::Slot(frontend, slot) => write!(f, "{frontend} . {slot}"),
            Key::Address(address) => write!(f, "{address}"),
            Key::Pair(address) => write!(f, "{address} . {address}"),
            Key::Range(range) => write!(f, "{range}"),
        }?;
        match self.value {
            Value::None => Ok(()),
            Value::Backend(backend) => write!(f, " : {} . {}", backend.ip(), backend.port()),
            Value::Pick(chain) => write!(f, " : goto {chain}"),
            Value::Accept => f.write_str(" : accept"),
            Value::Reject => f.write_str(" : goto reject-now"),
            Value::Drop => f.write_str(" : drop"),
        }
    }
}
