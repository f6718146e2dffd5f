//! Pod additions that a caller waits for. The caller gets an answer when every renderer has applied the addition. If a renderer
//! fails, or the deadline passes, the addition is reverted. Source: Contiv's event `AddPod`, which is blocking and reverted on
//! failure.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use contiv_model::{InterfaceName, PodId};

use super::{history::Outcome, renderers::RendererReport};
use crate::message::{Answer, PodNotAdded, RequestId};

/// The additions whose callers wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct PodAdditions(Vec<PodAddition>);

/// An addition that some renderer has not applied yet.
#[derive(Debug)]
pub(super) struct PodAddition {
    pub(super) pod: PodId,
    pub(super) interface: InterfaceName,
    /// The pod's interface before the addition, if it had one. A failed addition is reverted to it.
    pub(super) previous: Option<InterfaceName>,
    /// The number of the addition's event.
    pub(super) event: u64,
    /// The renderers that have not applied it yet.
    pub(super) renderers: BTreeSet<Arc<str>>,
    pub(super) deadline: Instant,
    pub(super) request: RequestId,
}

impl PodAdditions {
    pub(super) fn add(&mut self, addition: PodAddition) {
        self.0.push(addition);
    }

    /// The last addition with this interface. A caller that repeats a request waits for the same renderers.
    pub(super) fn last_of_interface(&self, interface: &InterfaceName) -> Option<&PodAddition> {
        self.0
            .iter()
            .rfind(|addition| addition.interface == *interface)
    }

    /// The earliest deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|addition| addition.deadline).min()
    }

    /// Handles a renderer's report. Returns the additions that are done or have failed.
    pub(super) fn on_report(&mut self, report: &RendererReport) -> Vec<(PodAddition, Answer)> {
        let RendererReport {
            renderer,
            events,
            outcome,
            ..
        } = report;
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

    /// Removes the additions whose deadline has passed, and returns them.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<(PodAddition, Answer)> {
        self.finish(|addition| {
            let renderer = addition
                .renderers
                .first()
                .map(Arc::clone)
                .unwrap_or_default();
            (addition.deadline <= now).then_some(Err(PodNotAdded::Timeout { renderer }))
        })
    }

    /// Removes the additions for which `answer` returns an answer. If one has failed, the next addition of the same pod takes
    /// over its previous interface, so that both are reverted to the same one.
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
            let next = self.0[position..]
                .iter_mut()
                .find(|next| next.pod == addition.pod);
            if answer.is_err()
                && let Some(next) =
                    next.filter(|next| next.previous.as_ref() == Some(&addition.interface))
            {
                next.previous.clone_from(&addition.previous);
            }
            finished.push((addition, answer));
        }
        finished
    }
}

#[cfg(test)]
mod tests;
