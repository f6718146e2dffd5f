//! Explains where a packet goes: the effect of the desired state on one new connection.
//!
//! Written from the rules (kube-proxy's, and `docs/builders/nft-layout.md` where we differ) and not from a renderer's code: renderers
//! are tested against this.

mod delivery;
mod egress;
mod flow;
mod lookup;
mod reason;
mod text;

use std::{collections::BTreeSet, sync::Arc};

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::{ContivService, InterfaceName, ServiceId, Snapshot};
use delivery::deliver;
use lookup::{Claim, find, is_service};

pub use delivery::{Affinity, Candidate, Delivery, Masquerade, Pool, Rule};
pub use flow::{Client, Detection, Flow, MixedFamilies};
pub use lookup::{FrontendKind, LostClaim, MatchedPort};
pub use reason::{EndpointPortName, Reason, ServicePortName};

/// The outcome of a flow, with its reasons. The text form is for people, the JSON form for programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The flow.
    pub flow: Flow,
    /// The class of its client.
    pub client: Client,
    /// Whether pods of this node can be identified.
    pub detection: Detection,
    /// The service port that it matches; none if no service does.
    #[serde(rename = "hit")]
    pub matched_port: Option<MatchedPort>,
    /// Services that claim the same destination, which another service holds.
    pub lost: Vec<LostClaim>,
    /// The outcome.
    pub verdict: Verdict,
    /// More about why: reasons in stored objects, which only [`crate::Processor::reasons`] knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

/// The outcome of a flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It goes to a backend.
    Backends(Delivery),
    /// It is refused at once: a TCP reset, or an ICMP error.
    Rejected(RejectReason),
    /// It is dropped without an answer.
    Dropped(DropReason),
    /// It is left unchanged: routes lead to the backends of its service.
    Routed,
    /// It leaves the cluster with the address of this node: its destination is not a service, its client a pod.
    Egress,
    /// It is left unchanged: its destination is not a service.
    Untouched,
}

/// Why a flow is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectReason {
    /// The port has no usable backend of this family anywhere: none is ready, or terminating and still serving.
    NoBackends,
    /// The port has only backends of the other family, and nothing translates between families.
    BackendsOfOtherFamily,
    /// The cluster IP belongs to this service, which has no such port.
    UnknownPort(ServiceId),
}

/// Why a flow is dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// The client is in none of the ranges that may connect, which are these.
    SourceRanges(BTreeSet<IpNetwork>),
    /// There are backends, but none on this node, and the internal policy is Local.
    InternalPolicyLocal,
    /// There are backends, but none on this node, the external policy is Local, and the client is external.
    ExternalPolicyLocal,
    /// It comes in by this interface, where services do not answer.
    Interface(InterfaceName),
    /// The address is in this range of cluster IPs, and unallocated.
    UnallocatedAddress(IpNetwork),
}

/// Traces a new connection on this node.
pub fn trace(snapshot: &Snapshot, flow: &Flow) -> Trace {
    let client = Client::of(flow, &snapshot.node);
    let (claim, lost) = find(snapshot, flow);
    let closed = flow
        .interface()
        .filter(|name| !snapshot.node.serves_at(Some(*name)));
    let verdict = match &claim {
        _ if closed.is_some() && client != Client::Node && is_service(snapshot, flow) => {
            Verdict::Dropped(DropReason::Interface(
                closed.cloned().unwrap_or_else(|| InterfaceName::new("")),
            ))
        }
        Some(claim) => service_verdict(claim, flow, client, snapshot),
        None => no_service_verdict(snapshot, flow, client),
    };
    Trace {
        flow: flow.clone(),
        client,
        detection: Detection::of(flow, &snapshot.node),
        matched_port: claim.map(|claim| claim.matched_port()),
        lost,
        verdict,
        reasons: Vec::new(),
    }
}

fn service_verdict(claim: &Claim<'_>, flow: &Flow, client: Client, snapshot: &Snapshot) -> Verdict {
    let Claim {
        service,
        port,
        kind,
        ..
    } = *claim;
    if kind != FrontendKind::NodePort && !service.assignment.addresses.translates() {
        return Verdict::Routed;
    }
    if let Some(ranges) = forbidding_ranges(service, kind, flow) {
        return Verdict::Dropped(DropReason::SourceRanges(ranges));
    }
    let rule = Rule::of(service, kind, client);
    if let Some(delivery) = deliver(service, port, rule, flow, client, snapshot) {
        return Verdict::Backends(delivery);
    }
    let is_served_elsewhere = port
        .backends
        .iter()
        .any(|backend| flow.is_of_family(&backend.address));
    match rule {
        Rule::InternalLocal if is_served_elsewhere => {
            Verdict::Dropped(DropReason::InternalPolicyLocal)
        }
        Rule::ExternalLocal if is_served_elsewhere => {
            Verdict::Dropped(DropReason::ExternalPolicyLocal)
        }
        // There is none of the flow's family.
        _ if !port.backends.is_empty() => Verdict::Rejected(RejectReason::BackendsOfOtherFamily),
        _ => Verdict::Rejected(RejectReason::NoBackends),
    }
}

/// The ranges of the flow's family, if its client is in none of them. They apply to load-balancer addresses, and to node ports
/// if configured; a range of length 0 matches everyone.
fn forbidding_ranges(
    service: &ContivService,
    kind: FrontendKind,
    flow: &Flow,
) -> Option<BTreeSet<IpNetwork>> {
    let is_restricted = match kind {
        // A load balancer's address that is a cluster IP too is restricted all the same.
        FrontendKind::LoadBalancer | FrontendKind::ClusterIp => {
            service.load_balancer_ips.contains(&flow.to())
        }
        FrontendKind::ExternalIp => false,
        FrontendKind::NodePort => service.source_ranges_on_node_ports,
    };
    let of_family = service
        .source_ranges
        .iter()
        .filter(|range| flow.is_of_family(&range.ip()));
    let ranges: BTreeSet<IpNetwork> = of_family.copied().collect();
    let is_allowed = ranges.is_empty()
        || ranges
            .iter()
            .any(|range| range.prefix() == 0 || range.contains(flow.from()));
    (is_restricted && !is_allowed).then_some(ranges)
}

fn no_service_verdict(snapshot: &Snapshot, flow: &Flow, client: Client) -> Verdict {
    let to = flow.to();
    let has_it = |service: &&Arc<ContivService>| {
        service.assignment.addresses.translates() && service.cluster_ips.contains(&to)
    };
    let owner = snapshot.services.values().find(has_it);
    let range = snapshot
        .node
        .service_cidrs
        .iter()
        .find(|range| range.contains(to));
    match (owner, range) {
        (Some(service), _) => Verdict::Rejected(RejectReason::UnknownPort(service.id.clone())),
        (None, Some(range)) => Verdict::Dropped(DropReason::UnallocatedAddress(*range)),
        (None, None) if egress::is_masqueraded(snapshot, client, to) => Verdict::Egress,
        (None, None) => Verdict::Untouched,
    }
}

#[cfg(test)]
mod tests;
