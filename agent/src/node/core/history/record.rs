//! One event as it is kept and shown, and about how much memory it takes up.

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

/// One event: what happened, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// Counts up from 1 since the agent has started.
    pub seq_num: u64,
    /// What kind of event: the values of the label of `contiv_events_total`.
    pub kind: &'static str,
    /// What happened, for people.
    pub description: String,
    /// When it was handled.
    pub start: Timestamp,
    /// The same, by the clock that is never set: how old it is.
    #[serde(skip)]
    pub since: Instant,
    /// How long what the store had said waited before that.
    pub waited_ms: f64,
    /// How long it took to be handled, without the renderers.
    pub duration_ms: f64,
    /// The store's revision after it.
    pub revision: i64,
    /// How many services changed for renderers.
    pub changed: usize,
    /// Their names: the first 20.
    pub services: Vec<ServiceId>,
    /// What each renderer made of it. Empty where there was nothing to do.
    pub renderers: BTreeMap<Arc<str>, Outcome>,
}

/// What a renderer made of an event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum Outcome {
    /// It is not done yet.
    Pending,
    /// It is active.
    Applied {
        /// The first event that was applied in the same call.
        with: u64,
        /// When the call was finished.
        at: Timestamp,
        /// What the call did.
        report: Report,
        /// How long the call took.
        duration_ms: f64,
        /// From when the first event was handled until the renderer gave the kernel a transaction; none if it gave
        /// it nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        sent_after_ms: Option<f64>,
    },
    /// The call failed, and is tried again.
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
    /// In bytes.
    pub(super) fn size(&self) -> usize {
        let services: usize = self.services.iter().map(|id| size_of_val(id) + text_of(id)).sum();
        // Names of renderers are shared by all records.
        let outcomes: usize = self.renderers.values().map(Outcome::size).sum();
        size_of_val(self) + self.description.len() + services + outcomes
    }
}

impl Outcome {
    /// In bytes.
    pub(super) fn size(&self) -> usize {
        let besides = match self {
            Self::Pending => 0,
            Self::Applied { report, .. } => report.rejected.iter().map(size_of_rejected).sum(),
            Self::Failed { error, .. } => error.len(),
        };
        size_of_val(self) + besides
    }
}

fn size_of_rejected(rejected: &Rejected) -> usize {
    size_of_val(rejected) + text_of(&rejected.service) + rejected.reason.len()
}

/// Mostly shared with the cache, but not after the service is gone from there.
fn text_of(id: &ServiceId) -> usize {
    id.namespace.len() + id.name.len()
}

/// For people and JSON: milliseconds with a fraction.
pub(in crate::node::core) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
