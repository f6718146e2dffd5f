//! The trait every backend implements, and the values it speaks in.

use std::time::Duration;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};

use crate::{Position, Problem, StoreError};

/// One key and its value, with the revisions that say when it came and when it last changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The full key.
    pub key: String,
    /// The value as stored: Contiv's JSON or binary protobuf. Empty, which is neither, if it is too large for this client:
    /// then it is a problem of the snapshot.
    pub value: Bytes,
    /// Store revision at which the key came to be.
    pub create_revision: i64,
    /// Store revision at which the value was last written.
    pub mod_revision: i64,
}

impl Entry {
    /// How many bytes it takes in memory, about.
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
    /// What the backend itself could not read (a broken manifest, a value that is too large); the complete list.
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
/// A batch without changes says that nothing else happened up to its revision. All changes of one revision are in one
/// batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The newest revision in the batch.
    pub revision: i64,
    /// In the order in which the store made them.
    pub changes: Vec<Change>,
}

impl Batch {
    /// About how many bytes it takes up.
    pub fn size(&self) -> usize {
        let size = |change: &Change| match change {
            Change::Put(entry) => entry.size(),
            Change::Delete { key } => size_of::<Change>() + key.len(),
        };
        self.changes.iter().map(size).sum()
    }
}

/// What a watch yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// Keys changed.
    Changed(Batch),
    /// What the backend itself cannot read is now this (the complete list; replaces the one before).
    Problems(Vec<Problem>),
}

/// The stream of a watch. It ends with an error: [`StoreError::Compacted`], [`StoreError::Rewound`] and
/// [`StoreError::Replaced`] mean list again.
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
    /// Create or overwrite a key that goes when its lease ends.
    PutLeased {
        /// The full key.
        key: String,
        /// The value.
        value: Bytes,
        /// A lease of [`Store::leases`].
        lease: LeaseId,
    },
    /// Remove a key; it is no error if there is none.
    Delete {
        /// The full key.
        key: String,
    },
}

impl Operation {
    /// The full key that is written.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::PutLeased { key, .. } | Self::Delete { key } => key,
        }
    }

    /// How many bytes the value has; none where there is none.
    pub const fn size(&self) -> usize {
        match self {
            Self::Put { value, .. } | Self::PutLeased { value, .. } => value.len(),
            Self::Delete { .. } => 0,
        }
    }
}

/// What must be so of a key at the moment of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// There is no such key.
    Absent {
        /// The full key.
        key: String,
    },
    /// Its value was last written at this revision.
    Unchanged {
        /// The full key.
        key: String,
        /// See [`Entry::mod_revision`].
        mod_revision: i64,
    },
    /// It has been there since this revision, whatever was written to it.
    Since {
        /// The full key.
        key: String,
        /// See [`Entry::create_revision`].
        create_revision: i64,
    },
}

impl Condition {
    /// The full key that is looked at.
    pub fn key(&self) -> &str {
        match self {
            Self::Absent { key } | Self::Unchanged { key, .. } | Self::Since { key, .. } => key,
        }
    }

    /// Whether it is so of what the key holds.
    pub fn holds(&self, entry: Option<&Entry>) -> bool {
        match self {
            Self::Absent { .. } => entry.is_none(),
            Self::Unchanged { mod_revision, .. } => entry.is_some_and(|e| e.mod_revision == *mod_revision),
            Self::Since { create_revision, .. } => {
                entry.is_some_and(|e| e.create_revision == *create_revision)
            }
        }
    }
}

/// Writes that are made together, if all conditions hold, or not at all. No key may be written twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// The writes.
    pub operations: Vec<Operation>,
}

/// Names a lease.
pub type LeaseId = i64;

/// Keys with a time to live, for stores that have them.
pub trait Leases: Send + Sync {
    /// A new lease that ends after `ttl` (whole seconds), unless it is kept alive.
    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, StoreError>>;

    /// Makes the lease last for its whole time to live again. False: it has ended, and its keys are gone.
    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Ends a lease now; its keys go with it. It is no error if it has ended.
    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// Is shown what a list brings, while the rest of it is on its way.
pub trait Preview: Send + Sync + 'static {
    /// A list begins. What was shown before may be no part of it.
    fn begin(&self);

    /// The list has these entries, which follow one another in it. It can still fail: only the [`Snapshot`] counts.
    fn show(&self, entries: &[Entry]);
}

/// A place where state lives.
pub trait Store: Send + Sync + 'static {
    /// Everything below `prefix`, at one revision.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>>;

    /// As [`Store::list`], and shows what is there already, where this store reads a list in parts.
    fn list_with_preview<'a>(
        &'a self,
        prefix: &'a str,
        _preview: &'a dyn Preview,
    ) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.list(prefix)
    }

    /// What changes below `prefix` after `revision`, without a gap.
    fn watch<'a>(&'a self, prefix: &'a str, revision: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>>;

    /// As [`Store::watch`] from the revision of `position`, for a reader who has followed the store until there.
    /// [`StoreError::Replaced`] if the store has another history now, where it is one that can be replaced.
    fn follow<'a>(
        &'a self,
        prefix: &'a str,
        position: &'a Position,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        self.watch(prefix, position.revision())
    }

    /// Makes all writes if all conditions hold, and returns the revision they got. Nothing is written otherwise, and
    /// the error is [`StoreError::Conflict`]. After [`StoreError::Unavailable`] nobody knows whether it was done.
    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>>;

    /// Applies all operations or none, whatever is there, and returns the revision they got.
    fn commit(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<i64, StoreError>> {
        self.transact(Transaction { conditions: Vec::new(), operations })
    }

    /// Keys with a time to live; none if this store has no such thing.
    fn leases(&self) -> Option<&dyn Leases> {
        None
    }
}

/// How many conditions, and how many operations, one transaction may hold: etcd's `--max-txn-ops`, which is 128 unless its operator changed it.
pub const TRANSACTION_LIMIT: usize = 128;

/// How many bytes of values one transaction may hold, unless it has a single one: etcd's `--max-request-bytes` is 1.5 MiB, in
/// which keys must fit too.
pub const TRANSACTION_BYTES: usize = 1 << 20;

/// Commits any number of operations, as many at a time as [`TRANSACTION_LIMIT`] and [`TRANSACTION_BYTES`] allow, and returns
/// the last revision.
///
/// Not atomic: a reader can see the first chunks without the rest, and after an error the chunks before it stay.
///
/// # Errors
/// The first error of [`Store::commit`].
pub async fn commit_in_chunks(store: &dyn Store, operations: Vec<Operation>) -> Result<i64, StoreError> {
    let mut revision = 0;
    let mut rest = operations;
    while !rest.is_empty() {
        let mut fill = Fill::default();
        let fitting = rest.iter().take_while(|operation| fill.take(operation.size())).count();
        let later = rest.split_off(fitting);
        revision = store.commit(rest).await?;
        rest = later;
    }
    Ok(revision)
}

/// How full a transaction is.
#[derive(Debug, Default)]
pub struct Fill {
    operations: usize,
    bytes: usize,
}

impl Fill {
    /// Takes one more operation in, with so many bytes of value. False if it has to go into the next transaction, as
    /// [`TRANSACTION_LIMIT`] and [`TRANSACTION_BYTES`] have it; the first always fits.
    pub const fn take(&mut self, bytes: usize) -> bool {
        let is_full = self.operations == TRANSACTION_LIMIT || self.bytes + bytes > TRANSACTION_BYTES;
        if is_full && self.operations > 0 {
            return false;
        }
        self.operations += 1;
        self.bytes += bytes;
        true
    }
}
