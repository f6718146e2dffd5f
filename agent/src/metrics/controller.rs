//! The metrics of `contiv controller`.

use std::fmt;

use contiv_controller::queue::WorkQueueMetrics;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

use super::{Exposition, process};

/// All metrics of the controllers, and their text. Those of work queues have client-go's names, the others our prefix.
#[derive(Debug)]
pub struct ControllerMetrics {
    registry: Registry,
    leader: Gauge,
}

impl ControllerMetrics {
    /// Registers the metrics of every instance.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let leader = Gauge::default();
        process::register(&mut registry);
        let ours = registry.sub_registry_with_prefix("contiv");
        process::register_build(ours);
        ours.register(
            "controller_leader",
            "1 while this instance is the active one",
            leader.clone(),
        );
        Self { registry, leader }
    }

    /// Registers the metrics of work queues.
    pub fn register_queues(&mut self) -> WorkQueueMetrics {
        WorkQueueMetrics::register(&mut self.registry)
    }

    /// The registry for metrics of one controller; their names get our prefix.
    pub fn prefixed(&mut self) -> &mut Registry {
        self.registry.sub_registry_with_prefix("contiv")
    }

    /// Whether this instance is the active one.
    pub fn set_is_leader(&self, is_leader: bool) {
        self.leader.set(is_leader.into());
    }

    /// All metrics in this format.
    ///
    /// # Errors
    /// Never: writing to a `String` cannot fail.
    pub fn text(&self, form: Exposition) -> Result<String, fmt::Error> {
        form.encode(&self.registry)
    }
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self::new()
    }
}
