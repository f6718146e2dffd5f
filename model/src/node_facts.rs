//! What renderers have to know of this node next to the services.

use std::{collections::BTreeSet, net::IpAddr};

use ipnetwork::IpNetwork;
use serde::Serialize;

/// Facts about this node that renderers need next to the services.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NodeFacts {
    /// Addresses of this node on which node ports answer.
    pub node_ips: BTreeSet<IpAddr>,
    /// Ranges of the pods on this node: their traffic keeps its source address. Sorted, without duplicates.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// Ranges that cluster addresses are taken from. Traffic to one of their addresses that no service has is dropped.
    /// Empty if they are not known.
    pub service_cidrs: BTreeSet<IpNetwork>,
}
