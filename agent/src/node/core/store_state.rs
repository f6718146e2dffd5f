//! The state of the store's connection and of the mirror, and where the first snapshot comes from: the store's list, the saved
//! state if the store cannot be read, or both. Pure.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use contiv_store::MirrorSummary;
use jiff::Timestamp;
use serde::Serialize;

use super::deletion_guard::LEAST_DELETIONS;
use crate::node::decode::{DecodedList, StoreEvent};

/// The time limit of the first list. After that the saved state goes to the renderers, if there is one: a slow or unreachable
/// store is not waited for.
pub(super) const LIST_LIMIT: Duration = Duration::from_secs(10);
/// How long a first list waits for the saved state. Longer in tests, which share a busy machine.
const SAVED_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 20 } else { 2 });
/// A first list with fewer entries is compared with the saved state, and so is one with fewer entries than were saved: the
/// store may have been wiped or restored from an old backup. Other lists need not wait for the disk.
const SMALL_LIST: usize = 1000;

/// An outage of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreDown {
    /// When it began.
    pub since: Timestamp,
    /// The reason.
    pub reason: String,
}

/// The state of the mirror.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MirrorStatus {
    /// The saved revision; none if nothing was saved since the start.
    pub revision: Option<i64>,
    /// When it was saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Timestamp>,
    /// Why nothing can be saved at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The state of the store's connection and of the mirror.
#[derive(Debug)]
pub(super) struct StoreState {
    /// Whether renderers have been given a first snapshot.
    pub(super) is_synced: bool,
    /// Whether the active state is the mirror's because the store has not been read since the start.
    pub(super) is_from_mirror: bool,
    pub(super) revision: i64,
    pub(super) down: Option<StoreDown>,
    /// None without a mirror.
    pub(super) mirror: Option<MirrorStatus>,
    /// The size of the saved state at the start; none until it is known.
    pub(super) saved: Option<MirrorSummary>,
    start: Start,
    /// Events of the store received while its first list waits.
    backlog: VecDeque<(StoreEvent, Instant)>,
}

/// The phase of the start.
#[derive(Debug)]
enum Start {
    /// Waiting for the first list until the deadline.
    AwaitingList {
        until: Instant,
    },
    /// The list has arrived, and the saved state is awaited.
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

    /// Whether a first list must be compared with the saved state: bad values and this node's object keep their saved state,
    /// and missing objects must be noticed.
    pub(super) fn needs_saved(&self, list: &DecodedList, own_node: &str) -> bool {
        let has_bad = || list.bad.iter().any(|bad| !bad.is_used);
        let has_more = |saved: &MirrorSummary| {
            saved.entries >= list.entries.len() + LEAST_DELETIONS || saved.has_key && !list.has(own_node)
        };
        !self.is_synced
            && self.mirror.is_some()
            && (list.entries.len() < SMALL_LIST || has_bad() || self.saved.as_ref().is_none_or(has_more))
    }

    /// Makes a first list wait for the saved state.
    pub(super) fn await_saved(&mut self, list: Box<DecodedList>, received: Instant, now: Instant) {
        self.start = Start::AwaitingSaved { list, received, until: now + SAVED_LIMIT };
    }

    /// Whether the first list is waiting.
    pub(super) const fn is_list_waiting(&self) -> bool {
        matches!(self.start, Start::AwaitingSaved { .. })
    }

    /// The first list, if it is waiting, with the time of its receipt.
    pub(super) fn take_waiting_list(&mut self) -> Option<(Box<DecodedList>, Instant)> {
        match std::mem::replace(&mut self.start, Start::Done) {
            Start::AwaitingSaved { list, received, .. } => Some((list, received)),
            other => {
                self.start = other;
                None
            }
        }
    }

    /// Defers an event of the store until after the first list.
    pub(super) fn defer(&mut self, event: StoreEvent, received: Instant) {
        self.backlog.push_back((event, received));
    }

    /// The next deferred event.
    pub(super) fn next_deferred(&mut self) -> Option<(StoreEvent, Instant)> {
        self.backlog.pop_front()
    }

    /// Stops waiting for the first list, which has arrived, or the store is down.
    pub(super) fn stop_awaiting_list(&mut self) {
        if matches!(self.start, Start::AwaitingList { .. }) {
            self.start = Start::Done;
        }
    }

    /// When the current wait ends.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match &self.start {
            Start::AwaitingList { until } | Start::AwaitingSaved { until, .. } => Some(*until),
            Start::Done => None,
        }
    }

    /// Whether the first list is past its deadline.
    pub(super) fn is_list_late(&self, now: Instant) -> bool {
        matches!(self.start, Start::AwaitingList { until } if until <= now)
    }

    /// Whether the saved state is past its deadline.
    pub(super) fn is_saved_late(&self, now: Instant) -> bool {
        matches!(self.start, Start::AwaitingSaved { until, .. } if until <= now)
    }
}

#[cfg(test)]
mod tests {
    use contiv_store::Entry;

    use super::*;

    const OWN_NODE: &str = "/node/n1";

    fn list(count: usize, has_own_node: bool) -> DecodedList {
        let key = |number| {
            if has_own_node && number == 0 { OWN_NODE.to_owned() } else { format!("/z/{number:05}") }
        };
        let entry = |key| Entry { key, value: "{}".into(), create_revision: 1, mod_revision: 1 };
        DecodedList { entries: (0..count).map(key).map(entry).collect(), ..DecodedList::default() }
    }

    #[test]
    fn saved_state_is_awaited_once_and_not_for_ever() {
        let start = Instant::now();
        let mut state = StoreState::new(true, start);
        assert!(state.needs_saved(&list(1, true), OWN_NODE));
        state.await_saved(Box::new(list(1, true)), start, start);
        assert_eq!(state.deadline(), Some(start + SAVED_LIMIT));
        assert!(!state.is_saved_late(start) && state.is_saved_late(start + SAVED_LIMIT));
        assert!(state.take_waiting_list().is_some() && state.take_waiting_list().is_none());
        assert_eq!(state.deadline(), None);
    }

    #[test]
    fn large_list_is_compared_only_where_more_was_saved() {
        let mut state = StoreState::new(true, Instant::now());
        for (entries, has_key, has_own_node, expected) in [
            (SMALL_LIST, false, false, false),
            (SMALL_LIST, true, true, false),
            (SMALL_LIST, true, false, true),
            (SMALL_LIST + LEAST_DELETIONS, false, false, true),
        ] {
            state.saved = Some(MirrorSummary { entries, has_key });
            let needs = state.needs_saved(&list(SMALL_LIST, has_own_node), OWN_NODE);
            assert_eq!(needs, expected, "{entries} {has_key} {has_own_node}");
        }
        assert!(
            !StoreState::new(false, Instant::now()).needs_saved(&list(1, true), OWN_NODE),
            "there is no mirror"
        );
    }
}
