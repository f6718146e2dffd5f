//! The event history, newest last, with limits of number, age and bytes.

mod record;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::ChangeSet;
use jiff::Timestamp;

use crate::message::Now;

pub(super) use record::milliseconds;
pub use record::{Outcome, Record};

/// The kind of an event that another process has caused in a dataplane.
pub(super) const FOREIGN_CHANGE: &str = "foreign-change";

/// How many names of changed services a record holds.
const MAX_NAMES: usize = 20;

/// The times of an event from which durations are measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Timestamps {
    /// When the core handled it.
    pub(super) handled: Now,
    /// When the store's message was received. Events from elsewhere never wait.
    pub(super) received: Instant,
    /// The trigger time in the store's data, if there is one; of several, the first.
    pub(super) triggered: Option<Timestamp>,
}

impl Timestamps {
    /// The times of an event that happens now.
    pub(super) const fn now(now: Now) -> Self {
        Self {
            handled: now,
            received: now.instant,
            triggered: None,
        }
    }

    /// The times of a message of the store received at this time and handled now.
    pub(super) const fn received(received: Instant, now: Now) -> Self {
        Self {
            received,
            ..Self::now(now)
        }
    }

    fn earliest(self, other: Self) -> Self {
        let handled = if other.handled.instant < self.handled.instant {
            other.handled
        } else {
            self.handled
        };
        let triggered = self.triggered.into_iter().chain(other.triggered).min();
        Self {
            handled,
            received: self.received.min(other.received),
            triggered,
        }
    }
}

/// A range of events, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct EventRange {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The earliest time of each kind.
    pub(super) at: Timestamps,
}

impl EventRange {
    /// One event.
    pub(super) const fn one(seq_num: u64, at: Timestamps) -> Self {
        Self {
            first: seq_num,
            last: seq_num,
            at,
        }
    }

    /// The range from the start of one to the end of the other.
    pub(super) fn union(self, other: Self) -> Self {
        let (first, last) = (self.first.min(other.first), self.last.max(other.last));
        Self {
            first,
            last,
            at: self.at.earliest(other.at),
        }
    }
}

/// An event without a number.
#[derive(Debug)]
pub(super) struct NewRecord<'a> {
    pub(super) kind: &'static str,
    pub(super) description: String,
    pub(super) at: Timestamps,
    pub(super) revision: i64,
    /// Its changes, if known.
    pub(super) changes: Option<&'a ChangeSet>,
    /// The renderers with work for it.
    pub(super) renderers: Vec<Arc<str>>,
}

/// The limits of the history. The newest event is kept whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// The number of events.
    pub events: usize,
    /// The age of events.
    pub age: Duration,
    /// The approximate memory of all events.
    pub bytes: usize,
}

/// The ring of records.
#[derive(Debug)]
pub(super) struct History {
    records: VecDeque<Record>,
    limits: HistoryLimits,
    /// The size of the records.
    bytes: usize,
    newest: u64,
}

impl History {
    /// A history without events.
    pub(super) const fn new(limits: HistoryLimits) -> Self {
        Self {
            records: VecDeque::new(),
            limits,
            bytes: 0,
            newest: 0,
        }
    }

    /// Adds an event and returns its number.
    pub(super) fn push(&mut self, record: NewRecord<'_>) -> u64 {
        let NewRecord {
            kind,
            description,
            at,
            revision,
            changes,
            renderers,
        } = record;
        self.newest += 1;
        let services = changes
            .into_iter()
            .flat_map(|changes| changes.services.keys());
        let record = Record {
            seq_num: self.newest,
            kind,
            description,
            start: at.handled.time,
            start_instant: at.handled.instant,
            waited_ms: milliseconds(at.handled.instant.saturating_duration_since(at.received)),
            duration_ms: 0.0,
            revision,
            changed: changes.map_or(0, |changes| changes.services.len()),
            services: services.take(MAX_NAMES).cloned().collect(),
            renderers: renderers
                .into_iter()
                .map(|name| (name, Outcome::Pending))
                .collect(),
        };
        self.bytes += record.size();
        self.records.push_back(record);
        self.forget(at.handled.instant);
        self.newest
    }

    /// Records how long handling the events after this one took.
    pub(super) fn set_duration_after(&mut self, seq_num: u64, duration: Duration) {
        for record in self
            .records
            .iter_mut()
            .rev()
            .take_while(|record| record.seq_num > seq_num)
        {
            record.duration_ms = milliseconds(duration);
        }
    }

    /// Records the outcome of these events in a renderer, where it had work. An update repairs no foreign change, and `Applied`
    /// is final.
    pub(super) fn set_outcome(
        &mut self,
        events: EventRange,
        renderer: &str,
        outcome: &Outcome,
        is_update: bool,
    ) {
        let start = self
            .records
            .partition_point(|record| record.seq_num < events.first);
        for record in self
            .records
            .range_mut(start..)
            .take_while(|record| record.seq_num <= events.last)
        {
            if is_update && record.kind == FOREIGN_CHANGE {
                continue;
            }
            if let Some(entry) = record.renderers.get_mut(renderer)
                && !matches!(entry, Outcome::Applied { .. })
            {
                self.bytes = self.bytes + outcome.size() - entry.size();
                entry.clone_from(outcome);
            }
        }
        self.forget_too_many();
    }

    /// Removes events beyond the limits.
    fn forget(&mut self, now: Instant) {
        self.forget_too_many();
        while self
            .records
            .front()
            .is_some_and(|oldest| self.is_too_old(oldest, now))
        {
            self.forget_oldest();
        }
    }

    fn is_too_old(&self, record: &Record, now: Instant) -> bool {
        now.saturating_duration_since(record.start_instant) > self.limits.age
    }

    fn forget_too_many(&mut self) {
        let HistoryLimits { events, bytes, .. } = self.limits;
        while self.records.len() > events || self.records.len() > 1 && self.bytes > bytes {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        self.bytes -= self.records.pop_front().map_or(0, |oldest| oldest.size());
    }

    /// The number of the next event: work that is scheduled with it must be recorded before any other event.
    pub(super) const fn next_seq_num(&self) -> u64 {
        self.newest + 1
    }

    /// The number of the newest event; 0 if there is none.
    pub(super) const fn newest_seq_num(&self) -> u64 {
        self.newest
    }

    /// The records that are not too old, oldest first.
    pub(super) fn records(&self, now: Instant) -> impl Iterator<Item = &Record> {
        self.records
            .iter()
            .skip_while(move |record| self.is_too_old(record, now))
    }
}

#[cfg(test)]
mod tests;
