//! The metrics for Prometheus. One struct for each concern; sizes are set when they are read.

mod controller;
mod exposition;
mod process;
mod services;

use std::{fmt, time::Instant};

use contiv_model::ServiceId;
use contiv_node::{Core, message::Metric, metrics::NodeMetrics};
use prometheus_client::registry::Registry;

use crate::counters::ServiceConnections;
use crate::drivers::MetricSink;

pub use controller::ControllerMetrics;
pub use exposition::Exposition;
pub use services::ServiceMetrics;

/// All metrics, and their text.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Those of the node.
    pub node: NodeMetrics,
    /// Usage of single services.
    pub services: ServiceMetrics,
}

impl Metrics {
    /// Registers everything. At most `service_counters` services have metrics of their own.
    pub fn new(service_counters: usize) -> Self {
        let mut registry = Registry::default();
        process::register(&mut registry);
        let ours = registry.sub_registry_with_prefix("contiv");
        process::register_build(ours);
        let node = NodeMetrics::register(ours);
        let services = ServiceMetrics::register(service_counters, ours);
        Self {
            registry,
            node,
            services,
        }
    }

    /// Adds the metrics of kube-proxy, for the renderer of this node's traffic.
    #[must_use]
    pub fn with_kube_proxy(mut self, traffic_renderer: &str) -> Self {
        self.node
            .add_kube_proxy(traffic_renderer, &mut self.registry);
        self
    }

    /// Metrics with an example of every label, so that the reference documentation lists all of them.
    pub fn with_examples() -> Self {
        let metrics = Self::new(1).with_kube_proxy("nftables");
        metrics.node.count_examples();
        metrics
            .services
            .set(&[ServiceConnections::none(ServiceId::new("shop", "web"))]);
        metrics
    }

    /// Sets the gauges that are functions of the node's state.
    pub fn set_state(&self, core: &Core, now: Instant) {
        self.node.set_state(core, now);
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
        self.node.count(metric);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contiv_model::Families;
    use contiv_node::message::Extent;
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
