//! What the processor hands to renderers: the complete state, or what changed in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::Serialize;

use crate::{ContivService, InterfaceName, NodeFacts, ServiceId};

/// The complete desired state. A renderer removes whatever of its own is not in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Snapshot {
    /// Every service that can be rendered.
    pub services: BTreeMap<ServiceId, Arc<ContivService>>,
    /// Facts about this node.
    pub node: NodeFacts,
    /// Interfaces of local pods (every pod can be a client).
    pub frontend_interfaces: BTreeSet<InterfaceName>,
    /// Interfaces of local pods that stand behind at least one service.
    pub backend_interfaces: BTreeSet<InterfaceName>,
}

/// What changed between two snapshots. Empty when nothing did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ChangeSet {
    /// Services that came, went or differ. `old` and `new` always differ.
    pub services: BTreeMap<ServiceId, ServiceChange>,
    /// The new facts, if they differ from before.
    pub node: Option<NodeFacts>,
    /// Old and new set, if they differ.
    pub frontend_interfaces: Option<InterfaceChange>,
    /// Old and new set, if they differ.
    pub backend_interfaces: Option<InterfaceChange>,
}

/// One service before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceChange {
    /// None for a service that is new.
    pub old: Option<Arc<ContivService>>,
    /// None for a service that is gone.
    pub new: Option<Arc<ContivService>>,
}

/// An interface set before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceChange {
    /// Before.
    pub old: BTreeSet<InterfaceName>,
    /// After.
    pub new: BTreeSet<InterfaceName>,
}
