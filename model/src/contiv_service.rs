//! What renderers see: a service combined with everything that stands behind it, as this node sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use ipnetwork::IpNetwork;
use serde::Serialize;

use crate::{Frontend, Protocol, ServiceId};

/// Which backends a kind of traffic may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub enum TrafficPolicy {
    /// All of the cluster.
    #[default]
    Cluster,
    /// Only those on this node.
    Local,
}

/// A service with its backends. Complete: a renderer needs nothing else to render it but the [`NodeFacts`].
///
/// A service that nothing stands behind is one too, without backends, so that it can be rejected; Contiv left it out. Left
/// out here are those that are not for this proxy: headless ones, aliases, those labelled for another proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContivService {
    /// Namespace and name.
    pub id: ServiceId,
    /// For traffic to external addresses and node ports.
    pub external_policy: TrafficPolicy,
    /// For traffic to cluster addresses.
    pub internal_policy: TrafficPolicy,
    /// Seconds a client stays with its backend; 0 means no affinity.
    pub session_affinity_timeout: u32,
    /// Cluster addresses, at most one per family. Empty only outside Kubernetes: headless services are not rendered.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// External addresses, including those of load-balancer ingress that this node must answer for.
    pub external_ips: BTreeSet<IpAddr>,
    /// Sorted by port, protocol and name.
    pub ports: Vec<ServicePort>,
    /// Frontends that this service asks for and an older service (the value) holds. Renderers leave them out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<Frontend, ServiceId>,
}

impl ContivService {
    /// Everything that clients can connect to by this service, whether or not another service holds it; each once, even
    /// where an external address is a cluster address too.
    pub fn frontends(&self) -> BTreeSet<Frontend> {
        let addresses = || self.cluster_ips.iter().chain(&self.external_ips);
        let of_port = |port: &ServicePort| {
            let &ServicePort { port, protocol, node_port, .. } = port;
            let of_addresses = addresses().map(move |&address| Frontend::Address { address, protocol, port });
            of_addresses
                .chain(node_port.map(|port| Frontend::NodePort { protocol, port }))
                .collect::<Vec<_>>()
        };
        self.ports.iter().flat_map(of_port).collect()
    }
}

/// One port of a service and the backends behind it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ServicePort {
    /// On cluster and external addresses.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Empty for the only port of a service.
    pub name: Arc<str>,
    /// On the addresses of the node; none if the service has no node port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_port: Option<u16>,
    /// Sorted, each address and port once. Only backends in a [`BackendState`]; see [`crate::selection`].
    pub backends: Vec<Backend>,
}

/// Where connections of a service port can go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Backend {
    /// The address the kernel is to send to.
    pub address: IpAddr,
    /// The port on that address.
    pub port: u16,
    /// It runs on this node.
    pub local: bool,
    /// Its address is one of a node, not of a pod's own.
    pub host_network: bool,
    /// Share of new connections relative to the other backends of the port; at least 1.
    pub weight: u16,
    /// Whether it takes connections, or only as a last resort.
    pub state: BackendState,
}

impl Backend {
    /// Address and port as one value.
    pub const fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// The states in which a backend is of any use (KEP-1669). Others never reach a renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum BackendState {
    /// Takes new connections.
    Ready,
    /// On its way out but still serving: used only where no ready one is left.
    Terminating,
}

/// Facts about this node that renderers need next to the services.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct NodeFacts {
    /// Addresses of this node on which node ports answer.
    pub node_ips: BTreeSet<IpAddr>,
    /// Ranges of the pods on this node: their traffic keeps its source address. Sorted, without duplicates.
    pub pod_cidrs: BTreeSet<IpNetwork>,
}
