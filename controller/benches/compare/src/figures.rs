//! The measured figures, as a line of a table or of JSON.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

pub(crate) struct Figures {
    pub(crate) name: &'static str,
    pub(crate) keys: u64,
    /// From nothing to every object reconciled once.
    pub(crate) start_time: Duration,
    /// From the first of as many changes as there are objects to the last of their runs.
    pub(crate) churn_time: Duration,
    /// From one change to its run, sorted.
    pub(crate) latencies: Vec<Duration>,
    /// The memory of the runtime and its cache after the start, in KiB.
    pub(crate) memory: u64,
    /// The most the process ever held, in KiB.
    pub(crate) peak: u64,
}

impl Figures {
    pub(crate) const HEADER: &str = "runtime            start s  keys/s   churn s  keys/s   \
                                     p50 µs  p99 µs  max µs  memory MiB  peak MiB";

    /// Times in seconds, memory in MiB. The fields' names are what `scripts/bench` calls them.
    pub(crate) fn json(&self) -> Value {
        let seconds = |percent| self.percentile(percent) as f64 / 1e6;
        json!({
            "runtime": self.name,
            "keys": self.keys,
            "start": self.start_time.as_secs_f64(),
            "churn": self.churn_time.as_secs_f64(),
            "p50": seconds(50),
            "p99": seconds(99),
            "memory": self.memory as f64 / 1024.0,
            "peak": self.peak as f64 / 1024.0,
        })
    }

    fn percentile(&self, percent: usize) -> u128 {
        let index = (self.latencies.len() * percent / 100).min(self.latencies.len() - 1);
        self.latencies[index].as_micros()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]
        let per_second = |duration: Duration| self.keys as f64 / duration.as_secs_f64();
        write!(
            f,
            "{:<18} {:>7.3} {:>7.0}   {:>7.3} {:>7.0}  {:>7} {:>7} {:>7}  {:>10}  {:>8}",
            self.name,
            self.start_time.as_secs_f64(),
            per_second(self.start_time),
            self.churn_time.as_secs_f64(),
            per_second(self.churn_time),
            self.percentile(50),
            self.percentile(99),
            self.percentile(100),
            self.memory / 1024,
            self.peak / 1024
        )
    }
}
