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
    /// True if it runs on this node.
    pub local: bool,
    /// True if its address belongs to a node, not to a pod.
    pub host_network: bool,
    /// True if traffic of this node may use it under policy Cluster. False for a ready backend that topology hints or the
    /// preference for local backends assign to other nodes; then it is true for another ready backend of the port and family.
    pub in_topology: bool,
    /// Share of new connections relative to the other backends of the port; at least 1.
    pub weight: u16,
    /// Whether it gets new connections always, or only as a last resort.
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

/// The states in which a backend is usable (KEP-1669). Renderers get no backend in another state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BackendState {
    /// Takes new connections.
    Ready,
    /// Terminating but still serving: used only where no ready backend is left.
    Terminating,
    /// Ready by the store, but it does not answer this node's clients: used only where no other backend is left.
    Failing,
}

impl BackendState {
    /// The store says that it takes new connections.
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Ready | Self::Failing)
    }
}
