//! The state of the store's connection and of the mirror, and where the first snapshot comes from: the store's list, the saved
//! state if the store cannot be read, or both. Pure.

use std::time::{Duration, Instant};

use contiv_store::MirrorSummary;
use jiff::Timestamp;
use serde::Serialize;

use super::deletion_guard::MIN_DELETIONS;
use crate::decode::{DecodedList, StoreEvent};

/// The time limit of each part of the first list. After that the saved state goes to the renderers, if there is one: a slow or
/// unreachable store is not waited for.
const LIST_PART_LIMIT: Duration = Duration::from_secs(10);
/// The time limit of the whole list.
const LIST_LIMIT: Duration = Duration::from_secs(60);
/// How long a first list waits for the saved state. Longer in tests, which share a busy machine.
pub(super) const SAVED_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 20 } else { 2 });
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
    /// When the agent started.
    pub(super) started: Instant,
    /// Whether the active state is the mirror's because the store has not been read since the start.
    pub(super) is_from_mirror: bool,
    pub(super) revision: i64,
    pub(super) down: Option<StoreDown>,
    /// None without a mirror.
    pub(super) mirror: Option<MirrorStatus>,
    /// The size of the saved state at the start; none until it is known.
    pub(super) saved: Option<MirrorSummary>,
    /// The time limit of the first list; or, once that is there and waits, of the saved state.
    pub(super) deadline: Option<Instant>,
    /// The first list while it waits for the saved state, and the events after it, with the times of their receipt.
    pub(super) waiting: Vec<(StoreEvent, Instant)>,
}

impl StoreState {
    pub(super) fn new(has_mirror: bool, now: Instant) -> Self {
        Self {
            is_synced: false,
            started: now,
            is_from_mirror: false,
            revision: 0,
            down: None,
            mirror: has_mirror.then(MirrorStatus::default),
            saved: None,
            deadline: Some(now + LIST_PART_LIMIT),
            waiting: Vec::new(),
        }
    }

    /// A part of a list has arrived. Loading the saved state meanwhile would only delay the rest.
    pub(super) fn extend_deadline(&mut self, now: Instant) {
        if let Some(deadline) = &mut self.deadline {
            *deadline = (now + LIST_PART_LIMIT).min(self.started + LIST_LIMIT);
        }
    }

    /// The store has what is saved, at this revision.
    pub(super) const fn note_saved(&mut self, revision: i64) {
        if let Some(mirror) = &mut self.mirror {
            mirror.revision = Some(revision);
        }
    }

    /// Whether a first list must be compared with the saved state: bad values and this node's object keep their saved state,
    /// and missing objects must be noticed.
    pub(super) fn needs_saved_state(&self, list: &DecodedList, own_node: &str) -> bool {
        let has_bad = || list.bad.iter().any(|bad| !bad.is_used);
        let has_more = |saved: &MirrorSummary| {
            saved.entries >= list.entries.len() + MIN_DELETIONS
                || saved.has_key && !list.has(own_node)
        };
        !self.is_synced
            && !list.is_saved
            && self.mirror.is_some()
            && (list.entries.len() < SMALL_LIST
                || has_bad()
                || self.saved.as_ref().is_none_or(has_more))
    }
}

#[cfg(test)]
mod tests {
    use contiv_store::Entry;

    use super::*;

    const OWN_NODE: &str = "/node/n1";

    fn list(count: usize, has_own_node: bool) -> DecodedList {
        let key = |number| {
            if has_own_node && number == 0 {
                OWN_NODE.to_owned()
            } else {
                format!("/z/{number:05}")
            }
        };
        let entry = |key| Entry {
            key,
            value: "{}".into(),
            create_revision: 1,
            mod_revision: 1,
        };
        let mut list = DecodedList::default();
        list.entries.add((0..count).map(key).map(entry).collect());
        list
    }

    #[test]
    fn large_list_is_compared_only_where_more_was_saved() {
        let mut state = StoreState::new(true, Instant::now());
        for (entries, has_key, has_own_node, expected) in [
            (SMALL_LIST, false, false, false),
            (SMALL_LIST, true, true, false),
            (SMALL_LIST, true, false, true),
            (SMALL_LIST + MIN_DELETIONS, false, false, true),
        ] {
            state.saved = Some(MirrorSummary { entries, has_key });
            let needs = state.needs_saved_state(&list(SMALL_LIST, has_own_node), OWN_NODE);
            assert_eq!(needs, expected, "{entries} {has_key} {has_own_node}");
        }
        assert!(
            !StoreState::new(false, Instant::now()).needs_saved_state(&list(1, true), OWN_NODE),
            "there is no mirror"
        );
    }
}
