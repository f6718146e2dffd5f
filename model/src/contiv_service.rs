//! The service as renderers see it: combined with its backends, from the point of view of this node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::{Addresses, Assignment, Backend, Carrier, FailoverMode, Frontend, Protocol, ServiceId};

/// The backends that a kind of traffic may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum TrafficPolicy {
    /// All of the cluster.
    #[default]
    Cluster,
    /// Only those on this node.
    Local,
}

/// How a backend is chosen for a new connection, among those that its traffic may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Balance {
    /// At random, by weight.
    #[default]
    Random,
    /// By the address of the client, so that all nodes choose alike; backends that come or go move few clients.
    ClientAddress,
}

/// A service with its backends. Complete: besides it, a renderer needs only the [`NodeFacts`](crate::NodeFacts).
///
/// Services without backends are included, so that their connections are rejected; Contiv omitted them. Services that are not
/// for this proxy are left out: headless ones, those of type `ExternalName`, and those labelled for another proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContivService {
    /// Namespace and name.
    pub id: ServiceId,
    /// For traffic to external addresses and node ports.
    pub external_policy: TrafficPolicy,
    /// For traffic to cluster addresses.
    pub internal_policy: TrafficPolicy,
    /// Seconds a client stays with its backend; 0 means no affinity.
    pub session_affinity_timeout: u32,
    /// A client has one backend for all ports of the service, where one backend serves several ports. Never set without
    /// affinity.
    pub affinity_shared: bool,
    /// How a backend is chosen for a new connection.
    pub balance: Balance,
    /// Established TCP connections to a removed backend are reset, so that they do not hang.
    pub reset_connections: bool,
    /// What is done about backends that do not answer.
    #[serde(default, skip_serializing_if = "FailoverMode::is_off")]
    pub failover: FailoverMode,
    /// The renderer that carries its connections on this node.
    pub assignment: Assignment,
    /// Cluster IPs, at most one per family. Empty only outside Kubernetes: headless services are not rendered.
    pub cluster_ips: Addresses,
    /// External addresses, including those of load-balancer ingress that this node must answer for.
    pub external_ips: Addresses,
    /// The addresses of `external_ips` that belong to a load balancer.
    pub load_balancer_ips: Addresses,
    /// Sources that may connect to `load_balancer_ips`. Each family is restricted by its own ranges, as in kube-proxy: a family
    /// without any range is open to everyone. A range of all addresses (`/0`) allows everyone too, so it is left out together
    /// with the others of its family.
    pub source_ranges: BTreeSet<IpNetwork>,
    /// The ranges restrict the node ports too. Never set without ranges.
    pub source_ranges_on_node_ports: bool,
    /// The port on which the node answers health checks of a load balancer: whether it has local backends. Only load balancers
    /// with external policy Local have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_node_port: Option<u16>,
    /// Sorted by port, protocol and name.
    pub ports: Vec<ServicePort>,
    /// Frontends that this service specifies but that belong to another service (the value), because it is older, or of the same
    /// age and first by name. Renderers leave them out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<Frontend, ServiceId>,
}

impl ContivService {
    /// A service without addresses and ports, with the defaults of Kubernetes.
    pub fn new(id: ServiceId) -> Self {
        Self {
            id,
            external_policy: TrafficPolicy::Cluster,
            internal_policy: TrafficPolicy::Cluster,
            session_affinity_timeout: 0,
            affinity_shared: false,
            balance: Balance::Random,
            reset_connections: false,
            failover: FailoverMode::Off,
            assignment: Assignment {
                addresses: Carrier::Nftables,
                node_ports: None,
                reason: None,
            },
            cluster_ips: Addresses::new(),
            external_ips: Addresses::new(),
            load_balancer_ips: Addresses::new(),
            source_ranges: BTreeSet::new(),
            source_ranges_on_node_ports: false,
            health_check_node_port: None,
            ports: Vec::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Its addresses of every kind, each once.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let others = self
            .external_ips
            .iter()
            .filter(|address| !self.cluster_ips.contains(address));
        self.cluster_ips.iter().chain(others).copied()
    }

    /// True if the service has this address's family: that of its cluster IPs; without any, that of its other addresses, or both
    /// if it has node ports. Backends of another family are of no use to it.
    pub fn is_in_family_of(&self, address: IpAddr) -> bool {
        let own = if self.cluster_ips.is_empty() {
            &self.external_ips
        } else {
            &self.cluster_ips
        };
        let is_on_node = || self.ports.iter().any(|port| port.node_port.is_some());
        own.iter().any(|own| own.is_ipv4() == address.is_ipv4())
            || self.cluster_ips.is_empty() && is_on_node()
    }

    /// True if there are backends, and all of them are of no use because of their family.
    pub fn has_only_backends_of_other_family(&self) -> bool {
        let mut backends = self.ports.iter().flat_map(|port| &port.backends).peekable();
        backends.peek().is_some() && !backends.any(|backend| self.is_in_family_of(backend.address))
    }

    /// Its ports without any backend that is of use to it: connections to them are refused.
    pub fn ports_without_backends(&self) -> impl Iterator<Item = &ServicePort> {
        let is_useful = |backend: &Backend| self.is_in_family_of(backend.address);
        self.ports
            .iter()
            .filter(move |port| !port.backends.iter().any(is_useful))
    }

    /// All frontends of this service, including those that belong to another service; each once, even where an external address
    /// is a cluster IP too.
    pub fn frontends(&self) -> BTreeSet<Frontend> {
        let addresses = || self.cluster_ips.iter().chain(&*self.external_ips);
        let of_port = |port: &ServicePort| {
            let &ServicePort {
                port,
                protocol,
                node_port,
                ..
            } = port;
            let of_addresses = addresses().map(move |&address| Frontend::Address {
                address,
                protocol,
                port,
            });
            of_addresses.chain(node_port.map(|port| Frontend::NodePort { protocol, port }))
        };
        self.ports.iter().flat_map(of_port).collect()
    }

    /// Compares [`Self::frontends`] of both without building them. May be false although they are equal.
    pub fn has_frontends_of(&self, other: &Self) -> bool {
        let of_port = |port: &ServicePort| (port.port, port.protocol, port.node_port);
        self.cluster_ips == other.cluster_ips
            && self.external_ips == other.external_ips
            && self
                .ports
                .iter()
                .map(of_port)
                .eq(other.ports.iter().map(of_port))
    }
}

/// One port of a service and the backends behind it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServicePort {
    /// On cluster and external addresses.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Empty for a service's only port.
    pub name: Arc<str>,
    /// On the addresses of the node; none if the service has no node port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<u16>,
    /// Sorted, each address and port once. Only backends in a [`BackendState`](crate::BackendState); see [`crate::selection`].
    pub backends: Vec<Backend>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_those_of_addresses_or_both_with_node_ports() {
        let of = |cluster_ips: &[&str],
                  external_ips: &[&str],
                  node_port: Option<u16>,
                  backends: &[&str]| {
            let addresses =
                |ips: &[&str]| -> Addresses { ips.iter().map(|ip| ip.parse().unwrap()).collect() };
            let backend = |ip: &&str| Backend::new((ip.parse::<IpAddr>().unwrap(), 8080).into());
            let backends = backends.iter().map(backend).collect();
            let port = ServicePort {
                port: 80,
                protocol: Protocol::Tcp,
                name: "".into(),
                node_port,
                backends,
            };
            ContivService {
                cluster_ips: addresses(cluster_ips),
                external_ips: addresses(external_ips),
                ports: vec![port],
                ..ContivService::new(ServiceId::new("default", "web"))
            }
        };
        let (v4, v6): (IpAddr, IpAddr) = ("10.1.0.1".parse().unwrap(), "fd01::1".parse().unwrap());
        for (cluster_ips, external_ips, node_port, expected) in [
            (
                &["10.96.0.1"][..],
                &["fd00::1"][..],
                Some(30080),
                (true, false),
            ),
            (&["fd00::1"], &[], None, (false, true)),
            (&["10.96.0.1", "fd00::1"], &[], None, (true, true)),
            (&[], &["192.0.2.1"], None, (true, false)),
            (&[], &["192.0.2.1"], Some(30080), (true, true)),
            (&[], &[], Some(30080), (true, true)),
        ] {
            let service = of(cluster_ips, external_ips, node_port, &["10.1.0.1"]);
            let families = (service.is_in_family_of(v4), service.is_in_family_of(v6));
            assert_eq!(
                families, expected,
                "{cluster_ips:?} {external_ips:?} {node_port:?}"
            );
            assert_eq!(service.has_only_backends_of_other_family(), !expected.0);
        }
        assert!(
            !of(&["fd00::1"], &[], None, &["10.1.0.1", "fd01::1"])
                .has_only_backends_of_other_family()
        );
        assert!(!of(&["fd00::1"], &[], None, &[]).has_only_backends_of_other_family());
    }
}
