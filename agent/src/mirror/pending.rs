//! Everything that is still to be written: at most one replacement, and the last change of each key after it.

use std::collections::{BTreeMap, BTreeSet};

use contiv_store::{Batch, Change, Mirror, MirrorError};

use super::messages::Replacement;

#[derive(Debug, Default)]
pub(super) struct Pending {
    replacement: Option<Replacement>,
    changes: BTreeMap<String, Change>,
    /// The keys whose last changes are not among them.
    deviating: BTreeSet<String>,
    /// Whether there were changes after the replacement, or only a new revision.
    has_later: bool,
    /// The number of the last log record in it.
    number: u64,
    /// The revision after all of it.
    revision: Option<i64>,
}

impl Pending {
    pub(super) const fn is_empty(&self) -> bool {
        self.revision.is_none()
    }

    /// Whether nothing that was saved before stays.
    pub(super) fn replaces_all(&self) -> bool {
        self.replacement
            .as_ref()
            .is_some_and(|list| list.keep.is_empty())
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision.unwrap_or_default()
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Replaces everything that is pending.
    pub(super) fn replace(&mut self, list: Replacement) {
        let (number, revision) = (list.number, Some(list.revision));
        *self = Self {
            replacement: Some(list),
            number,
            revision,
            ..Self::default()
        };
    }

    pub(super) fn apply(&mut self, number: u64, batch: Batch, deviating: BTreeSet<String>) {
        self.number = number;
        self.revision = Some(batch.revision);
        self.has_later = true;
        for change in batch.changes {
            self.deviating.remove(change.key());
            self.changes.insert(change.key().to_owned(), change);
        }
        self.deviating.extend(deviating);
    }

    pub(super) fn write(self, mirror: &mut Mirror) -> Result<(), MirrorError> {
        let revision = self.revision();
        if let Some(list) = self.replacement {
            mirror.set_last_record(list.number);
            mirror.replace(list.revision, list.entries.into_entries(), &list.keep)?;
        }
        if !self.has_later {
            return Ok(());
        }
        let changes: Vec<Change> = self.changes.into_values().collect();
        mirror.set_last_record(self.number);
        mirror.apply(revision, &changes, &self.deviating)
    }
}
