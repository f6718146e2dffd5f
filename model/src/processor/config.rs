//! What the processor is told about this node, rather than reading it from the store.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnetwork::IpNetwork;

use crate::{InterfacePattern, NodeName};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorConfig {
    /// This node: endpoints that name it are local.
    pub node_name: NodeName,
    /// Weight of a local backend, where a remote one has 1 (Contiv's `serviceLocalEndpointWeight`). 0 counts as 1. The
    /// weight of the pod multiplies both.
    pub local_endpoint_weight: u16,
    /// Addresses of this node. Empty: those that the store has for it.
    pub node_ips: BTreeSet<IpAddr>,
    /// On which addresses node ports answer.
    pub node_port_addresses: BTreeSet<NodePortAddresses>,
    /// Node ports answer on loopback too.
    pub node_ports_on_loopback: bool,
    /// Ranges of the pods on this node. Empty: those that the store has for this node.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// How pods on this node are told from other clients.
    pub local_detect: LocalDetect,
    /// Hide the source address of every client on the way to a cluster IP, also that of pods.
    pub masquerade_all: bool,
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
    pub fn new(node_name: NodeName) -> Self {
        Self {
            node_name,
            local_endpoint_weight: 1,
            node_ips: BTreeSet::new(),
            node_port_addresses: BTreeSet::from([NodePortAddresses::Primary]),
            node_ports_on_loopback: false,
            local_detect: LocalDetect::PodCidrs,
            masquerade_all: false,
            pod_cidrs: BTreeSet::new(),
            service_cidrs: BTreeSet::new(),
            zone: None,
            source_ranges_on_node_ports: false,
            contiv_local_policy: false,
        }
    }
}

/// Some of this node's addresses, as a setting. Source: kube-proxy's `nodePortAddresses`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodePortAddresses {
    /// Those the node is known by: of its Node object, or as configured.
    Primary,
    /// Those of its interfaces, whatever they are; without loopback, and without link-local ones, of which each pod's
    /// interface has one.
    All,
    /// Those of its interfaces in this range; without loopback.
    Within(IpNetwork),
}

/// How pods on this node are told from other clients. Source: kube-proxy's `detectLocalMode`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalDetect {
    /// By the ranges of their addresses.
    PodCidrs,
    /// By the interfaces that their packets come in by.
    Interfaces(BTreeSet<InterfacePattern>),
    /// Not at all: pods count as outside, and no address is hidden on the way to a cluster IP.
    None,
}
