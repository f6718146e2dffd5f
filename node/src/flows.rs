//! Connections through services, from what conntrack tells: which service, which backend, how they end. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use contiv_model::{
    ContivService, Flow, Frontend, Protocol, ServiceId, Snapshot,
    trace::{DropReason, Verdict, trace},
};
use contiv_renderer::{
    nftables::counters::{RefusalReason, RefusedAttempt},
    packet_path::{FlowEvent, FlowEventKind, SampleRate, TcpState, Traffic},
};
use ipnetwork::IpNetwork;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many connections are remembered with their beginning.
const MAX_BEGUN: usize = 65_536;
/// More new connections in a second are sampled.
const MAX_NEW_PER_SECOND: u32 = 8_000;
/// With more new connections in a second, changes of their state are not received, and with fewer than half as many they are again.
const MAX_NEW_WITH_CHANGES: u32 = 1_000;

/// The frontends of the services, for lookups.
#[derive(Debug, Default)]
pub struct FrontendIndex {
    /// What the services are, without these.
    snapshot: Snapshot,
    addresses: BTreeMap<(SocketAddr, Protocol), Arc<ContivService>>,
    node_ports: BTreeMap<(u16, Protocol), Arc<ContivService>>,
}

impl FrontendIndex {
    /// The index of a snapshot.
    pub fn new(mut snapshot: Snapshot) -> Self {
        let (mut addresses, mut node_ports) = (BTreeMap::new(), BTreeMap::new());
        for service in std::mem::take(&mut snapshot.services).into_values() {
            let held = service
                .frontends()
                .into_iter()
                .filter(|frontend| !service.lost.contains_key(frontend));
            for frontend in held {
                let service = Arc::clone(&service);
                match frontend {
                    Frontend::Address {
                        address,
                        protocol,
                        port,
                    } => {
                        addresses.insert((SocketAddr::new(address, port), protocol), service);
                    }
                    Frontend::NodePort { protocol, port } => {
                        node_ports.insert((port, protocol), service);
                    }
                }
            }
        }
        Self {
            snapshot,
            addresses,
            node_ports,
        }
    }

    /// The frontend with this destination, and its service.
    pub(crate) fn find(
        &self,
        protocol: Protocol,
        destination: SocketAddr,
    ) -> Option<(Frontend, &Arc<ContivService>)> {
        let (address, port) = (destination.ip(), destination.port());
        if let Some(service) = self.addresses.get(&(destination, protocol)) {
            let frontend = Frontend::Address {
                address,
                protocol,
                port,
            };
            return Some((frontend, service));
        }
        let service = self.node_ports.get(&(port, protocol))?;
        let node = &self.snapshot.node;
        let is_nodes = node.node_ips.contains(&address) || node.other_node_ips.contains(&address);
        is_nodes.then_some((Frontend::NodePort { protocol, port }, service))
    }
}

/// What is told of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowNews {
    /// It is there.
    Live,
    /// It has begun.
    New,
    /// Both sides of a TCP connection have ended it, or one has reset it. The kernel remembers it for a while.
    Closed,
    /// The kernel has forgotten it.
    Ended,
    /// It was refused.
    Refused,
}

impl fmt::Display for FlowNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowVerdict {
    /// It was sent to a backend, which has answered if it has had the time.
    Served,
    /// It was sent to a backend, which has not answered.
    Unanswered,
    /// It was refused: by a rule, or by the backend with a reset.
    Refused,
}

impl fmt::Display for FlowVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowReason {
    /// There is no backend on any node.
    NoEndpoints,
    /// A policy allows only backends of this node, and there is none.
    Policy,
    /// The client is in none of the service's source ranges.
    SourceRanges,
    /// The backend has reset it, as where nothing listens at its port.
    BackendReset,
}

impl fmt::Display for FlowReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl From<RefusalReason> for FlowReason {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::NoEndpoints => Self::NoEndpoints,
            RefusalReason::Policy => Self::Policy,
            RefusalReason::SourceRanges => Self::SourceRanges,
        }
    }
}

/// A connection through a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceFlow {
    /// What is told of it.
    pub event: FlowNews,
    /// When this was learned.
    pub at: Timestamp,
    /// The kernel's number of it; of those that reached a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// The service.
    pub service: ServiceId,
    /// The frontend that the client connected to.
    pub frontend: Frontend,
    /// The client.
    pub client: SocketAddr,
    /// The address that the client connected to: for a node port, one of the node.
    pub destination: SocketAddr,
    /// The backend, or the destination if routes lead there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<SocketAddr>,
    /// The source that the backend sees, if it is another one than the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SocketAddr>,
    /// What became of it.
    pub verdict: FlowVerdict,
    /// Why it was refused, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<FlowReason>,
    /// The state of a TCP connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_state: Option<TcpState>,
    /// An answer of the backend was seen.
    pub is_answered: bool,
    /// When it began, if that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// What it has carried, if the kernel counts; none at its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

impl ServiceFlow {
    /// Its protocol.
    pub const fn protocol(&self) -> Protocol {
        match self.frontend {
            Frontend::Address { protocol, .. } | Frontend::NodePort { protocol, .. } => protocol,
        }
    }

    /// The number by which it is in a sample or not: that of the kernel, or of its ends.
    fn sample_number(&self) -> u32 {
        self.id.unwrap_or_else(|| {
            // With the same keys always.
            let mut hasher = DefaultHasher::new();
            (self.client, self.destination).hash(&mut hasher);
            // Any of its bits will do.
            u32::try_from(hasher.finish() >> u32::BITS).unwrap_or(0)
        })
    }
}

/// Assigns events to services.
#[derive(Debug, Default)]
pub struct FlowTracker {
    begun: BTreeMap<u32, Begun>,
}

/// A connection whose beginning was seen.
#[derive(Debug, Clone, Copy)]
struct Begun {
    at: Timestamp,
    /// That it is closed was told.
    is_closed: bool,
}

impl FlowTracker {
    /// What an event tells; none if it is not of a connection through a service, or tells nothing new.
    pub fn on_event(
        &mut self,
        event: &FlowEvent,
        index: &FrontendIndex,
        at: Timestamp,
    ) -> Option<ServiceFlow> {
        let flow = &event.flow;
        // Other zones belong to other programs, which see the same packets before or after the agent's rules.
        if flow.zone != 0 {
            return None;
        }
        let (frontend, service) = index.find(flow.protocol, flow.destination)?;
        let is_over = matches!(flow.tcp_state, Some(TcpState::TimeWait | TcpState::Close));
        let mut started = self.begun.get(&event.id).map(|begun| begun.at);
        let news = match event.kind {
            FlowEventKind::Listed => FlowNews::Live,
            FlowEventKind::New => {
                started = Some(at);
                if self.begun.len() < MAX_BEGUN {
                    let is_closed = false;
                    self.begun.insert(event.id, Begun { at, is_closed });
                }
                FlowNews::New
            }
            FlowEventKind::Changed if is_over => {
                if let Some(begun) = self.begun.get_mut(&event.id)
                    && std::mem::replace(&mut begun.is_closed, true)
                {
                    return None;
                }
                FlowNews::Closed
            }
            FlowEventKind::Changed => return None,
            FlowEventKind::Ended => {
                let begun = self.begun.remove(&event.id);
                if begun.is_some_and(|begun| begun.is_closed) && event.traffic.is_none() {
                    return None;
                }
                FlowNews::Ended
            }
        };
        let is_reset = flow.tcp_state == Some(TcpState::Close) && !flow.is_answered;
        let verdict = match news {
            FlowNews::New => FlowVerdict::Served,
            _ if is_reset => FlowVerdict::Refused,
            _ if flow.is_answered => FlowVerdict::Served,
            _ => FlowVerdict::Unanswered,
        };
        Some(ServiceFlow {
            event: news,
            at,
            id: Some(event.id),
            service: service.id.clone(),
            frontend,
            client: flow.client,
            destination: flow.destination,
            backend: Some(flow.server),
            source: (flow.seen_source != flow.client).then_some(flow.seen_source),
            verdict,
            reason: is_reset.then_some(FlowReason::BackendReset),
            tcp_state: flow.tcp_state,
            is_answered: flow.is_answered,
            started,
            traffic: event.traffic.filter(|_| news != FlowNews::New),
        })
    }

    /// Forgets the connections that are not told of any more.
    pub fn sample(&mut self, rate: SampleRate) {
        self.begun.retain(|id, _| rate.contains(*id));
    }

    /// Forgets all: the ends of some may have been lost.
    pub fn forget(&mut self) {
        self.begun.clear();
    }
}

/// The attempts that were refused, out of lists of those of the last minutes.
#[derive(Debug, Default)]
pub struct RefusedTracker {
    known: BTreeSet<RefusedAttempt>,
}

impl RefusedTracker {
    /// The attempts of a list that were not in the one before, those of services.
    pub fn on_list(
        &mut self,
        attempts: Vec<RefusedAttempt>,
        index: &FrontendIndex,
        at: Timestamp,
    ) -> Vec<ServiceFlow> {
        let listed: BTreeSet<RefusedAttempt> = attempts.into_iter().collect();
        let mut alone = index.snapshot.clone();
        let new = listed.difference(&self.known);
        let flows = new.filter_map(|attempt| refused_flow(attempt, index, &mut alone, at));
        let flows = flows.collect();
        self.known = listed;
        flows
    }
}

/// The connection that an attempt would have been. `alone` is a snapshot for the use of this function.
fn refused_flow(
    attempt: &RefusedAttempt,
    index: &FrontendIndex,
    alone: &mut Snapshot,
    at: Timestamp,
) -> Option<ServiceFlow> {
    let (frontend, service) = index.find(attempt.protocol, attempt.destination)?;
    alone.services = [(service.id.clone(), Arc::clone(service))].into();
    Some(ServiceFlow {
        event: FlowNews::Refused,
        at,
        id: None,
        service: service.id.clone(),
        frontend,
        client: attempt.client,
        destination: attempt.destination,
        backend: None,
        source: None,
        verdict: FlowVerdict::Refused,
        reason: refusal(alone, attempt),
        tcp_state: None,
        is_answered: false,
        started: None,
        traffic: None,
    })
}

/// Why an attempt would be refused now; none if it would not.
fn refusal(snapshot: &Snapshot, attempt: &RefusedAttempt) -> Option<FlowReason> {
    let flow = Flow::new(attempt.client.ip(), attempt.destination, attempt.protocol).ok()?;
    let reason = match trace(snapshot, &flow).verdict {
        Verdict::Rejected(_) => RefusalReason::NoEndpoints,
        Verdict::Dropped(DropReason::SourceRanges(_)) => RefusalReason::SourceRanges,
        Verdict::Dropped(DropReason::InternalPolicyLocal | DropReason::ExternalPolicyLocal) => {
            RefusalReason::Policy
        }
        _ => return None,
    };
    Some(reason.into())
}

/// Which connections are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowFilter {
    /// Those of services of this namespace.
    pub namespace: Option<Arc<str>>,
    /// Those of services of this name.
    pub service: Option<Arc<str>>,
    /// Those of clients in one of these ranges; of all if there is none.
    pub clients: Vec<IpNetwork>,
    /// Those with this verdict.
    pub verdict: Option<FlowVerdict>,
}

impl FlowFilter {
    /// True if the connection is asked for.
    pub fn matches(&self, flow: &ServiceFlow) -> bool {
        let is = |wanted: &Option<Arc<str>>, name: &Arc<str>| {
            wanted.as_ref().is_none_or(|wanted| wanted == name)
        };
        let client: IpAddr = flow.client.ip();
        is(&self.namespace, &flow.service.namespace)
            && is(&self.service, &flow.service.name)
            && self.verdict.is_none_or(|verdict| verdict == flow.verdict)
            && (self.clients.is_empty() || self.clients.iter().any(|range| range.contains(client)))
    }
}

/// A part of the connections that are there: all, or a sample if they are too many.
#[derive(Debug)]
pub struct FlowList {
    limit: usize,
    rate: SampleRate,
    flows: Vec<ServiceFlow>,
}

impl FlowList {
    /// An empty list of at most so many.
    pub const fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            rate: SampleRate::ALL,
            flows: Vec::new(),
        }
    }

    /// Adds a connection.
    pub fn add(&mut self, flow: ServiceFlow) {
        let is_in = |rate: SampleRate, flow: &ServiceFlow| rate.contains(flow.sample_number());
        if !is_in(self.rate, &flow) {
            return;
        }
        self.flows.push(flow);
        while self.flows.len() > self.limit {
            let halved = self.rate.halved();
            if halved == self.rate {
                self.flows.truncate(self.limit);
                return;
            }
            self.rate = halved;
            self.flows.retain(|flow| is_in(halved, flow));
        }
    }

    /// The connections in the order of services and clients, and the sample that they are.
    pub fn finish(mut self) -> (Vec<ServiceFlow>, SampleRate) {
        self.flows.sort_by(|a, b| {
            let key = |flow: &ServiceFlow| (flow.frontend, flow.client, flow.id);
            a.service.cmp(&b.service).then_with(|| key(a).cmp(&key(b)))
        });
        (self.flows, self.rate)
    }
}

/// Decides by the number of events what is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventBudget {
    /// The connections that are received.
    pub rate: SampleRate,
    /// Changes of state are received too.
    pub has_changes: bool,
}

impl Default for EventBudget {
    fn default() -> Self {
        Self {
            rate: SampleRate::ALL,
            has_changes: true,
        }
    }
}

impl EventBudget {
    /// What is received from now on, after so many new connections `took` so long. `has_lost`: there were more events than room.
    #[must_use]
    pub fn after(self, new: u32, took: Duration, has_lost: bool) -> Self {
        let millis = u32::try_from(took.as_millis()).unwrap_or(u32::MAX).max(1);
        let per_second = u64::from(new) * 1000 / u64::from(millis);
        let mut rate = self.rate;
        let max = u64::from(MAX_NEW_PER_SECOND);
        let mut sampled = per_second;
        while sampled > max {
            (rate, sampled) = (rate.halved(), sampled / 2);
        }
        if has_lost && rate == self.rate && !self.has_changes {
            rate = rate.halved();
        } else if sampled * 4 < max && !has_lost {
            rate = rate.doubled();
        }
        let all = per_second * u64::from(self.rate.one_in());
        let with_changes = u64::from(MAX_NEW_WITH_CHANGES);
        let has_changes = if self.has_changes {
            all <= with_changes && !has_lost
        } else {
            all * 2 < with_changes && !has_lost
        };
        Self { rate, has_changes }
    }
}

#[cfg(test)]
mod tests;
