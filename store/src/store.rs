//! The trait every backend implements, and the values it speaks in.

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};

use crate::{Problem, StoreError};

/// One key and its value, with the revisions that say when it came and when it last changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The full key.
    pub key: String,
    /// The value as stored: Contiv's JSON or binary protobuf.
    pub value: Bytes,
    /// Store revision at which the key came to be.
    pub create_revision: i64,
    /// Store revision at which the value was last written.
    pub mod_revision: i64,
}

/// Everything below a prefix, at one revision of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision at which all entries were read.
    pub revision: i64,
    /// Sorted by key.
    pub entries: Vec<Entry>,
    /// What the backend itself could not read (a broken manifest); the complete list.
    pub problems: Vec<Problem>,
}

/// One key that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Created or overwritten.
    Put(Entry),
    /// Gone.
    Delete {
        /// The full key.
        key: String,
    },
}

/// Changes that became visible together, all of revision `revision` or before.
///
/// A batch without changes says that nothing else happened up to its revision. All changes of one revision are in one
/// batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The newest revision in the batch.
    pub revision: i64,
    /// In the order in which the store made them.
    pub changes: Vec<Change>,
}

/// What a watch yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// Keys changed.
    Changed(Batch),
    /// What the backend itself cannot read is now this (the complete list; replaces the one before).
    Problems(Vec<Problem>),
}

/// The stream of a watch. It ends with an error: [`StoreError::Compacted`] and [`StoreError::Rewound`] mean list again.
pub type WatchStream = BoxStream<'static, Result<WatchEvent, StoreError>>;

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Create or overwrite a key.
    Put {
        /// The full key.
        key: String,
        /// The value.
        value: Bytes,
    },
    /// Remove a key; it is no error if there is none.
    Delete {
        /// The full key.
        key: String,
    },
}

/// A place where state lives.
pub trait Store: Send + Sync + 'static {
    /// Everything below `prefix`, at one revision.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>>;

    /// What changes below `prefix` after `revision`, without a gap.
    fn watch<'a>(&'a self, prefix: &'a str, revision: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>>;

    /// Applies all operations or none, and returns the revision they got.
    fn commit(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<i64, StoreError>>;
}

/// What one transaction may hold: etcd's `--max-txn-ops`, which is 128 unless its operator changed it.
pub const TRANSACTION_LIMIT: usize = 128;

/// Commits any number of operations, [`TRANSACTION_LIMIT`] at a time, and returns the last revision.
///
/// Not atomic: a reader can see the first chunks without the rest, and after an error the chunks before it stay.
///
/// # Errors
/// The first error of [`Store::commit`].
pub async fn commit_in_chunks(store: &dyn Store, operations: Vec<Operation>) -> Result<i64, StoreError> {
    let mut revision = 0;
    let mut rest = operations;
    while !rest.is_empty() {
        let later = rest.split_off(rest.len().min(TRANSACTION_LIMIT));
        revision = store.commit(rest).await?;
        rest = later;
    }
    Ok(revision)
}
