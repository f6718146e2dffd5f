//! What can be asked of the loop, and the answers. A question carries the channel for its answer.

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{
    ContivService, Frontend, InterfaceName, Object, PodId, ServiceId, Snapshot, object::ObjectKind,
    processor::NodeView,
};
use contiv_renderer::Description;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::oneshot;

use super::{
    guard::HeldDeletions,
    history::{HistoryQuery, Record},
    mirroring::MirrorStatus,
    quarantine::Quarantined,
    renderers::RendererView,
};

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<T>;

/// A question.
#[derive(Debug)]
pub enum Query {
    /// How the agent is. Costs next to nothing, so that probes may ask often.
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
    /// The objects of a type as they are in force.
    Objects(ObjectKind, Reply<Vec<Object>>),
    /// Every node.
    Nodes(Reply<Vec<NodeView>>),
    /// The pods that are attached to this node's dataplane, with their main interfaces.
    Pods(Reply<BTreeMap<PodId, InterfaceName>>),
    /// How the renderers are.
    Renderers(Reply<Vec<RendererView>>),
    /// What a renderer has applied. False if there is none of this name; else the description comes as soon as the
    /// renderer is idle.
    Dump(String, Reply<bool>, Reply<Description>),
    /// What cannot be used, without the first so many; never very many at once.
    Quarantine(usize, Reply<Vec<Quarantined>>),
    /// What happened.
    History(HistoryQuery, Reply<Vec<Record>>),
}

/// How the agent is.
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
    /// The newest revision that has been taken in.
    pub revision: i64,
    /// Too many objects would have gone at once: they stay in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_deletions: Option<HeldDeletions>,
    /// What is in force is what the mirror had: the store has not been read since the start.
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

/// How much there is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Services that renderers have.
    pub services: usize,
    /// Their ports.
    pub service_ports: usize,
    /// Their backends, over all ports.
    pub backends: usize,
    /// Services with a port that nothing stands behind: connections to it are refused.
    pub services_without_backends: usize,
    /// The first of those, by name.
    pub without_backends: Vec<ServiceId>,
    /// Services that ask for a frontend that another one holds.
    pub services_with_lost_frontends: usize,
    /// The first of those, by name, each with one such frontend.
    pub lost_frontends: Vec<LostFrontend>,
    /// Stored services that are left to another proxy by their label.
    pub left_to_other_proxies: usize,
}

/// A frontend that two services ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LostFrontend {
    /// The service that does not get it.
    pub service: ServiceId,
    /// What it asks for.
    pub frontend: Frontend,
    /// The service that holds it.
    pub holder: ServiceId,
}

/// Since when the store cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreDown {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
}
