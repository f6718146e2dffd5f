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

    /// The last one of this interface: a caller that asks for the same again waits for the same.
    pub(super) fn last_of_interface(&self, interface: &InterfaceName) -> Option<&PodAddition> {
        self.0.iter().rfind(|addition| addition.interface == *interface)
    }

    /// The earliest deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|addition| addition.deadline).min()
    }

    /// Handles a renderer's report. Returns the additions that are done or have failed.
    pub(super) fn on_report(&mut self, report: &RendererReport) -> Vec<(PodAddition, Answer)> {
        let RendererReport { renderer, events, outcome, .. } = report;
        self.finish(|addition| {
            let is_covered = (events.first..=events.last).contains(&addition.event);
            if !is_covered || !addition.renderers.contains(renderer) {
                return None;
            }
            if let Outcome::Failed { error, .. } = outcome {
                return Some(Err(PodNotAdded::Failed {
                    renderer: Arc::clone(renderer),
                    error: error.clone(),
                }));
            }
            addition.renderers.remove(renderer);
            addition.renderers.is_empty().then_some(Ok(true))
        })
    }

    /// Removes those that are past their deadline.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<(PodAddition, Answer)> {
        self.finish(|addition| {
            let renderer = addition.renderers.first().map(Arc::clone).unwrap_or_default();
            (addition.deadline <= now).then_some(Err(PodNotAdded::TooLate { renderer }))
        })
    }

    /// Removes those with an answer. A failed one passes the interface that it would be reverted to on to the next one of its pod.
    fn finish(
        &mut self,
        mut answer: impl FnMut(&mut PodAddition) -> Option<Answer>,
    ) -> Vec<(PodAddition, Answer)> {
        let (mut finished, mut position) = (Vec::new(), 0);
        while let Some(addition) = self.0.get_mut(position) {
            let Some(answer) = answer(addition) else {
                position += 1;
                continue;
            };
            let addition = self.0.remove(position);
            let next = self.0[position..].iter_mut().find(|next| next.pod == addition.pod);
            if answer.is_err()
                && let Some(next) = next.filter(|next| next.before.as_ref() == Some(&addition.interface))
            {
                next.before.clone_from(&addition.before);
            }
            finished.push((addition, answer));
        }
        finished
    }
}
