//! The metrics of the agent, as Prometheus reads them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use contiv_node::{Core, metrics::NodeMetrics};
use prometheus_client::{encoding::prometheus_text, registry::Registry};

/// Gauges of times or of the last verification, which do not depend only on the current state.
const OF_PAST_EVENTS: [&str; 2] = [
    "contiv_sync_proxy_rules_last_timestamp_seconds",
    "contiv_drift",
];

/// The metrics of a node, with their text.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) node: NodeMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let node = NodeMetrics::register(registry.sub_registry_with_prefix("contiv"));
        Self { registry, node }
    }
}

/// One reading.
#[derive(Debug)]
pub(crate) struct Scrape {
    /// Values by series.
    series: BTreeMap<String, String>,
    /// The names of gauges.
    gauges: BTreeSet<String>,
}

impl Scrape {
    /// Reads the metrics as the debug HTTP does.
    pub(crate) fn of(metrics: &Metrics, core: &Core, now: Instant) -> Self {
        metrics.node.set_state(core, now);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_text::encode(&mut text, &metrics.registry);
        let gauges = text.lines().filter_map(|line| {
            let name = line.strip_prefix("# TYPE ")?.strip_suffix(" gauge")?;
            Some(name.to_owned())
        });
        let series = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let (series, value) = line.rsplit_once(' ')?;
                Some((series.to_owned(), value.to_owned()))
            });
        Self {
            series: series.collect(),
            gauges: gauges.collect(),
        }
    }

    /// The gauges that depend only on the state, a line each.
    pub(crate) fn gauges(&self) -> String {
        let is_of_state = |series: &str| {
            let name = series.split('{').next().unwrap_or_default();
            self.gauges.contains(name) && !OF_PAST_EVENTS.iter().any(|past| name.starts_with(past))
        };
        let lines = self.series.iter().filter(|(series, _)| is_of_state(series));
        lines
            .map(|(series, value)| format!("{series} {value}"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The value of a counter with these labels; 0 if it does not exist yet.
    pub(crate) fn count(&self, series: &str) -> u64 {
        self.series
            .get(series)
            .and_then(|value| value.parse().ok())
            .unwrap_or_default()
    }
}
