//! The counters of the reflector: those of Contiv's `ksrapi.KsrStats`, for each type.

use std::{collections::BTreeMap, sync::Arc};

use contiv_proto::Kind;
use contiv_store::kube::KINDS;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use crate::action::Action;

/// `type`, and the type's keyword.
type Label = [(&'static str, &'static str); 1];

/// A counter of each type.
#[derive(Debug, Clone, Copy)]
enum CounterKind {
    Adds,
    Updates,
    Deletes,
    Resyncs,
    AddErrors,
    UpdateErrors,
    DeleteErrors,
    ArgumentErrors,
    ResyncErrors,
}

/// For each [`CounterKind`], in its order: the name in Contiv's `ksrapi.KsrStats`, the name of the metric, and its help.
const COUNTERS: [(&str, &str, &str); 9] = [
    ("Adds", "adds", "Objects that were added to the store"),
    (
        "Updates",
        "updates",
        "Objects that were updated in the store",
    ),
    (
        "Deletes",
        "deletes",
        "Objects that were deleted from the store",
    ),
    (
        "Resyncs",
        "resyncs",
        "Comparisons of all objects with all that is stored",
    ),
    ("AddErrors", "add_errors", "Objects that could not be added"),
    (
        "UpdErrors",
        "update_errors",
        "Objects that could not be updated",
    ),
    (
        "DelErrors",
        "delete_errors",
        "Objects that could not be deleted",
    ),
    (
        "ArgErrors",
        "argument_errors",
        "Objects of Kubernetes that could not be read",
    ),
    (
        "ResErrors",
        "resync_errors",
        "Outages of Kubernetes or the store",
    ),
];

/// Counters and gauges of a reflector. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    counters: [Family<Label, Counter>; COUNTERS.len()],
    objects: Family<Label, Gauge>,
    due: Family<Label, Gauge>,
    /// The types that match Kubernetes; updated after each change of the counters.
    synced: Arc<watch::Sender<BTreeMap<Kind, bool>>>,
}

/// The counters of one type in the format of Contiv's `ksrapi.KsrStats`: numbers in quotes, without zeros.
#[derive(Debug)]
pub(crate) struct Counts(Vec<(&'static str, u64)>);

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counted = self.0.iter().filter(|(_, number)| *number > 0);
        serializer.collect_map(counted.map(|(name, number)| (name, number.to_string())))
    }
}

impl Stats {
    /// Registers everything, as `reflector_…` with the label `type`.
    pub fn register(registry: &mut Registry) -> Self {
        let stats = Self::default();
        for ((_, name, help), counter) in COUNTERS.into_iter().zip(&stats.counters) {
            registry.register(format!("reflector_{name}"), help, counter.clone());
        }
        registry.register(
            "reflector_objects",
            "Objects in Kubernetes",
            stats.objects.clone(),
        );
        registry.register(
            "reflector_due",
            "Objects whose stored state differs from Kubernetes",
            stats.due.clone(),
        );
        stats
    }

    /// True if every type was read and stored. False while the reflector does not run.
    pub fn has_synced(&self) -> bool {
        let synced = self.synced.borrow();
        KINDS
            .iter()
            .all(|kind| synced.get(kind).copied().unwrap_or(false))
    }

    /// Notifies of each change of the synced types.
    pub(crate) fn changes(&self) -> watch::Receiver<BTreeMap<Kind, bool>> {
        self.synced.subscribe()
    }

    pub(crate) fn count_write(&self, kind: Kind, action: Action) {
        let counter = match action {
            Action::Add => CounterKind::Adds,
            Action::Update => CounterKind::Updates,
            Action::Delete => CounterKind::Deletes,
        };
        self.count(kind, counter, 1);
    }

    pub(crate) fn count_failure(&self, kind: Kind, action: Action) {
        let counter = match action {
            Action::Add => CounterKind::AddErrors,
            Action::Update => CounterKind::UpdateErrors,
            Action::Delete => CounterKind::DeleteErrors,
        };
        self.count(kind, counter, 1);
    }

    pub(crate) fn count_unreadable(&self, kind: Kind, objects: usize) {
        self.count(kind, CounterKind::ArgumentErrors, objects);
    }

    pub(crate) fn count_resync(&self, kind: Kind) {
        self.count(kind, CounterKind::Resyncs, 1);
    }

    pub(crate) fn count_outage(&self, kind: Kind) {
        self.count(kind, CounterKind::ResyncErrors, 1);
    }

    /// The progress of one type: its objects, pending ones, and whether source and store are listed.
    pub(crate) fn set_progress(&self, kind: Kind, objects: usize, due: usize, is_listed: bool) {
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.objects.get_or_create(&label(kind)).set(gauge(objects));
        self.due.get_or_create(&label(kind)).set(gauge(due));
        self.synced.send_modify(|synced| {
            // It stays synced: later changes are in progress.
            *synced.entry(kind).or_default() |= is_listed && due == 0;
        });
    }

    /// Counts a type as synced although it cannot be read: Kubernetes may not have it.
    pub(crate) fn mark_unavailable(&self, kind: Kind) {
        self.synced.send_modify(|synced| {
            synced.insert(kind, true);
        });
    }

    /// Marks all types as not synced, since the reflector has stopped.
    pub(crate) fn mark_stopped(&self) {
        self.synced.send_modify(BTreeMap::clear);
    }

    pub(crate) fn counts(&self, kind: Kind) -> Counts {
        let get = |counter: &Family<Label, Counter>| counter.get_or_create(&label(kind)).get();
        let names = COUNTERS.into_iter().map(|(name, ..)| name);
        Counts(
            names
                .zip(&self.counters)
                .map(|(name, counter)| (name, get(counter)))
                .collect(),
        )
    }

    fn count(&self, kind: Kind, counter: CounterKind, times: usize) {
        self.counters[counter as usize]
            .get_or_create(&label(kind))
            .inc_by(times as u64);
    }
}

const fn label(kind: Kind) -> Label {
    [("type", kind.keyword())]
}
