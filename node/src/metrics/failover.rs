//! Backends that leave the choice because they do not answer, and come back.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::value::gauge;
use crate::message::FailureCause;

/// The metrics.
#[derive(Debug, Clone, Default)]
pub(super) struct FailoverMetrics {
    backends_out: Gauge,
    ejections: Family<CauseLabel, Counter>,
    returns: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

impl FailoverMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "failover_backends_out",
            "Backends of services that are out of the choice",
            metrics.backends_out.clone(),
        );
        registry.register(
            "failover_ejections",
            "Backends of services that left the choice",
            metrics.ejections.clone(),
        );
        registry.register(
            "failover_returns",
            "Backends of services that came back",
            metrics.returns.clone(),
        );
        for cause in [FailureCause::Refused, FailureCause::Silent] {
            // From 0, so that the first is an increase.
            drop(metrics.ejections.get_or_create(&label(cause)));
        }
        metrics
    }

    /// Counts a backend that left.
    pub(super) fn count_ejection(&self, cause: FailureCause) {
        self.ejections.get_or_create(&label(cause)).inc();
    }

    /// Counts a backend that came back.
    pub(super) fn count_return(&self) {
        self.returns.inc();
    }

    /// Sets how many are out.
    pub(super) fn set(&self, out: usize) {
        self.backends_out.set(gauge(out));
    }
}

const fn label(cause: FailureCause) -> CauseLabel {
    CauseLabel {
        cause: cause.name(),
    }
}
