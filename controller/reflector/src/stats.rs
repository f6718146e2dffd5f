//! What the reflector counts: the counters of Contiv's `ksrapi.KsrStats`, for each type.

use std::{collections::BTreeMap, sync::Arc};

use contiv_proto::Kind;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use serde::Serialize;
use tokio::sync::watch;

use crate::{KINDS, state::Action};

/// `type`, and the type's keyword.
type Label = [(&'static str, &'static str); 1];

/// Counters and gauges of a reflector. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    adds: Family<Label, Counter>,
    updates: Family<Label, Counter>,
    deletes: Family<Label, Counter>,
    resyncs: Family<Label, Counter>,
    add_errors: Family<Label, Counter>,
    update_errors: Family<Label, Counter>,
    delete_errors: Family<Label, Counter>,
    argument_errors: Family<Label, Counter>,
    resync_errors: Family<Label, Counter>,
    objects: Family<Label, Gauge>,
    due: Family<Label, Gauge>,
    /// The types that are as Kubernetes says; told after each change of what is counted.
    synced: Arc<watch::Sender<BTreeMap<Kind, bool>>>,
}

/// What is counted of one type, as Contiv's `ksrapi.KsrStats` says it: numbers in quotes, none that is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Counts {
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) adds: u64,
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) updates: u64,
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) deletes: u64,
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) resyncs: u64,
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) add_errors: u64,
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) upd_errors: u64,
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) del_errors: u64,
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) arg_errors: u64,
    #[serde(with = "quoted", skip_serializing_if = "is_zero")]
    pub(crate) res_errors: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

mod quoted {
    use serde::Serializer;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }
}

impl Stats {
    /// Registers everything, as `reflector_…` with the label `type`.
    pub fn register(registry: &mut Registry) -> Self {
        let stats = Self::default();
        let counters = [
            ("adds", "Objects that were added to the store", &stats.adds),
            ("updates", "Objects that were updated in the store", &stats.updates),
            ("deletes", "Objects that were deleted from the store", &stats.deletes),
            ("resyncs", "Comparisons of all objects with all that is stored", &stats.resyncs),
            ("add_errors", "Objects that could not be added", &stats.add_errors),
            ("update_errors", "Objects that could not be updated", &stats.update_errors),
            ("delete_errors", "Objects that could not be deleted", &stats.delete_errors),
            ("argument_errors", "Objects of Kubernetes that could not be read", &stats.argument_errors),
            ("resync_errors", "Outages of Kubernetes or the store", &stats.resync_errors),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("reflector_{name}"), help, counter.clone());
        }
        registry.register("reflector_objects", "Objects in Kubernetes", stats.objects.clone());
        registry.register(
            "reflector_due",
            "Objects that are not in the store as they should be",
            stats.due.clone(),
        );
        stats
    }

    /// Whether every type was read and is in the store as Kubernetes says. False while the reflector does not run.
    pub fn has_synced(&self) -> bool {
        let synced = self.synced.borrow();
        KINDS.iter().all(|kind| synced.get(kind).copied().unwrap_or(false))
    }

    /// Tells of each change.
    pub(crate) fn changes(&self) -> watch::Receiver<BTreeMap<Kind, bool>> {
        self.synced.subscribe()
    }

    pub(crate) fn wrote(&self, kind: Kind, action: Action) {
        self.family(action).get_or_create(&label(kind)).inc();
    }

    pub(crate) fn failed(&self, kind: Kind, action: Action) {
        let family = match action {
            Action::Add => &self.add_errors,
            Action::Update => &self.update_errors,
            Action::Delete => &self.delete_errors,
        };
        family.get_or_create(&label(kind)).inc();
    }

    pub(crate) fn could_not_read(&self, kind: Kind, objects: usize) {
        self.argument_errors.get_or_create(&label(kind)).inc_by(objects as u64);
    }

    pub(crate) fn resynced(&self, kind: Kind) {
        self.resyncs.get_or_create(&label(kind)).inc();
    }

    pub(crate) fn lost(&self, kind: Kind) {
        self.resync_errors.get_or_create(&label(kind)).inc();
    }

    /// How far one type is: what there is, what is not yet as it should be, and whether both sides are known.
    pub(crate) fn measure(&self, kind: Kind, objects: usize, due: usize, is_listed: bool) {
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.objects.get_or_create(&label(kind)).set(gauge(objects));
        self.due.get_or_create(&label(kind)).set(gauge(due));
        self.synced.send_modify(|synced| {
            // Once it was, it is: what comes later is under way.
            *synced.entry(kind).or_default() |= is_listed && due == 0;
        });
    }

    /// Nothing runs any more.
    pub(crate) fn stopped(&self) {
        self.synced.send_modify(BTreeMap::clear);
    }

    pub(crate) fn counts(&self, kind: Kind) -> Counts {
        let label = label(kind);
        let get = |family: &Family<Label, Counter>| family.get_or_create(&label).get();
        Counts {
            adds: get(&self.adds),
            updates: get(&self.updates),
            deletes: get(&self.deletes),
            resyncs: get(&self.resyncs),
            add_errors: get(&self.add_errors),
            upd_errors: get(&self.update_errors),
            del_errors: get(&self.delete_errors),
            arg_errors: get(&self.argument_errors),
            res_errors: get(&self.resync_errors),
        }
    }

    const fn family(&self, action: Action) -> &Family<Label, Counter> {
        match action {
            Action::Add => &self.adds,
            Action::Update => &self.updates,
            Action::Delete => &self.deletes,
        }
    }
}

const fn label(kind: Kind) -> Label {
    [("type", kind.keyword())]
}
