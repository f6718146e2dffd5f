//! The state of the agent for users.

use jiff::Timestamp;
use serde::Serialize;

use super::{
    deletion_guard::HeldDeletions,
    failover::FailoverStatus,
    self_check::SelfCheckFailure,
    store_state::{MirrorStatus, StoreDown},
};

/// The state of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// This node.
    pub node: String,
    /// What is wrong with its Node object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_problem: Option<String>,
    /// The agent's version.
    pub version: &'static str,
    /// When the agent has started.
    pub started: Timestamp,
    /// The store as configured.
    pub store: String,
    /// Whether every renderer has applied its first snapshot.
    pub ready: bool,
    /// Whether there is a state to render: a complete list of the store, or its saved state.
    pub synced: bool,
    /// The newest revision that has been handled.
    pub revision: i64,
    /// Set while too many deletions at once are held; the objects stay active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_deletions: Option<HeldDeletions>,
    /// Whether the active state is the mirror's because the store has not been read since the start.
    pub from_mirror: bool,
    /// The saved state; none without a mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorStatus>,
    /// Set while the store cannot be watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_down: Option<StoreDown>,
    /// The number of objects in quarantine.
    pub quarantined: usize,
    /// The number of warnings about objects that are used.
    pub warnings: usize,
    /// The state of failover; none if no service has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverStatus>,
    /// Why the agent does not reach itself through its rules, if it tries and does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_check: Option<SelfCheckFailure>,
    /// The number of events since the start.
    pub events: u64,
}
