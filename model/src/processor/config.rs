//! What the processor is told about this node, rather than reading it from the store.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnetwork::IpNetwork;

use crate::NodeName;

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorConfig {
    /// This node: endpoints that name it are local.
    pub node_name: NodeName,
    /// Weight of a local backend, where a remote one has 1 (Contiv's `serviceLocalEndpointWeight`). 0 counts as 1. The
    /// weight of the pod multiplies both.
    pub local_endpoint_weight: u16,
    /// Addresses on which node ports answer. Empty: those that the store has for this node.
    pub node_ips: BTreeSet<IpAddr>,
    /// Ranges of the pods on this node. Empty: those that the store has for this node.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// Ranges that cluster addresses are taken from. Empty: not known.
    pub service_cidrs: BTreeSet<IpNetwork>,
    /// The zone this node is in. None: that which the store has for this node.
    pub zone: Option<Arc<str>>,
    /// Source ranges of a load balancer restrict its node ports too. In Kubernetes they do not.
    pub source_ranges_on_node_ports: bool,
    /// Contiv's reading of `externalTrafficPolicy: Local`: it restricts the cluster addresses too.
    pub contiv_local_policy: bool,
}

impl ProcessorConfig {
    /// The defaults for the node of this name.
    pub const fn new(node_name: NodeName) -> Self {
        Self {
            node_name,
            local_endpoint_weight: 1,
            node_ips: BTreeSet::new(),
            pod_cidrs: BTreeSet::new(),
            service_cidrs: BTreeSet::new(),
            zone: None,
            source_ranges_on_node_ports: false,
            contiv_local_policy: false,
        }
    }
}
