//! Options of a service set by annotation, beyond the fields of Kubernetes.

use serde::Serialize;

use crate::{Balance, FailoverMode};

/// Options of a service set by annotation. Names and values of the annotations are in the module `annotation` of
/// `contiv-proto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ServiceOptions {
    /// A client with affinity has one backend for all ports.
    pub affinity_shared: bool,
    /// How a backend is chosen.
    pub balance: Balance,
    /// Traffic with policy Cluster stays on this node while the service has a ready backend here.
    pub prefer_local: bool,
    /// Established TCP connections to a removed backend are reset.
    pub reset_connections: bool,
    /// Whether routes should carry it; none if the node's configuration decides.
    pub routed: Option<bool>,
    /// What is done about backends that do not answer; none if the node's configuration decides.
    pub failover: Option<FailoverMode>,
}
