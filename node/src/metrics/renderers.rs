//! Metrics of renderers. The names are those of kube-proxy, with our prefix.

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

use super::value::{gauge, now};
use crate::{RendererView, message::Metric};

/// Counts and times the calls of renderers. Clones count together.
#[derive(Debug, Clone)]
pub(super) struct RendererMetrics {
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
            "Time from the receipt of the store's message of a change until a renderer has applied it",
            metrics.programming.clone(),
        );
        registry.register(
            "network_programming_since_trigger_seconds",
            "Time from the last-change-trigger-time of an endpoint slice until a renderer has applied it",
            metrics.since_trigger.clone(),
        );
        registry.register(
            "sync_proxy_rules_last_timestamp_seconds",
            "Time of the last successful call of a renderer",
            metrics.last.clone(),
        );
        registry.register(
            "sync_failures",
            "Calls of a renderer that failed",
            metrics.failures.clone(),
        );
        registry.register(
            "foreign_changes",
            "Changes of a renderer's dataplane by other programs",
            metrics.foreign_changes.clone(),
        );
        registry.register(
            "repairs",
            "Repairs after such changes",
            metrics.repairs.clone(),
        );
        registry.register(
            "repairs_damped",
            "1 while repairs of a renderer's dataplane are delayed, since other programs change it repeatedly",
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
            "Verifications of a renderer's dataplane",
            metrics.verifications.clone(),
        );
        registry.register(
            "drift",
            "Differences found by the last verification of a renderer's dataplane",
            metrics.drift.clone(),
        );
        metrics
    }

    /// Counts what happens to renderers.
    pub(super) fn count(&self, metric: &Metric) {
        match metric {
            Metric::Event(_)
            | Metric::StoreRepair(_)
            | Metric::Queued(_)
            | Metric::BackendLeft(_)
            | Metric::BackendReturned => {}
            Metric::Renderer(renderer) => {
                let label = label(renderer);
                drop(self.failures.get_or_create(&label));
                drop(self.foreign_changes.get_or_create(&label));
                drop(self.repairs.get_or_create(&label));
            }
            Metric::Applied(renderer, duration, _) => {
                self.duration
                    .get_or_create(&label(renderer))
                    .observe(duration.as_secs_f64());
                self.last.get_or_create(&label(renderer)).set(now());
            }
            Metric::Programmed {
                renderer,
                since_receipt,
                since_trigger,
                ..
            } => {
                if let Some(since_trigger) = since_trigger {
                    self.since_trigger
                        .get_or_create(&label(renderer))
                        .observe(since_trigger.as_secs_f64());
                }
                if let Some(since_receipt) = since_receipt {
                    self.programming
                        .get_or_create(&label(renderer))
                        .observe(since_receipt.as_secs_f64());
                }
            }
            Metric::Failed(renderer, _) => {
                self.failures.get_or_create(&label(renderer)).inc();
            }
            Metric::ForeignChange(renderer) => {
                self.foreign_changes.get_or_create(&label(renderer)).inc();
            }
            Metric::Repaired(renderer) => {
                self.repairs.get_or_create(&label(renderer)).inc();
            }
            Metric::Verified(renderer, drift) => {
                self.verifications.get_or_create(&label(renderer)).inc();
                self.drift
                    .get_or_create(&label(renderer))
                    .set(gauge(*drift));
            }
        }
    }

    /// Creates the gauges of a renderer with the value 0.
    pub(super) fn create_gauges(&self, renderer: &str) {
        for gauge in [&self.revision, &self.pending, &self.damped] {
            drop(gauge.get_or_create(&label(renderer)));
        }
    }

    /// Sets the gauges that depend only on the current state.
    pub(super) fn set(&self, renderers: &[RendererView]) {
        for renderer in renderers {
            let label = label(&renderer.name);
            self.revision
                .get_or_create(&label)
                .set(renderer.applied_revision);
            self.pending
                .get_or_create(&label)
                .set(gauge(renderer.pending_services));
            self.damped
                .get_or_create(&label)
                .set(renderer.damped.into());
        }
    }
}

fn label(renderer: &str) -> RendererLabel {
    RendererLabel {
        renderer: renderer.to_owned(),
    }
}
