//! What renderers have to know of this node next to the services.

use std::{collections::BTreeSet, net::IpAddr};

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::InterfacePattern;

/// Facts about this node that renderers need next to the services.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Addresses of this node on which node ports answer.
    pub node_ips: BTreeSet<IpAddr>,
    /// Addresses this node is known by: one of each family of its Node object, or as configured.
    pub primary_ips: BTreeSet<IpAddr>,
    /// Addresses of this node's interfaces. Empty where they are not known, as for manifests without a kernel.
    pub local_ips: BTreeSet<IpAddr>,
    /// Ranges by which pods on this node are told from other clients. Sorted, without duplicates.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// Interfaces by which pods on this node are told from other clients: their packets come in there.
    pub pod_interfaces: BTreeSet<InterfacePattern>,
    /// Whose source address is hidden on the way to a cluster IP.
    pub cluster_ip_masquerade: ClusterIpMasquerade,
    /// Ranges that cluster addresses are taken from. Traffic to one of their addresses that no service has is dropped.
    /// Empty if they are not known.
    pub service_cidrs: BTreeSet<IpNetwork>,
}

/// Whose source address is hidden from the backend on the way to a cluster IP. Source: kube-proxy's `masqueradeAll` and
/// `detectLocalMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterIpMasquerade {
    /// That of all clients but the pods of this node.
    #[default]
    AllButPods,
    /// That of every client.
    All,
    /// That of none.
    None,
}

impl NodeFacts {
    /// Pods of this node can be told from other clients in a family.
    pub fn knows_pods(&self, ipv4: bool) -> bool {
        !self.pod_interfaces.is_empty() || self.pod_cidrs.iter().any(|range| range.is_ipv4() == ipv4)
    }

    /// The address is this node's own. Source: the kernel's `fib saddr type local`.
    pub fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.node_ips.contains(&address) || self.local_ips.contains(&address)
    }
}
