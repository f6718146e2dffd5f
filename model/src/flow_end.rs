//! How new connections end, in short: so that two states can be compared.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;

use crate::{
    NodeFacts,
    trace::{Affinity, Candidate, Trace, Verdict},
};

/// A client that is neither this node nor one of its pods: of the networks for documentation (RFC 5737, RFC 3849).
const EXTERNAL_CLIENTS: [&str; 2] = ["198.51.100.7", "2001:db8:ffff::7"];

/// How new connections end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FlowEnd {
    /// The verdict.
    pub verdict: VerdictKind,
    /// The backends that may get one.
    pub backends: BTreeSet<SocketAddr>,
    /// Those of them that see an address of the node in place of the client's.
    pub masqueraded: BTreeSet<SocketAddr>,
    /// How a client's backend is chosen.
    pub affinity: Affinity,
}

/// The kind of a [`Verdict`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// It goes to a backend.
    Served,
    /// It is refused.
    Rejected,
    /// It is dropped.
    Dropped,
    /// Routes lead to the backends.
    Routed,
    /// It is none of a service.
    NoService,
}

impl FlowEnd {
    /// An end without backends.
    pub const fn without_backends(verdict: VerdictKind) -> Self {
        Self {
            verdict,
            backends: BTreeSet::new(),
            masqueraded: BTreeSet::new(),
            affinity: Affinity::None,
        }
    }

    /// The end of a traced connection.
    pub fn of(trace: &Trace) -> Self {
        match &trace.verdict {
            Verdict::Backends(delivery) => Self {
                verdict: VerdictKind::Served,
                backends: delivery
                    .candidates
                    .iter()
                    .map(Candidate::endpoint)
                    .collect(),
                masqueraded: delivery
                    .candidates
                    .iter()
                    .filter(|candidate| delivery.is_hidden_from(candidate))
                    .map(Candidate::endpoint)
                    .collect(),
                affinity: delivery.affinity,
            },
            Verdict::Rejected(_) => Self::without_backends(VerdictKind::Rejected),
            Verdict::Dropped(_) => Self::without_backends(VerdictKind::Dropped),
            Verdict::Routed => Self::without_backends(VerdictKind::Routed),
            Verdict::Egress | Verdict::Untouched => Self::without_backends(VerdictKind::NoService),
        }
    }
}

/// An address of a client of each class that the node knows.
pub fn client_examples(node: &NodeFacts, is_ipv4: bool) -> Vec<IpAddr> {
    let of_family = |address: &IpAddr| address.is_ipv4() == is_ipv4;
    let pod = node
        .pod_cidrs
        .iter()
        .map(ipnetwork::IpNetwork::ip)
        .find(of_family);
    // An address that the node is known by is none of a bridge of pods.
    let own = node.primary_ips.iter().chain(&node.local_ips);
    let own = own.chain(&node.node_ips).copied();
    let own = own
        .filter(|own| {
            !own.is_loopback() && !node.pod_cidrs.iter().any(|range| range.contains(*own))
        })
        .find(of_family);
    let external = EXTERNAL_CLIENTS
        .iter()
        .filter_map(|text| text.parse().ok())
        .find(of_family);
    [pod, own, external].into_iter().flatten().collect()
}
