//! The flow of a trace: a new connection, and the class of its client.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{InterfaceName, NodeFacts, Protocol};

/// A new connection, as it arrives at this node or leaves a process on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    from: IpAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface: Option<InterfaceName>,
    to: IpAddr,
    port: u16,
    protocol: Protocol,
}

/// No packet has an IPv4 address at one end and an IPv6 address at the other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{from} and {to} are of different families: give two IPv4 addresses or two IPv6 addresses")]
pub struct MixedFamilies {
    from: IpAddr,
    to: IpAddr,
}

impl Flow {
    /// A flow from an address to an address and port.
    ///
    /// # Errors
    /// When one address is IPv4 and the other IPv6.
    pub fn new(from: IpAddr, to: SocketAddr, protocol: Protocol) -> Result<Self, MixedFamilies> {
        let (to, port) = (to.ip(), to.port());
        if from.is_ipv4() == to.is_ipv4() {
            Ok(Self {
                from,
                interface: None,
                to,
                port,
                protocol,
            })
        } else {
            Err(MixedFamilies { from, to })
        }
    }

    /// The flow, arriving at this interface. Where pods are identified by their interfaces, it decides whether the client is
    /// one.
    #[must_use]
    pub fn by_interface(self, interface: InterfaceName) -> Self {
        Self {
            interface: Some(interface),
            ..self
        }
    }

    /// The interface where it arrives; none if it is unknown, or if the client is a process of this node.
    pub const fn interface(&self) -> Option<&InterfaceName> {
        self.interface.as_ref()
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
        write!(f, "{}", self.from)?;
        if let Some(interface) = &self.interface {
            write!(f, "%{interface}")?;
        }
        write!(
            f,
            " to {}/{}",
            SocketAddr::new(self.to, self.port),
            self.protocol
        )
    }
}

/// The class of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// A pod of this node, by its address or by its interface.
    LocalPod,
    /// This node: one of its known addresses, or loopback.
    Node,
    /// Any other client, also pods of other nodes; and pods of this node where they cannot be identified.
    #[serde(rename = "outside")]
    External,
}

impl Client {
    /// The class of the flow's client on this node. An address of the node within a pod range counts as a pod's: kube-proxy
    /// checks in this order.
    pub fn of(flow: &Flow, node: &NodeFacts) -> Self {
        let comes_by = |interface: &InterfaceName| {
            node.pod_interfaces
                .iter()
                .any(|pattern| pattern.matches(&interface.0))
        };
        let is_pod = node.pod_cidrs.iter().any(|range| range.contains(flow.from))
            || flow.interface.as_ref().is_some_and(comes_by);
        if is_pod {
            Self::LocalPod
        } else if node.is_local_address(flow.from) {
            Self::Node
        } else {
            Self::External
        }
    }
}

/// Whether pods of this node can be identified in the flow's family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detection {
    /// They can.
    Known,
    /// No, so they count as external: their ranges are unknown, or detection is off.
    Unknown,
    /// They are identified by their interfaces, and the flow's interface is unknown.
    NeedsInterface,
}

impl Detection {
    pub(super) fn of(flow: &Flow, node: &NodeFacts) -> Self {
        if !node.knows_pods(flow.to.is_ipv4()) {
            Self::Unknown
        } else if !node.pod_interfaces.is_empty() && flow.interface.is_none() {
            Self::NeedsInterface
        } else {
            Self::Known
        }
    }
}
