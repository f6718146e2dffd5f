//! Counts events of the node core.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Counts events. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct EventMetrics {
    total: Family<KindLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

impl EventMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("events", "Events of the node core, by kind", metrics.total.clone());
        metrics
    }

    /// Counts an event of this kind.
    pub fn count(&self, kind: &'static str) {
        self.total.get_or_create(&KindLabel { kind }).inc();
    }
}
