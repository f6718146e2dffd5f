//! What the queue knows: which keys wait, which are being worked on. Pure; the time is an argument.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use super::{Debounce, delayed::DelayQueue};

/// No delay is longer: half a year. It keeps sums of times within what the clock can say.
const LONGEST_DELAY: Duration = Duration::from_secs(180 * 24 * 60 * 60);

/// How far the queue is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Takes nothing more; what waits is still handed out.
    Draining,
    /// Takes nothing and hands out nothing.
    Closed,
}

#[derive(Debug)]
pub(super) struct State<K> {
    /// Keys to be handed out, in order.
    ready: VecDeque<K>,
    /// Keys to be handed out, now or when their work is done (client-go's "dirty" set), and since when.
    waiting: BTreeMap<K, Instant>,
    /// Keys that are being worked on, and since when.
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
    /// Adds a key unless it waits already, and says whether it did. A later time for it is forgotten: now is sooner.
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

    /// Adds a key after `delay`; the earlier time counts.
    pub(super) fn add_after(&mut self, key: K, delay: Duration, now: Instant) {
        if self.takes_delayed(&key) {
            self.delayed.add(key, now + delay.min(LONGEST_DELAY));
        }
    }

    /// Adds a key after `delay`, and not before.
    pub(super) fn reschedule(&mut self, key: K, delay: Duration, now: Instant) {
        if self.takes_delayed(&key) {
            self.delayed.replace(key, now + delay.min(LONGEST_DELAY));
        }
    }

    /// Adds a key after a quiet period.
    pub(super) fn add_debounced(&mut self, key: K, debounce: Debounce, now: Instant) {
        if self.takes_delayed(&key) {
            let longest = debounce.longest.min(LONGEST_DELAY);
            self.delayed.add_debounced(key, Debounce { quiet: debounce.quiet.min(longest), longest }, now);
        }
    }

    fn takes_delayed(&self, key: &K) -> bool {
        self.phase == Phase::Open && !self.waiting.contains_key(key)
    }

    /// Moves what is due to what waits, and returns how many keys that were.
    pub(super) fn release_due(&mut self, now: Instant) -> u64 {
        let mut released = 0;
        while let Some(key) = self.delayed.take_due(now) {
            released += u64::from(self.add(key, now));
        }
        released
    }

    /// The next key to work on, and how long it has waited.
    pub(super) fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        let key = self.ready.pop_front()?;
        let since = self.waiting.remove(&key).unwrap_or(now);
        self.processing.insert(key.clone(), now);
        Some((key, now - since))
    }

    /// The work on a key is done; returns how long it took.
    pub(super) fn finish(&mut self, key: &K, now: Instant) -> Duration {
        let took = self.processing.remove(key).map_or(Duration::ZERO, |since| now - since);
        if self.waiting.contains_key(key) && self.phase != Phase::Closed {
            self.ready.push_back(key.clone());
        }
        took
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.next_due()
    }

    /// Whether another worker would find something to do, now or later.
    pub(super) fn has_more(&self) -> bool {
        !self.ready.is_empty() || self.delayed.len() > 0 || self.phase != Phase::Open
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// When the work under way began.
    pub(super) fn processing_since(&self) -> impl Iterator<Item = Instant> {
        self.processing.values().copied()
    }

    /// Forgets what waits and takes nothing more.
    pub(super) fn close(&mut self) {
        self.phase = Phase::Closed;
        self.ready.clear();
        self.waiting.clear();
        self.delayed.clear();
    }

    /// Takes nothing more. What is not due yet is forgotten.
    pub(super) fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            self.delayed.clear();
        }
    }

    /// Whether nothing will ever be handed out again.
    pub(super) fn has_ended(&self) -> bool {
        self.phase == Phase::Closed || (self.phase == Phase::Draining && self.waiting.is_empty())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.processing.is_empty()
    }
}
