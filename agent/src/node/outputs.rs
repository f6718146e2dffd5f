//! Executes outputs: everything that the node acts on.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        mpsc::{Sender, SyncSender},
    },
};

use contiv_model::Snapshot;
use contiv_store::FeedHandle;
use tokio::sync::oneshot;

use super::{
    api::Reply,
    core::Core,
    decode::Recalled,
    message::{Answer, Input, Metric, MirrorEvent, Output, PodNotAdded, RequestId, Saving},
    renderer_thread::Job,
};
use crate::{
    health::HealthOutputs,
    mirror::{MirrorHandle, MirrorReport},
    state_dir::PodsFile,
};

/// A sink of metrics.
pub trait MetricSink: fmt::Debug + Send + Sync {
    /// Updates a metric.
    fn count(&self, metric: &Metric);
}

/// The receivers of outputs.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) renderers: BTreeMap<Arc<str>, Sender<Job>>,
    /// How many renderers are working.
    pub(super) working: usize,
    pub(super) verifiers: BTreeMap<Arc<str>, SyncSender<Arc<Snapshot>>>,
    pub(super) feed: FeedHandle,
    pub(super) mirror: Option<(MirrorHandle, oneshot::Receiver<()>)>,
    pub(super) pods: Option<PodsFile>,
    pub(super) health: HealthOutputs,
    pub(super) metrics: Arc<dyn MetricSink>,
    pub(super) waiting: BTreeMap<RequestId, Waiting>,
    pub(super) next_request: u64,
    pub(super) awaiting_readiness: Vec<Reply<()>>,
}

/// A request that waits for an answer of the core.
#[derive(Debug)]
pub(super) enum Waiting {
    Flag(Reply<bool>),
    Pod(Reply<Result<(), PodNotAdded>>),
}

impl Outputs {
    pub(super) fn mirror_input(&self, report: MirrorReport) -> Input {
        match report {
            MirrorReport::Summary(summary) => Input::SavedSummary(summary),
            MirrorReport::Loaded(saved) => Input::Saved(saved.map(Recalled::decode)),
            MirrorReport::Written(revision) => {
                let is_behind = self.mirror.as_ref().is_some_and(|(mirror, _)| mirror.is_behind());
                Input::Mirror(MirrorEvent::Written { revision, is_behind })
            }
            MirrorReport::Failed(error) => Input::Mirror(MirrorEvent::Failed(error)),
            MirrorReport::CaughtUp => Input::Mirror(MirrorEvent::NeedsList),
        }
    }

    pub(super) fn execute(&mut self, output: Output) {
        match output {
            Output::Render(renderer, work) => {
                // The thread catches panics and lives as long as the node.
                let sent = self.renderers.get(&renderer).map(|jobs| jobs.send(Job::Work(work)));
                self.working += usize::from(matches!(sent, Some(Ok(()))));
            }
            Output::Verify(renderer, snapshot) => {
                if let Some(verifier) = self.verifiers.get(&renderer) {
                    // The verifier is idle, so there is room.
                    let _ = verifier.try_send(snapshot);
                }
            }
            Output::Save(saving) => self.save(saving),
            Output::SavePods(attached) => {
                if let Some(pods) = &self.pods {
                    pods.save(attached);
                }
            }
            Output::LoadSaved => {
                if let Some((mirror, _)) = &mut self.mirror {
                    mirror.load();
                }
            }
            Output::Relist => self.feed.request_resync(),
            // The server ends after the node, or with it.
            Output::HealthChecks(update) => drop(self.health.updates.send(update)),
            Output::Count(metric) => self.metrics.count(&metric),
            Output::Answer(request, answer) => {
                // A dropped receiver is ignored.
                match (self.waiting.remove(&request), answer) {
                    (Some(Waiting::Flag(reply)), Answer::Flag(flag)) => drop(reply.send(flag)),
                    (Some(Waiting::Pod(reply)), Answer::Pod(result)) => drop(reply.send(result)),
                    _ => {}
                }
            }
        }
    }

    fn save(&mut self, saving: Saving) {
        let Some((mirror, _)) = &mut self.mirror else { return };
        match saving {
            Saving::List { revision, mut entries, keep } => {
                entries.retain(|entry| !keep.contains(&entry.key));
                mirror.replace(revision, entries, keep);
            }
            Saving::Apply(batch) => mirror.apply(batch),
        }
    }

    /// Publishes the state derived from the core.
    pub(super) fn publish_state(&mut self, core: &Core) {
        let health = core.proxy_health();
        self.health.proxy.send_if_modified(|current| {
            let differs = *current != health;
            *current = health;
            differs
        });
        if core.is_ready() {
            for reply in self.awaiting_readiness.drain(..) {
                // A dropped receiver is ignored.
                let _ = reply.send(());
            }
        }
    }

    pub(super) fn wait(&mut self, waiting: Waiting) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.waiting.insert(request, waiting);
        request
    }
}
