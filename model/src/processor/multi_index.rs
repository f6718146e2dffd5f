//! An index of pairs: finds the values of a key.

use std::{collections::BTreeSet, sync::Arc};

use crate::{EndpointSliceId, ServiceId};

/// The smallest value of a type, to begin a range with.
pub(super) trait MinKey {
    fn least() -> Self;
}

// An empty `Arc<str>` is allocated once.
impl MinKey for ServiceId {
    fn least() -> Self {
        Self { namespace: Arc::default(), name: Arc::default() }
    }
}

impl MinKey for EndpointSliceId {
    fn least() -> Self {
        Self { namespace: Arc::default(), name: Arc::default() }
    }
}

/// Pairs, found by their first part. One flat set takes a fraction of the memory of one set for each key, because most keys
/// have a single value.
#[derive(Debug, Clone)]
pub(super) struct MultiIndex<K, V> {
    pairs: BTreeSet<(K, V)>,
}

impl<K, V> Default for MultiIndex<K, V> {
    fn default() -> Self {
        Self { pairs: BTreeSet::new() }
    }
}

impl<K: Ord, V: Ord> FromIterator<(K, V)> for MultiIndex<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self { pairs: pairs.into_iter().collect() }
    }
}

impl<K: Ord + Clone, V: Ord + MinKey> MultiIndex<K, V> {
    /// All pairs in order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = &(K, V)> {
        self.pairs.iter()
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.pairs.insert((key, value));
    }

    pub(super) fn remove(&mut self, key: K, value: V) {
        self.pairs.remove(&(key, value));
    }

    /// The values of a key in order.
    pub(super) fn of<'a>(&'a self, key: &K) -> impl Iterator<Item = &'a V> + use<'a, K, V> {
        let key = key.clone();
        let from = (key.clone(), V::least());
        self.pairs.range(from..).take_while(move |(other, _)| *other == key).map(|(_, value)| value)
    }

    /// All pairs with this key or a later one, in order.
    pub(super) fn from(&self, key: K) -> impl Iterator<Item = &(K, V)> + use<'_, K, V> {
        self.pairs.range((key, V::least())..)
    }

    pub(super) fn has(&self, key: &K) -> bool {
        self.of(key).next().is_some()
    }
}
