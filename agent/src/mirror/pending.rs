//! Everything that is still to be written: at most one replacement, and the last change of each key after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use contiv_store::{Batch, Change, Entry, Mirror, MirrorError};
use tracing::debug;

use super::spool::Spool;

#[derive(Debug, Default)]
pub(super) struct Pending {
    replacement: Option<Replacement>,
    changes: BTreeMap<String, Change>,
    /// The revision after all of it.
    revision: Option<i64>,
}

#[derive(Debug)]
struct Replacement {
    revision: i64,
    entries: PendingList,
    keep: BTreeSet<String>,
}

/// A list that waits to be saved.
#[derive(Debug)]
enum PendingList {
    OnDisk(Spool),
    /// Writing it to disk failed.
    InMemory(Vec<Entry>),
}

impl Pending {
    pub(super) const fn is_empty(&self) -> bool {
        self.revision.is_none()
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision.unwrap_or_default()
    }

    /// Replaces everything that waited until now. The list waits in this folder.
    pub(super) fn replace(
        &mut self,
        folder: &Path,
        revision: i64,
        entries: Vec<Entry>,
        keep: BTreeSet<String>,
    ) {
        let entries = match Spool::new(folder, &entries) {
            Ok(spool) => PendingList::OnDisk(spool),
            Err(error) => {
                debug!(%error, "what is to be saved waits in memory");
                PendingList::InMemory(entries)
            }
        };
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
            match entries {
                PendingList::OnDisk(spool) => mirror.replace(revision, spool.into_entries(), &keep)?,
                PendingList::InMemory(entries) => {
                    mirror.replace(revision, entries.into_iter().map(Ok), &keep)?;
                }
            }
        }
        let changes: Vec<Change> = self.changes.into_values().collect();
        if changes.is_empty() { Ok(()) } else { mirror.apply(revision, &changes) }
    }
}
