//! A model of the agent's state folder: written data survives the end of the process; of the mirror, synced data also survives
//! a power failure. After a boot the machine has no pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contiv_model::{InterfaceName, PodId};
use contiv_node::message::Saving;
use contiv_proto::{Key, Kind};
use contiv_store::{Change, Entry, MirrorSummary, PackedEntries, Saved};

/// The content of the mirror.
#[derive(Debug, Clone, Default)]
struct Content {
    revision: i64,
    entries: BTreeMap<String, Entry>,
}

/// The mirror and the list of attached pods; empty at first.
#[derive(Debug, Clone, Default)]
pub struct ModelDisk {
    written: Option<Arc<Content>>,
    synced: Option<Arc<Content>>,
    pods: BTreeMap<PodId, InterfaceName>,
}

impl ModelDisk {
    /// Writes at once. Returns the written revision.
    pub fn save(&mut self, saving: Saving) -> Option<i64> {
        match saving {
            Saving::List {
                revision,
                entries,
                keep,
            } => self.replace(revision, entries, &keep),
            Saving::Apply(batch) => {
                let content = Arc::make_mut(self.written.as_mut()?);
                content.revision = batch.revision;
                for change in batch.changes {
                    match change {
                        Change::Put(entry) => {
                            drop(content.entries.insert(entry.key.clone(), entry));
                        }
                        Change::Delete { key } => drop(content.entries.remove(&key)),
                    }
                }
            }
        }
        self.written.as_ref().map(|content| content.revision)
    }

    fn replace(&mut self, revision: i64, entries: PackedEntries, keep: &BTreeSet<String>) {
        let before = self.written.take().unwrap_or_default();
        let kept = Arc::unwrap_or_clone(before)
            .entries
            .into_iter()
            .filter(|(key, _)| keep.contains(key));
        let new: Vec<Entry> = entries
            .into_entries()
            .filter(|entry| !keep.contains(&entry.key))
            .collect();
        // The real mirror reads the new content in step with what it has.
        assert!(
            new.is_sorted_by(|one, other| one.key < other.key),
            "a list is saved in the order of its keys"
        );
        let entries = kept
            .chain(new.into_iter().map(|entry| (entry.key.clone(), entry)))
            .collect();
        self.written = Some(Arc::new(Content { revision, entries }));
    }

    /// Syncs all written data to the disk.
    pub fn sync(&mut self) {
        self.synced.clone_from(&self.written);
    }

    /// A power failure: unsynced data is lost. The end of the process alone loses nothing.
    pub fn fail_power(&mut self) {
        self.written.clone_from(&self.synced);
        self.pods.clear();
    }

    /// Writes the attached pods.
    pub fn save_pods(&mut self, attached: BTreeMap<PodId, InterfaceName>) {
        self.pods = attached;
    }

    /// The attached pods.
    pub const fn pods(&self) -> &BTreeMap<PodId, InterfaceName> {
        &self.pods
    }

    /// The summary that the mirror reports at the start.
    pub fn summary(&self, own_node: &str) -> MirrorSummary {
        let Some(content) = &self.written else {
            return MirrorSummary::default();
        };
        MirrorSummary {
            entries: content.entries.len(),
            has_key: content.entries.contains_key(own_node),
        }
    }

    /// The saved content.
    pub fn load(&self) -> Option<Saved> {
        let content = self.written.as_ref()?;
        let entries = content.entries.values().cloned().collect();
        Some(Saved {
            revision: content.revision,
            entries,
        })
    }

    /// How many services are saved.
    pub fn services(&self) -> usize {
        let prefix = Key::prefix(Kind::Service);
        let keys = self
            .written
            .iter()
            .flat_map(|content| content.entries.keys());
        keys.filter(|key| key.starts_with(&prefix)).count()
    }

    /// The saved entries by key.
    pub fn entries(&self) -> BTreeMap<String, Entry> {
        self.written
            .as_ref()
            .map(|content| content.entries.clone())
            .unwrap_or_default()
    }
}
