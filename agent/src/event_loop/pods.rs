//! Pods that are attached to this node's dataplane, and detached from it, as whoever sets up their interfaces says.
//!
//! An addition that somebody waits for is in force in every renderer, or it is taken back: when a renderer fails on it, and
//! when it takes too long. Source: Contiv's event `AddPod`, which is blocking and reverted on failure.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use contiv_model::{ChangeSet, Event, InterfaceName, PodId};
use thiserror::Error;
use tokio::time::Instant;
use tracing::warn;

use super::{
    EventLoop, Reply,
    history::{Moment, Outcome},
    renderers::Settled,
};

/// So many pods can be attached. Kubernetes runs 110 on a node, and Linux has no more interfaces on a bridge than this.
const MOST_PODS: usize = 1024;

/// A pod that is attached by its main interface.
#[derive(Debug)]
pub struct PodAddition {
    /// The pod.
    pub pod: PodId,
    /// Its interface on the node's side.
    pub interface: InterfaceName,
    /// Somebody waits for the result; for how long, and where it goes. Without, renderers that fail are tried again until
    /// they do not.
    pub wait: Option<(Duration, Reply<Result<(), PodNotAdded>>)>,
}

/// Why a pod is not attached.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PodNotAdded {
    /// Nothing is rendered before.
    #[error("the store has not been read yet; try again")]
    NotReady,
    /// There are too many.
    #[error("{MOST_PODS} pods are attached, and there can be no more; detach those that are gone")]
    TooMany,
    /// A renderer could not apply it.
    #[error("renderer {renderer} failed, so the pod is not attached: {error}")]
    Failed {
        /// Which one.
        renderer: Arc<str>,
        /// Why.
        error: String,
    },
    /// Some renderer is busy, or hangs.
    #[error("renderer {renderer} has not applied it in time, so the pod is not attached; see /renderers")]
    TooLate {
        /// The first of those that have not.
        renderer: Arc<str>,
    },
}

/// Additions that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct PodAdditions(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    pod: PodId,
    interface: InterfaceName,
    /// By which interface it was attached before, if it was.
    before: Option<InterfaceName>,
    event: u64,
    /// Those that have not applied it.
    renderers: BTreeSet<Arc<str>>,
    deadline: Instant,
    reply: Reply<Result<(), PodNotAdded>>,
}

impl PodAdditions {
    /// When the first of them is too late.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|waiting| waiting.deadline).min()
    }

    /// Takes in what a renderer made of events. Returns the additions that it failed on.
    fn settle(&mut self, settled: &Settled) -> Vec<(Waiting, PodNotAdded)> {
        let Settled { renderer, covers, outcome } = settled;
        let mut failed = Vec::new();
        for mut waiting in std::mem::take(&mut self.0) {
            let is_covered = (covers.first..=covers.last).contains(&waiting.event);
            match outcome {
                Outcome::Failed { error, .. } if is_covered && waiting.renderers.contains(renderer) => {
                    let (renderer, error) = (Arc::clone(renderer), error.clone());
                    failed.push((waiting, PodNotAdded::Failed { renderer, error }));
                    continue;
                }
                Outcome::Applied { .. } if is_covered => drop(waiting.renderers.remove(renderer)),
                _ => {}
            }
            if waiting.renderers.is_empty() {
                // Whoever waited may have gone; the pod is attached all the same.
                let _ = waiting.reply.send(Ok(()));
            } else {
                self.0.push(waiting);
            }
        }
        failed
    }

    /// Takes out those that are too late.
    fn late(&mut self, now: Instant) -> Vec<(Waiting, PodNotAdded)> {
        let late = self.0.extract_if(.., |waiting| waiting.deadline <= now);
        let with_cause = |waiting: Waiting| {
            let renderer = waiting.renderers.first().map(Arc::clone).unwrap_or_default();
            (waiting, PodNotAdded::TooLate { renderer })
        };
        late.map(with_cause).collect()
    }
}

impl EventLoop {
    /// Attaches a pod.
    pub(super) async fn add_pod(&mut self, PodAddition { pod, interface, wait }: PodAddition) {
        let before = self.processor.attached().get(&pod).cloned();
        let refusal = if before.is_none() && self.processor.attached().len() >= MOST_PODS {
            Some(PodNotAdded::TooMany)
        } else if wait.is_some() && !self.store.is_synced {
            Some(PodNotAdded::NotReady)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            warn!(%pod, %refusal, "a pod is not attached");
            if let Some((_, reply)) = wait {
                let _ = reply.send(Err(refusal));
            }
            return;
        }
        let description = format!("pod {pod} is attached by {interface}");
        let added = Event::AddPod { pod: pod.clone(), interface: interface.clone() };
        let (event, renderers) = self.take_in_pod("pod-added", description, added).await;
        let Some((limit, reply)) = wait else { return };
        if renderers.is_empty() {
            let _ = reply.send(Ok(()));
        } else {
            let deadline = Instant::now() + limit;
            self.pods.0.push(Waiting { pod, interface, before, event, renderers, deadline, reply });
        }
    }

    /// Detaches a pod. False if it was not attached.
    pub(super) async fn delete_pod(&mut self, pod: PodId) -> bool {
        let is_attached = self.processor.attached().contains_key(&pod);
        if is_attached {
            let description = format!("pod {pod} is detached");
            self.take_in_pod("pod-deleted", description, Event::DeletePod(pod)).await;
        }
        is_attached
    }

    pub(super) async fn settle_pods(&mut self, settled: &Settled) {
        let failed = self.pods.settle(settled);
        self.revert_pods(failed).await;
    }

    pub(super) async fn revert_late_pods(&mut self) {
        let late = self.pods.late(Instant::now());
        self.revert_pods(late).await;
    }

    /// Takes additions back.
    async fn revert_pods(&mut self, failed: Vec<(Waiting, PodNotAdded)>) {
        for (Waiting { pod, interface, before, reply, .. }, cause) in failed {
            warn!(%pod, %cause, "the addition of a pod is taken back");
            // Somebody may have said something else of it meanwhile.
            if self.processor.attached().get(&pod) == Some(&interface) {
                let reverted = match before {
                    Some(interface) => Event::AddPod { pod: pod.clone(), interface },
                    None => Event::RevertAddPod(pod.clone()),
                };
                self.take_in_pod("pod-reverted", format!("pod {pod}: {cause}"), reverted).await;
            }
            let _ = reply.send(Err(cause));
        }
    }

    /// Returns the number of the event, and who has something to do. Before the first snapshot it is only remembered:
    /// nothing is rendered from half a cache.
    async fn take_in_pod(
        &mut self,
        kind: &'static str,
        description: String,
        event: Event,
    ) -> (u64, BTreeSet<Arc<str>>) {
        let moment = Moment::now();
        let changes = self.processor.apply([event]);
        let changes = if self.store.is_synced { changes } else { ChangeSet::default() };
        let renderers =
            if changes.is_empty() { BTreeSet::new() } else { self.renderers.names().into_iter().collect() };
        (self.hand_out(kind, || description, changes, moment).await, renderers)
    }
}
