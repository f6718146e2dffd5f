//! The backends of a flow, and its source address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};

use super::{Client, Flow, FrontendKind, egress};
use crate::{
    Backend, BackendState, Balance, ClusterIpMasquerade, ContivService, InterfaceName, ServicePort,
    Snapshot, TrafficPolicy,
};

/// The destination of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// The traffic policy that applies.
    pub rule: Rule,
    /// Why these backends were selected.
    pub pool: Pool,
    /// The backends, one of which gets the connection; never empty.
    pub candidates: Vec<Candidate>,
    /// The backends that would be among them, but do not answer this node's clients.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub failing: BTreeSet<SocketAddr>,
    /// The source address that backends see, except those that are masqueraded for another reason ([`Self::is_hidden_from`]).
    pub masquerade: Masquerade,
    /// The address that a masqueraded connection gets where it leaves by these interfaces; by others it is an address of the
    /// interface.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub masquerade_sources: BTreeMap<InterfaceName, IpAddr>,
    /// How one backend is chosen.
    pub affinity: Affinity,
}

/// The rule of traffic policies that applies. Source: kube-proxy's chains for external traffic, KEP-1669.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Cluster IP, internal policy Cluster.
    InternalCluster,
    /// Cluster IP, internal policy Local.
    InternalLocal,
    /// External address or node port, external policy Cluster.
    ExternalCluster,
    /// External address or node port, external policy Local, external client.
    ExternalLocal,
    /// External address or node port, external policy Local, client on this node: as if the packet had gone out to the
    /// load balancer and come back by any node.
    ExternalLocalFromInside,
}

impl Rule {
    /// The rule for this kind of frontend and client.
    pub(super) const fn of(service: &ContivService, kind: FrontendKind, client: Client) -> Self {
        match (
            kind,
            service.internal_policy,
            service.external_policy,
            client,
        ) {
            (FrontendKind::ClusterIp, TrafficPolicy::Cluster, ..) => Self::InternalCluster,
            (FrontendKind::ClusterIp, TrafficPolicy::Local, ..) => Self::InternalLocal,
            (_, _, TrafficPolicy::Cluster, _) => Self::ExternalCluster,
            (_, _, TrafficPolicy::Local, Client::External) => Self::ExternalLocal,
            (_, _, TrafficPolicy::Local, Client::LocalPod | Client::Node) => {
                Self::ExternalLocalFromInside
            }
        }
    }

    /// Only backends on this node.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::InternalLocal | Self::ExternalLocal)
    }
}

/// Why these backends were selected, among those that the policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pool {
    /// All that are ready.
    Ready,
    /// The ready ones that topology hints, or the preference for local backends, assign to this node.
    Topology {
        /// How many ready ones are assigned to others.
        left_out: usize,
    },
    /// The terminating ones that still serve, since none is ready.
    Terminating,
    /// Those that do not answer this node's clients, since there is no other.
    Failing,
}

/// A backend that may get the connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, named in the JSON form"
)]
pub struct Candidate {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its weight, relative to the others.
    pub weight: u16,
    /// Its share of new connections, in percent.
    pub share: f64,
    /// It runs on this node.
    pub local: bool,
    /// Ready, terminating, or failing.
    pub state: BackendState,
    /// The client is this backend: replies would not return through this node, so it is masqueraded in any case.
    pub hairpin: bool,
    /// It is outside the cluster, where pods are not known by their addresses: the client is masqueraded in any case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub egress: bool,
    /// It is at an address of this node itself: packets of other clients do not leave, and those of the node itself come from an
    /// address of the node in any case, so neither are masqueraded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays: bool,
}

impl Candidate {
    /// Address and port as one value.
    pub const fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

impl Delivery {
    /// True if this backend sees an address of this node in place of the client's.
    pub const fn is_hidden_from(&self, candidate: &Candidate) -> bool {
        !candidate.stays && (candidate.hairpin || candidate.egress || self.masquerade.is_hidden())
    }
}

/// The source address that a backend sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Masquerade {
    /// The client's address: from a local pod to a cluster IP.
    KeptForPod,
    /// The client's address: to a cluster IP, where pods cannot be identified.
    KeptForAll,
    /// The client's address: from a local pod to an external address, policy Local.
    KeptForPodByExternalLocal,
    /// The client's address: from outside to an external address, policy Local.
    KeptByExternalLocal,
    /// The node's: to a cluster IP, from a client other than a local pod.
    HiddenNotAPod,
    /// The node's: to a cluster IP, where every client is masqueraded.
    HiddenForAll,
    /// The node's: to an external address, policy Cluster.
    HiddenByExternalCluster,
    /// The node's: from this node itself to an external address, policy Local.
    HiddenForNode,
}

impl Masquerade {
    const fn of(rule: Rule, client: Client, to_cluster_ips: ClusterIpMasquerade) -> Self {
        match (rule, client) {
            (Rule::InternalCluster | Rule::InternalLocal, _) => match (to_cluster_ips, client) {
                (ClusterIpMasquerade::All, _) => Self::HiddenForAll,
                (ClusterIpMasquerade::None, _) => Self::KeptForAll,
                (ClusterIpMasquerade::AllButPods, Client::LocalPod) => Self::KeptForPod,
                (ClusterIpMasquerade::AllButPods, _) => Self::HiddenNotAPod,
            },
            (Rule::ExternalCluster, _) => Self::HiddenByExternalCluster,
            (_, Client::LocalPod) => Self::KeptForPodByExternalLocal,
            (_, Client::Node) => Self::HiddenForNode,
            (_, Client::External) => Self::KeptByExternalLocal,
        }
    }

    /// The backend does not see the client's address.
    pub const fn is_hidden(self) -> bool {
        matches!(
            self,
            Self::HiddenNotAPod
                | Self::HiddenForAll
                | Self::HiddenByExternalCluster
                | Self::HiddenForNode
        )
    }
}

/// How one of the candidates is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Affinity {
    /// At random, separately for each connection.
    None,
    /// At random, then the same until the timeout after the client's last new connection.
    Timeout {
        /// The timeout.
        seconds: u32,
    },
    /// By the client's address: the same while the backends stay.
    ClientAddress,
}

impl Affinity {
    const fn of(service: &ContivService) -> Self {
        let is_by_address = matches!(service.balance, Balance::ClientAddress);
        match service.session_affinity_timeout {
            0 if !is_by_address => Self::None,
            seconds if !is_by_address && !service.affinity_shared => Self::Timeout { seconds },
            _ => Self::ClientAddress,
        }
    }
}

/// The delivery of a flow; none if the rule leaves no backend.
pub(super) fn deliver(
    service: &ContivService,
    port: &ServicePort,
    rule: Rule,
    flow: &Flow,
    client: Client,
    snapshot: &Snapshot,
) -> Option<Delivery> {
    let (backends, pool, failing) = select(port, rule.is_local(), flow);
    let weight_of = |backend: &Backend| backend.weight.max(1);
    let total: f64 = backends
        .iter()
        .map(|backend| f64::from(weight_of(backend)))
        .sum();
    let candidate = |backend: &Backend| Candidate {
        address: backend.address,
        port: backend.port,
        weight: weight_of(backend),
        share: 100.0 * f64::from(weight_of(backend)) / total,
        local: backend.local,
        state: backend.state,
        hairpin: backend.local && backend.address == flow.from(),
        egress: egress::is_masqueraded(snapshot, client, backend.address),
        stays: snapshot.node.is_local_address(backend.address),
    };
    (!backends.is_empty()).then(|| Delivery {
        rule,
        pool,
        candidates: backends.into_iter().map(candidate).collect(),
        failing,
        masquerade: Masquerade::of(rule, client, snapshot.node.cluster_ip_masquerade),
        masquerade_sources: masquerade_sources(flow, snapshot),
        affinity: Affinity::of(service),
    })
}

/// The addresses of the flow's family that masqueraded connections get.
fn masquerade_sources(flow: &Flow, snapshot: &Snapshot) -> BTreeMap<InterfaceName, IpAddr> {
    let of_family = |(name, sources): (&InterfaceName, &BTreeSet<IpAddr>)| {
        let source = sources.iter().find(|source| flow.is_of_family(source))?;
        Some((name.clone(), *source))
    };
    snapshot
        .node
        .masquerade_sources
        .iter()
        .filter_map(of_family)
        .collect()
}

/// kube-proxy's `CategorizeEndpoints`, for one kind of traffic; and the failing backends that are left out. Written separately from
/// [`ServicePort::cluster_backends`], so that each is a check of the other.
fn select<'a>(
    port: &'a ServicePort,
    only_local: bool,
    flow: &Flow,
) -> (Vec<&'a Backend>, Pool, BTreeSet<SocketAddr>) {
    let (mut chosen, mut terminating, mut failing, mut left_out) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    for backend in &port.backends {
        if !flow.is_of_family(&backend.address) || only_local && !backend.local {
            continue;
        }
        match backend.state {
            BackendState::Terminating => terminating.push(backend),
            BackendState::Ready if only_local || backend.in_topology => chosen.push(backend),
            BackendState::Ready => left_out += 1,
            BackendState::Failing => failing.push(backend),
        }
    }
    let (chosen, pool) = match (chosen.is_empty(), left_out) {
        (true, _) if terminating.is_empty() => {
            return (failing, Pool::Failing, BTreeSet::new());
        }
        (true, _) => (terminating, Pool::Terminating),
        (false, 0) => (chosen, Pool::Ready),
        (false, _) => (chosen, Pool::Topology { left_out }),
    };
    (
        chosen,
        pool,
        failing.into_iter().map(Backend::endpoint).collect(),
    )
}
