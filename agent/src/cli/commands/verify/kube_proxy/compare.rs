//! Compares what contiv and kube-proxy do with new connections, for every frontend that one of them has.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use contiv_model::{
    FlowEnd, Frontend, NodeFacts, ServiceId, Snapshot, Trace, VerdictKind,
    trace::{Affinity, Candidate, Client, DropReason, Flow, Verdict, trace},
};
use contiv_renderer::packet_path::{KubeProxy, PathError, ProxyFrontend};
use serde::Serialize;

use crate::cli::commands::compared_flows::{
    ComparedClient, Destination, OtherRules, Unknown, flows, visit_destinations,
};

/// The rules of kube-proxy.
pub(super) trait ProxyRules: OtherRules {
    /// Its mode: "nftables" or "iptables".
    fn mode(&self) -> &'static str;
}

impl ProxyRules for KubeProxy {
    fn mode(&self) -> &'static str {
        self.mode()
    }
}

impl OtherRules for KubeProxy {
    fn frontends(&self) -> &BTreeMap<Frontend, ProxyFrontend> {
        self.frontends()
    }

    fn node_port_addresses(&self, node: &NodeFacts) -> BTreeSet<IpAddr> {
        self.node_port_addresses(node)
    }

    fn ends(&self, flow: &Flow, node: &NodeFacts) -> Result<BTreeSet<FlowEnd>, PathError> {
        self.ends(flow, node)
    }
}

/// The result.
#[derive(Debug, Default, Serialize)]
pub(super) struct Comparison {
    /// The number of compared frontends; each address of node ports counts.
    pub(super) frontends: usize,
    /// The number of compared connections: frontends by clients.
    pub(super) connections: usize,
    /// What a user who goes over to contiv may not expect.
    pub(super) differences: BTreeSet<Difference>,
    /// Differences that a setting of contiv, or what it documents, explains.
    pub(super) intended: BTreeSet<Difference>,
    /// What cannot be compared.
    pub(super) unknown: BTreeSet<Unknown>,
}

/// Connections that end differently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Difference {
    /// The service that has the frontend, in contiv or else in kube-proxy.
    pub(super) service: Option<ServiceId>,
    /// The frontend, which says whether it is a node port.
    pub(super) frontend: Frontend,
    /// The address and port.
    pub(super) to: SocketAddr,
    /// The clients.
    pub(super) clients: BTreeSet<ComparedClient>,
    /// In short.
    pub(super) summary: String,
    /// Why it is intended; empty if it is not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    /// How they end by kube-proxy; several ends depend on chance.
    pub(super) kube_proxy: BTreeSet<FlowEnd>,
    /// How they end by contiv.
    pub(super) contiv: FlowEnd,
}

/// Compares all frontends.
pub(super) fn compare(snapshot: &Snapshot, rules: &impl ProxyRules) -> Comparison {
    let visit = |comparison: &mut Comparison, destination, few: &Snapshot| {
        comparison.compare_at(destination, few, rules);
    };
    let mut all = Comparison::default();
    for part in visit_destinations(snapshot, rules, |_| true, visit) {
        all.frontends += part.frontends;
        all.connections += part.connections;
        all.differences.extend(part.differences);
        all.intended.extend(part.intended);
        all.unknown.extend(part.unknown);
    }
    all
}

impl Comparison {
    fn compare_at(
        &mut self,
        destination: Destination,
        services: &Snapshot,
        rules: &impl ProxyRules,
    ) {
        let Destination { frontend, to, .. } = destination;
        self.frontends += 1;
        let known = rules.frontends().get(&frontend);
        let (mut service, mut has_contiv) = (None, false);
        let mut by_ends: BTreeMap<_, BTreeSet<ComparedClient>> = BTreeMap::new();
        for (client, flow) in flows(destination, services, rules) {
            self.connections += 1;
            let traced = trace(services, &flow);
            has_contiv |= traced.matched_port.is_some();
            let of_contiv = traced.matched_port.as_ref().map(|port| &port.service);
            let of_proxy = known.and_then(|known| known.service.as_ref());
            service = service.or_else(|| of_contiv.or(of_proxy).cloned());
            let kube_proxy = match rules.ends(&flow, &services.node) {
                Ok(ends) => ends,
                Err(error) => {
                    self.unknown.insert(Unknown {
                        service: service.clone(),
                        frontend,
                        to,
                        reason: error.to_string(),
                    });
                    continue;
                }
            };
            let contiv = FlowEnd::of(&traced);
            if kube_proxy == BTreeSet::from([contiv.clone()]) {
                continue;
            }
            let reason = if rules.mode() == "iptables"
                && is_left_alone(client, &kube_proxy, &contiv, destination, services)
            {
                "mode iptables leaves this node's own connections to such addresses alone"
                    .to_owned()
            } else {
                reason(&traced, &contiv, &kube_proxy, destination, services)
            };
            let clients = by_ends.entry((kube_proxy, contiv, reason)).or_default();
            clients.insert(client);
        }
        for ((kube_proxy, contiv, reason), clients) in by_ends {
            let difference = Difference {
                service: service.clone(),
                frontend,
                to,
                clients,
                summary: if known.is_none() && contiv.verdict != VerdictKind::NoService {
                    format!("only contiv {} it", verb(contiv.verdict))
                } else if let (false, Some(only)) = (has_contiv, kube_proxy.first()) {
                    format!("only kube-proxy {} it", verb(only.verdict))
                } else {
                    describe(&kube_proxy, &contiv)
                },
                reason,
                kube_proxy,
                contiv,
            };
            if difference.reason.is_empty() {
                self.differences.insert(difference);
            } else {
                self.intended.insert(difference);
            }
        }
    }

    /// What differs now, of what differed before too: what differs twice is no change in progress, though it may differ in another way.
    pub(super) fn confirmed_by(self, mut second: Self) -> Self {
        let differences = self.differences.iter().chain(&self.intended);
        let differed: BTreeSet<(Frontend, SocketAddr)> = differences
            .map(|it| (it.frontend, it.to))
            .chain(self.unknown.iter().map(|it| (it.frontend, it.to)))
            .collect();
        let stays = |frontend, to| differed.contains(&(frontend, to));
        second.differences.retain(|it| stays(it.frontend, it.to));
        second.unknown.retain(|it| stays(it.frontend, it.to));
        second
    }

    pub(super) fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.unknown.is_empty()
    }
}

/// Whether kube-proxy in mode iptables does nothing with a connection of this node to an external address without endpoints, which it
/// refuses for others: its rules for that are not at the hook output.
fn is_left_alone(
    client: ComparedClient,
    kube_proxy: &BTreeSet<FlowEnd>,
    contiv: &FlowEnd,
    Destination { frontend, to, .. }: Destination,
    services: &Snapshot,
) -> bool {
    let mut served = services.services.values();
    client == ComparedClient::Kind(Client::Node)
        && matches!(frontend, Frontend::Address { .. })
        && !served.any(|service| service.cluster_ips.contains(&to.ip()))
        && contiv.verdict == VerdictKind::Rejected
        && kube_proxy
            .iter()
            .all(|end| end.verdict == VerdictKind::NoService)
}

/// Why connections end differently on purpose; empty if nothing explains all of it.
fn reason(
    traced: &Trace,
    contiv: &FlowEnd,
    kube_proxy: &BTreeSet<FlowEnd>,
    destination: Destination,
    services: &Snapshot,
) -> String {
    let Destination { frontend, to, .. } = destination;
    let is_alone = |kind| kube_proxy.len() == 1 && kube_proxy.iter().all(|end| end.verdict == kind);
    let is_node_port = matches!(frontend, Frontend::NodePort { .. });
    let holder = traced.matched_port.as_ref().map(|port| &port.service);
    let holder = holder.and_then(|holder| services.services.get(holder));
    if contiv.verdict == VerdictKind::Routed {
        return "routes lead to its backends (renderer route)".to_owned();
    }
    // Of several services kube-proxy takes one too.
    if !traced.lost.is_empty() && !is_alone(VerdictKind::NoService) {
        return "several services claim it: the older one gets it".to_owned();
    }
    if is_node_port
        && matches!(
            traced.verdict,
            Verdict::Dropped(DropReason::SourceRanges(_))
        )
    {
        return "source-ranges-on-node-ports".to_owned();
    }
    if is_alone(VerdictKind::NoService) {
        if is_node_port && services.node.other_node_ips.contains(&to.ip()) {
            return "node-port-addresses = \"cluster\"".to_owned();
        }
        if is_node_port && to.ip().is_loopback() {
            return "node-ports-on-loopback".to_owned();
        }
        if holder.is_some_and(|service| service.cluster_ips.is_empty()) {
            return "the service has no cluster IP".to_owned();
        }
    }
    let Verdict::Backends(delivery) = &traced.verdict else {
        return String::new();
    };
    // What contiv's own features change is taken back, one after the other, until both are equal.
    let mut end = contiv.clone();
    let mut reasons = Vec::new();
    if contiv.affinity == Affinity::ClientAddress
        && let Some(other) = kube_proxy.first()
    {
        end.affinity = other.affinity;
        reasons.push("the annotation of the service chooses by client address");
    }
    if !delivery.failing.is_empty() {
        end.backends.extend(&delivery.failing);
        if !end.masqueraded.is_empty() {
            end.masqueraded.extend(&delivery.failing);
        }
        reasons.push("backends do not answer this node (failover)");
    }
    if delivery.candidates.iter().any(|candidate| candidate.egress)
        && !delivery.masquerade.is_hidden()
    {
        let hidden = delivery.candidates.iter().filter(|it| !it.stays);
        let hidden = hidden.filter(|candidate| candidate.hairpin);
        end.masqueraded = hidden.map(Candidate::endpoint).collect();
        reasons.push("masquerade-egress");
    }
    if *kube_proxy == BTreeSet::from([end]) {
        reasons.join("; ")
    } else {
        String::new()
    }
}

/// A difference in a few words.
fn describe(kube_proxy: &BTreeSet<FlowEnd>, contiv: &FlowEnd) -> String {
    let [only] = &kube_proxy.iter().collect::<Vec<_>>()[..] else {
        let kinds: Vec<&str> = kube_proxy.iter().map(|end| verb(end.verdict)).collect();
        return format!(
            "kube-proxy {} by chance, contiv {}",
            kinds.join(" or "),
            verb(contiv.verdict)
        );
    };
    match (only.verdict, contiv.verdict) {
        (VerdictKind::Served, VerdictKind::Served) => describe_backends(only, contiv),
        (VerdictKind::NoService, _) => format!("only contiv {} it", verb(contiv.verdict)),
        (_, VerdictKind::NoService) => format!("only kube-proxy {} it", verb(only.verdict)),
        (one, other) => format!("kube-proxy {}, contiv {}", verb(one), verb(other)),
    }
}

const fn verb(verdict: VerdictKind) -> &'static str {
    match verdict {
        VerdictKind::Served => "serves",
        VerdictKind::Rejected => "rejects",
        VerdictKind::Dropped => "drops",
        VerdictKind::Routed => "routes",
        VerdictKind::NoService => "ignores",
    }
}

fn describe_backends(kube_proxy: &FlowEnd, contiv: &FlowEnd) -> String {
    let mut parts = Vec::new();
    for (name, own, other) in [
        ("kube-proxy", kube_proxy, contiv),
        ("contiv", contiv, kube_proxy),
    ] {
        let missing: Vec<&SocketAddr> = other.backends.difference(&own.backends).collect();
        match &missing[..] {
            [] => {}
            [one] => parts.push(format!("{name} lacks {one}")),
            [one, more @ ..] => parts.push(format!("{name} lacks {one} and {} more", more.len())),
        }
    }
    let both: BTreeSet<SocketAddr> = &kube_proxy.backends & &contiv.backends;
    let hidden = [kube_proxy, contiv].map(|end| &end.masqueraded & &both);
    if hidden[0] != hidden[1] {
        let is_none = hidden.each_ref().map(BTreeSet::is_empty);
        parts.push(match is_none {
            [false, true] => "only kube-proxy masquerades".to_owned(),
            [true, false] => "only contiv masquerades".to_owned(),
            _ => format!(
                "kube-proxy masquerades to {} of {}, contiv to {}",
                hidden[0].len(),
                both.len(),
                hidden[1].len()
            ),
        });
    }
    if kube_proxy.affinity != contiv.affinity {
        let [one, other] = [kube_proxy, contiv].map(|end| affinity(end.affinity));
        parts.push(format!("affinity: kube-proxy {one}, contiv {other}"));
    }
    parts.join("; ")
}

fn affinity(affinity: Affinity) -> String {
    match affinity {
        Affinity::None => "none".to_owned(),
        Affinity::Timeout { seconds } => format!("{seconds} s"),
        Affinity::ClientAddress => "by address".to_owned(),
    }
}

#[cfg(test)]
mod tests;
