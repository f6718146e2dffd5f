//! A guard against mass deletion: a store that was wiped, or restored from the wrong backup, must not remove a node's
//! services without a confirmation.
//!
//! If more than a share of all services, endpoints or endpoint slices would go at once, deletions are held: the objects
//! stay active, new and changed ones are applied. After a time, or when a user confirms
//! it, the store is listed again and that list is applied in any case.

use std::{
    cell::LazyCell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use contiv_model::{Event, ObjectKey, Processor, Resync, object::ObjectKind};
use jiff::Timestamp;
use serde::Serialize;

use crate::message::Now;

/// Fewer deletions are never too many: small clusters lose most of their services at times.
pub(super) const MIN_DELETIONS: usize = 10;
/// The counted types. When too many of one of them are deleted, all deletions with them are held.
const GUARDED: [ObjectKind; 3] = [
    ObjectKind::Service,
    ObjectKind::Endpoints,
    ObjectKind::EndpointSlice,
];

/// When deletions are held, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardConfig {
    /// The threshold as a share of all objects of a type, in percent; 0 disables it.
    pub percent: u8,
    /// How long they are held without a confirmation.
    pub wait: Duration,
}

/// Deletions that wait for confirmation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldDeletions {
    /// Since when they are held.
    pub since: Timestamp,
    /// When they are applied without confirmation.
    pub until: Timestamp,
    /// The number of deleted objects when they were first held.
    pub objects: usize,
}

#[derive(Debug)]
pub(super) struct DeletionGuard {
    config: GuardConfig,
    held: Option<(HeldDeletions, Instant)>,
    /// Whether the next list is applied in any case.
    is_confirmed: bool,
}

/// The decision on deletions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeletionDecision {
    /// They are applied, if there are any.
    Pass,
    /// They are held from now on.
    HeldNow,
    /// They are held like earlier ones.
    StillHeld,
}

impl DeletionGuard {
    pub(super) const fn new(config: GuardConfig) -> Self {
        Self {
            config,
            held: None,
            is_confirmed: false,
        }
    }

    pub(super) fn held(&self) -> Option<&HeldDeletions> {
        self.held.as_ref().map(|(held, _)| held)
    }

    /// When held deletions are applied without confirmation.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.held
            .as_ref()
            .filter(|_| !self.is_confirmed)
            .map(|(_, until)| *until)
    }

    /// Lets the next list be applied in any case. False if nothing is held.
    pub(super) const fn confirm(&mut self) -> bool {
        self.is_confirmed = self.held.is_some();
        self.is_confirmed
    }

    /// Checks a complete list. Held objects are added to it as unreadable ones, which keeps them active.
    pub(super) fn check_list(
        &mut self,
        processor: &Processor,
        list: &mut Resync,
        now: Now,
    ) -> DeletionDecision {
        // Not evaluated at the start, when no object can be missing.
        let listed = LazyCell::new(|| -> BTreeSet<ObjectKey> {
            list.objects.iter().map(contiv_model::Object::key).collect()
        });
        let gone_of = |kind| {
            let is_gone =
                |key: &ObjectKey| !listed.contains(key) && !list.undecodable.contains(key);
            processor.keys(kind).filter(is_gone).collect::<Vec<_>>()
        };
        let is_mass = GUARDED
            .iter()
            .any(|kind| self.is_mass_deletion(gone_of(*kind).len(), processor.count(*kind)));
        if std::mem::take(&mut self.is_confirmed) || !is_mass {
            self.held = None;
            return DeletionDecision::Pass;
        }
        // Without its Node object a wiped store would remove the node ports.
        let gone: Vec<ObjectKey> = ObjectKind::ALL.into_iter().flat_map(gone_of).collect();
        let decision = self.hold(gone.len(), now);
        list.undecodable.extend(gone);
        decision
    }

    /// Checks changes and removes held deletions from them.
    pub(super) fn check_changes(
        &mut self,
        processor: &Processor,
        events: &mut Vec<Event>,
        now: Now,
    ) -> DeletionDecision {
        // What was created meanwhile is not lost with its deletion: a watch that goes on after a while brings both.
        let is_known = |key: &ObjectKey| processor.object(key).is_some();
        let gone: Vec<ObjectKey> = gone_after(events).into_iter().filter(is_known).collect();
        let of_kind = |kind| gone.iter().filter(|key| key.kind() == kind).count();
        let is_mass = GUARDED
            .iter()
            .any(|kind| self.is_mass_deletion(of_kind(*kind), processor.count(*kind)));
        let count = gone.len();
        if count == 0 || self.held.is_none() && !is_mass {
            return DeletionDecision::Pass;
        }
        events.retain(|event| !matches!(event, Event::Delete(_)));
        self.hold(count, now)
    }

    fn hold(&mut self, objects: usize, now: Now) -> DeletionDecision {
        if self.held.is_some() {
            return DeletionDecision::StillHeld;
        }
        let since = now.time;
        let until = since
            .checked_add(self.config.wait)
            .unwrap_or(Timestamp::MAX);
        self.held = Some((
            HeldDeletions {
                since,
                until,
                objects,
            },
            now.instant + self.config.wait,
        ));
        DeletionDecision::HeldNow
    }

    const fn is_mass_deletion(&self, gone: usize, known: usize) -> bool {
        self.config.percent > 0
            && gone >= MIN_DELETIONS
            && gone * 100 > known * self.config.percent as usize
    }
}

/// The objects that are deleted after all of these events: a batch can contain several changes of one key.
fn gone_after(events: &[Event]) -> BTreeSet<ObjectKey> {
    let mut gone = BTreeSet::new();
    for event in events {
        match event {
            Event::Delete(key) => drop(gone.insert(key.clone())),
            Event::Put(object) => drop(gone.remove(&object.key())),
            _ => {}
        }
    }
    gone
}

#[cfg(test)]
mod tests;
