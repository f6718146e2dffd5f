//! External workloads that no controller serves. A controller needs a moment for a new workload, so they are reported only after
//! a while.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use contiv_store::Problem;

/// How long a controller may take for a workload: much longer than it needs, unless it is to take over from another one.
const CONTROLLER_LIMIT: Duration = Duration::from_secs(10);

/// The warnings of workloads, each with the time when it is due; none if it was.
#[derive(Debug, Default)]
pub(super) struct UnservedWorkloads {
    due: BTreeMap<Problem, Option<Instant>>,
}

impl UnservedWorkloads {
    /// Replaces the workloads. New ones are due later.
    pub(super) fn replace(&mut self, workloads: Vec<Problem>, now: Instant) {
        let before = std::mem::take(&mut self.due);
        let due = |workload| {
            let due = before.get(&workload).copied().unwrap_or(Some(now + CONTROLLER_LIMIT));
            (workload, due)
        };
        self.due = workloads.into_iter().map(due).collect();
    }

    /// When the next one is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.values().flatten().min().copied()
    }

    /// Those that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Problem> {
        for due in self.due.values_mut() {
            due.take_if(|due| *due <= now);
        }
        self.due.iter().filter(|(_, due)| due.is_none()).map(|(workload, _)| workload.clone()).collect()
    }
}
