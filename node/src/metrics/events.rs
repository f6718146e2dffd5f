//! Counts events of the node core.

use contiv_store::Inconsistency;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Counts events. Clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct EventMetrics {
    total: Family<KindLabel, Counter>,
    store_repairs: Family<ReasonLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl EventMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "events",
            "Events of the node core, by kind",
            metrics.total.clone(),
        );
        let help = "Lists because the store contradicted itself";
        registry.register("store_repairs", help, metrics.store_repairs.clone());
        for inconsistency in Inconsistency::ALL {
            // From 0, so that the first is an increase.
            drop(metrics.store_repairs.get_or_create(&reason(inconsistency)));
        }
        metrics
    }

    /// Counts an event of this kind.
    pub(super) fn count(&self, kind: &'static str) {
        self.total.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a list for this reason.
    pub(super) fn count_repair(&self, inconsistency: Inconsistency) {
        self.store_repairs
            .get_or_create(&reason(inconsistency))
            .inc();
    }
}

const fn reason(inconsistency: Inconsistency) -> ReasonLabel {
    ReasonLabel {
        reason: inconsistency.name(),
    }
}
