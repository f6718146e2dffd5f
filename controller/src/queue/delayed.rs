//! The keys of a queue that are due later (client-go's `AddAfter`). The caller passes the time: there is no clock here.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::Debounce;

/// Delayed keys, each with one due time.
#[derive(Debug)]
pub(super) struct DelayQueue<K> {
    entries: BTreeMap<K, Entry>,
    /// The keys in `entries`, ordered by due time.
    by_time: BTreeSet<(Instant, K)>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    due: Instant,
    /// The latest due time, for debounced keys.
    latest: Option<Instant>,
}

impl<K> Default for DelayQueue<K> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            by_time: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone> DelayQueue<K> {
    /// Delays the key until `due`, unless it is due earlier already.
    pub(super) fn add(&mut self, key: K, due: Instant) {
        if self.entries.get(&key).is_none_or(|entry| due < entry.due) {
            self.set(key, Entry { due, latest: None });
        }
    }

    /// Delays the key until `debounce.quiet` after its last addition, but at most until `debounce.max_delay` after the first.
    pub(super) fn add_debounced(&mut self, key: K, debounce: Debounce, now: Instant) {
        let entry = match self.entries.get(&key) {
            Some(Entry {
                latest: Some(latest),
                ..
            }) => Entry {
                due: (now + debounce.quiet).min(*latest),
                latest: Some(*latest),
            },
            existing => {
                let latest = now + debounce.max_delay;
                let due = (now + debounce.quiet).min(latest);
                match existing {
                    Some(entry) if entry.due <= due => return,
                    _ => Entry {
                        due,
                        latest: Some(latest),
                    },
                }
            }
        };
        self.set(key, entry);
    }

    fn set(&mut self, key: K, entry: Entry) {
        if let Some(previous) = self.entries.insert(key.clone(), entry) {
            self.by_time.remove(&(previous.due, key.clone()));
        }
        self.by_time.insert((entry.due, key));
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((key, entry)) = self.entries.remove_entry(key) {
            self.by_time.remove(&(entry.due, key));
        }
    }

    /// Removes and returns the earliest key that is due by `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<K> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.entries.remove(&key);
        Some(key)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first().map(|(due, _)| *due)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.by_time.clear();
    }
}
