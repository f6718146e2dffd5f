//! The metrics for Prometheus. One struct for each concern; sizes are set when they are read.

mod controller;
mod events;
mod exposition;
mod kube_proxy;
mod process;
mod renderers;
mod service_sizes;
mod services;
mod sizes;
mod value;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{Families, ServiceId};
use prometheus_client::registry::Registry;

use crate::counters::ServiceConnections;
use crate::node::{
    Core, MetricSink,
    message::{Extent, Metric},
};

pub use controller::ControllerMetrics;
pub use events::EventMetrics;
pub use exposition::Exposition;
pub use kube_proxy::KubeProxyMetrics;
pub use renderers::RendererMetrics;
pub use service_sizes::{LostFrontend, ServiceSizes};
pub use services::ServiceMetrics;
pub use sizes::SizeMetrics;

/// All metrics, and their text.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Events.
    pub events: EventMetrics,
    /// Calls of renderers.
    pub renderers: RendererMetrics,
    /// Numbers of objects.
    pub sizes: SizeMetrics,
    /// Usage of single services.
    pub services: ServiceMetrics,
    /// Metrics with the names of kube-proxy, if configured.
    pub kube_proxy: Option<KubeProxyMetrics>,
}

impl Metrics {
    /// Registers everything. At most `service_counters` services have metrics of their own.
    pub fn new(service_counters: usize) -> Self {
        let mut registry = Registry::default();
        process::register(&mut registry);
        let ours = registry.sub_registry_with_prefix("contiv");
        process::register_build(ours);
        let events = EventMetrics::register(ours);
        let renderers = RendererMetrics::register(ours);
        let sizes = SizeMetrics::register(ours);
        let services = ServiceMetrics::register(service_counters, ours);
        Self {
            registry,
            events,
            renderers,
            sizes,
            services,
            kube_proxy: None,
        }
    }

    /// Adds the metrics of kube-proxy, for the renderer of this node's traffic.
    #[must_use]
    pub fn with_kube_proxy(mut self, traffic_renderer: &str) -> Self {
        self.kube_proxy = Some(KubeProxyMetrics::register(
            traffic_renderer.into(),
            &mut self.registry,
        ));
        self
    }

    /// Metrics with an example of every label, so that the reference documentation lists all of them.
    pub fn with_examples() -> Self {
        let metrics = Self::new(1).with_kube_proxy("nftables");
        let renderer: Arc<str> = "nftables".into();
        let extent = |is_full| Extent {
            is_full,
            families: Families::ALL,
        };
        for metric in [
            Metric::Event("change"),
            Metric::Renderer(Arc::clone(&renderer)),
            Metric::Queued(Families::ALL),
            Metric::Applied(Arc::clone(&renderer), Duration::ZERO, extent(true)),
            Metric::Applied(Arc::clone(&renderer), Duration::ZERO, extent(false)),
            Metric::Programmed {
                renderer: Arc::clone(&renderer),
                since_receipt: Some(Duration::ZERO),
                since_trigger: Some(Duration::ZERO),
                families: Families::ALL,
            },
            Metric::Verified(Arc::clone(&renderer), 0),
        ] {
            metrics.count(&metric);
        }
        metrics.renderers.create_gauges(&renderer);
        metrics
            .services
            .set(&[ServiceConnections::none(ServiceId::new("shop", "web"))]);
        if let Some(kube_proxy) = &metrics.kube_proxy {
            kube_proxy.set_examples();
        }
        metrics
    }

    /// Sets the gauges that are functions of the node's state.
    pub fn set_state(&self, core: &Core, now: Instant) {
        self.sizes.set(&core.status(), &ServiceSizes::of(core));
        self.renderers.set(&core.renderers(now));
        if let Some(kube_proxy) = &self.kube_proxy {
            kube_proxy.set(core);
        }
    }

    /// All metrics in this format.
    ///
    /// # Errors
    /// Never: writing to a `String` cannot fail.
    pub fn text(&self, form: Exposition) -> Result<String, fmt::Error> {
        form.encode(&self.registry)
    }
}

impl MetricSink for Metrics {
    fn count(&self, metric: &Metric) {
        match metric {
            Metric::Event(kind) => self.events.count(kind),
            Metric::StoreRepair(inconsistency) => self.events.count_repair(*inconsistency),
            _ => self.renderers.count(metric),
        }
        if let Some(kube_proxy) = &self.kube_proxy {
            kube_proxy.count(metric);
        }
    }
}

#[cfg(test)]
mod tests {
    use contiv_renderer::nftables::counters::RefusalReason;
    use contiv_store::Inconsistency;

    use super::*;

    #[test]
    fn metrics_carry_the_prefix_and_exist_from_start_or_first_event() {
        let metrics = Metrics::new(1);
        metrics.count(&Metric::Event("change"));
        metrics.count(&Metric::StoreRepair(Inconsistency::OldList));
        metrics.count(&Metric::Applied(
            "nftables".into(),
            Duration::from_micros(150),
            Extent {
                is_full: true,
                families: Families::ALL,
            },
        ));
        metrics.count(&Metric::Failed("nftables".into(), Families::ALL));
        let none = |name| ServiceConnections::none(ServiceId::new("shop", name));
        let refused_by = [(RefusalReason::Policy, 2)].into();
        let web = ServiceConnections {
            attempts: 7,
            connections: 5,
            refused: 2,
            refused_by,
            ..none("web")
        };
        metrics.services.set(&[web, none("cart")]);
        let text = metrics.text(Exposition::OpenMetrics).unwrap();
        for expected in [
            concat!(
                "contiv_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"} 1"
            ),
            "\nprocess_cpu_seconds_total ",
            "\nprocess_max_fds ",
            "\nprocess_open_fds ",
            "\nprocess_resident_memory_bytes ",
            "\nprocess_start_time_seconds ",
            "\nprocess_virtual_memory_bytes ",
            "contiv_events_total{kind=\"change\"} 1",
            "contiv_store_repairs_total{reason=\"old-list\"} 1",
            "contiv_store_repairs_total{reason=\"version\"} 0",
            "contiv_sync_failures_total{renderer=\"nftables\"} 1",
            "contiv_sync_proxy_rules_duration_seconds_bucket{le=\"0.0002\",renderer=\"nftables\"} 1",
            "contiv_sync_proxy_rules_duration_seconds_count{renderer=\"nftables\"} 1",
            "contiv_service_connections_total{namespace=\"shop\",service=\"web\"} 5",
            "contiv_service_refused_connections_total{namespace=\"shop\",service=\"web\",reason=\"policy\"} 2",
            "contiv_service_refused_connections_total{namespace=\"shop\",service=\"web\",reason=\"no-endpoints\"} 0",
            "contiv_services 0",
            "contiv_store_revision 0",
        ] {
            assert!(text.contains(expected), "{expected} is not in:\n{text}");
        }
        assert!(!text.contains("cart"), "one service at most");
        assert!(!text.contains("kubeproxy_"), "they were not asked for");
    }
}
