//! Where a reader goes on that had saved what it knew, and the evidence that the store is still the same.

use std::collections::BTreeSet;

use crate::Position;

/// With more keys whose saved values are not those of the store, it is listed.
pub const MAX_DEVIATING_KEYS: usize = 100;

/// What a store says of itself with each answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The id of the cluster.
    pub cluster: u64,
    /// The number of its last election. A cluster that is restored from a backup begins anew.
    pub term: u64,
}

impl StoreIdentity {
    /// Whether this may be what a store says that said `before`.
    pub const fn follows(self, before: Self) -> bool {
        self.cluster == before.cluster && self.term >= before.term
    }
}

/// Where a reader goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumePoint {
    /// The saved revision, with some keys as they were then.
    pub position: Position,
    /// How many keys have the saved value in the store.
    pub keys: u64,
    /// The keys of which something else is saved, or nothing: values that cannot be used, and deletions that are held. What the store
    /// has there must be read.
    pub deviating: BTreeSet<String>,
    /// None if the store says nothing.
    pub identity: Option<StoreIdentity>,
}

/// What an earlier run has saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SavedStart {
    /// Nothing.
    Nothing,
    /// A state that may be used without the store only.
    Unusable,
    /// A state from which a reader can go on.
    Usable(Box<ResumePoint>),
}
