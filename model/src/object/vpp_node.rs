//! Contiv's record of an allocated node id.

use std::{collections::BTreeSet, net::IpAddr};

use serde::Serialize;

use crate::NodeName;

/// The dataplane addresses of a node, next to those of its [`crate::object::Node`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VppNode {
    /// The allocated id.
    pub id: u32,
    /// The node that holds the id.
    pub name: NodeName,
    /// Its addresses on the dataplane's interfaces.
    pub ips: BTreeSet<IpAddr>,
}
