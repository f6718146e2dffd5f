//! An index with several values for a key.

use std::{collections::BTreeSet, sync::Arc};

use crate::{EndpointSliceId, ServiceId};

/// The smallest value of a type: the start of the range of a key.
pub(super) trait MinValue {
    fn min_value() -> Self;
}

// `Arc::<str>::default()` allocates nothing: the standard library shares one empty `Arc`.
impl MinValue for ServiceId {
    fn min_value() -> Self {
        Self {
            namespace: Arc::default(),
            name: Arc::default(),
        }
    }
}

impl MinValue for EndpointSliceId {
    fn min_value() -> Self {
        Self {
            namespace: Arc::default(),
            name: Arc::default(),
        }
    }
}

/// Several values for each key, in order. It is one set of pairs, since most keys have a single value, and a set for each key would
/// take several times the memory.
#[derive(Debug, Clone)]
pub(super) struct MultiIndex<K, V> {
    pairs: BTreeSet<(K, V)>,
}

impl<K, V> Default for MultiIndex<K, V> {
    fn default() -> Self {
        Self {
            pairs: BTreeSet::new(),
        }
    }
}

impl<K: Ord, V: Ord> FromIterator<(K, V)> for MultiIndex<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self {
            pairs: pairs.into_iter().collect(),
        }
    }
}

impl<K: Ord + Clone, V: Ord + MinValue> MultiIndex<K, V> {
    /// All pairs, in order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = &(K, V)> {
        self.pairs.iter()
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.pairs.insert((key, value));
    }

    pub(super) fn remove(&mut self, key: K, value: V) {
        self.pairs.remove(&(key, value));
    }

    /// The values of a key, in order.
    pub(super) fn values<'a>(&'a self, key: &K) -> impl Iterator<Item = &'a V> + use<'a, K, V> {
        let key = key.clone();
        let from = (key.clone(), V::min_value());
        self.pairs
            .range(from..)
            .take_while(move |(other, _)| *other == key)
            .map(|(_, value)| value)
    }

    /// All pairs with this key or a greater one, in order.
    pub(super) fn pairs_from(&self, key: K) -> impl Iterator<Item = &(K, V)> + use<'_, K, V> {
        self.pairs.range((key, V::min_value())..)
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.values(key).next().is_some()
    }
}
