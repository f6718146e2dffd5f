//! What renderers do. The names are those of kube-proxy, with our prefix.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use std::sync::atomic::AtomicU64;

/// Counts and times the calls of renderers. Clones count together.
#[derive(Debug, Clone)]
pub struct RendererMetrics {
    duration: Family<RendererLabel, Histogram, fn() -> Histogram>,
    last: Family<RendererLabel, Gauge<f64, AtomicU64>>,
    failures: Family<RendererLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RendererLabel {
    renderer: String,
}

/// From 0.1 ms, where one endpoint changes, to 26 s, where everything hangs.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 19))
}

impl RendererMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            duration: Family::new_with_constructor(durations),
            last: Family::default(),
            failures: Family::default(),
        };
        registry.register(
            "sync_proxy_rules_duration_seconds",
            "How long a renderer took to apply a snapshot or changes",
            metrics.duration.clone(),
        );
        registry.register(
            "sync_proxy_rules_last_timestamp_seconds",
            "When a renderer last applied a snapshot or changes",
            metrics.last.clone(),
        );
        registry.register("sync_failures", "Calls of a renderer that failed", metrics.failures.clone());
        metrics
    }

    /// A renderer has applied what it was given.
    pub fn applied(&self, renderer: &str, duration: Duration) {
        let label = RendererLabel { renderer: renderer.to_owned() };
        self.duration.get_or_create(&label).observe(duration.as_secs_f64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last.get_or_create(&label).set(now.as_secs_f64());
    }

    /// A renderer has failed.
    pub fn failed(&self, renderer: &str) {
        self.failures.get_or_create(&RendererLabel { renderer: renderer.to_owned() }).inc();
    }
}
