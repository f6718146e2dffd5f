//! What happened, newest last, within limits of number, age and bytes.

mod moment;
mod query;
mod size;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use contiv_model::{ChangeSet, ServiceId};
use contiv_renderer::Report;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

pub(super) use moment::Moment;
pub use query::HistoryQuery;

/// How many names of changed services a record holds.
const NAMES: usize = 20;

/// One event: what happened, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// Counts up from 1 since the agent has started.
    pub seq_num: u64,
    /// What kind of event: the values of the label of `contiv_events_total`.
    pub kind: &'static str,
    /// What happened, for people.
    pub description: String,
    /// When the loop took it up.
    pub start: Timestamp,
    /// The same, by the clock that is never set: how old it is.
    #[serde(skip)]
    pub since: Instant,
    /// How long what the store had said waited for the loop before that.
    pub waited_ms: f64,
    /// How long the loop worked on it, without the renderers.
    pub duration_ms: f64,
    /// The store's revision after it.
    pub revision: i64,
    /// How many services changed for renderers.
    pub changed: usize,
    /// Their names: the first 20.
    pub services: Vec<ServiceId>,
    /// What each renderer made of it. Empty where there was nothing to do.
    pub renderers: BTreeMap<Arc<str>, Outcome>,
}

/// What a renderer made of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum Outcome {
    /// It is not done yet.
    Pending,
    /// It is in force.
    Applied {
        /// The first event that was applied in the same call.
        with: u64,
        /// When the call was finished.
        at: Timestamp,
        /// What the call did.
        report: Report,
        /// How long the call took.
        duration_ms: f64,
        /// From when the loop took up the first event until the renderer gave the kernel a transaction; none if it gave
        /// it nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        sent_after_ms: Option<f64>,
    },
    /// The call failed, and is tried again.
    Failed {
        /// When the call was finished.
        at: Timestamp,
        /// Why.
        error: String,
        /// How long the call took.
        duration_ms: f64,
    },
}

/// A range of events, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Covers {
    pub(super) first: u64,
    pub(super) last: u64,
    /// When the first of them was taken up.
    pub(super) since: Instant,
    /// When the store had said the first of them.
    pub(super) received: Instant,
    /// When the first of them was triggered, of those that say so.
    pub(super) triggered: Option<Timestamp>,
}

impl Covers {
    /// One event that happens now.
    pub(super) fn one(seq_num: u64) -> Self {
        Self::one_at(seq_num, Moment::now())
    }

    /// One event that happened at this moment.
    pub(super) const fn one_at(seq_num: u64, moment: Moment) -> Self {
        let Moment { since, received, triggered, .. } = moment;
        Self { first: seq_num, last: seq_num, since, received, triggered }
    }

    /// The range from the start of one to the end of the other.
    pub(super) fn and(self, other: Self) -> Self {
        let (first, last) = (self.first.min(other.first), self.last.max(other.last));
        let triggered = self.triggered.into_iter().chain(other.triggered).min();
        let (since, received) = (self.since.min(other.since), self.received.min(other.received));
        Self { first, last, since, received, triggered }
    }
}

/// What an event is, before it has a number.
#[derive(Debug)]
pub(super) struct Happening<'a> {
    pub(super) kind: &'static str,
    pub(super) description: String,
    pub(super) moment: Moment,
    pub(super) duration: Duration,
    pub(super) revision: i64,
    /// What it changed, if that is known.
    pub(super) changes: Option<&'a ChangeSet>,
    /// The renderers that have something to do now.
    pub(super) renderers: Vec<Arc<str>>,
}

/// How much the history keeps. The newest event is kept whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Events.
    pub events: usize,
    /// Since when they began.
    pub age: Duration,
    /// About what all of them take up in memory.
    pub bytes: usize,
}

/// The ring of records.
#[derive(Debug)]
pub(super) struct History {
    records: VecDeque<Record>,
    limits: HistoryLimits,
    /// What the records take up.
    bytes: usize,
    newest: u64,
}

impl History {
    /// A history without events.
    pub(super) const fn new(limits: HistoryLimits) -> Self {
        Self { records: VecDeque::new(), limits, bytes: 0, newest: 0 }
    }

    /// Adds an event and gives it its number.
    pub(super) fn push(&mut self, happening: Happening<'_>) -> u64 {
        let Happening { kind, description, moment, duration, revision, changes, renderers } = happening;
        self.newest += 1;
        let services = changes.into_iter().flat_map(|changes| changes.services.keys());
        let record = Record {
            seq_num: self.newest,
            kind,
            description,
            start: moment.start,
            since: moment.since,
            waited_ms: milliseconds(moment.since - moment.received),
            duration_ms: milliseconds(duration),
            revision,
            changed: changes.map_or(0, |changes| changes.services.len()),
            services: services.take(NAMES).cloned().collect(),
            renderers: renderers.into_iter().map(|name| (name, Outcome::Pending)).collect(),
        };
        self.bytes += record.size();
        self.records.push_back(record);
        self.forget(moment.since);
        self.newest
    }

    /// Notes what a renderer made of these events, where it had something to do.
    pub(super) fn settle(&mut self, covers: Covers, renderer: &str, outcome: &Outcome) {
        let start = self.records.partition_point(|record| record.seq_num < covers.first);
        for record in self.records.range_mut(start..).take_while(|record| record.seq_num <= covers.last) {
            if let Some(entry) = record.renderers.get_mut(renderer) {
                self.bytes = self.bytes + outcome.size() - entry.size();
                entry.clone_from(outcome);
            }
        }
        self.forget_too_many();
    }

    /// Lets go of what is too much, or too old.
    fn forget(&mut self, now: Instant) {
        self.forget_too_many();
        let age = |record: &Record| now.saturating_duration_since(record.since);
        while self.records.front().is_some_and(|oldest| age(oldest) > self.limits.age) {
            self.forget_oldest();
        }
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

    /// The number of the event that is pushed next.
    pub(super) const fn next(&self) -> u64 {
        self.newest + 1
    }

    /// How many events there have been.
    pub(super) const fn newest(&self) -> u64 {
        self.newest
    }

    /// The records that a query asks for, oldest first.
    pub(super) fn query(&mut self, query: HistoryQuery) -> Vec<Record> {
        self.forget(Instant::now());
        query.select(self.records.make_contiguous()).to_vec()
    }
}

/// For people and JSON: milliseconds with a fraction.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests;
