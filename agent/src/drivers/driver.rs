//! The driver: passes inputs to the core and executes its outputs. It makes no decisions.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

use contiv_node::{
    Core, CoreConfig,
    decode::Decoder,
    message::{Input, Metric, MirrorReport, Now, Output},
    own_node_key,
};
use contiv_store::{Delivery, FeedHandle, SavedStart};
use jiff::Timestamp;
use thiserror::Error;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tracing::warn;

use super::{
    api::{Call, Request},
    failover::FailoverDriver,
    inputs::{Inputs, Next},
    outputs::{MetricSink, Outputs},
    renderer_thread::{self, Job, RendererSpec},
    verifier_thread,
};
use crate::{
    health::HealthOutputs,
    mirror::{MirrorHandle, RETRY_AFTER},
    state_dir::PodsFile,
};

/// How long shutdown waits for working renderers.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// The queue length for notifications of foreign changes. More wait in the kernel, which reports an overflow.
const NOTICES_CAPACITY: usize = 64;
/// The queue length for reports of the mirror.
const MIRROR_REPORTS: usize = 16;

/// The node ended without being stopped.
#[derive(Debug, Error)]
#[error("the task that watches the store has ended; this is a bug, please report it with the log")]
pub struct StoreFeedEnded;

/// The configuration of the node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The configuration of the core. Its `has_mirror`, `renderers` and `verified_renderers` are set from what the node is given.
    pub core: CoreConfig,
    /// The folder of the mirror and of the list of attached pods; none for neither.
    pub mirror: Option<PathBuf>,
    /// Whether the agent makes the slices of external workloads itself, because no controller writes into its store.
    pub derives_slices: bool,
    /// How long the answer of a backend may take, for failover.
    pub answer_within: Duration,
    /// Whether the feed waits for what was saved, and goes on from it.
    pub resumes: bool,
}

/// The core with its inputs and outputs.
#[derive(Debug)]
pub struct Node {
    core: Core,
    inputs: Inputs,
    decoder: Decoder,
    outputs: Outputs,
}

fn now() -> Now {
    Now {
        time: Timestamp::now(),
        instant: Instant::now().into_std(),
        random: rand::random(),
    }
}

impl Node {
    /// A node fed by a store's feed, with a thread for each renderer. Nothing else happens before [`Node::run`].
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn new(
        config: NodeConfig,
        (events, feed): (mpsc::Receiver<Delivery>, FeedHandle),
        requests: mpsc::Receiver<Request>,
        specs: Vec<RendererSpec>,
        metrics: Arc<dyn MetricSink>,
        health: HealthOutputs,
    ) -> io::Result<Self> {
        let NodeConfig {
            core: mut config,
            mirror,
            derives_slices,
            answer_within,
            resumes,
        } = config;
        let node = &config.processor.node_name;
        let own_node = own_node_key(node);
        let (work_done, reports) = mpsc::unbounded_channel();
        let (foreign_changes, notices) = mpsc::channel(NOTICES_CAPACITY);
        let (verifications, verified) = mpsc::channel(specs.len().max(1));
        let (mirror_reports, mirror_events) = mpsc::channel(MIRROR_REPORTS);
        let start_mirror = |folder| {
            let reports = mirror_reports.clone();
            MirrorHandle::start(
                folder,
                config.store.clone(),
                own_node.clone(),
                reports,
                RETRY_AFTER,
                feed.identity(),
            )
        };
        let pods = mirror.clone().map(PodsFile::start).transpose()?;
        let mut mirror = mirror.map(start_mirror).transpose()?;
        match &mut mirror {
            Some((mirror, _)) if resumes => mirror.start_feed(),
            _ => feed.begin(SavedStart::Nothing),
        }
        config.has_mirror = mirror.is_some();
        config.renderers = specs.iter().map(|spec| Arc::clone(spec.name())).collect();
        let (mut renderers, mut verifiers) = (BTreeMap::new(), BTreeMap::new());
        for spec in specs {
            let name = Arc::clone(spec.name());
            metrics.count(&Metric::Renderer(Arc::clone(&name)));
            if config.verification.interval.is_some()
                && let Some(verifier) = verifier_thread::start(&spec, verifications.clone())?
            {
                config.verified_renderers.push(Arc::clone(&name));
                verifiers.insert(Arc::clone(&name), verifier);
            }
            renderers.insert(
                name,
                renderer_thread::start(spec, work_done.clone(), foreign_changes.clone())?,
            );
        }
        let now = now();
        let core = Core::new(config, now);
        let failover = FailoverDriver::new(foreign_changes, answer_within);
        let outputs = Outputs {
            renderers,
            verifiers,
            feed,
            mirror,
            pods,
            health,
            failover,
            metrics,
            waiting: BTreeMap::new(),
            next_request: 0,
            awaiting_readiness: Vec::new(),
        };
        let inputs = Inputs {
            store: events,
            requests,
            reports,
            notices,
            verified,
            mirror: mirror_events,
            deferred: None,
            was_request: false,
        };
        let decoder = Decoder::new(now.time);
        let decoder = if derives_slices {
            decoder.deriving_slices()
        } else {
            decoder
        };
        Ok(Self {
            core,
            inputs,
            decoder,
            outputs,
        })
    }

    /// Runs until it is stopped.
    ///
    /// # Errors
    /// When the feed of the store has ended.
    pub async fn run(mut self) -> Result<(), StoreFeedEnded> {
        self.handle(Input::Timer, now());
        loop {
            let deadline = self.core.deadline().map(Instant::from_std);
            let next = self.inputs.next(deadline).await.ok_or(StoreFeedEnded)?;
            // Taken before decoding, so that the duration of an event includes it.
            let begin = now();
            let input = match next {
                Next::Input(input) => Some(input),
                Next::Store(Delivery { event, received }) => {
                    let decoded = self.decoder.decode(event);
                    if self.decoder.needs_list() {
                        self.outputs.execute(Output::Relist);
                    }
                    decoded.map(|event| Input::Store(event, received.into_std()))
                }
                Next::Mirror(MirrorReport::Page(entries)) => {
                    let event = self.decoder.add_saved(entries);
                    Some(Input::Store(event, begin.instant))
                }
                Next::Mirror(MirrorReport::Start(start)) => {
                    self.outputs.feed.begin(start);
                    None
                }
                Next::Mirror(report) => Some(Input::Mirror(self.outputs.complete(report))),
                Next::Request(Request::Shutdown) => {
                    self.drain().await;
                    return Ok(());
                }
                Next::Request(request) => self.serve(request),
            };
            if let Some(input) = input {
                self.handle(input, begin);
            }
        }
    }

    fn handle(&mut self, input: Input, begin: Now) {
        let event = self.core.events();
        self.core
            .handle(input, begin, &mut |output| self.outputs.execute(output));
        self.core.set_duration_after(
            event,
            Instant::now()
                .into_std()
                .saturating_duration_since(begin.instant),
        );
        self.outputs.publish_state(&self.core);
    }

    /// Answers a question; a request for a change becomes an input.
    fn serve(&mut self, request: Request) -> Option<Input> {
        match request {
            Request::Ask(question) => {
                (question.0)(&self.core);
                None
            }
            Request::Input(input) => Some(input),
            Request::Answered(Call(input), reply) => Some(input(self.outputs.wait(reply))),
            Request::AwaitReady(reply) => {
                self.outputs.awaiting_readiness.push(reply);
                self.outputs.publish_state(&self.core);
                None
            }
            Request::Describe(name, found, reply) => {
                let renderer = self.outputs.renderers.get(&*name);
                let is_asked = renderer.is_some_and(|jobs| jobs.send(Job::Describe(reply)).is_ok());
                // A dropped receiver is ignored.
                let _ = found.send(is_asked);
                None
            }
            Request::Shutdown => None,
        }
    }

    /// Lets renderers finish their current work. Pending work is dropped: the next start does it.
    async fn drain(mut self) {
        let deadline = Instant::now() + DRAIN_LIMIT;
        // The mirror must not block on its reports.
        self.inputs.mirror.close();
        let mut working = self.core.working();
        while working > 0 {
            let Ok(Some(report)) = timeout_at(deadline, self.inputs.reports.recv()).await else {
                warn!("a renderer is still busy; not waiting for it");
                break;
            };
            working -= usize::from(matches!(report, Input::WorkDone(_)));
        }
        if let Some(pods) = self.outputs.pods
            && timeout_at(deadline, pods.finish()).await.is_err()
        {
            warn!("the list of attached pods is still being written; not waiting for it");
        }
        let Some((handle, ended)) = self.outputs.mirror else {
            return;
        };
        drop(handle);
        if timeout_at(deadline, ended).await.is_err() {
            warn!("the mirror is still being written; not waiting for it");
        }
    }
}
