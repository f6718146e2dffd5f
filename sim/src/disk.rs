//! A model of what the agent saves: what was written survives the end of the process, and of the mirror what was synced a power cut
//! too. A machine that starts has no pods.

use std::collections::{BTreeMap, BTreeSet};

use contiv_agent::node::message::Saving;
use contiv_model::{InterfaceName, PodId};
use contiv_proto::{Key, Kind};
use contiv_store::{Change, Entry, MirrorSummary, Saved};

/// The content of the mirror.
#[derive(Debug, Clone, Default)]
struct Content {
    revision: i64,
    entries: BTreeMap<String, Entry>,
}

/// The mirror and the list of attached pods; empty at first.
#[derive(Debug, Clone, Default)]
pub struct ModelDisk {
    written: Option<Content>,
    synced: Option<Content>,
    pods: BTreeMap<PodId, InterfaceName>,
}

impl ModelDisk {
    /// Writes at once. Returns the revision that is written.
    pub fn save(&mut self, saving: Saving) -> Option<i64> {
        match saving {
            Saving::List { revision, entries, keep } => self.replace(revision, entries, &keep),
            Saving::Apply(batch) => {
                let content = self.written.as_mut()?;
                content.revision = batch.revision;
                for change in batch.changes {
                    match change {
                        Change::Put(entry) => drop(content.entries.insert(entry.key.clone(), entry)),
                        Change::Delete { key } => drop(content.entries.remove(&key)),
                    }
                }
            }
        }
        self.written.as_ref().map(|content| content.revision)
    }

    fn replace(&mut self, revision: i64, entries: Vec<Entry>, keep: &BTreeSet<String>) {
        let before = self.written.take().unwrap_or_default();
        let kept = before.entries.into_iter().filter(|(key, _)| keep.contains(key));
        let new = entries.into_iter().filter(|entry| !keep.contains(&entry.key));
        let entries = kept.chain(new.map(|entry| (entry.key.clone(), entry))).collect();
        self.written = Some(Content { revision, entries });
    }

    /// The disk has all that was written.
    pub fn sync(&mut self) {
        self.synced.clone_from(&self.written);
    }

    /// The machine has lost its power. The end of the process alone loses nothing.
    pub fn cut_power(&mut self) {
        self.written.clone_from(&self.synced);
        self.pods.clear();
    }

    /// Writes which pods are attached.
    pub fn save_pods(&mut self, attached: BTreeMap<PodId, InterfaceName>) {
        self.pods = attached;
    }

    /// The pods that are attached.
    pub const fn pods(&self) -> &BTreeMap<PodId, InterfaceName> {
        &self.pods
    }

    /// How much is saved, as the mirror tells at the start.
    pub fn summary(&self, own_node: &str) -> MirrorSummary {
        let Some(content) = &self.written else { return MirrorSummary::default() };
        MirrorSummary { entries: content.entries.len(), has_key: content.entries.contains_key(own_node) }
    }

    /// What is saved.
    pub fn load(&self) -> Option<Saved> {
        let content = self.written.as_ref()?;
        let entries = content.entries.values().cloned().collect();
        Some(Saved { revision: content.revision, entries })
    }

    /// How many services are saved.
    pub fn services(&self) -> usize {
        let prefix = Key::prefix(Kind::Service);
        let keys = self.written.iter().flat_map(|content| content.entries.keys());
        keys.filter(|key| key.starts_with(&prefix)).count()
    }

    /// The keys and values that are saved.
    pub fn entries(&self) -> BTreeMap<String, Entry> {
        self.written.as_ref().map(|content| content.entries.clone()).unwrap_or_default()
    }
}
