//! Facts about this node that renderers need besides the services.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::{InterfaceName, InterfacePattern};

/// Facts about this node that renderers need besides the services.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Addresses of this node on which node ports answer.
    pub node_ips: BTreeSet<IpAddr>,
    /// Addresses of other nodes on which node ports answer here too.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub other_node_ips: BTreeSet<IpAddr>,
    /// Addresses this node is known by: one of each family of its Node object, or as configured.
    pub primary_ips: BTreeSet<IpAddr>,
    /// Addresses of this node's interfaces. Empty where they are unknown, as for manifests without a kernel.
    pub local_ips: BTreeSet<IpAddr>,
    /// Ranges that identify the pods of this node. Sorted, without duplicates.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// Interfaces that identify the pods of this node: their packets arrive there.
    pub pod_interfaces: BTreeSet<InterfacePattern>,
    /// The addresses of this node that masqueraded connections get where they leave by these interfaces, one of each family; at
    /// all others the kernel chooses an address of the interface.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub masquerade_sources: BTreeMap<InterfaceName, BTreeSet<IpAddr>>,
    /// Interfaces where services answer packets that come in; loopback is among them. None: at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_interfaces: Option<BTreeSet<InterfacePattern>>,
    /// The clients whose connections to a cluster IP are masqueraded.
    pub cluster_ip_masquerade: ClusterIpMasquerade,
    /// Ranges that cluster IPs are allocated from. Traffic to an address in them that no service has is dropped. Empty if
    /// unknown.
    pub service_cidrs: BTreeSet<IpNetwork>,
    /// Destinations to which pods of this node keep their addresses; to all others they are masqueraded. None: they keep them
    /// everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_masquerade_cidrs: Option<BTreeSet<IpNetwork>>,
}

/// The clients whose connections to a cluster IP are masqueraded. Source: kube-proxy's `masqueradeAll` and `detectLocalMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterIpMasquerade {
    /// All clients but the pods of this node.
    #[default]
    AllButPods,
    /// Every client.
    All,
    /// No client.
    None,
}

impl NodeFacts {
    /// True if pods of this node can be identified in a family.
    pub fn knows_pods(&self, ipv4: bool) -> bool {
        !self.pod_interfaces.is_empty()
            || self.pod_cidrs.iter().any(|range| range.is_ipv4() == ipv4)
    }

    /// Addresses on which node ports answer, of this node and of others.
    pub fn node_port_ips(&self) -> impl Iterator<Item = &IpAddr> {
        self.node_ips.union(&self.other_node_ips)
    }

    /// True if services answer packets that come in by this interface; or if it is unknown.
    pub fn serves_at(&self, interface: Option<&InterfaceName>) -> bool {
        match (&self.service_interfaces, interface) {
            (Some(patterns), Some(name)) => patterns.iter().any(|pattern| pattern.matches(&name.0)),
            (None, _) | (_, None) => true,
        }
    }

    /// True if the address is this node's own. Source: the kernel's `fib saddr type local`.
    pub fn is_local_address(&self, address: IpAddr) -> bool {
        address.is_loopback()
            || self.node_ips.contains(&address)
            || self.local_ips.contains(&address)
    }
}
