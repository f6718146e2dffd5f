//! Entries of a store, and their changes.

use bytes::Bytes;

use crate::Problem;

/// One key and its value, with the revisions of its creation and its last change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The full key.
    pub key: String,
    /// The value as stored: Contiv's JSON or binary protobuf. Empty, which is neither, if it exceeds this client's limit: then
    /// it is a problem of the snapshot.
    pub value: Bytes,
    /// Store revision that created the key.
    pub create_revision: i64,
    /// Store revision at which the value was last written.
    pub mod_revision: i64,
}

impl Entry {
    /// Its approximate size in memory.
    pub const fn size(&self) -> usize {
        size_of::<Self>() + self.key.len() + self.value.len()
    }
}

/// Everything below a prefix, at one revision of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision at which all entries were read.
    pub revision: i64,
    /// Sorted by key.
    pub entries: Vec<Entry>,
    /// Problems that the store itself found (a broken manifest, a value beyond the limit); the complete list.
    pub problems: Vec<Problem>,
}

/// One key that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Created or overwritten.
    Put(Entry),
    /// Deleted.
    Delete {
        /// The full key.
        key: String,
    },
}

impl Change {
    /// The full key.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Delete { key } => key,
        }
    }
}

/// Changes that became visible together, all of revision `revision` or before.
///
/// A batch without changes reports progress up to its revision. All changes of one revision are in one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The newest revision in the batch.
    pub revision: i64,
    /// In the order in which the store made them.
    pub changes: Vec<Change>,
}

impl Batch {
    /// Its approximate size in bytes.
    pub fn size(&self) -> usize {
        let size = |change: &Change| match change {
            Change::Put(entry) => entry.size(),
            Change::Delete { key } => size_of::<Change>() + key.len(),
        };
        self.changes.iter().map(size).sum()
    }
}
