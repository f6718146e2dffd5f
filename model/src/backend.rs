//! Where connections of a service port can go.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Where connections of a service port can go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Backend {
    /// The address the kernel is to send to.
    pub address: IpAddr,
    /// The port on that address.
    pub port: u16,
    /// It runs on this node.
    pub local: bool,
    /// Its address is one of a node, not of a pod's own.
    pub host_network: bool,
    /// Traffic of this node with policy Cluster may go to it. False for a ready backend that topology hints or the wish
    /// for local backends leave to others; then another ready one of the same port and family has true.
    pub in_topology: bool,
    /// Share of new connections relative to the other backends of the port; at least 1.
    pub weight: u16,
    /// Whether it takes connections, or only as a last resort.
    pub state: BackendState,
}

impl Backend {
    /// A ready backend on another node, of which nothing special is said.
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

/// The states in which a backend is of any use (KEP-1669). Others never reach a renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BackendState {
    /// Takes new connections.
    Ready,
    /// On its way out but still serving: used only where no ready one is left.
    Terminating,
}
