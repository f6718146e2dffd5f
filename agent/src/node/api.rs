//! Requests of other tasks to the node, and the answers from the core's state. A request carries the channel for its answer.

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

/// The channel of an answer.
pub type Reply<T> = oneshot::Sender<T>;

/// A request of another task.
#[derive(Debug)]
pub enum Request {
    /// A query of the state.
    Query(Query),
    /// The current addresses of this node's interfaces.
    LocalAddresses(BTreeSet<IpAddr>),
    /// List the store again and resync every renderer.
    Resync {
        /// The source of the request, as in "SIGHUP".
        cause: &'static str,
    },
    /// Apply held deletions. Answers false if there are none.
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
    /// If the caller waits for the result: for how long, and the channel of the answer. Otherwise renderers that fail retry
    /// until they succeed.
    pub wait: Option<(Duration, Reply<Result<(), PodNotAdded>>)>,
}

/// A query of the state.
#[derive(Debug)]
pub enum Query {
    /// The state of the agent. Cheap, so that probes may ask often.
    Status(Reply<Status>),
    /// Answered when every renderer has applied its first snapshot.
    Ready(Reply<()>),
    /// The sizes of the state.
    Sizes(Reply<Sizes>),
    /// The current snapshot for renderers; none before the store has been read.
    Snapshot(Reply<Option<Snapshot>>),
    /// Every service as renderers have it.
    Services(Reply<Vec<Arc<ContivService>>>),
    /// One service.
    Service(ServiceId, Reply<Option<Arc<ContivService>>>),
    /// The active objects of a type.
    Objects(ObjectKind, Reply<Vec<Object>>),
    /// Every node.
    Nodes(Reply<Vec<NodeView>>),
    /// The pods that are attached to this node's dataplane, with their main interfaces.
    Pods(Reply<BTreeMap<PodId, InterfaceName>>),
    /// The state of the renderers.
    Renderers(Reply<Vec<RendererView>>),
    /// The applied state of a renderer. False if there is none of this name; otherwise the description is sent when the
    /// renderer is idle.
    Dump(String, Reply<bool>, Reply<Description>),
    /// The quarantine without the first entries; the number of entries per answer is limited.
    Quarantine(usize, Reply<Vec<Quarantined>>),
    /// The event history.
    History(HistoryQuery, Reply<Vec<Record>>),
}

/// The state of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// This node.
    pub node: String,
    /// The agent's version.
    pub version: &'static str,
    /// When the agent has started.
    pub started: Timestamp,
    /// The store as configured.
    pub store: String,
    /// Whether every renderer has applied its first snapshot.
    pub ready: bool,
    /// Whether the store has been read completely at least once.
    pub synced: bool,
    /// The newest revision that has been applied.
    pub revision: i64,
    /// Set while too many deletions at once are held; the objects stay active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_deletions: Option<HeldDeletions>,
    /// Whether the active state is the mirror's because the store has not been read since the start.
    pub from_mirror: bool,
    /// The saved state; none without a mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorStatus>,
    /// Set while the store cannot be followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_down: Option<StoreDown>,
    /// The number of objects in quarantine.
    pub quarantined: usize,
    /// The number of events since the start.
    pub events: u64,
}

/// Answers a query from the state of the core; returns other queries unanswered. A dropped receiver is ignored.
pub(super) fn answer(core: &mut Core, query: Query, now: Instant) -> Option<Query> {
    match query {
        Query::Status(reply) => drop(reply.send(status(core))),
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

fn status(core: &Core) -> Status {
    Status {
        node: core.node().to_string(),
        version: env!("CARGO_PKG_VERSION"),
        started: core.started().time,
        store: core.store().to_owned(),
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
