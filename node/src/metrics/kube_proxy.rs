//! Metrics of kube-proxy under its own names, so that dashboards and alerts for it keep working. The values are this agent's;
//! metrics without a meaning here are left out. Source: kube-proxy 1.34 to 1.36, `pkg/proxy/metrics/metrics.go`.

#[cfg(test)]
mod tests;
mod without_local_backends;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use contiv_model::Families;
use contiv_renderer::nftables::StaleFlowObserver;
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

use super::value::{gauge, now};
use crate::{
    Core, ObjectChanges,
    message::{Extent, Metric},
};
use without_local_backends::WithoutLocalBackends;

/// The metrics of the renderer of this node's traffic. Clones count together.
#[derive(Debug, Clone)]
pub struct KubeProxyMetrics {
    renderer: Arc<str>,
    sync: Family<FamilyLabel, Histogram, fn() -> Histogram>,
    full_sync: Family<FamilyLabel, Histogram, fn() -> Histogram>,
    partial_sync: Family<FamilyLabel, Histogram, fn() -> Histogram>,
    programming: Family<FamilyLabel, Histogram, fn() -> Histogram>,
    last: Family<FamilyLabel, Gauge<f64, AtomicU64>>,
    last_queued: Family<FamilyLabel, Gauge<f64, AtomicU64>>,
    endpoint_changes: Counter,
    endpoint_changes_pending: Gauge,
    service_changes: Counter,
    service_changes_pending: Gauge,
    failures: Family<FamilyLabel, Counter>,
    no_local_endpoints: Family<PolicyLabel, Gauge>,
    conntrack: Family<FamilyLabel, Histogram, fn() -> Histogram>,
    deleted_flows: Family<FamilyLabel, Counter>,
    healthz: Family<CodeLabel, Counter>,
    livez: Family<CodeLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FamilyLabel {
    ip_family: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabel {
    ip_family: &'static str,
    traffic_policy: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: u16,
}

const IPV4: FamilyLabel = FamilyLabel { ip_family: "IPv4" };
const IPV6: FamilyLabel = FamilyLabel { ip_family: "IPv6" };

fn labels(families: Families) -> impl Iterator<Item = FamilyLabel> {
    [(families.ipv4, IPV4), (families.ipv6, IPV6)]
        .into_iter()
        .filter_map(|(is_in, label)| is_in.then_some(label))
}

/// From 1 ms to 16 s.
fn sync_durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// The buckets of the service level objective for network programming latency.
fn programming_durations() -> Histogram {
    let linear =
        |first: u32, step: u32, count: u32| (0..count).map(move |i| f64::from(first + i * step));
    let seconds = linear(1, 1, 59)
        .chain(linear(60, 5, 12))
        .chain(linear(120, 30, 7));
    Histogram::new([0.25, 0.5].into_iter().chain(seconds))
}

impl KubeProxyMetrics {
    /// The metrics of this renderer. `registry` has no prefix.
    pub(super) fn register(renderer: Arc<str>, registry: &mut Registry) -> Self {
        let metrics = Self {
            renderer,
            sync: Family::new_with_constructor(sync_durations),
            full_sync: Family::new_with_constructor(sync_durations),
            partial_sync: Family::new_with_constructor(sync_durations),
            programming: Family::new_with_constructor(programming_durations),
            last: Family::default(),
            last_queued: Family::default(),
            endpoint_changes: Counter::default(),
            endpoint_changes_pending: Gauge::default(),
            service_changes: Counter::default(),
            service_changes_pending: Gauge::default(),
            failures: Family::default(),
            no_local_endpoints: Family::default(),
            conntrack: Family::new_with_constructor(sync_durations),
            deleted_flows: Family::default(),
            healthz: Family::default(),
            livez: Family::default(),
        };
        let ours = registry.sub_registry_with_prefix("kubeproxy");
        for (name, help, histogram) in [
            (
                "sync_proxy_rules_duration_seconds",
                "[ALPHA] SyncProxyRules latency in seconds",
                &metrics.sync,
            ),
            (
                "sync_full_proxy_rules_duration_seconds",
                "[ALPHA] SyncProxyRules latency in seconds for full resyncs",
                &metrics.full_sync,
            ),
            (
                "sync_partial_proxy_rules_duration_seconds",
                "[ALPHA] SyncProxyRules latency in seconds for partial resyncs",
                &metrics.partial_sync,
            ),
            (
                "network_programming_duration_seconds",
                "[ALPHA] In Cluster Network Programming Latency in seconds",
                &metrics.programming,
            ),
            (
                "conntrack_reconciler_sync_duration_seconds",
                "[ALPHA] ReconcileConntrackFlowsLatency latency in seconds",
                &metrics.conntrack,
            ),
        ] {
            ours.register(name, help, histogram.clone());
        }
        for (name, help, gauge) in [
            (
                "sync_proxy_rules_last_timestamp_seconds",
                "[ALPHA] The last time proxy rules were successfully synced",
                &metrics.last,
            ),
            (
                "sync_proxy_rules_last_queued_timestamp_seconds",
                "[ALPHA] The last time a sync of proxy rules was queued",
                &metrics.last_queued,
            ),
        ] {
            ours.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            (
                "sync_proxy_rules_nftables_sync_failures",
                "[ALPHA] Cumulative proxy nftables sync failures",
                &metrics.failures,
            ),
            (
                "conntrack_reconciler_deleted_entries",
                "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler",
                &metrics.deleted_flows,
            ),
        ] {
            for label in labels(Families::ALL) {
                drop(counter.get_or_create(&label));
            }
            ours.register(name, help, counter.clone());
        }
        for (name, help, counter) in [
            (
                "proxy_healthz",
                "[ALPHA] Cumulative proxy healthz HTTP status",
                &metrics.healthz,
            ),
            (
                "proxy_livez",
                "[ALPHA] Cumulative proxy livez HTTP status",
                &metrics.livez,
            ),
        ] {
            ours.register(name, help, counter.clone());
        }
        metrics.register_changes(ours);
        metrics
    }

    /// The mode of the proxy in kube-proxy's words: the renderer `nftables` is its mode `nftables`.
    pub fn mode(&self) -> Arc<str> {
        Arc::clone(&self.renderer)
    }

    fn register_changes(&self, ours: &mut Registry) {
        for (kind, changes, pending) in [
            (
                "Endpoint",
                &self.endpoint_changes,
                &self.endpoint_changes_pending,
            ),
            (
                "Service",
                &self.service_changes,
                &self.service_changes_pending,
            ),
        ] {
            let name = format!("sync_proxy_rules_{}_changes", kind.to_lowercase());
            ours.register(
                name.clone(),
                format!("[ALPHA] Cumulative proxy rules {kind} changes"),
                changes.clone(),
            );
            ours.register(
                format!("{name}_pending"),
                format!("[ALPHA] Pending proxy rules {kind} changes"),
                pending.clone(),
            );
        }
        ours.register(
            "sync_proxy_rules_no_local_endpoints_total",
            "[ALPHA] Number of services with a Local traffic policy and no endpoints",
            self.no_local_endpoints.clone(),
        );
    }

    /// Sets an example of each metric that has no value yet.
    pub(super) fn set_examples(&self) {
        self.searched(Families::ALL, Duration::ZERO, 0);
        self.set_changes(ObjectChanges::default(), ObjectChanges::default());
        self.set_without_local_backends(&WithoutLocalBackends::default());
        self.count_healthz(200);
        self.count_livez(200);
    }

    /// Counts what happens to the renderer.
    pub(super) fn count(&self, metric: &Metric) {
        match metric {
            Metric::Queued(families) => {
                for label in labels(*families) {
                    self.last_queued.get_or_create(&label).set(now());
                }
            }
            Metric::Applied(renderer, duration, extent) if *renderer == self.renderer => {
                self.synced(*duration, *extent);
            }
            Metric::Programmed {
                renderer,
                since_trigger: Some(latency),
                families,
                ..
            } if *renderer == self.renderer => {
                for label in labels(*families) {
                    self.programming
                        .get_or_create(&label)
                        .observe(latency.as_secs_f64());
                }
            }
            Metric::Failed(renderer, families) if *renderer == self.renderer => {
                for label in labels(*families) {
                    self.failures.get_or_create(&label).inc();
                }
            }
            _ => {}
        }
    }

    fn synced(&self, duration: Duration, extent: Extent) {
        let part = if extent.is_full {
            &self.full_sync
        } else {
            &self.partial_sync
        };
        for label in labels(extent.families) {
            for histogram in [&self.sync, part] {
                histogram
                    .get_or_create(&label)
                    .observe(duration.as_secs_f64());
            }
            self.last.get_or_create(&label).set(now());
        }
    }

    /// Sets the gauges that depend only on the current state.
    pub fn set(&self, core: &Core) {
        let (seen, pending) = core.seen_and_pending();
        self.set_changes(seen, pending);
        self.set_without_local_backends(&WithoutLocalBackends::of(core.processor_services()));
    }

    fn set_changes(&self, seen: ObjectChanges, pending: ObjectChanges) {
        for (counter, gauge, seen, pending) in [
            (
                &self.endpoint_changes,
                &self.endpoint_changes_pending,
                seen.endpoints,
                pending.endpoints,
            ),
            (
                &self.service_changes,
                &self.service_changes_pending,
                seen.services,
                pending.services,
            ),
        ] {
            counter.inner().store(seen, Ordering::Relaxed);
            gauge.set(pending.try_into().unwrap_or(i64::MAX));
        }
    }

    fn set_without_local_backends(&self, without: &WithoutLocalBackends) {
        for (traffic_policy, counts) in [
            ("internal", without.internal),
            ("external", without.external),
        ] {
            for (FamilyLabel { ip_family }, ports) in [(IPV4, counts.ipv4), (IPV6, counts.ipv6)] {
                self.no_local_endpoints
                    .get_or_create(&PolicyLabel {
                        ip_family,
                        traffic_policy,
                    })
                    .set(gauge(ports));
            }
        }
    }

    /// Counts an answer at `/healthz`.
    pub fn count_healthz(&self, code: u16) {
        self.healthz.get_or_create(&CodeLabel { code }).inc();
    }

    /// Counts an answer at `/livez`.
    pub fn count_livez(&self, code: u16) {
        self.livez.get_or_create(&CodeLabel { code }).inc();
    }
}

impl StaleFlowObserver for KubeProxyMetrics {
    fn searched(&self, families: Families, took: Duration, deleted: usize) {
        for label in labels(families) {
            self.conntrack
                .get_or_create(&label)
                .observe(took.as_secs_f64());
            self.deleted_flows
                .get_or_create(&label)
                .inc_by(deleted as u64);
        }
    }
}
