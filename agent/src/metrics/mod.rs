//! What Prometheus sees. One struct for each concern; what is only a size is set when somebody looks.

mod controller;
mod events;
mod process;
mod renderers;
mod sizes;

use std::fmt;

use prometheus_client::{encoding::text::encode, registry::Registry};

pub use controller::ControllerMetrics;
pub use events::EventMetrics;
pub use renderers::RendererMetrics;
pub use sizes::SizeMetrics;

/// All metrics, and their text.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// What happens in the event loop.
    pub events: EventMetrics,
    /// What renderers do.
    pub renderers: RendererMetrics,
    /// How much there is.
    pub sizes: SizeMetrics,
}

impl Metrics {
    /// Registers everything.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("contiv");
        process::register(&mut registry);
        let events = EventMetrics::register(&mut registry);
        let renderers = RendererMetrics::register(&mut registry);
        let sizes = SizeMetrics::register(&mut registry);
        Self { registry, events, renderers, sizes }
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

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_metric_carries_the_prefix_and_is_there_from_the_start_or_its_first_event() {
        let metrics = Metrics::new();
        metrics.events.count("change");
        metrics.renderers.applied("nftables", Duration::from_micros(150));
        metrics.renderers.failed("nftables");
        let text = metrics.text().unwrap();
        for expected in [
            concat!("contiv_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "contiv_process_start_time_seconds",
            "contiv_process_resident_memory_bytes",
            "contiv_events_total{kind=\"change\"} 1",
            "contiv_sync_failures_total{renderer=\"nftables\"} 1",
            "contiv_sync_proxy_rules_duration_seconds_bucket{le=\"0.0002\",renderer=\"nftables\"} 1",
            "contiv_sync_proxy_rules_duration_seconds_count{renderer=\"nftables\"} 1",
            "contiv_services 0",
            "contiv_store_revision 0",
        ] {
            assert!(text.contains(expected), "{expected} is not in:\n{text}");
        }
    }
}
