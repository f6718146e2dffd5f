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
use contiv_node::{
    Core,
    message::{Answer, Metric, MirrorReport, Output, RequestId},
};
use contiv_store::FeedHandle;
use tokio::sync::oneshot;

use super::{api::Reply, failover::FailoverDriver, renderer_thread::Job};
use crate::{health::HealthOutputs, mirror::MirrorHandle, state_dir::PodsFile};

/// A sink of metrics.
pub trait MetricSink: fmt::Debug + Send + Sync {
    /// Updates a metric.
    fn count(&self, metric: &Metric);
}

/// The receivers of outputs.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) renderers: BTreeMap<Arc<str>, Sender<Job>>,
    pub(super) verifiers: BTreeMap<Arc<str>, SyncSender<Arc<Snapshot>>>,
    pub(super) feed: FeedHandle,
    pub(super) mirror: Option<(MirrorHandle, oneshot::Receiver<()>)>,
    pub(super) pods: Option<PodsFile>,
    pub(super) health: HealthOutputs,
    pub(super) failover: FailoverDriver,
    pub(super) metrics: Arc<dyn MetricSink>,
    /// The requests that wait for an answer of the core.
    pub(super) waiting: BTreeMap<RequestId, Reply<Answer>>,
    pub(super) next_request: u64,
    pub(super) awaiting_readiness: Vec<Reply<()>>,
}

impl Outputs {
    /// Adds to a report of the mirror what only this end of its queue knows.
    pub(super) fn complete(&self, mut report: MirrorReport) -> MirrorReport {
        if let (MirrorReport::Written { is_behind, .. }, Some((mirror, _))) =
            (&mut report, &self.mirror)
        {
            *is_behind = mirror.is_behind();
        }
        report
    }

    pub(super) fn execute(&mut self, output: Output) {
        match output {
            Output::Render(renderer, work) => {
                // The thread catches panics and lives as long as the node.
                let _ = self
                    .renderers
                    .get(&renderer)
                    .map(|jobs| jobs.send(Job::Work(work)));
            }
            Output::Verify(renderer, snapshot) => {
                if let Some(verifier) = self.verifiers.get(&renderer) {
                    // The verifier is idle, so there is room.
                    let _ = verifier.try_send(snapshot);
                }
            }
            Output::Save(saving) => {
                if let Some((mirror, _)) = &mut self.mirror {
                    mirror.save(saving);
                }
            }
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
            Output::Reread(keys) => self.feed.request_reread(keys),
            // The server ends after the node, or with it.
            Output::HealthChecks(update) => drop(self.health.updates.send(update)),
            Output::Count(metric) => self.metrics.count(&metric),
            Output::Answer(request, answer) => {
                // A dropped receiver is ignored.
                let _ = self
                    .waiting
                    .remove(&request)
                    .map(|reply| reply.send(answer));
            }
            Output::WatchBackends(changes) => self.failover.watch(changes),
            Output::Probe(backend) => self.failover.probe(backend),
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

    /// The id of a request that waits for this answer.
    pub(super) fn wait(&mut self, reply: Reply<Answer>) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.waiting.insert(request, reply);
        request
    }
}
