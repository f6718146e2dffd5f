//! A record of the history, and its approximate size in memory.

use std::{
    collections::BTreeMap,
    mem::size_of_val,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::ServiceId;
use contiv_renderer::{Rejected, Report};
use jiff::Timestamp;
use serde::Serialize;

/// One event with its outcomes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// The number, from 1 at the start of the agent.
    pub seq_num: u64,
    /// The kind of the event: a value of the label `kind` of `contiv_events_total`.
    pub kind: &'static str,
    /// A description for people.
    pub description: String,
    /// When it was handled.
    pub start: Timestamp,
    /// `start` by the monotonic clock, for the age of the record.
    #[serde(skip)]
    pub start_instant: Instant,
    /// How long the store's message waited before that.
    pub waited_ms: f64,
    /// How long handling it took, without the renderers.
    pub duration_ms: f64,
    /// The store's revision after it.
    pub revision: i64,
    /// How many services changed for renderers.
    pub changed: usize,
    /// The names of the first 20 of them.
    pub services: Vec<ServiceId>,
    /// The outcome in each renderer. Empty without work.
    pub renderers: BTreeMap<Arc<str>, Outcome>,
}

/// The outcome of an event in a renderer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum Outcome {
    /// Not done yet.
    Pending,
    /// Applied.
    Applied {
        /// The first event that was applied in the same call.
        #[serde(rename = "with")]
        first_seq_num: u64,
        /// When the call was finished.
        at: Timestamp,
        /// The result of the call.
        report: Report,
        /// How long the call took.
        duration_ms: f64,
        /// From when the first event was handled until the renderer sent a transaction to the kernel; none if it sent none.
        #[serde(skip_serializing_if = "Option::is_none")]
        sent_after_ms: Option<f64>,
    },
    /// The call failed and will be retried.
    Failed {
        /// When the call was finished.
        at: Timestamp,
        /// Why.
        error: String,
        /// How long the call took.
        duration_ms: f64,
    },
}

impl Record {
    /// The size in bytes.
    pub(super) fn size(&self) -> usize {
        let services: usize = self
            .services
            .iter()
            .map(|id| size_of_val(id) + text_len(id))
            .sum();
        // Names of renderers are shared by all records.
        let outcomes: usize = self.renderers.values().map(Outcome::size).sum();
        size_of_val(self) + self.description.len() + services + outcomes
    }
}

impl Outcome {
    /// The size in bytes.
    pub(super) fn size(&self) -> usize {
        let referenced = match self {
            Self::Pending => 0,
            Self::Applied { report, .. } => {
                let notes = report
                    .notes
                    .iter()
                    .map(|note| size_of_val(note) + note.len());
                notes
                    .chain(report.rejected.iter().map(size_of_rejected))
                    .sum()
            }
            Self::Failed { error, .. } => error.len(),
        };
        size_of_val(self) + referenced
    }
}

fn size_of_rejected(rejected: &Rejected) -> usize {
    size_of_val(rejected) + text_len(&rejected.service) + rejected.reason.len()
}

/// The length of the text of an ID. The text is usually shared with the cache, but not after the service has been deleted.
fn text_len(id: &ServiceId) -> usize {
    id.namespace.len() + id.name.len()
}

/// Milliseconds with a fraction, for people and JSON.
pub(in crate::core) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
