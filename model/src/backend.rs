//! Backends: the destinations of a service port.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A destination for connections to a service port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Backend {
    /// The address that the kernel sends to.
    pub address: IpAddr,
    /// The port at that address.
    pub port: u16,
    /// It runs on this node.
    pub local: bool,
    /// Its address belongs to a node, not to a pod.
    pub host_network: bool,
    /// Traffic of this node with policy Cluster may use it. False for a ready backend that topology hints or the preference for
    /// local backends assign to other nodes; then another ready backend of the same port and family has true.
    pub in_topology: bool,
    /// Share of new connections relative to the other backends of the port; at least 1.
    pub weight: u16,
    /// Whether it accepts connections, or only as a last resort.
    pub state: BackendState,
}

impl Backend {
    /// A ready backend on another node with default values.
    pub const fn new(endpoint: SocketAddr) -> Self {
        Self {
            address: endpoint.ip(),
            port: endpoint.port(),
            local: false,
            host_network: false,
            in_topology: true,
            weight: 1,
            state: BackendState::Ready,
        }
    }

    /// Address and port as one value.
    pub const fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// The states in which a backend is usable (KEP-1669). Others never reach a renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BackendState {
    /// Takes new connections.
    Ready,
    /// Terminating but still serving: used only where no ready backend is left.
    Terminating,
}
