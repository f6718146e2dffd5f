//! New connections for which two proxies, or two states of one, are compared: every frontend that one of them has, from every kind of client.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    ContivService, FlowEnd, Frontend, InterfaceName, InterfacePattern, NodeFacts, Protocol,
    ServiceId, Snapshot, VerdictKind, client_examples,
    parallel::in_shares,
    trace::{Affinity, Client, Flow, trace},
};
use contiv_renderer::packet_path::{PathError, ProgrammedTable, ProxyFrontend};
use serde::{Serialize, Serializer};

/// So many frontends are worth a thread.
const FRONTENDS_OF_THREAD: usize = 200;
/// How many backends a cell names.
const NAMED_BACKENDS: usize = 3;
/// The interface of this node's packets to itself.
const LOOPBACK: &str = "lo";
/// So many addresses of clients are named in a line.
const NAMED_SOURCES: usize = 2;

/// What is compared with a desired state: rules in the kernel, or another desired state.
pub(super) trait OtherRules: Sync {
    /// The frontends that they name.
    fn frontends(&self) -> &BTreeMap<Frontend, ProxyFrontend>;
    /// The addresses that may answer on node ports.
    fn node_port_addresses(&self, node: &NodeFacts) -> BTreeSet<IpAddr>;
    /// How a new connection ends.
    fn ends(&self, flow: &Flow, node: &NodeFacts) -> Result<BTreeSet<FlowEnd>, PathError>;
    /// What they know of the node, if that may be something else.
    fn node(&self) -> Option<&NodeFacts> {
        None
    }
}

/// Another desired state.
#[derive(Debug)]
pub(super) struct OtherState<'a> {
    snapshot: &'a Snapshot,
    index: ServiceIndex<'a>,
    frontends: BTreeMap<Frontend, ProxyFrontend>,
}

impl<'a> OtherState<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut frontends: BTreeMap<Frontend, ProxyFrontend> = BTreeMap::new();
        for service in snapshot.services.values() {
            let ranges = service.source_ranges.iter();
            let ranges: Vec<_> = ranges
                .map(|range| (range.network(), range.broadcast()))
                .collect();
            for frontend in service.frontends() {
                let known = frontends.entry(frontend).or_default();
                known.service.get_or_insert_with(|| service.id.clone());
                known.source_ranges.extend(&ranges);
            }
        }
        Self {
            snapshot,
            index: ServiceIndex::new(snapshot),
            frontends,
        }
    }
}

impl OtherRules for OtherState<'_> {
    fn frontends(&self) -> &BTreeMap<Frontend, ProxyFrontend> {
        &self.frontends
    }

    fn node_port_addresses(&self, _node: &NodeFacts) -> BTreeSet<IpAddr> {
        self.snapshot.node.node_port_ips().copied().collect()
    }

    fn ends(&self, flow: &Flow, _node: &NodeFacts) -> Result<BTreeSet<FlowEnd>, PathError> {
        let to = SocketAddr::new(flow.to(), flow.port());
        let few = Snapshot {
            services: self.index.services_at(to, flow.protocol()),
            node: self.snapshot.node.clone(),
            ..Snapshot::default()
        };
        Ok([FlowEnd::of(&trace(&few, flow))].into())
    }

    fn node(&self) -> Option<&NodeFacts> {
        Some(&self.snapshot.node)
    }
}

impl OtherRules for ProgrammedTable {
    fn frontends(&self) -> &BTreeMap<Frontend, ProxyFrontend> {
        self.frontends()
    }

    fn node_port_addresses(&self, _node: &NodeFacts) -> BTreeSet<IpAddr> {
        self.node_port_addresses().clone()
    }

    fn ends(&self, flow: &Flow, node: &NodeFacts) -> Result<BTreeSet<FlowEnd>, PathError> {
        self.ends(flow, node)
    }
}

/// Connections whose end by the other rules is unknown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Unknown {
    /// The service that has the frontend.
    pub(super) service: Option<ServiceId>,
    /// The frontend.
    pub(super) frontend: Frontend,
    /// The address and port.
    pub(super) to: SocketAddr,
    /// Why.
    pub(super) reason: String,
}

/// A client whose connections are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ComparedClient {
    /// One of a kind.
    Kind(Client),
    /// A pod of another node.
    OtherPod,
    /// A backend on this node that connects to its own service.
    Backend(IpAddr),
    /// An address at the end of a range of sources, or beside it.
    Source(IpAddr),
}

impl fmt::Display for ComparedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(Client::LocalPod) => f.write_str("pods"),
            Self::Kind(Client::Node) => f.write_str("node"),
            Self::Kind(Client::External) => f.write_str("others"),
            Self::OtherPod => f.write_str("other pods"),
            Self::Backend(_) => f.write_str("itself"),
            Self::Source(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for ComparedClient {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An address and port of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Destination {
    pub(super) frontend: Frontend,
    pub(super) to: SocketAddr,
    pub(super) protocol: Protocol,
}

/// The services that may concern a destination.
#[derive(Debug, Default)]
pub(super) struct ServiceIndex<'a> {
    by_frontend: BTreeMap<Frontend, Vec<&'a Arc<ContivService>>>,
    by_cluster_ip: BTreeMap<IpAddr, Vec<&'a Arc<ContivService>>>,
}

impl<'a> ServiceIndex<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let mut index = Self::default();
        for service in snapshot.services.values() {
            for frontend in service.frontends() {
                index.by_frontend.entry(frontend).or_default().push(service);
            }
            for address in &*service.cluster_ips {
                index
                    .by_cluster_ip
                    .entry(*address)
                    .or_default()
                    .push(service);
            }
        }
        index
    }

    /// Those of a frontend, those with a node port there, and those with the address as cluster IP, which refuse other ports.
    fn services_at(
        &self,
        to: SocketAddr,
        protocol: Protocol,
    ) -> BTreeMap<ServiceId, Arc<ContivService>> {
        let at_address = Frontend::Address {
            address: to.ip(),
            protocol,
            port: to.port(),
        };
        let at_node = Frontend::NodePort {
            protocol,
            port: to.port(),
        };
        let found = [at_address, at_node]
            .into_iter()
            .filter_map(|frontend| self.by_frontend.get(&frontend))
            .chain(self.by_cluster_ip.get(&to.ip()));
        found
            .flatten()
            .map(|service| (service.id.clone(), Arc::clone(service)))
            .collect()
    }
}

/// Visits all selected destinations that one of both has, some in parallel: with a state that has only the services of the destination,
/// since a trace looks at all that it is given.
pub(super) fn visit_destinations<R: Default + Send>(
    snapshot: &Snapshot,
    rules: &impl OtherRules,
    is_selected: impl Fn(&Destination) -> bool,
    visit: impl Fn(&mut R, Destination, &Snapshot) + Sync,
) -> Vec<R> {
    let index = ServiceIndex::new(snapshot);
    let mut all: Vec<Destination> = destinations(&index, snapshot, rules).into_iter().collect();
    all.retain(is_selected);
    in_shares(&all, FRONTENDS_OF_THREAD, |part| {
        let mut result = R::default();
        let mut few = Snapshot {
            services: BTreeMap::new(),
            ..snapshot.clone()
        };
        for destination in part {
            few.services = index.services_at(destination.to, destination.protocol);
            visit(&mut result, *destination, &few);
        }
        result
    })
}

fn destinations(
    index: &ServiceIndex<'_>,
    snapshot: &Snapshot,
    rules: &impl OtherRules,
) -> BTreeSet<Destination> {
    let mut node_addresses = rules.node_port_addresses(&snapshot.node);
    node_addresses.extend(snapshot.node.node_port_ips());
    let mut found = BTreeSet::new();
    for frontend in index.by_frontend.keys().chain(rules.frontends().keys()) {
        match *frontend {
            Frontend::Address {
                address,
                protocol,
                port,
            } => {
                found.insert(Destination {
                    frontend: *frontend,
                    to: SocketAddr::new(address, port),
                    protocol,
                });
            }
            Frontend::NodePort { protocol, port } => {
                found.extend(node_addresses.iter().map(|address| Destination {
                    frontend: *frontend,
                    to: SocketAddr::new(*address, port),
                    protocol,
                }));
            }
        }
    }
    found
}

/// The connections to a destination that are compared, each with its client.
pub(super) fn flows(
    destination: Destination,
    services: &Snapshot,
    rules: &impl OtherRules,
) -> Vec<(ComparedClient, Flow)> {
    let Destination {
        frontend,
        to,
        protocol,
    } = destination;
    let node = &services.node;
    let known = rules.frontends().get(&frontend);
    let uplink = uplink(node);
    let flow = |from| {
        let flow = Flow::new(from, to, protocol).ok()?;
        Some(match &uplink {
            Some(name) if Client::of(&flow, node) != Client::Node => {
                flow.by_interface(name.clone())
            }
            _ => flow,
        })
    };
    let mut examples = client_examples(node, to.is_ipv4());
    let of_others = rules.node().filter(|other| *other != node);
    let more = of_others.map(|other| client_examples(other, to.is_ipv4()));
    examples.extend(more.into_iter().flatten());
    let mut seen = BTreeSet::new();
    examples.retain(|from| seen.insert(*from));
    let kind = |from: &IpAddr| {
        let flow = flow(*from)?;
        // What one of both takes as a pod, or as the node, is one.
        let kinds = of_others.into_iter().chain([node]);
        let kind = kinds.map(|node| Client::of(&flow, node)).min()?;
        Some((ComparedClient::Kind(kind), flow))
    };
    let mut found: Vec<(ComparedClient, Flow)> = examples.iter().filter_map(kind).collect();
    let knows_pods = node
        .pod_cidrs
        .iter()
        .any(|range| range.is_ipv4() == to.is_ipv4());
    for is_local in [true, false] {
        // Where contiv does not know the pods of this node, kube-proxy may.
        if !(is_local && (knows_pods || !node.pod_interfaces.is_empty()))
            && let Some(flow) = neighbour(services, to.is_ipv4(), is_local).and_then(flow)
        {
            let client = if is_local {
                ComparedClient::Kind(Client::LocalPod)
            } else {
                ComparedClient::OtherPod
            };
            found.push((client, flow));
        }
    }
    // Where pods are known by their interfaces, their addresses say nothing.
    let external = found
        .iter()
        .find(|(client, _)| *client == ComparedClient::Kind(Client::External));
    let external = external.map(|(_, flow)| flow.from());
    if let (Some(pattern), Some(from)) = (node.pod_interfaces.first(), external) {
        let by_interface = flow(from).map(|flow| flow.by_interface(example(pattern)));
        found.extend(by_interface.map(|flow| (ComparedClient::Kind(Client::LocalPod), flow)));
    }
    let backends = services.services.values().flat_map(|it| &it.ports);
    let own_backend = backends
        .flat_map(|port| &port.backends)
        .filter(|backend| backend.local && !node.is_local_address(backend.address))
        .find_map(|backend| {
            let flow = flow(backend.address)?;
            Some((ComparedClient::Backend(backend.address), flow))
        });
    found.extend(own_backend);
    let restricting = services.services.values().filter(|service| {
        service.load_balancer_ips.contains(&to.ip()) || service.source_ranges_on_node_ports
    });
    let of_contiv = restricting
        .flat_map(|service| &service.source_ranges)
        .map(|range| (range.network(), range.broadcast()));
    let of_proxy = known
        .into_iter()
        .flat_map(|known| known.source_ranges.iter().copied());
    // Two sets of ranges differ at the beginning of one of their ranges, or after its end, if they differ at all.
    let sources: BTreeSet<IpAddr> = of_contiv
        .chain(of_proxy)
        .flat_map(|(first, last)| [Some(first), after(last)])
        .flatten()
        .filter(|source| !source.is_unspecified() && !source.is_multicast())
        .collect();
    let source = |source| Some((ComparedClient::Source(source), flow(source)?));
    found.extend(sources.into_iter().filter_map(source));
    found
}

/// An interface by which clients of other machines come where services answer only at some; none if they answer at all.
fn uplink(node: &NodeFacts) -> Option<InterfaceName> {
    let of_pods = |name: &str| node.pod_interfaces.iter().any(|pods| pods.matches(name));
    let names = node.service_interfaces.iter().flatten().map(example);
    names
        .filter(|name| &*name.0 != LOOPBACK && !of_pods(&name.0))
        .min()
}

/// A name that a pattern matches.
fn example(pattern: &InterfacePattern) -> InterfaceName {
    InterfaceName::new(if pattern.is_prefix() {
        format!("{}0", pattern.stem())
    } else {
        pattern.stem().to_owned()
    })
}

/// An address of a pod on this node, or of one elsewhere, that is no backend itself: the next one after a backend that is a pod.
fn neighbour(services: &Snapshot, is_ipv4: bool, is_local: bool) -> Option<IpAddr> {
    let node = &services.node;
    let ports = services.services.values().flat_map(|it| &it.ports);
    let backends: Vec<_> = ports.flat_map(|port| &port.backends).collect();
    let of_pods = backends.iter().filter(|backend| {
        backend.local == is_local
            && backend.address.is_ipv4() == is_ipv4
            && !backend.host_network
            && !node.is_local_address(backend.address)
    });
    of_pods
        .filter_map(|backend| after(backend.address))
        .find(|next| {
            let is_backend = backends.iter().any(|backend| backend.address == *next);
            let is_pod_of_node = node.pod_cidrs.iter().any(|range| range.contains(*next));
            !is_backend && !node.is_local_address(*next) && (is_local || !is_pod_of_node)
        })
}

/// The address after another one.
fn after(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(address) => IpAddr::V4(address.to_bits().checked_add(1)?.into()),
        IpAddr::V6(address) => IpAddr::V6(address.to_bits().checked_add(1)?.into()),
    })
}

/// The clients of a line: a few are named.
pub(super) fn clients_text(all: impl IntoIterator<Item = ComparedClient>) -> String {
    let (sources, mut named): (BTreeSet<ComparedClient>, BTreeSet<ComparedClient>) = all
        .into_iter()
        .partition(|client| matches!(client, ComparedClient::Source(_)));
    // Sources beside other clients say no more than these.
    let count = if named.is_empty() { NAMED_SOURCES } else { 0 };
    named.extend(sources.iter().take(count));
    let mut texts: Vec<String> = named.iter().map(ToString::to_string).collect();
    texts.dedup();
    if sources.len() > count {
        texts.push(format!("{} more", sources.len() - count));
    }
    texts.join(",")
}

/// As in "192.0.2.1:30080/tcp (node port)".
pub(super) fn destination_text(frontend: &Frontend, to: SocketAddr) -> String {
    match frontend {
        Frontend::Address { protocol, .. } => format!("{to}/{protocol}"),
        Frontend::NodePort { protocol, .. } => format!("{to}/{protocol} (node port)"),
    }
}

/// As in "10.244.2.1:80, 10.244.2.2:80, masqueraded".
pub(super) fn end_text(end: &FlowEnd) -> String {
    match end.verdict {
        VerdictKind::Served => {
            let more = end.backends.len().saturating_sub(NAMED_BACKENDS);
            let mut parts: Vec<String> = end
                .backends
                .iter()
                .take(NAMED_BACKENDS)
                .map(ToString::to_string)
                .collect();
            if more > 0 {
                parts.push(format!("{more} more"));
            }
            match end.masqueraded.len() {
                0 => {}
                count if count == end.backends.len() => parts.push("masqueraded".to_owned()),
                count => parts.push(format!("{count} masqueraded")),
            }
            match end.affinity {
                Affinity::None => {}
                Affinity::Timeout { seconds } => parts.push(format!("affinity {seconds} s")),
                Affinity::ClientAddress => parts.push("affinity by address".to_owned()),
            }
            parts.join(", ")
        }
        VerdictKind::Rejected => "rejected".to_owned(),
        VerdictKind::Dropped => "dropped".to_owned(),
        VerdictKind::Routed => "routed".to_owned(),
        VerdictKind::NoService => "no service".to_owned(),
    }
}
