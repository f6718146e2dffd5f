//! What Kubernetes says and what is stored, of one type, and what it takes to make them the same. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use contiv_controller::Write;
use contiv_proto::{Key, Object};
use contiv_store::{Batch, Change, Entry, Snapshot};

use crate::{
    batch::{self, PlannedWrite},
    ownership::{is_foreign, is_foreign_value},
};

/// A full key. Shared by all that is known of it.
pub(crate) type Path = Arc<str>;

/// Both sides of one type.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// What Kubernetes says; none before its first list.
    wanted: Option<BTreeMap<Path, SourceValue>>,
    /// What is in the store; none before its first list.
    stored: Option<BTreeMap<Path, StoredValue>>,
    /// The keys that differ.
    due: BTreeSet<Path>,
    /// Those of them whose last write failed: they wait until something is heard of them, or all are tried again.
    parked: BTreeSet<Path>,
}

/// What Kubernetes says of an object that is there.
#[derive(Debug, PartialEq, Eq)]
enum SourceValue {
    Value(Bytes),
    /// It cannot be read, or is not to be reflected because it is somebody else's.
    Unknown,
}

#[derive(Debug)]
struct StoredValue {
    /// That which is wanted, if they are the same.
    value: Bytes,
    mod_revision: i64,
    is_foreign: bool,
}

/// What has to be done to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Add,
    Update,
    Delete,
}

impl State {
    /// What is there in Kubernetes is this, and nothing else. Returns how many objects cannot be read.
    pub(crate) fn list_wanted(&mut self, snapshot: Snapshot) -> usize {
        let before = self.wanted.take().unwrap_or_default();
        let mut unreadable = 0;
        let mut wanted = BTreeMap::new();
        for entry in snapshot.entries {
            unreadable += usize::from(entry.value.is_empty());
            let (path, value) = read_wanted(entry);
            // The value that is shared with the other side already, where there is one.
            match before.get_key_value(&path) {
                Some((path, SourceValue::Value(old))) if value == SourceValue::Value(old.clone()) => {
                    wanted.insert(Arc::clone(path), SourceValue::Value(old.clone()));
                }
                _ => drop(wanted.insert(path, value)),
            }
        }
        self.wanted = Some(wanted);
        self.compare_all();
        unreadable
    }

    /// What happened in Kubernetes. Returns how many objects cannot be read.
    pub(crate) fn change_wanted(&mut self, batch: Batch) -> usize {
        let mut unreadable = 0;
        for change in batch.changes {
            let Some(wanted) = &mut self.wanted else { return unreadable };
            let path = match change {
                Change::Put(entry) => {
                    unreadable += usize::from(entry.value.is_empty());
                    let (path, value) = read_wanted(entry);
                    let stored = self.stored.as_ref().and_then(|stored| stored.get(&path));
                    // Most changes in Kubernetes change nothing here: one copy is enough.
                    let value = match stored {
                        Some(stored) if value.value() == Some(&stored.value) => {
                            SourceValue::Value(stored.value.clone())
                        }
                        _ => value,
                    };
                    wanted.insert(Arc::clone(&path), value);
                    path
                }
                Change::Delete { key } => {
                    wanted.remove(key.as_str());
                    key.into()
                }
            };
            self.parked.remove(&path);
            self.compare(&path);
        }
        unreadable
    }

    /// What is in the store is this, and nothing else.
    pub(crate) fn list_stored(&mut self, snapshot: Snapshot) {
        let stored = snapshot.entries.into_iter().map(|entry| self.read_stored(entry)).collect();
        self.stored = Some(stored);
        self.compare_all();
    }

    /// What happened in the store, by this program or another.
    pub(crate) fn change_stored(&mut self, batch: Batch) {
        let revision = batch.revision;
        for change in batch.changes {
            let known = self.stored.as_ref().and_then(|stored| stored.get(change.key()));
            let known = known.map_or(0, |stored| stored.mod_revision);
            let path = match change {
                // An echo from before the last write.
                Change::Put(entry) if entry.mod_revision < known => continue,
                Change::Delete { .. } if revision < known => continue,
                Change::Put(entry) => {
                    let (path, value) = self.read_stored(entry);
                    self.stored.as_mut().map(|stored| stored.insert(Arc::clone(&path), value));
                    path
                }
                Change::Delete { key } => {
                    self.stored.as_mut().map(|stored| stored.remove(key.as_str()));
                    key.into()
                }
            };
            self.parked.remove(&path);
            self.compare(&path);
        }
    }

    /// The next writes, at most `limit`, as many as fit one transaction. The same again until something is heard of them.
    pub(crate) fn plan(&self, limit: usize) -> Vec<PlannedWrite> {
        let due = self.due.iter().filter(|path| !self.parked.contains(*path));
        batch::fill(due.filter_map(|path| self.planned(path)), limit)
    }

    /// These were written, all in one transaction of this revision.
    pub(crate) fn written(&mut self, planned: &[PlannedWrite], revision: i64) {
        for PlannedWrite { path, .. } in planned {
            let value = self.wanted.as_ref().and_then(|wanted| wanted.get(path)).and_then(SourceValue::value);
            if let Some(stored) = &mut self.stored {
                match value.cloned() {
                    Some(value) => {
                        let written = StoredValue { value, mod_revision: revision, is_foreign: false };
                        stored.insert(Arc::clone(path), written);
                    }
                    None => drop(stored.remove(path)),
                }
            }
            self.due.remove(path);
        }
    }

    /// This key is not tried again until something is heard of it, or [`State::retry`].
    pub(crate) fn park(&mut self, path: &str) {
        self.parked.extend(self.due.get(path).cloned());
    }

    /// Tries again what failed.
    pub(crate) fn retry(&mut self) {
        self.parked.clear();
    }

    /// Whether Kubernetes was listed.
    pub(crate) const fn has_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Whether both sides are known.
    pub(crate) const fn is_listed(&self) -> bool {
        self.wanted.is_some() && self.stored.is_some()
    }

    /// How many keys differ.
    pub(crate) fn due(&self) -> usize {
        self.due.len()
    }

    /// How many objects there are in Kubernetes.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted.as_ref().map_or(0, BTreeMap::len)
    }

    fn planned(&self, path: &Path) -> Option<PlannedWrite> {
        let action = self.action(path)?;
        let value = || self.wanted.as_ref()?.get(path)?.value().cloned();
        let mod_revision = || self.stored.as_ref()?.get(path).map(|stored| stored.mod_revision);
        let write = match action {
            Action::Add => Write::create(path, value()?),
            Action::Update => Write::update(&at(path, mod_revision()?), value()?),
            Action::Delete => Write::delete(&at(path, mod_revision()?)),
        };
        let size = if action == Action::Delete { 0 } else { value()?.len() };
        Some(PlannedWrite { path: Arc::clone(path), action, write, size })
    }

    fn action(&self, path: &Path) -> Option<Action> {
        let (wanted, stored) = (self.wanted.as_ref()?.get(path), self.stored.as_ref()?.get(path));
        match (wanted, stored) {
            (_, Some(StoredValue { is_foreign: true, .. }))
            | (Some(SourceValue::Unknown), _)
            | (None, None) => None,
            (Some(SourceValue::Value(_)), None) => Some(Action::Add),
            (Some(SourceValue::Value(wanted)), Some(stored)) => {
                (*wanted != stored.value).then_some(Action::Update)
            }
            (None, Some(_)) => Some(Action::Delete),
        }
    }

    fn compare(&mut self, path: &Path) {
        if self.action(path).is_some() {
            self.due.insert(Arc::clone(path));
        } else {
            self.due.remove(path);
            self.parked.remove(path);
        }
    }

    /// Marks all that has to be added or updated, and sweeps up what has to be deleted.
    fn compare_all(&mut self) {
        self.parked.clear();
        let (Some(wanted), Some(stored)) = (&self.wanted, &self.stored) else { return };
        let all: BTreeSet<&Path> = wanted.keys().chain(stored.keys()).collect();
        self.due = all.into_iter().filter(|path| self.action(path).is_some()).cloned().collect();
    }

    /// Shares key and value with what is wanted, where they are the same.
    fn read_stored(&self, entry: Entry) -> (Path, StoredValue) {
        let Entry { key, value, mod_revision, .. } = entry;
        let wanted = self.wanted.as_ref().and_then(|wanted| wanted.get_key_value(key.as_str()));
        let path = wanted.map_or_else(|| key.as_str().into(), |(path, _)| Arc::clone(path));
        let wanted = wanted.and_then(|(_, wanted)| wanted.value());
        if let Some(wanted) = wanted.filter(|wanted| **wanted == value) {
            return (path, StoredValue { value: wanted.clone(), mod_revision, is_foreign: false });
        }
        // What cannot be read is of no use to anybody, and is not known to be somebody else's.
        let Some((of, object)) = decode(&key, &value) else {
            return (path, StoredValue { value, mod_revision, is_foreign: false });
        };
        let is_foreign = is_foreign(&object);
        // Written by another hand, and yet the same.
        let same = wanted.filter(|wanted| Object::decode(&of, wanted).is_ok_and(|wanted| wanted == object));
        let value = same.cloned().unwrap_or(value);
        (path, StoredValue { value, mod_revision, is_foreign })
    }
}

impl SourceValue {
    const fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unknown => None,
        }
    }
}

/// What a write is on condition of.
fn at(path: &Path, mod_revision: i64) -> contiv_controller::Object<()> {
    contiv_controller::Object { key: Arc::clone(path), value: (), create_revision: 0, mod_revision }
}

fn read_wanted(entry: Entry) -> (Path, SourceValue) {
    let is_unknown = entry.value.is_empty()
        || Key::parse(&entry.key).ok().flatten().is_none_or(|key| is_foreign_value(&key, &entry.value));
    let value = if is_unknown { SourceValue::Unknown } else { SourceValue::Value(entry.value) };
    (entry.key.into(), value)
}

fn decode(key: &str, value: &[u8]) -> Option<(Key, Object)> {
    let key = Key::parse(key).ok().flatten()?;
    let object = Object::decode(&key, value).ok()?;
    Some((key, object))
}

#[cfg(test)]
mod tests;
