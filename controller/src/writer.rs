//! Writes to the store that never overwrite another client's change and never happen after the lease is lost.

use std::{collections::BTreeSet, fmt, sync::Arc};

use bytes::Bytes;
use contiv_store::{
    Condition, Operation, Store, StoreError, TRANSACTION_BYTES, TRANSACTION_LIMIT, Transaction,
};
use thiserror::Error;

use crate::resource::{Key, Object};

/// The proof that a lease is held: the election's key has existed since this revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The election's key.
    pub key: String,
    /// The revision at which its holder won the election.
    pub create_revision: i64,
}

/// One write, conditional on the key being unchanged since it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    condition: Condition,
    operation: Operation,
}

impl Write {
    /// Creates an object; the key must not exist.
    pub fn create(key: &str, value: impl Into<Bytes>) -> Self {
        let key = key.to_owned();
        let operation = Operation::Put {
            key: key.clone(),
            value: value.into(),
        };
        Self {
            condition: Condition::Absent { key },
            operation,
        }
    }

    /// Replaces the value of an object, which must not have been written since it was read.
    pub fn update<T>(object: &Object<T>, value: impl Into<Bytes>) -> Self {
        let operation = Operation::Put {
            key: object.key.to_string(),
            value: value.into(),
        };
        Self {
            condition: unchanged(object),
            operation,
        }
    }

    /// Deletes an object, which must not have been written since it was read.
    pub fn delete<T>(object: &Object<T>) -> Self {
        let operation = Operation::Delete {
            key: object.key.to_string(),
        };
        Self {
            condition: unchanged(object),
            operation,
        }
    }

    /// The key that is written.
    pub fn key(&self) -> &str {
        self.operation.key()
    }

    const fn size(&self) -> usize {
        self.operation.size()
    }
}

fn unchanged<T>(object: &Object<T>) -> Condition {
    Condition::Unchanged {
        key: object.key.to_string(),
        mod_revision: object.mod_revision,
    }
}

/// Why a write failed. All but the last are worth a retry of the reconciler, which reads again.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The lease for this write is no longer held.
    #[error("another one holds {key} now; nothing was written")]
    LeaseLost {
        /// The election's key.
        key: String,
    },
    /// Another client wrote the key since it was read. Read again and decide again.
    #[error("{key} was changed by another writer since it was read; nothing was written")]
    Conflict {
        /// The key.
        key: String,
    },
    /// The store failed. After [`StoreError::Unavailable`] it is unknown whether the write was made.
    #[error(transparent)]
    Store(StoreError),
    /// One batch writes a key twice.
    #[error("{key} is written twice in one batch; write it once")]
    DuplicateKey {
        /// The key.
        key: String,
    },
}

/// Writes to the store for one controller, for as long as its lease is held. Cheap to clone.
///
/// ```
/// use contiv_controller::{Write, Writer, WriteError};
/// use contiv_store_testing::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), WriteError> {
/// let writer = Writer::new(MemoryStore::new().shared(), None);
/// writer.commit(vec![Write::create("/names/1", "Ada")]).await?;
/// let again = writer.commit(vec![Write::create("/names/1", "Bob")]).await;
/// assert!(matches!(again, Err(WriteError::Conflict { key }) if key == "/names/1"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Writer {
    store: Arc<dyn Store>,
    fence: Option<Fence>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates a writer whose transactions fail when the fence no longer holds; without a fence it can always write.
    pub fn new(store: Arc<dyn Store>, fence: Option<Fence>) -> Self {
        Self { store, fence }
    }

    /// The fence of its lease.
    pub fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// Makes the writes in order and returns the last revision; none if there was nothing to write.
    ///
    /// As many writes as possible share a transaction: 128 (127 with a fence), 1 MiB of values. More need several transactions,
    /// which are not atomic together: after an error the earlier ones stay.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn commit(&self, writes: Vec<Write>) -> Result<Option<i64>, WriteError> {
        let mut keys = BTreeSet::new();
        if let Some(twice) = writes.iter().find(|write| !keys.insert(write.key())) {
            return Err(WriteError::DuplicateKey {
                key: twice.key().to_owned(),
            });
        }
        let mut revision = None;
        for transaction in self.transactions(writes) {
            revision = Some(
                self.store
                    .transact(transaction)
                    .await
                    .map_err(|error| self.explain(error))?,
            );
        }
        Ok(revision)
    }

    /// Creates one object.
    ///
    /// # Errors
    /// As [`Writer::commit`].
    pub async fn create(&self, key: &Key, value: impl Into<Bytes>) -> Result<(), WriteError> {
        self.commit(vec![Write::create(key, value)]).await.map(drop)
    }

    /// Replaces the value of one object.
    ///
    /// # Errors
    /// As [`Writer::commit`].
    pub async fn update<T: Sync>(
        &self,
        object: &Object<T>,
        value: impl Into<Bytes>,
    ) -> Result<(), WriteError> {
        self.commit(vec![Write::update(object, value)])
            .await
            .map(drop)
    }

    fn transactions(&self, writes: Vec<Write>) -> Vec<Transaction> {
        let mut transactions = Vec::new();
        let mut current = self.transaction();
        let mut size = 0;
        for write in writes {
            let is_full = current.conditions.len() == TRANSACTION_LIMIT
                || size + write.size() > TRANSACTION_BYTES;
            if is_full && !current.operations.is_empty() {
                transactions.push(std::mem::replace(&mut current, self.transaction()));
                size = 0;
            }
            size += write.size();
            current.conditions.push(write.condition);
            current.operations.push(write.operation);
        }
        if !current.operations.is_empty() {
            transactions.push(current);
        }
        transactions
    }

    fn transaction(&self) -> Transaction {
        let fence = self.fence.iter().map(|fence| Condition::Since {
            key: fence.key.clone(),
            create_revision: fence.create_revision,
        });
        Transaction {
            conditions: fence.collect(),
            operations: Vec::new(),
        }
    }

    fn explain(&self, error: StoreError) -> WriteError {
        match error {
            StoreError::Conflict { key }
                if self.fence.as_ref().is_some_and(|fence| fence.key == key) =>
            {
                WriteError::LeaseLost { key }
            }
            StoreError::Conflict { key } => WriteError::Conflict { key },
            error => WriteError::Store(error),
        }
    }
}

#[cfg(test)]
mod tests;
