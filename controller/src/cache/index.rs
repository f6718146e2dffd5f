//! The entries of an index.

use std::{collections::BTreeSet, sync::Arc};

use crate::resource::{Index, Key, Object};

/// An index with its entries.
pub(super) struct PopulatedIndex<T> {
    pub(super) index: Index<T>,
    /// Values, with the objects that have them.
    entries: BTreeSet<(String, Key)>,
}

impl<T> PopulatedIndex<T> {
    pub(super) fn new(index: Index<T>) -> Self {
        Self {
            index,
            entries: BTreeSet::new(),
        }
    }

    pub(super) fn insert(&mut self, object: &Object<T>) {
        for value in self.index.values(object) {
            self.entries.insert((value, Arc::clone(&object.key)));
        }
    }

    pub(super) fn remove(&mut self, object: &Object<T>) {
        for value in self.index.values(object) {
            self.entries.remove(&(value, Arc::clone(&object.key)));
        }
    }

    /// The keys of objects with exactly this value, in order.
    pub(super) fn keys_with(&self, value: &str) -> impl Iterator<Item = &Key> {
        self.from(value)
            .take_while(move |(of, _)| of == value)
            .map(|(_, key)| key)
    }

    /// The values that begin with `prefix`, in order, and the keys of objects that have them.
    pub(super) fn below(&self, prefix: &str) -> impl Iterator<Item = (&str, &Key)> {
        let entries = self
            .from(prefix)
            .take_while(move |(value, _)| value.starts_with(prefix));
        entries.map(|(value, key)| (value.as_str(), key))
    }

    fn from(&self, value: &str) -> impl Iterator<Item = &(String, Key)> {
        self.entries.range((value.to_owned(), Key::from(""))..)
    }
}
