//! Nodes as stored.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnetwork::IpNetwork;
use serde::Serialize;

use crate::NodeName;

/// What the processor wants to know of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its addresses of the types `InternalIP` and `ExternalIP`.
    pub ips: BTreeSet<IpAddr>,
    /// The ranges its pods have their addresses from, without host bits.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// The zone it is in: its label `topology.kubernetes.io/zone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
}
