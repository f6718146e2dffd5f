//! Usage of single services: limited in number, and off by default.

use std::sync::atomic::Ordering;

use contiv_renderer::nftables::counters::RefusalReason;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::counters::ServiceConnections;

/// The counters, set from those of the kernel when they are read.
#[derive(Debug, Clone)]
pub struct ServiceMetrics {
    bound: usize,
    connections: Family<ServiceLabel, Counter>,
    refused: Family<RefusalLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabel {
    namespace: String,
    service: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabel {
    namespace: String,
    service: String,
    reason: &'static str,
}

impl ServiceMetrics {
    pub(super) fn register(bound: usize, registry: &mut Registry) -> Self {
        let metrics = Self {
            bound,
            connections: Family::default(),
            refused: Family::default(),
        };
        registry.register(
            "service_connections",
            "Attempts to connect to a service that were sent to a backend, by the kernel's counters; of the services with the most attempts, up to service-counters",
            metrics.connections.clone(),
        );
        registry.register(
            "service_refused_connections",
            "Attempts to connect to the same services that were refused, by reason: no-endpoints, policy, source-ranges; a repetition is no attempt",
            metrics.refused.clone(),
        );
        metrics
    }

    /// How many services have a metric; 0 means that nothing needs to be read.
    pub const fn bound(&self) -> usize {
        self.bound
    }

    /// Sets the counts of services, the most used first; those beyond the limit are left out.
    pub fn set(&self, services: &[ServiceConnections]) {
        self.connections.clear();
        self.refused.clear();
        for of in services.iter().take(self.bound) {
            let (namespace, service) = (
                of.service.namespace.to_string(),
                of.service.name.to_string(),
            );
            // The kernel counts, and may restart at zero, like counters of Prometheus. All reasons have a value from the start, so
            // that the first refusal is an increase.
            for reason in RefusalReason::ALL {
                let (namespace, service) = (namespace.clone(), service.clone());
                let label = RefusalLabel {
                    namespace,
                    service,
                    reason: reason.name(),
                };
                let refused = of.refused_by.get(&reason).copied().unwrap_or_default();
                self.refused
                    .get_or_create(&label)
                    .inner()
                    .store(refused, Ordering::Relaxed);
            }
            let label = ServiceLabel { namespace, service };
            self.connections
                .get_or_create(&label)
                .inner()
                .store(of.connections, Ordering::Relaxed);
        }
    }
}
