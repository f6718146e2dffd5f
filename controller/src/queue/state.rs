//! The state of a work queue: which keys are waiting and which are being processed. Pure; the time is an argument.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{Debounce, delayed::DelayQueue};

/// The maximum delay, half a year, so that adding it to a time cannot overflow.
const MAX_DELAY: Duration = Duration::from_secs(180 * 24 * 60 * 60);

/// The phase of shutting down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Accepts no more keys; waiting ones are still handed out.
    Draining,
    /// Neither accepts nor hands out keys.
    Closed,
}

#[derive(Debug)]
pub(super) struct State<K> {
    /// Keys that can be handed out, in order.
    ready: VecDeque<K>,
    /// Keys to be handed out, now or after their current work (client-go's "dirty" set), and since when.
    waiting: BTreeMap<K, Instant>,
    /// Keys that are being processed, and since when.
    processing: BTreeMap<K, Instant>,
    delayed: DelayQueue<K>,
    phase: Phase,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            processing: BTreeMap::new(),
            delayed: DelayQueue::default(),
            phase: Phase::Open,
        }
    }
}

impl<K: Ord + Clone> State<K> {
    /// Adds a key unless it is already waiting; returns whether it was added. A later due time is dropped.
    pub(super) fn add(&mut self, key: K, now: Instant) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        self.delayed.remove(&key);
        if self.waiting.contains_key(&key) {
            return false;
        }
        self.waiting.insert(key.clone(), now);
        if !self.processing.contains_key(&key) {
            self.ready.push_back(key);
        }
        true
    }

    /// Adds a key after `delay`; the earlier due time counts.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        if self.takes_delayed(&key) {
            self.delayed.add(key, now + delay.min(MAX_DELAY));
        }
    }

    /// Adds a key after a quiet period.
    pub(super) fn add_debounced(&mut self, key: K, debounce: Debounce, now: Instant) {
        if self.takes_delayed(&key) {
            let max_delay = debounce.max_delay.min(MAX_DELAY);
            self.delayed.add_debounced(
                key,
                Debounce {
                    quiet: debounce.quiet.min(max_delay),
                    max_delay,
                },
                now,
            );
        }
    }

    fn takes_delayed(&self, key: &K) -> bool {
        self.phase == Phase::Open && !self.waiting.contains_key(key)
    }

    /// Moves the keys that are due to the waiting ones and returns how many.
    pub(super) fn release_due(&mut self, now: Instant) -> u64 {
        let mut released = 0;
        while let Some(key) = self.delayed.take_due(now) {
            released += u64::from(self.add(key, now));
        }
        released
    }

    /// The next key to process, and how long it has waited.
    pub(super) fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        let key = self.ready.pop_front()?;
        let since = self.waiting.remove(&key).unwrap_or(now);
        self.processing.insert(key.clone(), now);
        Some((key, now - since))
    }

    /// Marks the work on a key as done; returns how long it took.
    pub(super) fn finish(&mut self, key: &K, now: Instant) -> Duration {
        let took = self
            .processing
            .remove(key)
            .map_or(Duration::ZERO, |since| now - since);
        if self.waiting.contains_key(key) && self.phase != Phase::Closed {
            self.ready.push_back(key.clone());
        }
        took
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.next_due()
    }

    /// Whether another worker has keys to process, now or later.
    pub(super) fn has_more(&self) -> bool {
        !self.ready.is_empty() || self.delayed.len() > 0 || self.phase != Phase::Open
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    #[cfg(test)]
    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// When each work in progress began.
    pub(super) fn processing_since(&self) -> impl Iterator<Item = Instant> {
        self.processing.values().copied()
    }

    /// Drops the waiting keys and accepts no more.
    pub(super) fn close(&mut self) {
        self.phase = Phase::Closed;
        self.ready.clear();
        self.waiting.clear();
        self.delayed.clear();
    }

    /// Accepts no more keys and drops the delayed ones.
    pub(super) fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            self.delayed.clear();
        }
    }

    /// Whether no key will ever be handed out again.
    pub(super) fn has_ended(&self) -> bool {
        self.phase == Phase::Closed || (self.phase == Phase::Draining && self.waiting.is_empty())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.processing.is_empty()
    }
}
