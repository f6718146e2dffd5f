//! What a service asks for by annotation, beyond the fields that Kubernetes has.

use serde::Serialize;

use crate::Balance;

/// What a service asks for by annotation. The names and values of the annotations are in the module `annotation` of
/// `contiv-proto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ServiceOptions {
    /// A client with affinity has one backend for all ports.
    pub affinity_shared: bool,
    /// How a backend is chosen.
    pub balance: Balance,
    /// Traffic with policy Cluster stays on this node as long as the service has a ready backend here.
    pub prefer_local: bool,
    /// Established TCP connections to a backend that is gone are reset.
    pub reset_connections: bool,
    /// Whether routes are to carry it; none where the node's configuration decides.
    pub routed: Option<bool>,
}
