//! What is known of the store and of the mirror, and how the first state comes to be: from the list of the store, from what was
//! saved where the store cannot be read, or from both. Pure.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use contiv_store::MirrorSummary;
use jiff::Timestamp;
use serde::Serialize;

use super::deletion_guard::LEAST_DELETIONS;
use crate::node::decode::{DecodedList, StoreEvent};

/// How long the first list of the store may take. After that what was saved of it goes to the renderers, if anything was:
/// a store that is slow, or cut off without a word, is not waited for.
pub(super) const LIST_LIMIT: Duration = Duration::from_secs(10);
/// How long a first list waits for what was saved.
const SAVED_LIMIT: Duration = Duration::from_secs(2);
/// A first list of fewer entries than this is compared with what was saved, and so is one that has fewer than were saved: the
/// store may have been wiped, or put back to an old backup. Others need not wait for the disk.
const SMALL_LIST: usize = 1000;

/// Since when the store cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreDown {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
}

/// What is saved on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MirrorStatus {
    /// Everything up to this revision is saved; none if nothing has been since the start.
    pub revision: Option<i64>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Timestamp>,
    /// Why nothing is saved at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What is known of the store and of the mirror.
#[derive(Debug)]
pub(super) struct StoreState {
    /// Renderers have been given a first state.
    pub(super) is_synced: bool,
    /// The active state is the mirror's: the store has not been read since the start.
    pub(super) is_from_mirror: bool,
    pub(super) revision: i64,
    pub(super) down: Option<StoreDown>,
    /// None where nothing is saved.
    pub(super) mirror: Option<MirrorStatus>,
    /// What was saved at the start; none until it is known.
    pub(super) saved: Option<MirrorSummary>,
    start: Start,
    /// What the store said while its first list waits.
    backlog: VecDeque<(StoreEvent, Instant)>,
}

/// How far the start has come.
#[derive(Debug)]
enum Start {
    /// The first list is awaited, for so long.
    AwaitingList {
        until: Instant,
    },
    /// It is there, and what was saved is awaited.
    AwaitingSaved {
        list: Box<DecodedList>,
        received: Instant,
        until: Instant,
    },
    Done,
}

impl StoreState {
    pub(super) fn new(has_mirror: bool, now: Instant) -> Self {
        Self {
            is_synced: false,
            is_from_mirror: false,
            revision: 0,
            down: None,
            mirror: has_mirror.then(MirrorStatus::default),
            saved: None,
            start: Start::AwaitingList { until: now + LIST_LIMIT },
            backlog: VecDeque::new(),
        }
    }

    /// Whether a first list must be compared with what was saved: values that are bad keep what was saved of them, as does this
    /// node's object, and it is to be noticed if too much is gone.
    pub(super) fn needs_saved(&self, list: &DecodedList) -> bool {
        let has_bad = || list.bad.iter().any(|bad| !bad.is_used);
        let has_more = |saved: &MirrorSummary| {
            saved.entries >= list.entries + LEAST_DELETIONS || saved.has_key && !list.has_own_node
        };
        !self.is_synced
            && self.mirror.is_some()
            && (list.entries < SMALL_LIST || has_bad() || self.saved.as_ref().is_none_or(has_more))
    }

    /// Lets a first list wait for what was saved.
    pub(super) fn await_saved(&mut self, list: Box<DecodedList>, received: Instant, now: Instant) {
        self.start = Start::AwaitingSaved { list, received, until: now + SAVED_LIMIT };
    }

    /// The first list waits.
    pub(super) const fn is_list_waiting(&self) -> bool {
        matches!(self.start, Start::AwaitingSaved { .. })
    }

    /// The first list, if it waits, with when it was received.
    pub(super) fn take_waiting_list(&mut self) -> Option<(Box<DecodedList>, Instant)> {
        match std::mem::replace(&mut self.start, Start::Done) {
            Start::AwaitingSaved { list, received, .. } => Some((list, received)),
            other => {
                self.start = other;
                None
            }
        }
    }

    /// Keeps what the store says for the time after its first list.
    pub(super) fn defer(&mut self, event: StoreEvent, received: Instant) {
        self.backlog.push_back((event, received));
    }

    /// The first of what was deferred.
    pub(super) fn next_deferred(&mut self) -> Option<(StoreEvent, Instant)> {
        self.backlog.pop_front()
    }

    /// The first list is no longer waited for: it is there, or the store is down.
    pub(super) fn stop_awaiting_list(&mut self) {
        if matches!(self.start, Start::AwaitingList { .. }) {
            self.start = Start::Done;
        }
    }

    /// When waiting ends.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match &self.start {
            Start::AwaitingList { until } | Start::AwaitingSaved { until, .. } => Some(*until),
            Start::Done => None,
        }
    }

    /// The first list has not come in time.
    pub(super) fn is_list_late(&self, now: Instant) -> bool {
        matches!(self.start, Start::AwaitingList { until } if until <= now)
    }

    /// What was saved has not come in time.
    pub(super) fn is_saved_late(&self, now: Instant) -> bool {
        matches!(self.start, Start::AwaitingSaved { until, .. } if until <= now)
    }
}
