//! The `workqueue_*` metrics, with the names, buckets and meanings of client-go.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The metrics of all work queues, distinguished by the label `name`. Clones share the metrics.
#[derive(Debug, Clone)]
pub struct WorkQueueMetrics {
    depth: Family<Label, Gauge>,
    adds: Family<Label, Counter>,
    queue_duration: Family<Label, Histogram, fn() -> Histogram>,
    work_duration: Family<Label, Histogram, fn() -> Histogram>,
    retries: Family<Label, Counter>,
    drops: Family<Label, Counter>,
    running: Running,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    name: String,
}

/// Buckets from 10 ns to 10 s.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 10))
}

impl WorkQueueMetrics {
    /// Creates the eight metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            depth: Family::default(),
            adds: Family::default(),
            queue_duration: Family::new_with_constructor(durations),
            work_duration: Family::new_with_constructor(durations),
            retries: Family::default(),
            drops: Family::default(),
            running: Running::default(),
        };
        registry.register("workqueue_depth", "Keys that wait", metrics.depth.clone());
        registry.register(
            "workqueue_adds",
            "Keys that were added",
            metrics.adds.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long keys waited before they were worked on",
            metrics.queue_duration.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long the work on a key took",
            metrics.work_duration.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Keys that failed and were added again",
            metrics.retries.clone(),
        );
        registry.register(
            "workqueue_drops",
            "Keys that failed more often than their budget allows",
            metrics.drops.clone(),
        );
        registry.register_collector(Box::new(metrics.running.clone()));
        metrics
    }

    /// The metrics of one queue. A later queue of the same name replaces it.
    pub(super) fn of(&self, name: &str, work: Weak<dyn WorkInProgress>) -> Instruments {
        self.running.queues.lock().insert(name.to_owned(), work);
        let label = Label {
            name: name.to_owned(),
        };
        Instruments {
            depth: self.depth.get_or_create(&label).clone(),
            adds: self.adds.get_or_create(&label).clone(),
            queue_duration: self.queue_duration.get_or_create(&label).clone(),
            work_duration: self.work_duration.get_or_create(&label).clone(),
            retries: self.retries.get_or_create(&label).clone(),
            drops: self.drops.get_or_create(&label).clone(),
        }
    }
}

/// The metrics of one queue.
#[derive(Debug)]
pub(super) struct Instruments {
    depth: Gauge,
    adds: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
    retries: Counter,
    drops: Counter,
}

impl Instruments {
    pub(super) fn added(&self, keys: u64) {
        self.adds.inc_by(keys);
    }

    pub(super) fn depth(&self, depth: usize) {
        self.depth.set(depth.try_into().unwrap_or(i64::MAX));
    }

    pub(super) fn record_wait(&self, waited: Duration) {
        self.queue_duration.observe(waited.as_secs_f64());
    }

    pub(super) fn finished(&self, took: Duration) {
        self.work_duration.observe(took.as_secs_f64());
    }

    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    pub(super) fn dropped(&self) {
        self.drops.inc();
    }
}

/// A queue that reports how long its work in progress has taken so far.
pub(super) trait WorkInProgress: fmt::Debug + Send + Sync {
    /// How long the work in progress has taken so far: the sum, and the longest.
    fn total_and_longest(&self) -> (Duration, Duration);
}

/// Collects the times of work in progress on each scrape, so that they are exact and need not be updated.
#[derive(Debug, Clone, Default)]
struct Running {
    queues: Arc<Mutex<BTreeMap<String, Weak<dyn WorkInProgress>>>>,
}

impl Collector for Running {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let so_far: Vec<(Label, (Duration, Duration))> = {
            let mut queues = self.queues.lock();
            queues.retain(|_, queue| queue.strong_count() > 0);
            let so_far = queues.iter().filter_map(|(name, queue)| {
                Some((
                    Label { name: name.clone() },
                    queue.upgrade()?.total_and_longest(),
                ))
            });
            so_far.collect()
        };
        for (name, help, longest) in [
            (
                "workqueue_unfinished_work_seconds",
                "How long the work under way has taken so far, in all",
                false,
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How long the longest of it has taken so far",
                true,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (label, (sum, max)) in &so_far {
                let seconds = if longest { max } else { sum }.as_secs_f64();
                ConstGauge::new(seconds).encode(family.encode_family(label)?)?;
            }
        }
        Ok(())
    }
}
