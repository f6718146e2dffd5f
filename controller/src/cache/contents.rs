//! The content of a cache, and its changes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contiv_store::{Batch, Change, Entry, Snapshot};

use super::index::PopulatedIndex;
use crate::resource::{Event, Key, Object, ResourceType};

pub(crate) struct Contents<T> {
    pub(super) resource_type: ResourceType<T>,
    pub(super) objects: BTreeMap<Key, Arc<Object<T>>>,
    pub(super) indexes: Vec<PopulatedIndex<T>>,
    pub(super) problems: BTreeMap<Key, String>,
    /// None until the first list.
    pub(super) revision: Option<i64>,
    pub(super) down: Option<String>,
}

impl<T> Contents<T> {
    pub(super) fn new(resource_type: ResourceType<T>) -> Self {
        let indexes = resource_type.indexes().iter().cloned();
        Self {
            indexes: indexes.map(PopulatedIndex::new).collect(),
            resource_type,
            objects: BTreeMap::new(),
            problems: BTreeMap::new(),
            revision: None,
            down: None,
        }
    }

    pub(crate) fn set_down(&mut self, reason: Option<String>) {
        self.down = reason;
    }

    /// Applies a list. Objects missing in it are deleted; unreadable ones keep their state.
    pub(crate) fn replace(&mut self, snapshot: Snapshot) -> Vec<Event<T>> {
        let mut events = Vec::new();
        self.revision = Some(snapshot.revision);
        self.down = None;
        self.problems.clear();
        let listed: BTreeSet<&str> = snapshot
            .entries
            .iter()
            .map(|entry| entry.key.as_str())
            .collect();
        let gone: Vec<Key> = self
            .objects
            .keys()
            .filter(|key| !listed.contains(key.as_ref()))
            .map(Arc::clone)
            .collect();
        drop(listed);
        for key in gone {
            self.delete(&key, &mut events);
        }
        for entry in snapshot.entries {
            let is_known = self.objects.get(entry.key.as_str()).is_some_and(|known| {
                known.mod_revision == entry.mod_revision
                    && known.create_revision == entry.create_revision
            });
            if !is_known {
                self.put(entry, &mut events);
            }
        }
        events
    }

    /// Applies changes.
    pub(crate) fn apply(&mut self, batch: Batch) -> Vec<Event<T>> {
        let mut events = Vec::new();
        for change in batch.changes {
            match change {
                Change::Put(entry) => self.put(entry, &mut events),
                Change::Delete { key } => self.delete(&key, &mut events),
            }
        }
        self.revision = Some(batch.revision);
        events
    }

    fn put(&mut self, entry: Entry, events: &mut Vec<Event<T>>) {
        let key = Key::from(entry.key.as_str());
        let new = match self.resource_type.decode(entry) {
            Ok(object) => Arc::new(object),
            // Not a deletion: the previous state is the best that is known.
            Err(error) => {
                self.problems.insert(key, error.to_string());
                return;
            }
        };
        self.problems.remove(&key);
        let old = self.objects.insert(key, Arc::clone(&new));
        for index in &mut self.indexes {
            if let Some(old) = &old {
                index.remove(old);
            }
            index.insert(&new);
        }
        match old {
            None => events.push(Event::Added(new)),
            Some(old) if old.create_revision == new.create_revision => {
                events.push(Event::Modified { old, new });
            }
            // It was deleted and created again between two lists: the deletion must not be lost.
            Some(old) => events.extend([Event::Deleted(old), Event::Added(new)]),
        }
    }

    fn delete(&mut self, key: &str, events: &mut Vec<Event<T>>) {
        self.problems.remove(key);
        if let Some(old) = self.objects.remove(key) {
            for index in &mut self.indexes {
                index.remove(&old);
            }
            events.push(Event::Deleted(old));
        }
    }
}
