//! The trait of all stores, and its values.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture, stream::BoxStream};

use crate::{
    Backoff, Batch, Change, Entry, PageSender, Position, Problem, ResumePoint, Snapshot,
    StoreError, StoreIdentity,
};

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// Keys changed.
    Changed(Batch),
    /// Problems that the store itself found; the complete list, which replaces the previous one.
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
    /// Create or overwrite a key that is deleted when its lease ends.
    PutLeased {
        /// The full key.
        key: String,
        /// The value.
        value: Bytes,
        /// A lease of [`Store::leases`].
        lease: LeaseId,
    },
    /// Delete a key; a missing one is no error.
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

    /// The bytes of the value; none for a deletion.
    pub const fn size(&self) -> usize {
        match self {
            Self::Put { value, .. } | Self::PutLeased { value, .. } => value.len(),
            Self::Delete { .. } => 0,
        }
    }
}

/// A condition on a key at the time of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key does not exist.
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
    /// It has existed since this revision, with any value.
    Since {
        /// The full key.
        key: String,
        /// See [`Entry::create_revision`].
        create_revision: i64,
    },
}

impl Condition {
    /// The full key of the condition.
    pub fn key(&self) -> &str {
        match self {
            Self::Absent { key } | Self::Unchanged { key, .. } | Self::Since { key, .. } => key,
        }
    }

    /// True if the condition holds for this entry.
    pub fn holds(&self, entry: Option<&Entry>) -> bool {
        match self {
            Self::Absent { .. } => entry.is_none(),
            Self::Unchanged { mod_revision, .. } => {
                entry.is_some_and(|e| e.mod_revision == *mod_revision)
            }
            Self::Since {
                create_revision, ..
            } => entry.is_some_and(|e| e.create_revision == *create_revision),
        }
    }
}

/// Writes that are made atomically, if all conditions hold. No key may be written twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// The writes.
    pub operations: Vec<Operation>,
}

/// The id of a lease.
pub type LeaseId = i64;

/// Keys with a time to live, for stores that have them.
pub trait Leases: Send + Sync {
    /// A new lease that ends after `ttl` (whole seconds), unless it is kept alive.
    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, StoreError>>;

    /// Renews the lease for its whole time to live. False: it has ended, and its keys are gone.
    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Ends a lease now and deletes its keys. It is no error if it has ended.
    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>>;
}

/// The first pause between two attempts to watch a store.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest one, unless a store has another.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A place where state lives.
pub trait Store: Send + Sync + 'static {
    /// Everything below `prefix`, at one revision.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>>;

    /// As [`Store::list`], in pages: each goes to `pages` as soon as it is there, where this store reads a list in parts.
    /// Returns the revision at which all of them were read, and what could not be read. Pages count only then.
    fn list_pages<'a>(
        &'a self,
        prefix: &'a str,
        pages: &'a PageSender,
    ) -> BoxFuture<'a, Result<(i64, Vec<Problem>), StoreError>> {
        async move {
            let Snapshot {
                revision,
                entries,
                problems,
            } = self.list(prefix).await?;
            pages.begin().await;
            pages.send(entries).await;
            Ok((revision, problems))
        }
        .boxed()
    }

    /// Everything below `prefix`, as it was at this revision. [`StoreError::Compacted`] if the store no longer has it, and
    /// [`StoreError::Refused`] if it keeps no earlier revisions.
    fn list_at<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
    ) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        let action = format!("list {prefix} at revision {revision}");
        let reason = "it keeps no earlier revisions".to_owned();
        async move { Err(StoreError::Refused { action, reason }) }.boxed()
    }

    /// The changes below `prefix` after `revision`, without a gap.
    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>>;

    /// Like [`Store::watch`], for a reader that goes on after a pause: it has watched the store up to `position`.
    /// [`StoreError::Replaced`] if the store has another history now, where it can be replaced.
    fn resume_watch<'a>(
        &'a self,
        prefix: &'a str,
        position: &'a Position,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        self.watch(prefix, position.revision())
    }

    /// Like [`Store::resume_watch`], for a reader that goes on from what an earlier run had saved. Also returns the keys of which
    /// something else was saved, as they were at that revision. An error that means list again if the saved state is not one of this
    /// store, or cannot be checked.
    fn resume_saved<'a>(
        &'a self,
        _prefix: &'a str,
        point: &'a ResumePoint,
    ) -> BoxFuture<'a, Result<(WatchStream, Vec<Change>), StoreError>> {
        let requested = point.position.revision();
        let oldest = requested + 1;
        async move { Err(StoreError::Compacted { requested, oldest }) }.boxed()
    }

    /// What these keys had at this revision, for a reader that doubts what it was given. [`StoreError::Refused`] if the store keeps no
    /// earlier revisions.
    fn read_at<'a>(
        &'a self,
        _keys: &'a BTreeSet<String>,
        revision: i64,
    ) -> BoxFuture<'a, Result<Vec<Change>, StoreError>> {
        let action = format!("read keys at revision {revision}");
        let reason = "it keeps no earlier revisions".to_owned();
        async move { Err(StoreError::Refused { action, reason }) }.boxed()
    }

    /// What the store has said of itself, if it says anything.
    fn identity(&self) -> Option<StoreIdentity> {
        None
    }

    /// Makes all writes if all conditions hold, and returns their revision. Otherwise nothing is written, and the error is
    /// [`StoreError::Conflict`]. After [`StoreError::Unavailable`] it is unknown whether it was done.
    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>>;

    /// Applies all operations or none, unconditionally, and returns their revision.
    fn commit(&self, operations: Vec<Operation>) -> BoxFuture<'_, Result<i64, StoreError>> {
        self.transact(Transaction {
            conditions: Vec::new(),
            operations,
        })
    }

    /// The pauses between attempts to watch this store after a failure.
    fn backoff(&self) -> Backoff {
        Backoff::new(FIRST_PAUSE, MAX_PAUSE)
    }

    /// Keys with a time to live; none if this store does not support them.
    fn leases(&self) -> Option<&dyn Leases> {
        None
    }
}

/// The maximum number of conditions, and of operations, in one transaction: etcd's `--max-txn-ops`, which is 128 unless its
/// operator changed it.
pub const TRANSACTION_LIMIT: usize = 128;

/// The maximum number of bytes of values in one transaction, unless it has a single one: etcd's `--max-request-bytes` is 1.5
/// MiB, which includes keys.
pub const TRANSACTION_BYTES: usize = 1 << 20;

/// Commits any number of operations, in chunks limited by [`TRANSACTION_LIMIT`] and [`TRANSACTION_BYTES`], and returns the last
/// revision.
///
/// Not atomic: a reader can see the first chunks without the others, and after an error the earlier chunks stay.
///
/// # Errors
/// The first error of [`Store::commit`].
pub async fn commit_in_chunks(
    store: &dyn Store,
    operations: Vec<Operation>,
) -> Result<i64, StoreError> {
    let mut revision = 0;
    let mut rest = operations;
    while !rest.is_empty() {
        let mut size = TransactionSize::default();
        let fitting = rest
            .iter()
            .take_while(|operation| size.try_add(operation.size()))
            .count();
        let later = rest.split_off(fitting);
        revision = store.commit(rest).await?;
        rest = later;
    }
    Ok(revision)
}

/// The number of operations of a transaction, and their size.
#[derive(Debug, Default)]
pub struct TransactionSize {
    operations: usize,
    bytes: usize,
}

impl TransactionSize {
    /// Adds one more operation, with this many bytes of value. False if it must go into the next transaction because of
    /// [`TRANSACTION_LIMIT`] or [`TRANSACTION_BYTES`]; the first always fits.
    pub const fn try_add(&mut self, bytes: usize) -> bool {
        let is_full =
            self.operations == TRANSACTION_LIMIT || self.bytes + bytes > TRANSACTION_BYTES;
        if is_full && self.operations > 0 {
            return false;
        }
        self.operations += 1;
        self.bytes += bytes;
        true
    }
}
