//! A model of the agent's state folder: written data survives the end of the process; of the mirror, synced data also survives
//! a power failure. After a boot the machine has no pods.

use std::collections::{BTreeMap, BTreeSet};

use contiv_model::{InterfaceName, PodId};
use contiv_node::message::Saving;
use contiv_proto::{Key, Kind};
use contiv_store::{Change, Entry, MirrorSummary, PackedEntries, Saved};

use crate::store::ModelStart;

/// The content of the mirror.
#[derive(Debug, Clone, Default)]
struct Content {
    revision: i64,
    /// Of which history of the store; none if that is unknown.
    epoch: Option<u64>,
    entries: BTreeMap<String, Entry>,
    /// The keys whose saved values are not those of the store.
    deviating: BTreeSet<String>,
}

/// What a write replaced.
#[derive(Debug, Clone)]
enum Replaced {
    Content(Option<Content>),
    Head {
        revision: i64,
        epoch: Option<u64>,
        deviating: BTreeSet<String>,
    },
    Entry(String, Option<Entry>),
}

/// The mirror and the list of attached pods; empty at first.
#[derive(Debug, Clone, Default)]
pub struct ModelDisk {
    written: Option<Content>,
    /// What unsynced writes replaced, the last one last: a power failure brings it back.
    unsynced: Vec<Replaced>,
    pods: BTreeMap<PodId, InterfaceName>,
}

impl ModelDisk {
    /// Writes at once what was read from this history of the store. Returns the written revision.
    pub fn save(&mut self, saving: Saving, epoch: Option<u64>) -> Option<i64> {
        match saving {
            Saving::List {
                revision,
                entries,
                keep,
            } => self.replace(revision, epoch, entries, keep),
            Saving::Apply { batch, deviating } => {
                let content = self.written.as_mut()?;
                self.unsynced.push(Replaced::Head {
                    revision: content.revision,
                    epoch: content.epoch,
                    deviating: content.deviating.clone(),
                });
                content.revision = batch.revision;
                content.epoch = content.epoch.filter(|of| Some(*of) == epoch);
                for change in batch.changes {
                    let key = change.key().to_owned();
                    content.deviating.remove(&key);
                    let before = match change {
                        Change::Put(entry) => content.entries.insert(key.clone(), entry),
                        Change::Delete { .. } => content.entries.remove(&key),
                    };
                    self.unsynced.push(Replaced::Entry(key, before));
                }
                content.deviating.extend(deviating);
            }
        }
        self.written.as_ref().map(|content| content.revision)
    }

    fn replace(
        &mut self,
        revision: i64,
        epoch: Option<u64>,
        entries: PackedEntries,
        keep: BTreeSet<String>,
    ) {
        let before = self.written.take();
        let kept = before.iter().flat_map(|before| &before.entries);
        let kept = kept.filter(|(key, _)| keep.contains(*key));
        let kept = kept.map(|(key, entry)| (key.clone(), entry.clone()));
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
        self.unsynced.push(Replaced::Content(before));
        self.written = Some(Content {
            revision,
            epoch,
            entries,
            deviating: keep,
        });
    }

    /// Syncs all written data to the disk.
    pub fn sync(&mut self) {
        self.unsynced.clear();
    }

    /// A power failure: unsynced data is lost. The end of the process alone loses nothing.
    pub fn fail_power(&mut self) {
        while let Some(replaced) = self.unsynced.pop() {
            match (replaced, &mut self.written) {
                (Replaced::Content(before), written) => *written = before,
                (
                    Replaced::Head {
                        revision,
                        epoch,
                        deviating,
                    },
                    Some(content),
                ) => {
                    (content.revision, content.epoch) = (revision, epoch);
                    content.deviating = deviating;
                }
                (Replaced::Entry(key, Some(entry)), Some(content)) => {
                    content.entries.insert(key, entry);
                }
                (Replaced::Entry(key, None), Some(content)) => {
                    content.entries.remove(&key);
                }
                (_, None) => {}
            }
        }
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

    /// The saved content, from which the feed can go on, and what it needs for that; none if the history is unknown.
    pub fn saved_start(&self) -> Option<(Vec<Entry>, ModelStart)> {
        let content = self.written.as_ref()?;
        let start = ModelStart {
            revision: content.revision,
            epoch: content.epoch?,
            deviating: content.deviating.clone(),
        };
        Some((content.entries.values().cloned().collect(), start))
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use contiv_store::Batch;

    use super::*;

    fn entry(key: &str, revision: i64) -> Entry {
        Entry {
            key: key.to_owned(),
            value: Bytes::new(),
            create_revision: 1,
            mod_revision: revision,
        }
    }

    fn apply(disk: &mut ModelDisk, revision: i64, changes: Vec<Change>) {
        let saving = Saving::Apply {
            batch: Batch { revision, changes },
            deviating: [format!("bad{revision}")].into(),
        };
        disk.save(saving, Some(1));
    }

    fn list(disk: &mut ModelDisk, revision: i64) {
        let mut entries = PackedEntries::default();
        entries.add(vec![entry("a", revision), entry("b", revision)]);
        let keep = BTreeSet::new();
        let saving = Saving::List {
            revision,
            entries,
            keep,
        };
        disk.save(saving, Some(1));
    }

    type SavedContent = (i64, Vec<(String, i64)>, BTreeSet<String>);

    fn content(disk: &ModelDisk) -> Option<SavedContent> {
        let (entries, start) = disk.saved_start()?;
        let entries = entries.into_iter();
        let entries = entries.map(|entry| (entry.key, entry.mod_revision));
        Some((start.revision, entries.collect(), start.deviating))
    }

    #[test]
    fn power_failure_brings_back_what_was_synced() {
        let mut disk = ModelDisk::default();
        list(&mut disk, 2);
        disk.fail_power();
        assert_eq!(content(&disk), None);
        list(&mut disk, 3);
        disk.sync();
        let synced = content(&disk);
        let delete = Change::Delete {
            key: "a".to_owned(),
        };
        apply(&mut disk, 4, vec![delete, Change::Put(entry("b", 4))]);
        apply(&mut disk, 5, vec![Change::Put(entry("c", 5))]);
        assert_ne!(content(&disk), synced);
        list(&mut disk, 6);
        apply(&mut disk, 7, vec![Change::Put(entry("a", 7))]);
        disk.fail_power();
        assert_eq!(content(&disk), synced);
        apply(&mut disk, 8, vec![Change::Put(entry("a", 8))]);
        disk.sync();
        let synced = content(&disk);
        disk.fail_power();
        assert_eq!(content(&disk), synced);
    }
}
