//! A node as the debug HTTP shows it.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnetwork::IpNetwork;
use serde::Serialize;

use crate::NodeName;

/// Where an endpoint runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPlace {
    /// Its node.
    pub node: NodeName,
    /// The zone of that node, as the node object says.
    pub zone: Option<Arc<str>>,
}

/// A node, with the data of all its records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// True for the node of this process.
    pub this_node: bool,
    /// The ids Contiv allocated to it.
    pub vpp_node_ids: BTreeSet<u32>,
    /// Its addresses from the node object and from Contiv's record.
    pub ips: BTreeSet<IpAddr>,
    /// The ranges of its pods.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// The zone it is in, as the node object says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
}
