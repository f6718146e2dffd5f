//! Additions of pods whose callers wait. Such an addition is applied in every renderer, or reverted: when a renderer fails on
//! it, and when it takes too long. Source: Contiv's event `AddPod`, which is blocking and reverted on failure.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use contiv_model::{InterfaceName, PodId};

use super::{history::Outcome, renderers::RendererReport};
use crate::node::message::{Answer, PodNotAdded, RequestId};

/// Additions whose callers wait.
#[derive(Debug, Default)]
pub(super) struct PodAdditions(Vec<PodAddition>);

/// An addition that is not applied in every renderer yet.
#[derive(Debug)]
pub(super) struct PodAddition {
    pub(super) pod: PodId,
    pub(super) interface: InterfaceName,
    /// Its interface before the addition, if it had one.
    pub(super) before: Option<InterfaceName>,
    /// The event of the addition.
    pub(super) event: u64,
    /// The renderers that have not applied it.
    pub(super) renderers: BTreeSet<Arc<str>>,
    pub(super) deadline: Instant,
    pub(super) request: RequestId,
}

impl PodAdditions {
    pub(super) fn add(&mut self, addition: PodAddition) {
        self.0.push(addition);
    }

    /// The earliest deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|addition| addition.deadline).min()
    }

    /// Handles a renderer's report. Returns the additions that are done or have failed.
    pub(super) fn on_report(&mut self, report: &RendererReport) -> Vec<(PodAddition, Answer)> {
        let RendererReport { renderer, events, outcome } = report;
        let mut finished = Vec::new();
        for mut addition in std::mem::take(&mut self.0) {
            let is_covered = (events.first..=events.last).contains(&addition.event);
            match outcome {
                Outcome::Failed { error, .. } if is_covered && addition.renderers.contains(renderer) => {
                    let (renderer, error) = (Arc::clone(renderer), error.clone());
                    finished.push((addition, Err(PodNotAdded::Failed { renderer, error })));
                    continue;
                }
                Outcome::Applied { .. } if is_covered => drop(addition.renderers.remove(renderer)),
                _ => {}
            }
            if addition.renderers.is_empty() {
                finished.push((addition, Ok(true)));
            } else {
                self.0.push(addition);
            }
        }
        finished
    }

    /// Removes those that are past their deadline.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<(PodAddition, Answer)> {
        let late = self.0.extract_if(.., |addition| addition.deadline <= now);
        let with_cause = |addition: PodAddition| {
            let renderer = addition.renderers.first().map(Arc::clone).unwrap_or_default();
            (addition, Err(PodNotAdded::TooLate { renderer }))
        };
        late.map(with_cause).collect()
    }
}
