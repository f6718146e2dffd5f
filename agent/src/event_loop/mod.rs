//! The loop: one task owns the processor, the history, the quarantine and the books of the renderers. Everything that
//! happens reaches it as one enum, in one order; everybody else asks it by message.
//!
//! No timer stands between a change and a renderer: changes go out at once to every idle renderer, and those that come
//! while one is busy are merged and go out when it is done.

mod ahead;
mod answers;
mod config;
mod event;
mod foreign_changes;
mod guard;
mod handover;
mod health;
mod history;
mod inputs;
mod intake;
mod mirroring;
mod own_node;
mod pods;
mod quarantine;
mod query;
mod renderers;
mod store_events;
mod verification;
mod verifiers;

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, io, ops::ControlFlow, sync::Arc, time::Duration};

use contiv_model::{ChangeSet, Processor};
use contiv_store::FeedHandle;
use jiff::Timestamp;
use thiserror::Error;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tracing::{info, warn};

use crate::{health::HealthOutputs, metrics::EventMetrics};
use ahead::DecodedAhead;
use event::Event;
use guard::DeletionGuard;
use handover::Handover;
use health::HealthReporter;
use history::{Covers, Happening, History, Moment};
use inputs::Inputs;
use mirroring::Mirroring;
use own_node::OwnNode;
use pods::PodAdditions;
use quarantine::Quarantine;
use renderers::{PATIENCE, Renderers, Settled};
use verifiers::Verifiers;

pub use ahead::Followed;
pub(crate) use config::MirrorConfig;
pub use config::{LoopConfig, LoopMetrics};
pub use event::Request;
pub use guard::{GuardConfig, HeldDeletions};
pub use history::{HistoryLimits, HistoryQuery, Outcome, Record};
pub use mirroring::MirrorStatus;
pub use pods::{PodAddition, PodNotAdded};
pub use quarantine::Quarantined;
pub use query::{LostFrontend, Query, Reply, Sizes, Status, StoreDown};
pub use renderers::{LastError, LastReport, RendererSpec, RendererView};
pub use verifiers::{VerificationConfig, VerificationView};

/// How long the end waits for renderers that are at work.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// How long the first list of the store may take. After that what was saved of it goes to the renderers, if anything was:
/// a store that is slow, or cut off without a word, is not waited for.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// Why the loop ended without being asked to.
#[derive(Debug, Error)]
#[error("the task that follows the store has ended; this is a bug, please report it with the log")]
pub struct StoreFeedEnded;

/// The loop and all it owns.
#[derive(Debug)]
pub struct EventLoop {
    node: String,
    /// As the configuration names it.
    store_name: String,
    processor: Processor,
    quarantine: Quarantine,
    guard: DeletionGuard,
    own_node: OwnNode,
    handover: Handover,
    history: History,
    renderers: Renderers,
    verifiers: Verifiers,
    /// A dataplane that has drifted is programmed again.
    heals_drift: bool,
    pods: PodAdditions,
    store: StoreState,
    inputs: Inputs,
    feed: FeedHandle,
    ahead: DecodedAhead,
    mirror: Mirroring,
    metrics: EventMetrics,
    health: HealthReporter,
    started: Instant,
    started_at: Timestamp,
    was_ready: bool,
    /// Who is to be told of that.
    awaiting_readiness: Vec<Reply<()>>,
}

/// What is known of the store.
#[derive(Debug, Default)]
struct StoreState {
    is_synced: bool,
    /// What is in force is the mirror's, and the store has not been read yet.
    is_of_mirror: bool,
    revision: i64,
    down: Option<StoreDown>,
    /// Until when the first list is waited for.
    awaited_until: Option<Instant>,
}

impl EventLoop {
    /// A loop with a task for each renderer, on the runtime that this is called on. Nothing else happens before
    /// [`EventLoop::run`].
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn new(
        config: LoopConfig,
        followed: Followed,
        requests: mpsc::Receiver<Request>,
        renderers: Vec<RendererSpec>,
        metrics: LoopMetrics,
        health: HealthOutputs,
    ) -> io::Result<Self> {
        let node = config.processor.node_name.clone();
        let mut processor = Processor::new(config.processor);
        processor.apply([contiv_model::Event::LocalAddresses(config.local_addresses)]);
        let own_node = OwnNode::new(node.clone());
        let (mirror, mirror_reports) = Mirroring::start(config.mirror, own_node.path())?;
        let (verifiers, looks) = Verifiers::start(&renderers, config.verification.interval)?;
        let (renderers, reports, notices) = Renderers::start(renderers, metrics.renderers)?;
        let started = Instant::now();
        Ok(Self {
            node: node.to_string(),
            quarantine: Quarantine::of_store(&config.store),
            store_name: config.store,
            health: HealthReporter::new(health, &processor),
            own_node,
            processor,
            guard: DeletionGuard::new(config.guard),
            handover: Handover::default(),
            history: History::new(config.history),
            renderers,
            verifiers,
            heals_drift: config.verification.heal,
            pods: PodAdditions::default(),
            store: StoreState { awaited_until: Some(started + LIST_LIMIT), ..StoreState::default() },
            inputs: Inputs {
                store: followed.events,
                requests,
                reports,
                notices,
                looks,
                mirror: mirror_reports,
                follow_ups: VecDeque::new(),
                was_asked: false,
            },
            feed: followed.feed,
            ahead: followed.ahead,
            mirror,
            metrics: metrics.events,
            started,
            started_at: Timestamp::now(),
            was_ready: false,
            awaiting_readiness: Vec::new(),
        })
    }

    /// Runs until it is asked to stop.
    ///
    /// # Errors
    /// When nothing follows the store any more.
    pub async fn run(mut self) -> Result<(), StoreFeedEnded> {
        loop {
            let event = self.inputs.next(self.deadline()).await.ok_or(StoreFeedEnded)?;
            if self.handle(event).await.is_break() {
                self.drain().await;
                return Ok(());
            }
            self.give_way().await;
        }
    }

    async fn handle(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Store(delivery) => {
                self.take_in(delivery).await;
                self.health.set_node_eligible(!self.own_node.is_deleted());
            }
            Event::Renderer(done) => {
                if let Some(settled) = self.renderers.finish(done) {
                    self.hand_over(&settled);
                    if let Outcome::Applied { report, .. } = &settled.outcome {
                        self.quarantine.replace_rejected(
                            &settled.renderer,
                            &report.rejected,
                            Timestamp::now(),
                        );
                    }
                    self.history.settle(settled.covers, &settled.renderer, &settled.outcome);
                    self.settle_pods(&settled).await;
                }
                self.report_readiness();
                self.dispatch();
            }
            Event::Notice(notice) => self.take_notice(notice),
            Event::Looked(looked) => self.take_look(looked),
            Event::Repair => self.dispatch(),
            Event::Mirror(report) => self.take_in_report(report),
            Event::Timer => {
                self.inputs.follow_ups.extend(self.renderers.due());
                self.end_hold();
                self.stop_waiting_for_list();
                self.verify_due();
                self.revert_late_pods().await;
            }
            Event::Query(query) => self.answer(query),
            Event::LocalAddresses(addresses) => self.take_in_addresses(addresses).await,
            Event::ConfirmDeletions(reply) => {
                let is_confirmed = self.confirm_deletions("they were confirmed");
                // Whoever asked may have gone.
                let _ = reply.send(is_confirmed);
            }
            Event::AddPod(addition) => self.add_pod(addition).await,
            Event::DeletePod(pod, reply) => {
                let was_attached = self.delete_pod(pod).await;
                let _ = reply.send(was_attached);
            }
            Event::Resync { cause } => self.resync(cause),
            Event::Retry { renderer } => {
                let error = self.renderers.last_error(&renderer);
                let description = format!("renderer {renderer}, after: {error}");
                let event = self.record("retry", description, None, vec![Arc::clone(&renderer)]);
                self.renderers.retry(&renderer, event);
                self.dispatch();
            }
            Event::Slow { renderer } => {
                warn!(renderer = &*renderer, "busy for more than 10 s; the others go on");
                self.record(
                    "slow",
                    format!("renderer {renderer} is busy for more than 10 s"),
                    None,
                    Vec::new(),
                );
            }
            Event::Shutdown => return ControlFlow::Break(()),
        }
        self.health.tell_unsent();
        self.health.tell_proxy(self.renderers.health(self.health.renderer(), self.started));
        ControlFlow::Continue(())
    }

    /// Lists the store again, and gives every renderer everything at once, so that this helps also while the store is
    /// down.
    fn resync(&mut self, cause: &'static str) {
        info!(cause, "resync");
        self.feed.request_resync();
        // Before the first snapshot there is nothing to give.
        let renderers = if self.store.is_synced { self.renderers.names() } else { Vec::new() };
        let event = self.record("resync", cause.to_owned(), None, renderers);
        if self.store.is_synced {
            self.renderers.need_resync(event);
            self.dispatch();
        }
    }

    /// When something is to be done even if nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let own = [self.renderers.deadline(), self.guard.deadline(), self.verifiers.deadline()];
        own.into_iter()
            .chain([self.pods.deadline(), self.health.deadline(), self.store.awaited_until])
            .flatten()
            .min()
    }

    /// Before the first snapshot goes out, in the next event: what the kernel has of an earlier run is not known.
    fn begin_handover(&mut self) {
        let services = self.processor.services().map(|(_, service)| service);
        self.handover.begin(services, self.history.next());
    }

    /// Tells renderers of services that change hands by what the renderer `route` reports.
    fn hand_over(&mut self, settled: &Settled) {
        let Outcome::Applied { report, .. } = &settled.outcome else { return };
        if &*settled.renderer != handover::ROUTE {
            return;
        }
        let moved = self.handover.settle(settled.covers.last, &report.rejected);
        let services = moved.iter().filter_map(|id| self.processor.service(id));
        let services = services.map(|service| (service.id.clone(), self.handover.change(service))).collect();
        let changes = ChangeSet { services, ..ChangeSet::default() };
        if !changes.is_empty() {
            let description = format!("{} services, between nftables and routes", changes.services.len());
            let event = self.record("handover", description, Some(&changes), self.renderers.names());
            self.renderers.add_changes(&Arc::new(changes), Covers::one(event));
        }
    }

    fn end_hold(&mut self) {
        if self.guard.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            self.confirm_deletions("they were held long enough");
        }
    }

    /// Lists the store again, and what it no longer has then is gone. False if nothing is held.
    fn confirm_deletions(&mut self, cause: &'static str) -> bool {
        let is_confirmed = self.guard.confirm();
        if is_confirmed {
            info!(cause, "deletions that are held will count");
            self.record(
                "confirmed",
                format!("deletions that are held will count: {cause}"),
                None,
                Vec::new(),
            );
            self.feed.request_resync();
        }
        is_confirmed
    }

    /// Hands out what is pending to whoever is idle.
    fn dispatch(&mut self) {
        let snapshot = || self.handover.corrected(self.processor.snapshot());
        self.renderers.dispatch(self.store.revision, snapshot);
    }

    /// Lets renderers that were given something go on, in this thread as a rule, before all else. What the first of them
    /// reports is the next event.
    async fn give_way(&mut self) {
        if self.renderers.were_given_work()
            && let Ok(Some(done)) = timeout(PATIENCE, self.inputs.reports.recv()).await
        {
            self.inputs.follow_ups.push_front(Event::Renderer(done));
        }
    }

    /// Records an event that took no time of its own, and returns its number.
    fn record(
        &mut self,
        kind: &'static str,
        description: String,
        changes: Option<&ChangeSet>,
        renderers: Vec<Arc<str>>,
    ) -> u64 {
        self.record_timed(kind, description, changes, renderers, Moment::now(), Duration::ZERO)
    }

    /// Records an event that began at this moment and took so long.
    fn record_timed(
        &mut self,
        kind: &'static str,
        description: String,
        changes: Option<&ChangeSet>,
        renderers: Vec<Arc<str>>,
        moment: Moment,
        duration: Duration,
    ) -> u64 {
        self.metrics.count(kind);
        let revision = self.store.revision;
        self.history.push(Happening { kind, description, moment, duration, revision, changes, renderers })
    }

    fn report_readiness(&mut self) {
        if !self.was_ready && self.renderers.are_ready() {
            self.was_ready = true;
            let after = humantime::format_duration(Duration::from_millis(
                self.started.elapsed().as_millis().try_into().unwrap_or(u64::MAX),
            ));
            info!(%after, revision = self.store.revision, "ready: every renderer has applied its first snapshot");
            for reply in self.awaiting_readiness.drain(..) {
                // Who does not wait any more does not have to know.
                let _ = reply.send(());
            }
        }
    }

    /// Lets renderers finish what they are at. What is pending stays undone: the next start does it.
    async fn drain(mut self) {
        let deadline = Instant::now() + DRAIN_LIMIT;
        // The mirror must not wait for somebody to take its reports.
        self.inputs.mirror.close();
        while self.renderers.are_busy() {
            let Ok(Some(done)) = tokio::time::timeout_at(deadline, self.inputs.reports.recv()).await else {
                warn!("a renderer is still busy; leaving it");
                break;
            };
            self.renderers.finish(done);
        }
        self.mirror.finish(deadline).await;
    }
}
