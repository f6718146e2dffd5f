//! The metrics for Prometheus. One struct for each concern; sizes are set when they are read.

mod controller;
mod events;
mod process;
mod renderers;
mod services;
mod sizes;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::node::{Core, MetricSink, message::Metric};

pub use controller::ControllerMetrics;
pub use events::EventMetrics;
pub use renderers::RendererMetrics;
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
}

impl Metrics {
    /// Registers everything. At most `service_counters` services have metrics of their own.
    pub fn new(service_counters: usize) -> Self {
        let mut registry = Registry::with_prefix("contiv");
        process::register(&mut registry);
        let events = EventMetrics::register(&mut registry);
        let renderers = RendererMetrics::register(&mut registry);
        let sizes = SizeMetrics::register(&mut registry);
        let services = ServiceMetrics::register(service_counters, &mut registry);
        Self { registry, events, renderers, sizes, services }
    }

    /// All metrics with some value for each, so that all are shown.
    pub fn with_examples() -> Self {
        let metrics = Self::new(1);
        let renderer: Arc<str> = "nftables".into();
        for metric in [
            Metric::Event("change"),
            Metric::Renderer(Arc::clone(&renderer)),
            Metric::Applied(Arc::clone(&renderer), Duration::ZERO),
            Metric::Programmed(Arc::clone(&renderer), Duration::ZERO, Some(Duration::ZERO)),
            Metric::Verified(Arc::clone(&renderer), 0),
        ] {
            metrics.count(&metric);
        }
        metrics.renderers.introduce_gauges(&renderer);
        metrics.services.set(&[("shop/web".to_owned(), 0, 0)]);
        metrics
    }

    /// Sets the gauges that are functions of the node's state.
    pub fn set_state(&self, core: &Core, now: Instant) {
        self.sizes.set(&core.status(), &core.sizes());
        self.renderers.set(&core.renderers(now));
    }

    /// Everything in the text form of `OpenMetrics`.
    ///
    /// # Errors
    /// Never: text can be written to memory.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl MetricSink for Metrics {
    fn count(&self, metric: &Metric) {
        match metric {
            Metric::Event(kind) => self.events.count(kind),
            _ => self.renderers.count(metric),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_carry_the_prefix_and_exist_from_start_or_first_event() {
        let metrics = Metrics::new(1);
        metrics.count(&Metric::Event("change"));
        metrics.count(&Metric::Applied("nftables".into(), Duration::from_micros(150)));
        metrics.count(&Metric::Failed("nftables".into()));
        metrics.services.set(&[("shop/web".to_owned(), 5, 2), ("shop/cart".to_owned(), 4, 0)]);
        let text = metrics.text().unwrap();
        for expected in [
            concat!("contiv_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "contiv_process_start_time_seconds",
            "contiv_process_resident_memory_bytes",
            "contiv_events_total{kind=\"change\"} 1",
            "contiv_sync_failures_total{renderer=\"nftables\"} 1",
            "contiv_sync_proxy_rules_duration_seconds_bucket{le=\"0.0002\",renderer=\"nftables\"} 1",
            "contiv_sync_proxy_rules_duration_seconds_count{renderer=\"nftables\"} 1",
            "contiv_service_connections_total{service=\"shop/web\"} 5",
            "contiv_service_refused_connections_total{service=\"shop/web\"} 2",
            "contiv_services 0",
            "contiv_store_revision 0",
        ] {
            assert!(text.contains(expected), "{expected} is not in:\n{text}");
        }
        assert!(!text.contains("shop/cart"), "one service at most");
    }
}
