//! Keys that are due later, one entry for each. Pure.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::Debounce;

/// Each key has at most one entry, with its due time.
#[derive(Debug)]
pub(super) struct DelayQueue<K> {
    slots: BTreeMap<K, Slot>,
    by_time: BTreeSet<(Instant, K)>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    due: Instant,
    /// For debounced keys: the latest due time.
    limit: Option<Instant>,
}

impl<K> Default for DelayQueue<K> {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> DelayQueue<K> {
    /// Sets the due time unless the key is due earlier.
    pub(super) fn add(&mut self, key: K, due: Instant) {
        if self.slots.get(&key).is_none_or(|slot| due < slot.due) {
            self.set(key, Slot { due, limit: None });
        }
    }

    /// Makes the key due `debounce.quiet` after the last addition, but at most `debounce.max_delay` after the first.
    pub(super) fn add_debounced(&mut self, key: K, debounce: Debounce, now: Instant) {
        let slot = match self.slots.get(&key) {
            Some(Slot { limit: Some(limit), .. }) => {
                Slot { due: (now + debounce.quiet).min(*limit), limit: Some(*limit) }
            }
            before => {
                let limit = now + debounce.max_delay;
                let due = (now + debounce.quiet).min(limit);
                match before {
                    Some(slot) if slot.due <= due => return,
                    _ => Slot { due, limit: Some(limit) },
                }
            }
        };
        self.set(key, slot);
    }

    fn set(&mut self, key: K, slot: Slot) {
        if let Some(before) = self.slots.insert(key.clone(), slot) {
            self.by_time.remove(&(before.due, key.clone()));
        }
        self.by_time.insert((slot.due, key));
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((key, slot)) = self.slots.remove_entry(key) {
            self.by_time.remove(&(slot.due, key));
        }
    }

    /// Takes the earliest of the keys that are due by `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<K> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.slots.remove(&key);
        Some(key)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first().map(|(due, _)| *due)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.by_time.clear();
    }
}
