//! What is asked about: a new connection, and who its client counts as.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;
use thiserror::Error;

use crate::{NodeFacts, Protocol};

/// A new connection, as it arrives at this node or leaves a process on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Flow {
    from: IpAddr,
    to: IpAddr,
    port: u16,
    protocol: Protocol,
}

/// No packet has an IPv4 address at one end and an IPv6 address at the other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no packet goes from {from} to {to}: give two IPv4 addresses or two IPv6 addresses")]
pub struct MixedFamilies {
    from: IpAddr,
    to: IpAddr,
}

impl Flow {
    /// From an address to an address and port.
    ///
    /// # Errors
    /// When one address is IPv4 and the other IPv6.
    pub fn new(from: IpAddr, to: SocketAddr, protocol: Protocol) -> Result<Self, MixedFamilies> {
        let (to, port) = (to.ip(), to.port());
        if from.is_ipv4() == to.is_ipv4() {
            Ok(Self { from, to, port, protocol })
        } else {
            Err(MixedFamilies { from, to })
        }
    }

    /// The client's address.
    pub const fn from(&self) -> IpAddr {
        self.from
    }

    /// The address it connects to.
    pub const fn to(&self) -> IpAddr {
        self.to
    }

    /// The port it connects to.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The transport protocol.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The address is of the flow's family.
    pub(super) const fn is_of_family(&self, address: &IpAddr) -> bool {
        self.to.is_ipv4() == address.is_ipv4()
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}/{}", self.from, SocketAddr::new(self.to, self.port), self.protocol)
    }
}

/// Who a client counts as, by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// In a pod range of this node.
    LocalPod,
    /// This node: one of the addresses we know it by, or loopback.
    Node,
    /// Anyone else, also pods of other nodes; and pods of this one where its pod ranges are not known.
    Outside,
}

impl Client {
    /// Who the address is, to this node. An address of the node that lies in a pod range is a pod's: kube-proxy asks in
    /// this order.
    pub fn of(address: IpAddr, node: &NodeFacts) -> Self {
        if node.pod_cidrs.iter().any(|range| range.contains(address)) {
            Self::LocalPod
        } else if address.is_loopback() || node.node_ips.contains(&address) {
            Self::Node
        } else {
            Self::Outside
        }
    }
}
