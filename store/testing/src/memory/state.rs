//! The state of the store in memory: etcd's rules, pure, with the time as an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use contiv_store::{
    Batch, Change, Entry, LeaseId, Operation, Snapshot, StoreError, TRANSACTION_LIMIT, Transaction,
};
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct State {
    revision: i64,
    entries: BTreeMap<String, Entry>,
    /// All transactions since the last compaction.
    history: Vec<Batch>,
    /// The oldest revision at which a watch can still begin.
    oldest: i64,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: LeaseId,
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    ends: Instant,
    keys: BTreeSet<String>,
}

impl Default for State {
    fn default() -> Self {
        // An empty etcd is at revision 1.
        Self {
            revision: 1,
            entries: BTreeMap::new(),
            history: Vec::new(),
            oldest: 1,
            leases: BTreeMap::new(),
            next_lease: 1,
        }
    }
}

impl State {
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    pub(super) fn list(&self, prefix: &str) -> Snapshot {
        let below = self
            .entries
            .range(prefix.to_owned()..)
            .take_while(|(key, _)| key.starts_with(prefix));
        Snapshot {
            revision: self.revision,
            entries: below.map(|(_, entry)| entry.clone()).collect(),
            problems: Vec::new(),
        }
    }

    /// The next transaction after `revision` with changes below `prefix`.
    pub(super) fn after(&self, prefix: &str, revision: i64) -> Result<Option<Batch>, StoreError> {
        if revision + 1 < self.oldest {
            return Err(StoreError::Compacted {
                requested: revision + 1,
                oldest: self.oldest,
            });
        }
        let later = self.history.iter().skip(
            self.history
                .partition_point(|batch| batch.revision <= revision),
        );
        let mut below = later.filter_map(|batch| {
            let below = batch
                .changes
                .iter()
                .filter(|change| change.key().starts_with(prefix));
            let changes: Vec<Change> = below.cloned().collect();
            (!changes.is_empty()).then_some(Batch {
                revision: batch.revision,
                changes,
            })
        });
        Ok(below.next())
    }

    /// A watch can still begin with the newest revision, so its changes are kept.
    pub(super) fn compact(&mut self) {
        let newest = self.revision;
        self.history.retain(|batch| batch.revision == newest);
        self.oldest = newest;
    }

    pub(super) fn transact(&mut self, transaction: Transaction) -> Result<i64, StoreError> {
        let Transaction {
            conditions,
            operations,
        } = transaction;
        let refused = |reason: String| StoreError::Refused {
            action: "commit".to_owned(),
            reason,
        };
        if conditions.len().max(operations.len()) > TRANSACTION_LIMIT {
            return Err(refused("too many operations in txn request".to_owned()));
        }
        let mut keys = BTreeSet::new();
        for operation in &operations {
            if !keys.insert(operation.key()) {
                return Err(refused("duplicate key given in txn request".to_owned()));
            }
            if let Operation::PutLeased { lease, .. } = operation
                && !self.leases.contains_key(lease)
            {
                return Err(refused("requested lease not found".to_owned()));
            }
        }
        if let Some(broken) = conditions
            .iter()
            .find(|it| !it.holds(self.entries.get(it.key())))
        {
            return Err(StoreError::Conflict {
                key: broken.key().to_owned(),
            });
        }
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        for operation in operations {
            match operation {
                Operation::Put { key, value } => {
                    self.detach(&key);
                    changes.push(self.put(revision, key, value));
                }
                Operation::PutLeased { key, value, lease } => {
                    self.detach(&key);
                    if let Some(lease) = self.leases.get_mut(&lease) {
                        lease.keys.insert(key.clone());
                    }
                    changes.push(self.put(revision, key, value));
                }
                Operation::Delete { key } => changes.extend(self.delete(key)),
            }
        }
        self.publish(revision, changes);
        Ok(self.revision)
    }

    fn put(&mut self, revision: i64, key: String, value: bytes::Bytes) -> Change {
        let create_revision = self
            .entries
            .get(&key)
            .map_or(revision, |entry| entry.create_revision);
        let entry = Entry {
            key: key.clone(),
            value,
            create_revision,
            mod_revision: revision,
        };
        self.entries.insert(key, entry.clone());
        Change::Put(entry)
    }

    fn delete(&mut self, key: String) -> Option<Change> {
        self.detach(&key);
        self.entries.remove(&key).map(|_| Change::Delete { key })
    }

    fn detach(&mut self, key: &str) {
        for lease in self.leases.values_mut() {
            lease.keys.remove(key);
        }
    }

    fn publish(&mut self, revision: i64, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.revision = revision;
            self.history.push(Batch { revision, changes });
        }
    }

    pub(super) fn grant(&mut self, ttl: Duration, now: Instant) -> LeaseId {
        let lease = self.next_lease;
        self.next_lease += 1;
        self.leases.insert(
            lease,
            Lease {
                ttl,
                ends: now + ttl,
                keys: BTreeSet::new(),
            },
        );
        lease
    }

    pub(super) fn keep_alive(&mut self, lease: LeaseId, now: Instant) -> bool {
        match self.leases.get_mut(&lease) {
            Some(lease) => {
                lease.ends = now + lease.ttl;
                true
            }
            None => false,
        }
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) {
        if let Some(lease) = self.leases.remove(&lease) {
            let changes: Vec<Change> = lease
                .keys
                .into_iter()
                .filter_map(|key| self.delete(key))
                .collect();
            self.publish(self.revision + 1, changes);
        }
    }

    /// Ends the leases that have expired.
    pub(super) fn expire(&mut self, now: Instant) {
        let over: Vec<LeaseId> = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.ends <= now)
            .map(|(id, _)| *id)
            .collect();
        for lease in over {
            self.revoke(lease);
        }
    }

    /// When the next lease expires unless it is kept alive.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.ends).min()
    }
}
