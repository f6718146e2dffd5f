//! What is still to be written: at most one replacement, and the last change of each key after it.

use std::collections::{BTreeMap, BTreeSet};

use contiv_store::{Batch, Change, Entry, Mirror, MirrorError};

#[derive(Debug, Default)]
pub(super) struct Pending {
    replacement: Option<Replacement>,
    changes: BTreeMap<String, Change>,
    /// What all of it leads to.
    revision: Option<i64>,
}

#[derive(Debug)]
struct Replacement {
    revision: i64,
    entries: Vec<Entry>,
    keep: BTreeSet<String>,
}

impl Pending {
    pub(super) const fn is_empty(&self) -> bool {
        self.revision.is_none()
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision.unwrap_or_default()
    }

    /// What waited until now is of no consequence any more.
    pub(super) fn replace(&mut self, revision: i64, entries: Vec<Entry>, keep: BTreeSet<String>) {
        let replacement = Some(Replacement { revision, entries, keep });
        *self = Self { replacement, changes: BTreeMap::new(), revision: Some(revision) };
    }

    pub(super) fn apply(&mut self, batch: Batch) {
        self.revision = Some(batch.revision);
        for change in batch.changes {
            let key = match &change {
                Change::Put(entry) => entry.key.clone(),
                Change::Delete { key } => key.clone(),
            };
            self.changes.insert(key, change);
        }
    }

    pub(super) fn write(self, mirror: &mut Mirror) -> Result<(), MirrorError> {
        let revision = self.revision();
        if let Some(Replacement { revision, entries, keep }) = self.replacement {
            mirror.replace(revision, &entries, &keep)?;
        }
        let changes: Vec<Change> = self.changes.into_values().collect();
        if changes.is_empty() { Ok(()) } else { mirror.apply(revision, &changes) }
    }
}
