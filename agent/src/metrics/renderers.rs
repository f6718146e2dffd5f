//! Metrics of renderers. The names are those of kube-proxy, with our prefix.

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
    programming: Family<RendererLabel, Histogram, fn() -> Histogram>,
    since_trigger: Family<RendererLabel, Histogram, fn() -> Histogram>,
    last: Family<RendererLabel, Gauge<f64, AtomicU64>>,
    failures: Family<RendererLabel, Counter>,
    foreign_changes: Family<RendererLabel, Counter>,
    repairs: Family<RendererLabel, Counter>,
    damped: Family<RendererLabel, Gauge>,
    revision: Family<RendererLabel, Gauge>,
    pending: Family<RendererLabel, Gauge>,
    verifications: Family<RendererLabel, Counter>,
    drift: Family<RendererLabel, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RendererLabel {
    renderer: String,
}

/// From 0.1 ms, for a change of one endpoint, to 26 s, when everything hangs.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 19))
}

/// From 1 ms to 262 s: for the whole path through a cluster.
fn cluster_durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 19))
}

impl RendererMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            duration: Family::new_with_constructor(durations),
            programming: Family::new_with_constructor(durations),
            since_trigger: Family::new_with_constructor(cluster_durations),
            last: Family::default(),
            failures: Family::default(),
            foreign_changes: Family::default(),
            repairs: Family::default(),
            damped: Family::default(),
            revision: Family::default(),
            pending: Family::default(),
            verifications: Family::default(),
            drift: Family::default(),
        };
        registry.register(
            "sync_proxy_rules_duration_seconds",
            "How long a renderer took to apply a snapshot or changes",
            metrics.duration.clone(),
        );
        registry.register(
            "network_programming_duration_seconds",
            "From when the store's message of a change was received until a renderer had applied it",
            metrics.programming.clone(),
        );
        registry.register(
            "network_programming_since_trigger_seconds",
            "From the last-change-trigger-time of an endpoint slice until a renderer had applied it",
            metrics.since_trigger.clone(),
        );
        registry.register(
            "sync_proxy_rules_last_timestamp_seconds",
            "When a renderer last applied a snapshot or changes",
            metrics.last.clone(),
        );
        registry.register("sync_failures", "Calls of a renderer that failed", metrics.failures.clone());
        registry.register(
            "foreign_changes",
            "Changes that others made to the dataplane of a renderer",
            metrics.foreign_changes.clone(),
        );
        registry.register("repairs", "Times that such changes were undone", metrics.repairs.clone());
        registry.register(
            "repairs_damped",
            "1 while others change the dataplane of a renderer again and again, and repairs wait",
            metrics.damped.clone(),
        );
        registry.register(
            "renderer_applied_revision",
            "The store's revision that a renderer has applied",
            metrics.revision.clone(),
        );
        registry.register(
            "renderer_pending_services",
            "Changed services that wait for a renderer",
            metrics.pending.clone(),
        );
        registry.register(
            "verifications",
            "Times that the dataplane of a renderer was read back and compared",
            metrics.verifications.clone(),
        );
        registry.register(
            "drift",
            "Things that were not as they must be when the dataplane of a renderer was last verified",
            metrics.drift.clone(),
        );
        metrics
    }

    /// Initializes the metrics of a renderer.
    pub fn introduce(&self, renderer: &str) {
        let label = RendererLabel { renderer: renderer.to_owned() };
        drop(self.failures.get_or_create(&label));
        drop(self.foreign_changes.get_or_create(&label));
        drop(self.repairs.get_or_create(&label));
    }

    /// Counts a foreign change of a renderer's dataplane.
    pub fn foreign_change(&self, renderer: &str) {
        self.foreign_changes.get_or_create(&RendererLabel { renderer: renderer.to_owned() }).inc();
    }

    /// Counts a repair of foreign changes.
    pub fn repaired(&self, renderer: &str) {
        self.repairs.get_or_create(&RendererLabel { renderer: renderer.to_owned() }).inc();
    }

    /// Whether repairs are delayed because of repeated foreign changes.
    pub fn set_damped(&self, renderer: &str, damped: bool) {
        self.damped.get_or_create(&RendererLabel { renderer: renderer.to_owned() }).set(damped.into());
    }

    /// Sets the applied revision, and the number of changed services that wait.
    pub fn set_progress(&self, renderer: &str, revision: i64, pending: usize) {
        let label = RendererLabel { renderer: renderer.to_owned() };
        self.revision.get_or_create(&label).set(revision);
        self.pending.get_or_create(&label).set(pending.try_into().unwrap_or(i64::MAX));
    }

    /// A change of the store was applied, so long after the store's message; and so long after it was triggered, if that is
    /// stored.
    pub fn programmed(&self, renderer: &str, after: Duration, since_trigger: Option<Duration>) {
        let label = RendererLabel { renderer: renderer.to_owned() };
        if let Some(since_trigger) = since_trigger {
            self.since_trigger.get_or_create(&label).observe(since_trigger.as_secs_f64());
        }
        self.programming.get_or_create(&label).observe(after.as_secs_f64());
    }

    /// The dataplane of a renderer was verified, with so many differences.
    pub fn verified(&self, renderer: &str, drift: usize) {
        let label = RendererLabel { renderer: renderer.to_owned() };
        self.verifications.get_or_create(&label).inc();
        self.drift.get_or_create(&label).set(drift.try_into().unwrap_or(i64::MAX));
    }

    /// A call of a renderer succeeded.
    pub fn applied(&self, renderer: &str, duration: Duration) {
        let label = RendererLabel { renderer: renderer.to_owned() };
        self.duration.get_or_create(&label).observe(duration.as_secs_f64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last.get_or_create(&label).set(now.as_secs_f64());
    }

    /// A call of a renderer failed.
    pub fn failed(&self, renderer: &str) {
        self.failures.get_or_create(&RendererLabel { renderer: renderer.to_owned() }).inc();
    }
}
