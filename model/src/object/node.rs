//! A node, decoded from the store.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnetwork::IpNetwork;
use serde::Serialize;

use crate::NodeName;

/// The parts of a node that the processor uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its addresses of the type `InternalIP`, in the order of the node's status.
    pub internal_ips: Vec<IpAddr>,
    /// Its addresses of the type `ExternalIP`, in the order of the node's status.
    pub external_ips: Vec<IpAddr>,
    /// The ranges of its pods' addresses, without host bits.
    pub pod_cidrs: BTreeSet<IpNetwork>,
    /// Its zone: the label `topology.kubernetes.io/zone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
    /// Whether it is about to be deleted: it has a deletion timestamp, or the cluster autoscaler has marked it with the taint
    /// `ToBeDeletedByClusterAutoscaler`.
    #[serde(rename = "is_leaving")]
    pub is_being_deleted: bool,
}

impl Node {
    /// All of its addresses.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.internal_ips.iter().chain(&self.external_ips).copied()
    }

    /// The node's address of each family: the first internal one, or else the first external one. Source: Kubernetes'
    /// `GetNodeHostIPs`.
    pub fn host_ips(&self) -> impl Iterator<Item = IpAddr> {
        let of_family = |ipv4: bool| self.ips().find(|ip| ip.is_ipv4() == ipv4);
        of_family(true).into_iter().chain(of_family(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ips_are_ipv4_then_ipv6_internal_before_external() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let host_ips = |internal: &[&str], external: &[&str]| -> Vec<IpAddr> {
            let ips = |texts: &[&str]| texts.iter().map(|text| ip(text)).collect();
            let node = Node {
                name: NodeName("n1".into()),
                internal_ips: ips(internal),
                external_ips: ips(external),
                pod_cidrs: BTreeSet::new(),
                zone: None,
                is_being_deleted: false,
            };
            node.host_ips().collect()
        };
        assert_eq!(
            host_ips(&["fd00::1"], &["192.0.2.1", "fd00::2"]),
            [ip("192.0.2.1"), ip("fd00::1")]
        );
        assert_eq!(
            host_ips(&["10.0.0.1", "10.0.0.2"], &["192.0.2.1"]),
            [ip("10.0.0.1")]
        );
    }
}
