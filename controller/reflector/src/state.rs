//! The objects of one type in Kubernetes and in the store, and the writes that make them equal. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use contiv_controller::Write;
use contiv_proto::{Key, Object};
use contiv_store::{Batch, Change, Entry, Snapshot};

use crate::{
    action::Action,
    batch::{self, PlannedWrite},
    ownership::{is_foreign, reflected},
};

/// A full key, shared by everything about it.
pub(crate) type Path = Arc<str>;

/// One type at its source and as stored.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The objects in Kubernetes; none before its first list.
    source: Option<BTreeMap<Path, SourceValue>>,
    /// The objects in the store; none before its first list.
    stored: Option<BTreeMap<Path, StoredValue>>,
    /// Keys whose source and stored values differ.
    due: BTreeSet<Path>,
    /// Keys whose last write failed: they wait for an event, or until all are retried.
    parked: BTreeSet<Path>,
    /// Keys of objects in Kubernetes that another owner's objects have in the store.
    taken: BTreeSet<Path>,
    /// The keys in `taken` that were reported.
    reported: BTreeSet<Path>,
}

/// An existing object in Kubernetes.
#[derive(Debug, PartialEq, Eq)]
enum SourceValue {
    Value(Bytes),
    /// It is unreadable, or not reflected because it has another owner.
    Unknown,
}

#[derive(Debug)]
struct StoredValue {
    /// Shares the memory of an equal source value.
    value: Bytes,
    mod_revision: i64,
    is_foreign: bool,
}

impl State {
    /// Replaces the objects of Kubernetes. Returns the number of unreadable ones.
    pub(crate) fn list_source(&mut self, snapshot: Snapshot) -> usize {
        let before = self.source.take().unwrap_or_default();
        let mut unreadable = 0;
        let mut source = BTreeMap::new();
        for entry in snapshot.entries {
            unreadable += usize::from(entry.value.is_empty());
            let (path, value) = read_source(entry);
            // The memory shared with the stored value, if any.
            match before.get_key_value(&path) {
                Some((path, SourceValue::Value(old)))
                    if value == SourceValue::Value(old.clone()) =>
                {
                    source.insert(Arc::clone(path), SourceValue::Value(old.clone()));
                }
                _ => drop(source.insert(path, value)),
            }
        }
        self.source = Some(source);
        self.compare_all();
        unreadable
    }

    /// Applies changes of Kubernetes. Returns the number of unreadable objects.
    pub(crate) fn change_source(&mut self, batch: Batch) -> usize {
        let mut unreadable = 0;
        for change in batch.changes {
            let Some(source) = &mut self.source else {
                return unreadable;
            };
            let path = match change {
                Change::Put(entry) => {
                    unreadable += usize::from(entry.value.is_empty());
                    let (path, value) = read_source(entry);
                    let stored = self.stored.as_ref().and_then(|stored| stored.get(&path));
                    // Most changes in Kubernetes have no effect here: one copy is enough.
                    let value = match stored {
                        Some(stored) if value.value() == Some(&stored.value) => {
                            SourceValue::Value(stored.value.clone())
                        }
                        _ => value,
                    };
                    source.insert(Arc::clone(&path), value);
                    path
                }
                Change::Delete { key } => {
                    source.remove(key.as_str());
                    key.into()
                }
            };
            self.parked.remove(&path);
            self.compare(&path);
        }
        unreadable
    }

    /// Replaces the objects of the store.
    pub(crate) fn list_stored(&mut self, snapshot: Snapshot) {
        let stored = snapshot
            .entries
            .into_iter()
            .map(|entry| self.read_stored(entry))
            .collect();
        self.stored = Some(stored);
        self.compare_all();
    }

    /// Applies changes of the store, by this program or another.
    pub(crate) fn change_stored(&mut self, batch: Batch) {
        let revision = batch.revision;
        for change in batch.changes {
            let known = self
                .stored
                .as_ref()
                .and_then(|stored| stored.get(change.key()));
            let known = known.map_or(0, |stored| stored.mod_revision);
            let path = match change {
                // An echo from before the last write.
                Change::Put(entry) if entry.mod_revision < known => continue,
                Change::Delete { .. } if revision < known => continue,
                Change::Put(entry) => {
                    let (path, value) = self.read_stored(entry);
                    self.stored
                        .as_mut()
                        .map(|stored| stored.insert(Arc::clone(&path), value));
                    path
                }
                Change::Delete { key } => {
                    self.stored
                        .as_mut()
                        .map(|stored| stored.remove(key.as_str()));
                    key.into()
                }
            };
            self.parked.remove(&path);
            self.compare(&path);
        }
    }

    /// The next writes, at most `limit`, as many as fit into one transaction. The same again until an event confirms them.
    pub(crate) fn plan(&self, limit: usize) -> Vec<PlannedWrite> {
        let due = self.due.iter().filter(|path| !self.parked.contains(*path));
        batch::fill(due.filter_map(|path| self.planned_write(path)), limit)
    }

    /// These were written in one transaction of this revision.
    pub(crate) fn written(&mut self, planned: &[PlannedWrite], revision: i64) {
        for PlannedWrite { path, .. } in planned {
            let value = self
                .source
                .as_ref()
                .and_then(|source| source.get(path))
                .and_then(SourceValue::value);
            if let Some(stored) = &mut self.stored {
                match value.cloned() {
                    Some(value) => {
                        let written = StoredValue {
                            value,
                            mod_revision: revision,
                            is_foreign: false,
                        };
                        stored.insert(Arc::clone(path), written);
                    }
                    None => drop(stored.remove(path)),
                }
            }
            self.due.remove(path);
        }
    }

    /// Parks a key until an event about it, or [`State::retry`].
    pub(crate) fn park(&mut self, path: &str) {
        self.parked.extend(self.due.get(path).cloned());
    }

    /// Retries parked keys.
    pub(crate) fn retry(&mut self) {
        self.parked.clear();
    }

    /// True if Kubernetes was listed.
    pub(crate) const fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// True if source and store were listed.
    pub(crate) const fn is_listed(&self) -> bool {
        self.source.is_some() && self.stored.is_some()
    }

    /// The keys that are taken by other owners since the last call.
    pub(crate) fn newly_taken(&mut self) -> Vec<Path> {
        self.reported.retain(|path| self.taken.contains(path));
        let new: Vec<Path> = self.taken.difference(&self.reported).cloned().collect();
        self.reported.extend(new.iter().cloned());
        new
    }

    /// The number of keys that differ.
    pub(crate) fn due(&self) -> usize {
        self.due.len()
    }

    /// The number of objects in Kubernetes.
    pub(crate) fn source_len(&self) -> usize {
        self.source.as_ref().map_or(0, BTreeMap::len)
    }

    fn planned_write(&self, path: &Path) -> Option<PlannedWrite> {
        let action = self.action(path)?;
        let value = || self.source.as_ref()?.get(path)?.value().cloned();
        let mod_revision = || {
            self.stored
                .as_ref()?
                .get(path)
                .map(|stored| stored.mod_revision)
        };
        let write = match action {
            Action::Add => Write::create(path, value()?),
            Action::Update => Write::update(&at(path, mod_revision()?), value()?),
            Action::Delete => Write::delete(&at(path, mod_revision()?)),
        };
        let size = if action == Action::Delete {
            0
        } else {
            value()?.len()
        };
        Some(PlannedWrite {
            path: Arc::clone(path),
            action,
            write,
            size,
        })
    }

    fn action(&self, path: &Path) -> Option<Action> {
        let (source, stored) = (
            self.source.as_ref()?.get(path),
            self.stored.as_ref()?.get(path),
        );
        match (source, stored) {
            (
                _,
                Some(StoredValue {
                    is_foreign: true, ..
                }),
            )
            | (Some(SourceValue::Unknown), _)
            | (None, None) => None,
            (Some(SourceValue::Value(_)), None) => Some(Action::Add),
            (Some(SourceValue::Value(source)), Some(stored)) => {
                (*source != stored.value).then_some(Action::Update)
            }
            (None, Some(_)) => Some(Action::Delete),
        }
    }

    fn is_taken(&self, path: &Path) -> bool {
        let source = self.source.as_ref().and_then(|source| source.get(path));
        let stored = self.stored.as_ref().and_then(|stored| stored.get(path));
        source.is_some_and(|source| source.value().is_some())
            && stored.is_some_and(|stored| stored.is_foreign)
    }

    fn compare(&mut self, path: &Path) {
        if self.is_taken(path) {
            self.taken.insert(Arc::clone(path));
        } else {
            self.taken.remove(path);
        }
        if self.action(path).is_some() {
            self.due.insert(Arc::clone(path));
        } else {
            self.due.remove(path);
            self.parked.remove(path);
        }
    }

    /// Marks everything to add or update, and sweeps all other stored objects.
    fn compare_all(&mut self) {
        self.parked.clear();
        let (Some(source), Some(stored)) = (&self.source, &self.stored) else {
            return;
        };
        let all: BTreeSet<&Path> = source.keys().chain(stored.keys()).collect();
        let taken = source
            .keys()
            .filter(|path| self.is_taken(path))
            .cloned()
            .collect();
        self.due = all
            .into_iter()
            .filter(|path| self.action(path).is_some())
            .cloned()
            .collect();
        self.taken = taken;
    }

    /// Reads a stored entry; shares key and value with an equal source value.
    fn read_stored(&self, entry: Entry) -> (Path, StoredValue) {
        let Entry {
            key,
            value,
            mod_revision,
            ..
        } = entry;
        let source = self
            .source
            .as_ref()
            .and_then(|source| source.get_key_value(key.as_str()));
        let path = source.map_or_else(|| key.as_str().into(), |(path, _)| Arc::clone(path));
        let source = source.and_then(|(_, source)| source.value());
        if let Some(source) = source.filter(|source| **source == value) {
            return (
                path,
                StoredValue {
                    value: source.clone(),
                    mod_revision,
                    is_foreign: false,
                },
            );
        }
        // An unreadable value is useless to everyone, and not known to have another owner.
        let Some((of, object)) = decode(&key, &value) else {
            return (
                path,
                StoredValue {
                    value,
                    mod_revision,
                    is_foreign: false,
                },
            );
        };
        let is_foreign = is_foreign(&object);
        // Written by another process, but equal.
        let same = source
            .filter(|source| Object::decode(&of, source).is_ok_and(|source| source == object));
        let value = same.cloned().unwrap_or(value);
        (
            path,
            StoredValue {
                value,
                mod_revision,
                is_foreign,
            },
        )
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

/// The condition of a write.
fn at(path: &Path, mod_revision: i64) -> contiv_controller::Object<()> {
    contiv_controller::Object {
        key: Arc::clone(path),
        value: (),
        create_revision: 0,
        mod_revision,
    }
}

fn read_source(entry: Entry) -> (Path, SourceValue) {
    let Entry {
        key: path, value, ..
    } = entry;
    let key = Key::parse(&path)
        .ok()
        .flatten()
        .filter(|_| !value.is_empty());
    let value = key
        .and_then(|key| reflected(&key, value))
        .map_or(SourceValue::Unknown, SourceValue::Value);
    (path.into(), value)
}

fn decode(key: &str, value: &[u8]) -> Option<(Key, Object)> {
    let key = Key::parse(key).ok().flatten()?;
    let object = Object::decode(&key, value).ok()?;
    Some((key, object))
}

#[cfg(test)]
mod tests;
