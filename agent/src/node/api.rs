//! What other tasks may ask of the node, and how the core's state answers. A request carries the channel for its answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{
    ContivService, InterfaceName, Object, PodId, ServiceId, Snapshot, object::ObjectKind, processor::NodeView,
};
use contiv_renderer::Description;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::oneshot;

use super::{
    core::{
        Core, HeldDeletions, HistoryQuery, MirrorStatus, Quarantined, Record, RendererView, Sizes, StoreDown,
    },
    message::PodNotAdded,
};

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<T>;

/// What other tasks may ask.
#[derive(Debug)]
pub enum Request {
    /// A question.
    Query(Query),
    /// The addresses of this node's interfaces are these now.
    LocalAddresses(BTreeSet<IpAddr>),
    /// List the store again, and give every renderer everything again.
    Resync {
        /// Who wants it, as in "SIGHUP".
        cause: &'static str,
    },
    /// Let the deletions that are held count. Answers false if there are none.
    ConfirmDeletions(Reply<bool>),
    /// Attach a pod to this node's dataplane.
    AddPod(PodAddition),
    /// Detach a pod. Answers false if it was not attached.
    DeletePod(PodId, Reply<bool>),
    /// Stop, and leave the dataplane in place.
    Shutdown,
}

/// A pod that is attached by its main interface.
#[derive(Debug)]
pub struct PodAddition {
    /// The pod.
    pub pod: PodId,
    /// Its interface on the node's side.
    pub interface: InterfaceName,
    /// Somebody waits for the result; for how long, and where it goes. Otherwise renderers that fail are tried again until they
    /// succeed.
    pub wait: Option<(Duration, Reply<Result<(), PodNotAdded>>)>,
}

/// A question.
#[derive(Debug)]
pub enum Query {
    /// The state of the agent. Costs next to nothing, so that probes may ask often.
    Status(Reply<Status>),
    /// Answered as soon as every renderer has applied its first snapshot.
    Ready(Reply<()>),
    /// How much there is.
    Sizes(Reply<Sizes>),
    /// Everything that renderers are told; none before the store has been read.
    Snapshot(Reply<Option<Snapshot>>),
    /// Every service as renderers have it.
    Services(Reply<Vec<Arc<ContivService>>>),
    /// One of them.
    Service(ServiceId, Reply<Option<Arc<ContivService>>>),
    /// The active objects of a type.
    Objects(ObjectKind, Reply<Vec<Object>>),
    /// Every node.
    Nodes(Reply<Vec<NodeView>>),
    /// The pods that are attached to this node's dataplane, with their main interfaces.
    Pods(Reply<BTreeMap<PodId, InterfaceName>>),
    /// The state of the renderers.
    Renderers(Reply<Vec<RendererView>>),
    /// What a renderer has applied. False if there is none of this name; else the description comes as soon as the
    /// renderer is idle.
    Dump(String, Reply<bool>, Reply<Description>),
    /// What cannot be used, without the first so many; never very many at once.
    Quarantine(usize, Reply<Vec<Quarantined>>),
    /// What happened.
    History(HistoryQuery, Reply<Vec<Record>>),
}

/// The state of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// This node.
    pub node: String,
    /// The agent's.
    pub version: &'static str,
    /// When the agent has started.
    pub started: Timestamp,
    /// The store, as the configuration names it.
    pub store: String,
    /// Every renderer has applied its first snapshot.
    pub ready: bool,
    /// The store has been read completely, at least once.
    pub synced: bool,
    /// The newest revision that has been applied.
    pub revision: i64,
    /// Too many objects would have gone at once: they stay active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_deletions: Option<HeldDeletions>,
    /// The active state is what the mirror had: the store has not been read since the start.
    pub from_mirror: bool,
    /// What is saved on disk; none where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorStatus>,
    /// The store cannot be followed at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_down: Option<StoreDown>,
    /// Objects that cannot be used.
    pub quarantined: usize,
    /// Events since the start.
    pub events: u64,
}

/// What the core does not know of the agent.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// This node.
    pub(super) node: String,
    /// The store, as the configuration names it.
    pub(super) store: String,
}

/// Answers a question that the state of the core answers by itself; others come back. Who no longer waits for an answer does not
/// need it.
pub(super) fn answer(core: &mut Core, identity: &Identity, query: Query, now: Instant) -> Option<Query> {
    match query {
        Query::Status(reply) => drop(reply.send(status(core, identity))),
        Query::Sizes(reply) => drop(reply.send(core.sizes())),
        Query::Snapshot(reply) => drop(reply.send(core.snapshot())),
        Query::Services(reply) => drop(reply.send(core.services().collect())),
        Query::Service(id, reply) => drop(reply.send(core.service(&id))),
        Query::Objects(kind, reply) => drop(reply.send(core.objects(kind))),
        Query::Nodes(reply) => drop(reply.send(core.nodes())),
        Query::Pods(reply) => drop(reply.send(core.pods().clone())),
        Query::Renderers(reply) => drop(reply.send(core.renderers(now))),
        Query::Quarantine(skip, reply) => drop(reply.send(core.quarantine(skip))),
        Query::History(query, reply) => drop(reply.send(core.history(query, now))),
        other @ (Query::Ready(_) | Query::Dump(..)) => return Some(other),
    }
    None
}

fn status(core: &Core, identity: &Identity) -> Status {
    Status {
        node: identity.node.clone(),
        version: env!("CARGO_PKG_VERSION"),
        started: core.started().time,
        store: identity.store.clone(),
        ready: core.is_ready(),
        synced: core.is_synced(),
        revision: core.revision(),
        held_deletions: core.held_deletions().cloned(),
        from_mirror: core.is_from_mirror(),
        mirror: core.mirror().cloned(),
        store_down: core.store_down().cloned(),
        quarantined: core.quarantined(),
        events: core.events(),
    }
}
