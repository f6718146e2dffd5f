//! The routing of a node, as its kernel answers it.

use std::net::IpAddr;

use contiv_model::{InterfaceName, Protocol};
use serde::Serialize;
use thiserror::Error;

/// Routing decisions and kinds of addresses. The kernel answers them (`ip route get`); tests have a small table instead.
pub trait Network {
    /// The route of a packet.
    ///
    /// # Errors
    /// When the kernel cannot be queried; that there is no route is an answer.
    fn route(&mut self, query: &RouteQuery) -> Result<Route, PathError>;

    /// The kind of an address on this node, as the expression `fib` has it.
    ///
    /// # Errors
    /// When the kernel cannot be queried.
    fn address_kind(&mut self, address: IpAddr) -> Result<AddressKind, PathError>;
}

/// A packet that needs a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteQuery {
    /// Its source; none if this node has still to choose one.
    pub source: Option<IpAddr>,
    /// Its destination.
    pub destination: IpAddr,
    /// The interface by which it came in; none if this node sends it. With one the kernel also checks the source: its reverse path, and
    /// addresses that may not come in.
    pub input: Option<InterfaceName>,
    /// Its mark.
    pub mark: u32,
    /// Its protocol, with its source port and its destination port, for rules that look at them.
    pub ports: Option<(Protocol, u16, u16)>,
}

/// The route of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// It is for this node itself.
    Local,
    /// It leaves.
    Unicast {
        /// By this interface.
        interface: InterfaceName,
        /// To this neighbour; none if the destination is one.
        gateway: Option<IpAddr>,
        /// From this address, if this node has still to choose one.
        source: Option<IpAddr>,
        /// The largest packet of the route, or else of its interface.
        mtu: Option<u32>,
    },
    /// No route leads there: `ENETUNREACH`, or `EHOSTUNREACH`.
    Unreachable,
    /// A route or a rule discards it: of type blackhole.
    Blackhole,
    /// A route or a rule refuses it: of type prohibit.
    Prohibited,
    /// The kernel does not accept its source from this interface: `EXDEV` by `rp_filter`, or `EINVAL` for one that is its own or that
    /// nobody can have.
    InvalidSource,
    /// Another error of the kernel.
    Failed(String),
}

/// The kind of an address: `RTN_LOCAL` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressKind {
    /// Of this node.
    Local,
    /// To all in a network.
    Broadcast,
    /// To a group.
    Multicast,
    /// Of another machine.
    Unicast,
    /// Without a route.
    Unreachable,
    /// Of a route of type blackhole.
    Blackhole,
    /// Of a route of type prohibit.
    Prohibited,
}

/// Why the kernel's state cannot be read.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct PathError(pub String);
