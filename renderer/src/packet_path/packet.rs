//! A packet that enters the network stack.

use std::net::SocketAddr;

use contiv_model::{InterfaceName, Protocol};
use serde::Serialize;

/// The first packet of a connection, as it enters the network stack of this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Packet {
    /// TCP, UDP or SCTP. Of TCP it is a SYN.
    pub protocol: Protocol,
    /// The client.
    pub source: SocketAddr,
    /// What the client connects to.
    pub destination: SocketAddr,
    /// The interface by which it comes in; none if this node sends it.
    pub input: Option<InterfaceName>,
}

/// An ICMP error that says that a packet of a connection is too large: "fragmentation needed" of IPv4, "packet too big" of IPv6. Without
/// it the sender does not learn that it must send smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeError {
    /// Of this node, about a packet of the client.
    ToClient,
    /// Of this node, about an answer.
    ToServer,
    /// Of a machine beyond this node, about a packet of the client.
    ToClientFromBeyond,
}

/// What the agent's own table does with a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnVerdict {
    /// Nothing.
    Untouched,
    /// It leads the connection to a backend.
    Translated {
        /// The backend.
        backend: SocketAddr,
        /// The backend sees an address of this node in place of the client's.
        is_masqueraded: bool,
    },
    /// It keeps its destination, and leaves with an address of this node.
    Masqueraded,
    /// It is refused with an error.
    Rejected,
    /// It is dropped.
    Dropped,
}
