//! About how much memory records take up: what is of one size, and the texts and lists in them.

use std::mem::size_of_val;

use contiv_model::ServiceId;
use contiv_renderer::Rejected;

use super::{Outcome, Record};

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
