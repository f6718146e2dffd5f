//! New connections for which two proxies, or two states of one, are compared: every frontend that one of them has, from every kind of client.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use contiv_model::{
    ContivService, FlowEnd, Frontend, InterfaceName, InterfacePattern, NodeFacts, Protocol,
    ServiceId, Snapshot, VerdictKind, client_examples,
    parallel::in_shares,
    trace::{Affinity, Client, Flow, Trace, Verdict, trace},
};
use contiv_renderer::packet_path::{PathError, ProgrammedTable, ProxyCluster, ProxyFrontend};
use serde::{Serialize, Serializer};

use crate::cli::output::progress::Progress;

/// So many frontends are worth a thread.
const FRONTENDS_OF_THREAD: usize = 200;
/// At so many addresses of each family that are not the node's own a node port is compared.
const MAX_NODE_ADDRESSES: usize = 64;
/// How many backends a cell names.
const NAMED_BACKENDS: usize = 3;
/// An interface that no configuration names.
const OTHER_INTERFACE: &str = "contiv-other";
/// The interface of this node's packets to itself.
const LOOPBACK: &str = "lo";
/// So many addresses of clients are named in a line.
const NAMED_SOURCES: usize = 2;
/// So many of the first addresses of a range of pods may be this node's own.
const NODE_ADDRESSES_OF_PODS: usize = 16;

/// What is compared with a desired state: rules in the kernel, or another desired state.
pub(super) trait OtherRules: Sync {
    /// The frontends that they name.
    fn frontends(&self) -> &BTreeMap<Frontend, ProxyFrontend>;
    /// The addresses that may answer on node ports.
    fn node_port_addresses(&self, node: &NodeFacts) -> BTreeSet<IpAddr>;
    /// How a new connection ends.
    fn ends(&self, flow: &Flow, node: &NodeFacts) -> Result<BTreeSet<FlowEnd>, PathError>;
    /// What else is known of a new connection; none of rules in the kernel.
    fn trace(&self, _flow: &Flow) -> Option<Trace> {
        None
    }
    /// What they know of the node, if that may be something else.
    fn node(&self) -> Option<&NodeFacts> {
        None
    }
    /// What they say of the cluster, if they say it themselves.
    fn cluster(&self) -> Option<&ProxyCluster> {
        None
    }
}

/// The shares of backends of new connections.
pub(super) type Shares = BTreeMap<SocketAddr, Share>;

/// A share, in tenths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share(u16);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (percent, 0) => write!(f, "{percent} %"),
            (percent, tenths) => write!(f, "{percent}.{tenths} %"),
        }
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 10.0)
    }
}

/// The shares by weight of the backends that may get a connection.
pub(super) fn shares_of(trace: &Trace) -> Shares {
    let Verdict::Backends(delivery) = &trace.verdict else {
        return Shares::new();
    };
    let weights = delivery.candidates.iter();
    let weights = weights.map(|candidate| u64::from(candidate.weight));
    let total = weights.sum::<u64>().max(1);
    let share = |weight: u16| {
        let tenths = (u64::from(weight) * 1000 + total / 2) / total;
        Share(u16::try_from(tenths).unwrap_or(1000))
    };
    let candidates = delivery.candidates.iter();
    candidates
        .map(|candidate| (candidate.endpoint(), share(candidate.weight)))
        .collect()
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

impl OtherState<'_> {
    /// How a new connection ends.
    pub(super) fn end(&self, flow: &Flow) -> FlowEnd {
        FlowEnd::of(&self.traced(flow))
    }

    fn traced(&self, flow: &Flow) -> Trace {
        let to = SocketAddr::new(flow.to(), flow.port());
        let few = Snapshot {
            services: self.index.services_at(to, flow.protocol()),
            node: self.snapshot.node.clone(),
            ..Snapshot::default()
        };
        trace(&few, flow)
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
        Ok([self.end(flow)].into())
    }

    fn trace(&self, flow: &Flow) -> Option<Trace> {
        Some(self.traced(flow))
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
    /// One that comes by an interface at which services may not answer.
    OtherInterface,
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
            Self::OtherInterface => f.write_str("other interfaces"),
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

/// A frontend, with one of its addresses and ports.
pub(super) type Place = (Frontend, SocketAddr);

impl Destination {
    pub(super) const fn place(&self) -> Place {
        (self.frontend, self.to)
    }
}

/// The services that may concern a destination.
#[derive(Debug, Default)]
pub(super) struct ServiceIndex<'a> {
    pub(super) by_frontend: BTreeMap<Frontend, Vec<&'a Arc<ContivService>>>,
    pub(super) by_cluster_ip: BTreeMap<IpAddr, Vec<&'a Arc<ContivService>>>,
}

impl<'a> ServiceIndex<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
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

/// Visits destinations, some in parallel, and shows the progress: with a state that has only the services of the destination, since a trace
/// looks at all that it is given.
pub(super) fn visit_destinations<R: Default + Send>(
    index: &ServiceIndex<'_>,
    snapshot: &Snapshot,
    destinations: BTreeSet<Destination>,
    visit: impl Fn(&mut R, Destination, &Snapshot) + Sync,
) -> Vec<R> {
    let all: Vec<Destination> = destinations.into_iter().collect();
    let progress = Progress::with_words("frontends compared");
    let done = AtomicUsize::new(0);
    in_shares(&all, FRONTENDS_OF_THREAD, |part| {
        let mut result = R::default();
        let mut few = Snapshot {
            services: BTreeMap::new(),
            ..snapshot.clone()
        };
        for destination in part {
            few.services = index.services_at(destination.to, destination.protocol);
            visit(&mut result, *destination, &few);
            progress.set(done.fetch_add(1, Ordering::Relaxed) + 1, all.len());
        }
        result
    })
}

/// The addresses of the node at which one of both may answer on node ports.
pub(super) fn node_port_addresses(
    snapshot: &Snapshot,
    rules: &impl OtherRules,
) -> BTreeSet<IpAddr> {
    let node = &snapshot.node;
    let mut all = rules.node_port_addresses(node);
    all.extend(node.node_port_ips());
    let is_own = |address: &IpAddr| node.is_local_address(*address);
    let (mut found, others): (BTreeSet<IpAddr>, BTreeSet<IpAddr>) =
        all.into_iter().partition(is_own);
    // A cluster has many nodes; rules for one address are those for another.
    for is_ipv4 in [true, false] {
        let of_family = others.iter().filter(|address| address.is_ipv4() == is_ipv4);
        found.extend(of_family.take(MAX_NODE_ADDRESSES));
    }
    found
}

/// All addresses and ports of frontends that one of both has.
pub(super) fn destinations(
    index: &ServiceIndex<'_>,
    snapshot: &Snapshot,
    rules: &impl OtherRules,
) -> BTreeSet<Destination> {
    let node_addresses = node_port_addresses(snapshot, rules);
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
    let new_flow = |from| Flow::new(from, to, protocol).ok();
    if to.ip().is_loopback() {
        // Nobody else has a way there.
        let own = new_flow(to.ip()).map(|flow| (ComparedClient::Kind(Client::Node), flow));
        return own.into_iter().collect();
    }
    let clients = Clients::new(services, rules, to);
    let examples = clients.examples();
    let kind = |from: &IpAddr| {
        let flow = clients.flow(new_flow(*from)?);
        Some((ComparedClient::Kind(clients.kind(&flow)), flow))
    };
    let mut found: Vec<(ComparedClient, Flow)> = examples.iter().filter_map(kind).collect();
    let others = ComparedClient::Kind(Client::External);
    let external = found.iter().find(|(client, _)| *client == others);
    let external = external.map(|(_, flow)| flow.from());
    if !clients.knows_pods() {
        let pod = clients.example_pod(services, external).and_then(new_flow);
        let pod = pod.map(|flow| clients.flow_of_pod(flow));
        found.extend(pod.map(|flow| (ComparedClient::Kind(Client::LocalPod), flow)));
    }
    let other_pod = neighbour(services, to.is_ipv4(), false).and_then(new_flow);
    let other_pod = other_pod.map(|flow| clients.flow(flow));
    found.extend(other_pod.map(|flow| (ComparedClient::OtherPod, flow)));
    if clients.may_come_by_another_interface()
        && let Some(flow) = external.and_then(new_flow)
    {
        let flow = flow.by_interface(InterfaceName::new(OTHER_INTERFACE));
        found.push((ComparedClient::OtherInterface, flow));
    }
    let node = &services.node;
    let backends = services.services.values().flat_map(|it| &it.ports);
    let own_backend = backends
        .flat_map(|port| &port.backends)
        .filter(|backend| backend.local && !node.is_local_address(backend.address))
        .find_map(|backend| {
            let flow = clients.flow_of_pod(new_flow(backend.address)?);
            Some((ComparedClient::Backend(backend.address), flow))
        });
    found.extend(own_backend);
    let restricting = services.services.values().filter(|service| {
        service.load_balancer_ips.contains(&to.ip()) || service.source_ranges_on_node_ports
    });
    let of_contiv = restricting
        .flat_map(|service| &service.source_ranges)
        .map(|range| (range.network(), range.broadcast()));
    let known = rules.frontends().get(&frontend);
    let of_proxy = known
        .into_iter()
        .flat_map(|known| known.source_ranges.iter().copied());
    // Two sets of ranges differ at the beginning of one of their ranges, or after its end, if they differ at all.
    let sources: BTreeSet<IpAddr> = of_contiv
        .chain(of_proxy)
        .flat_map(|(first, last)| [Some(first), after(last)])
        .flatten()
        .filter(|source| !source.is_unspecified() && !source.is_multicast())
        .filter(|source| !clients.may_be_a_pod(*source))
        .collect();
    let source = |source| {
        let flow = clients.flow(new_flow(source)?);
        Some((ComparedClient::Source(source), flow))
    };
    found.extend(sources.into_iter().filter_map(source));
    found
}

/// How clients of one family come to this node, as far as one of both knows.
struct Clients<'a> {
    /// The node as the desired state knows it, and as the other rules do, if that may be something else.
    nodes: Vec<&'a NodeFacts>,
    is_ipv4: bool,
    /// The ranges by which the other rules know pods of this node.
    pods_of_proxy: Vec<(IpAddr, IpAddr)>,
    /// The interface by which pods come.
    pod_interface: Option<InterfaceName>,
    /// The interface by which others come.
    uplink: Option<InterfaceName>,
}

impl<'a> Clients<'a> {
    fn new(services: &'a Snapshot, rules: &'a impl OtherRules, to: SocketAddr) -> Self {
        let node = &services.node;
        let other = rules.node().filter(|other| *other != node);
        let nodes: Vec<&NodeFacts> = [node].into_iter().chain(other).collect();
        let patterns = nodes.iter().filter_map(|node| node.pod_interfaces.first());
        let of_state = patterns.map(example).next();
        let cluster = rules.cluster();
        let of_cluster = || cluster.and_then(|cluster| cluster.pod_interface.clone());
        let ranges = cluster.into_iter().flat_map(|cluster| &cluster.pods);
        Self {
            nodes,
            is_ipv4: to.is_ipv4(),
            pods_of_proxy: ranges
                .filter(|(first, _)| first.is_ipv4() == to.is_ipv4())
                .copied()
                .collect(),
            pod_interface: of_state.or_else(of_cluster),
            uplink: uplink(node),
        }
    }

    /// An address of a client of each class.
    fn examples(&self) -> Vec<IpAddr> {
        let of_all = self.nodes.iter();
        let of_all = of_all.flat_map(|node| client_examples(node, self.is_ipv4));
        let mut seen = BTreeSet::new();
        of_all.filter(|from| seen.insert(*from)).collect()
    }

    /// What one of both takes as a pod, or as the node, is one.
    fn kind(&self, flow: &Flow) -> Client {
        let kinds = self.nodes.iter().map(|node| Client::of(flow, node));
        kinds.min().unwrap_or(Client::External)
    }

    /// The flow as it comes in.
    fn flow(&self, flow: Flow) -> Flow {
        let mut ranges = self.nodes.iter().flat_map(|node| &node.pod_cidrs);
        if ranges.any(|range| range.contains(flow.from())) {
            return self.flow_of_pod(flow);
        }
        match &self.uplink {
            Some(name) if Client::of(&flow, self.nodes[0]) != Client::Node => {
                flow.by_interface(name.clone())
            }
            _ => flow,
        }
    }

    /// Both may know pods in different ways: so one has both an address and an interface of pods.
    fn flow_of_pod(&self, flow: Flow) -> Flow {
        match self.pod_interface.as_ref().or(self.uplink.as_ref()) {
            Some(name) => flow.by_interface(name.clone()),
            None => flow,
        }
    }

    /// Whether services answer at other interfaces by one state than by the other; clients else come by one at which they answer.
    fn may_come_by_another_interface(&self) -> bool {
        let mut interfaces = self.nodes.iter().map(|node| &node.service_interfaces);
        let first = interfaces.next();
        interfaces.any(|other| Some(other) != first)
    }

    /// Whether one of both states knows the addresses of pods.
    fn knows_pods(&self) -> bool {
        let mut ranges = self.nodes.iter().flat_map(|node| &node.pod_cidrs);
        ranges.any(|range| range.is_ipv4() == self.is_ipv4)
    }

    /// An address of a pod of this node where its ranges are not known; where pods are known by their interface, it may be any.
    fn example_pod(&self, services: &Snapshot, any: Option<IpAddr>) -> Option<IpAddr> {
        let node = &services.node;
        let of_proxy = || {
            // The first address is the range's own, the next one often the bridge's.
            let (first, _) = self.pods_of_proxy.first()?;
            let addresses = std::iter::successors(after(*first), |address| after(*address));
            let mut addresses = addresses.take(NODE_ADDRESSES_OF_PODS);
            addresses.find(|address| !node.is_local_address(*address))
        };
        neighbour(services, self.is_ipv4, true)
            .or_else(of_proxy)
            .or_else(|| any.filter(|_| self.pod_interface.is_some()))
    }

    /// Whether only the other rules take an address as that of a pod: whether it is one on this node is unknown.
    fn may_be_a_pod(&self, address: IpAddr) -> bool {
        let mut ranges = self.pods_of_proxy.iter();
        !self.knows_pods() && ranges.any(|(first, last)| (first..=last).contains(&&address))
    }
}

/// An interface by which clients of other machines come where services answer only at some; none if they answer at all.
fn uplink(node: &NodeFacts) -> Option<InterfaceName> {
    let of_pods = |name: &str| node.pod_interfaces.iter().any(|pods| pods.matches(name));
    let names = node.service_interfaces.as_ref()?.iter().map(example);
    let names = names.filter(|name| &*name.0 != LOOPBACK && !of_pods(&name.0));
    // If services answer at none, they come by another one all the same.
    let other = || InterfaceName::new(OTHER_INTERFACE);
    Some(names.min().unwrap_or_else(other))
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
    let addresses: BTreeSet<IpAddr> = backends.iter().map(|backend| backend.address).collect();
    let of_pods = backends.iter().filter(|backend| {
        backend.local == is_local
            && backend.address.is_ipv4() == is_ipv4
            && !backend.host_network
            && !node.is_local_address(backend.address)
    });
    of_pods
        .filter_map(|backend| after(backend.address))
        .find(|next| {
            let is_backend = addresses.contains(next);
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

/// As in "10.244.2.1:80 99.5 %, 10.244.2.2:80 0.5 %": the backends whose share is another one than on the other side.
pub(super) fn shares_text(shares: &Shares, other: &Shares) -> String {
    let differing = shares
        .iter()
        .filter(|(backend, share)| other.get(backend) != Some(share));
    let mut parts: Vec<String> = differing
        .map(|(backend, share)| format!("{backend} {share}"))
        .collect();
    let more = parts.len().saturating_sub(NAMED_BACKENDS);
    if more > 0 {
        parts.truncate(NAMED_BACKENDS);
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
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
