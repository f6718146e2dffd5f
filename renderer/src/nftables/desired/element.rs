//! One element of a set or map: the unit of comparison, programming, and printing.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use contiv_model::{InterfacePattern, Protocol};
use ipnetwork::IpNetwork;

use crate::nftables::layout::{DemandChain, Family, Form, Set};

/// Address, protocol and port of a service. The unspecified address represents all node-port addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrontendKey {
    pub(crate) address: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

impl FrontendKey {
    /// The key of a node port in one family.
    pub(crate) const fn node_port(family: Family, protocol: Protocol, port: u16) -> Self {
        Self {
            address: family.unspecified(),
            protocol,
            port,
        }
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

/// The address and port of a backend. A `SocketAddr` is larger, because of further fields of IPv6 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

impl From<SocketAddr> for Endpoint {
    fn from(at: SocketAddr) -> Self {
        Self {
            address: at.ip(),
            port: at.port(),
        }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(at: Endpoint) -> Self {
        Self::new(at.address, at.port)
    }
}

/// The identity of an element within its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Frontend(FrontendKey),
    Slot(FrontendKey, u32),
    /// The number of a chain.
    Number(u32),
    Address(IpAddr),
    /// The address twice.
    Pair(IpAddr),
    Range(IpNetwork),
    /// Interfaces by name.
    Interface(InterfacePattern),
    /// The name of an output interface.
    Output(InterfacePattern),
    /// A range of clients for a frontend.
    Source(FrontendKey, IpNetwork),
    /// A client of a frontend with affinity.
    Client(FrontendKey, IpAddr),
}

/// The value of a map's element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    /// The element of a plain set.
    None,
    Backend(Endpoint),
    Address(IpAddr),
    /// The chain that the packet goes to: its number, or in a map of such numbers the verdict.
    Goto(DemandChain),
}

/// An element of one of the sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    pub(crate) set: Set,
    pub(crate) key: Key,
    pub(crate) value: Value,
}

/// An upper bound for the bytes of an element of this family in a message: with two addresses, or one and the name of a chain.
pub(crate) const fn max_message_bytes(family: Family) -> usize {
    match family {
        Family::V4 => 96,
        Family::V6 => 192,
    }
}

impl fmt::Display for Element {
    /// In nft's syntax, as between the braces of `elements = { … }`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            Key::Frontend(frontend) => write!(f, "{frontend}"),
            Key::Slot(frontend, slot) => write!(f, "{frontend} . {slot}"),
            Key::Number(number) => f.write_str(&nft_number(number)),
            Key::Address(address) => write!(f, "{address}"),
            Key::Pair(address) => write!(f, "{address} . {address}"),
            Key::Range(range) => f.write_str(&nft_range(&range)),
            Key::Interface(pattern) | Key::Output(pattern) => write!(f, "\"{pattern}\""),
            Key::Source(frontend, range) => write!(f, "{frontend} . {}", nft_range(&range)),
            Key::Client(frontend, client) => write!(f, "{frontend} . {client}"),
        }?;
        match self.value {
            Value::None => Ok(()),
            Value::Backend(backend) => write!(f, " : {} . {}", backend.address, backend.port),
            Value::Address(address) => write!(f, " : {address}"),
            Value::Goto(chain) => match (self.set.kind.form(), chain.number()) {
                (Form::Numbers { .. }, Some((_, number))) => write!(f, " : {}", nft_number(number)),
                _ => write!(f, " : goto {chain}"),
            },
        }
    }
}

/// nft writes a packet's priority as the handle of a traffic class: two halves in hexadecimal.
fn nft_number(number: u32) -> String {
    format!("{:x}:{:x}", number >> 16, number & 0xffff)
}

/// nft writes the range of a single address as that address.
fn nft_range(range: &IpNetwork) -> String {
    let single = if range.is_ipv4() { 32 } else { 128 };
    if range.prefix() == single {
        range.ip().to_string()
    } else {
        range.to_string()
    }
}
