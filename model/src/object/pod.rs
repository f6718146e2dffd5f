//! Pods as stored.

use std::{collections::BTreeSet, net::IpAddr};

use serde::Serialize;

use crate::PodId;

/// What the processor wants to know of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pod {
    /// Namespace and name.
    pub id: PodId,
    /// Addresses of its main interface, one per family. Empty before it has any, and again when it has finished: its
    /// addresses may then belong to another pod.
    pub ips: BTreeSet<IpAddr>,
    /// It uses the network of its node, so its addresses are those of the node.
    pub host_network: bool,
    /// Its weight as a backend, at least 1.
    pub weight: u8,
}
