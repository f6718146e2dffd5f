//! One state of a cache, and its queries.

use std::{collections::BTreeSet, fmt, sync::Arc};

use tokio::sync::watch;

use super::{CacheError, Contents, index::PopulatedIndex};
use crate::resource::{Key, Labels, NEXT_LABEL, Object, pair};

/// One state of a cache.
pub struct View<'a, T> {
    contents: watch::Ref<'a, Contents<T>>,
}

impl<'a, T> View<'a, T> {
    pub(super) fn of(contents: watch::Ref<'a, Contents<T>>) -> Self {
        Self { contents }
    }
}

impl<T> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("revision", &self.contents.revision)
            .finish_non_exhaustive()
    }
}

impl<T> View<'_, T> {
    /// The object with this key.
    pub fn get(&self, key: &str) -> Option<Arc<Object<T>>> {
        self.contents.objects.get(key).map(Arc::clone)
    }

    /// All objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object<T>>> {
        self.contents.objects.values()
    }

    /// All objects, by key.
    pub fn list(&self) -> Vec<Arc<Object<T>>> {
        self.iter().map(Arc::clone).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.contents.objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unreadable objects and their errors, by key. An object that was readable before keeps its last good state.
    pub fn problems(&self) -> impl Iterator<Item = (&Key, &str)> {
        self.contents
            .problems
            .iter()
            .map(|(key, problem)| (key, problem.as_str()))
    }

    /// Why the newest value of this key is unreadable, if it is.
    pub fn problem(&self, key: &str) -> Option<&str> {
        self.contents.problems.get(key).map(String::as_str)
    }

    /// Why this key is unreadable and always was, if so. The object exists but is unknown: its absence in the cache does not
    /// mean that it is deleted.
    pub fn unreadable(&self, key: &str) -> Option<&str> {
        self.problem(key)
            .filter(|_| !self.contents.objects.contains_key(key))
    }

    /// The keys of objects that exist but were never readable.
    pub(crate) fn unreadable_keys(&self) -> BTreeSet<Key> {
        let keys = self
            .contents
            .problems
            .keys()
            .filter(|key| !self.contents.objects.contains_key(*key));
        keys.map(Arc::clone).collect()
    }

    /// Why the store cannot be watched at the moment, if it cannot. The content remains valid, but may be old.
    pub fn down(&self) -> Option<&str> {
        self.contents.down.as_deref()
    }

    /// The objects with this value in an index, by key.
    ///
    /// # Errors
    /// [`CacheError::NoSuchIndex`].
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<Object<T>>>, CacheError> {
        Ok(self
            .index(index)?
            .keys_with(value)
            .filter_map(|key| self.get(key))
            .collect())
    }

    /// The objects of an [`Index::labels`](crate::Index::labels) that have all of these labels, by key. An empty selector
    /// selects nothing.
    ///
    /// # Errors
    /// [`CacheError::NoSuchIndex`].
    pub fn selected(
        &self,
        index: &str,
        selector: &Labels,
    ) -> Result<Vec<Arc<Object<T>>>, CacheError> {
        let built = self.index(index)?;
        let mut labels = selector.iter().map(pair);
        let mut keys: BTreeSet<&Key> = labels
            .next()
            .map(|label| built.keys_with(&label).collect())
            .unwrap_or_default();
        for label in labels {
            let also: BTreeSet<&Key> = built.keys_with(&label).collect();
            keys.retain(|key| also.contains(key));
        }
        Ok(keys.into_iter().filter_map(|key| self.get(key)).collect())
    }

    /// The objects of an [`Index::selectors`](crate::Index::selectors) that select an object with these labels, by key.
    ///
    /// # Errors
    /// [`CacheError::NoSuchIndex`].
    pub fn selecting(
        &self,
        index: &str,
        labels: &Labels,
    ) -> Result<Vec<Arc<Object<T>>>, CacheError> {
        let built = self.index(index)?;
        let labels: BTreeSet<String> = labels.iter().map(pair).collect();
        let has_all = |selector: &str| {
            selector
                .split_terminator(NEXT_LABEL)
                .all(|label| labels.contains(label))
        };
        let mut keys = BTreeSet::new();
        for label in &labels {
            let candidates = built.below(label).filter(|(selector, _)| has_all(selector));
            keys.extend(candidates.map(|(_, key)| key));
        }
        Ok(keys.into_iter().filter_map(|key| self.get(key)).collect())
    }

    fn index(&self, name: &str) -> Result<&PopulatedIndex<T>, CacheError> {
        self.contents
            .indexes
            .iter()
            .find(|built| built.index.name() == name)
            .ok_or_else(|| CacheError::NoSuchIndex {
                resource_type: self.contents.resource_type.name().to_owned(),
                index: name.to_owned(),
            })
    }
}
