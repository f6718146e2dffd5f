//! Usage of single services: limited in number, and off by default.

use std::sync::atomic::Ordering;

use contiv_model::ServiceId;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The counters, set from those of the kernel when they are read.
#[derive(Debug, Clone)]
pub struct ServiceMetrics {
    bound: usize,
    connections: Family<ServiceLabel, Counter>,
    refused: Family<ServiceLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabel {
    namespace: String,
    service: String,
}

impl ServiceMetrics {
    pub(super) fn register(bound: usize, registry: &mut Registry) -> Self {
        let metrics = Self { bound, connections: Family::default(), refused: Family::default() };
        registry.register(
            "service_connections",
            "New connections of a service, by the kernel's counters; of the most used services, up to service-counters",
            metrics.connections.clone(),
        );
        registry.register(
            "service_refused_connections",
            "Refused connections of the same services, since no backend could serve them, by the kernel's counters",
            metrics.refused.clone(),
        );
        metrics
    }

    /// How many services have a metric; 0 means that nothing needs to be read.
    pub const fn bound(&self) -> usize {
        self.bound
    }

    /// Sets the counts of services, the most used first; those beyond the limit are left out.
    pub fn set(&self, connections: &[(ServiceId, u64, u64)]) {
        self.connections.clear();
        self.refused.clear();
        for (service, served, refused) in connections.iter().take(self.bound) {
            let label =
                ServiceLabel { namespace: service.namespace.to_string(), service: service.name.to_string() };
            // The kernel counts, and may restart at zero, like counters of Prometheus.
            self.connections.get_or_create(&label).inner().store(*served, Ordering::Relaxed);
            self.refused.get_or_create(&label).inner().store(*refused, Ordering::Relaxed);
        }
    }
}
