//! Compares what contiv and kube-proxy do with new connections, for every frontend that one of them has.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use contiv_model::{
    FlowEnd, Frontend, NodeFacts, Protocol, ServiceId, Snapshot, Trace, VerdictKind,
    trace::{Affinity, Candidate, Client, DropReason, Flow, Verdict, trace},
};
use contiv_renderer::packet_path::{KubeProxy, PathError, ProxyCluster, ProxyFrontend};
use serde::Serialize;

use crate::cli::commands::compared_flows::{
    ComparedClient, Destination, OtherRules, Place, ServiceIndex, Unknown, destinations, flows,
    node_port_addresses, visit_destinations,
};

/// A port, or one below it, that the service with a cluster IP does not have.
const UNUSED_PORT: u16 = 79;

/// What nothing uses at a destination: neither proxy has a frontend there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unused {
    /// The port of a cluster IP.
    Port,
    /// An address in the range of cluster IPs.
    Address,
}

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

    fn cluster(&self) -> Option<&ProxyCluster> {
        Some(self.cluster())
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

/// Compares all frontends, or only those at some places.
pub(super) fn compare(
    snapshot: &Snapshot,
    rules: &impl ProxyRules,
    only: Option<&BTreeSet<Place>>,
) -> Comparison {
    let index = ServiceIndex::new(snapshot);
    let mut all = Comparison {
        unknown: node_ports_without_address(&index, snapshot, rules),
        ..Comparison::default()
    };
    let unused = unused_destinations(&index, snapshot, rules);
    let mut destinations = destinations(&index, snapshot, rules);
    destinations.extend(unused.keys());
    if let Some(places) = only {
        destinations.retain(|it| places.contains(&it.place()));
        all.unknown
            .retain(|it| places.contains(&(it.frontend, it.to)));
    }
    let visit = |comparison: &mut Comparison, destination, few: &Snapshot| {
        let unused = unused.get(&destination).copied();
        comparison.compare_at(destination, unused, few, rules);
    };
    for part in visit_destinations(&index, snapshot, destinations, visit) {
        all.frontends += part.frontends;
        all.connections += part.connections;
        all.differences.extend(part.differences);
        all.intended.extend(part.intended);
        all.unknown.extend(part.unknown);
    }
    all
}

/// The node ports of services in whose family no address of this node is known.
fn node_ports_without_address(
    index: &ServiceIndex<'_>,
    snapshot: &Snapshot,
    rules: &impl ProxyRules,
) -> BTreeSet<Unknown> {
    let addresses = node_port_addresses(snapshot, rules);
    let has_address = [true, false].map(|is_ipv4| {
        let mut all = addresses.iter();
        all.any(|address| address.is_ipv4() == is_ipv4 && !address.is_loopback())
    });
    let mut found = BTreeSet::new();
    for (frontend, services) in &index.by_frontend {
        let Frontend::NodePort { port, .. } = *frontend else {
            continue;
        };
        for service in services {
            let families = service.cluster_ips.iter().map(IpAddr::is_ipv4);
            let lacks = |is_ipv4: &bool| !has_address[usize::from(!is_ipv4)];
            let unknown = families.filter(lacks).map(|is_ipv4| Unknown {
                service: Some(service.id.clone()),
                frontend: *frontend,
                to: SocketAddr::new(unspecified(is_ipv4), port),
                reason: "no address of this node for node ports is known in this family (its Node object, or node-ips)"
                    .to_owned(),
            });
            found.extend(unknown);
        }
    }
    found
}

const fn unspecified(is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    }
}

/// Of each family a port of a cluster IP, and an address in each range of cluster IPs, that no service uses.
fn unused_destinations(
    index: &ServiceIndex<'_>,
    snapshot: &Snapshot,
    rules: &impl ProxyRules,
) -> BTreeMap<Destination, Unused> {
    let (protocol, port) = (Protocol::Tcp, UNUSED_PORT);
    let at = |address, port, unused| {
        let frontend = Frontend::Address {
            address,
            protocol,
            port,
        };
        let is_used =
            index.by_frontend.contains_key(&frontend) || rules.frontends().contains_key(&frontend);
        let destination = Destination {
            frontend,
            to: SocketAddr::new(address, port),
            protocol,
        };
        (!is_used).then_some((destination, unused))
    };
    let of_proxy = rules
        .frontends()
        .keys()
        .filter_map(|frontend| match frontend {
            Frontend::Address { address, .. } => Some(*address),
            Frontend::NodePort { .. } => None,
        });
    let of_proxy: BTreeSet<IpAddr> = of_proxy.collect();
    let own_ranges = snapshot.node.service_cidrs.iter();
    let own_ranges = own_ranges.map(|range| (range.network(), range.broadcast()));
    let of_rules = rules.cluster();
    let ranges: Vec<(IpAddr, IpAddr)> = own_ranges
        .chain(
            of_rules
                .into_iter()
                .flat_map(|it| it.cluster_ips.iter().copied()),
        )
        .collect();
    let mut found = BTreeMap::new();
    for is_ipv4 in [true, false] {
        let mut known = index
            .by_cluster_ip
            .keys()
            .filter(|address| address.is_ipv4() == is_ipv4 && of_proxy.contains(address));
        let ports = || (1..=port).rev();
        found.extend(
            known
                .next()
                .and_then(|address| ports().find_map(|port| at(*address, port, Unused::Port))),
        );
        // The last addresses are allocated last. One of so many is free, unless the range is full.
        let in_range = |(low, high): &(IpAddr, IpAddr)| {
            let addresses = std::iter::successors(before(*high), |address| before(*address));
            let free = |address: &IpAddr| {
                !of_proxy.contains(address) && !index.by_cluster_ip.contains_key(address)
            };
            let last = addresses.take_while(|address| address > low).find(free);
            last.and_then(|address| at(address, port, Unused::Address))
        };
        let of_family = ranges.iter().filter(|(low, _)| low.is_ipv4() == is_ipv4);
        found.extend(of_family.filter_map(in_range));
    }
    found
}

impl Comparison {
    fn compare_at(
        &mut self,
        destination: Destination,
        unused: Option<Unused>,
        services: &Snapshot,
        rules: &impl ProxyRules,
    ) {
        let Destination { frontend, to, .. } = destination;
        self.frontends += usize::from(unused.is_none());
        let known = rules.frontends().get(&frontend);
        // Nothing at an unused port of a service names it.
        let mut service = unused.and_then(|_| services.services.keys().next().cloned());
        let mut has_contiv = false;
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
            let is_ignored = kube_proxy
                .iter()
                .all(|end| end.verdict == VerdictKind::NoService);
            let is_iptables = rules.mode() == "iptables" && is_ignored;
            let reason = if is_iptables && unused.is_some() {
                "mode iptables ignores unused ports and addresses of services".to_owned()
            } else if is_iptables && is_left_alone(client, &contiv, destination, services) {
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
                summary: summary(unused, [known.is_some(), has_contiv], &kube_proxy, &contiv)
                    + advice((to, unused), services, has_contiv, &contiv),
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

    /// Where something differs, or is unknown.
    pub(super) fn places(&self) -> BTreeSet<Place> {
        let differences = self.differences.iter().chain(&self.intended);
        let differing = differences.map(|it| (it.frontend, it.to));
        let unknown = self.unknown.iter().map(|it| (it.frontend, it.to));
        differing.chain(unknown).collect()
    }

    /// What differs now, of what differed before too: what differs twice is no change in progress, though it may differ in another way.
    /// The second comparison is that of [`Self::places`].
    pub(super) fn confirmed_by(self, second: Self) -> Self {
        Self {
            frontends: self.frontends,
            connections: self.connections,
            ..second
        }
    }

    pub(super) fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.unknown.is_empty()
    }
}

/// The address before another one.
fn before(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(address) => IpAddr::V4(address.to_bits().checked_sub(1)?.into()),
        IpAddr::V6(address) => IpAddr::V6(address.to_bits().checked_sub(1)?.into()),
    })
}

/// Whether kube-proxy in mode iptables ignores a connection of this node to an external address without endpoints, which it refuses for
/// others: its rules for that are not at the hook output.
fn is_left_alone(
    client: ComparedClient,
    contiv: &FlowEnd,
    Destination { frontend, to, .. }: Destination,
    services: &Snapshot,
) -> bool {
    let mut served = services.services.values();
    client == ComparedClient::Kind(Client::Node)
        && matches!(frontend, Frontend::Address { .. })
        && !served.any(|service| service.cluster_ips.contains(&to.ip()))
        && contiv.verdict == VerdictKind::Rejected
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

/// A difference in a few words; whether each proxy has the frontend.
fn summary(
    unused: Option<Unused>,
    [has_proxy, has_contiv]: [bool; 2],
    kube_proxy: &BTreeSet<FlowEnd>,
    contiv: &FlowEnd,
) -> String {
    match (unused, kube_proxy.first()) {
        (None, _) if !has_proxy && contiv.verdict != VerdictKind::NoService => {
            format!("only contiv {} it", verb(contiv.verdict))
        }
        (None, Some(only)) if !has_contiv => format!("only kube-proxy {} it", verb(only.verdict)),
        _ => describe(kube_proxy, contiv),
    }
}

/// What else there is to say of a difference: what is special, or the setting of contiv that makes it.
fn advice(
    (to, unused): (SocketAddr, Option<Unused>),
    services: &Snapshot,
    has_contiv: bool,
    contiv: &FlowEnd,
) -> &'static str {
    match unused {
        Some(Unused::Port) => " (an unused port)",
        Some(Unused::Address) if contiv.verdict == VerdictKind::NoService => {
            " (an unused address: see service-cidrs)"
        }
        Some(Unused::Address) => " (an unused address)",
        // A service has the node port at other addresses.
        None if to.ip().is_loopback() && !has_contiv && !services.services.is_empty() => {
            " (see node-ports-on-loopback)"
        }
        None => "",
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
