//! A pod, decoded from the store.

use std::{collections::BTreeSet, net::IpAddr};

use serde::Serialize;

use crate::PodId;

/// The parts of a pod that the processor uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pod {
    /// Namespace and name.
    pub id: PodId,
    /// Addresses of its main interface, one per family. Empty before it has any, and after it has finished: its addresses may
    /// then belong to another pod.
    pub ips: BTreeSet<IpAddr>,
    /// It uses its node's network, so its addresses are those of the node.
    pub host_network: bool,
    /// Its weight as a backend, at least 1.
    pub weight: u8,
}
