//! The core: every decision of the agent, as one synchronous and deterministic state machine. The same inputs give the same
//! outputs. No clock, chance, I/O, channel or lock is here; log lines are its only other effect.
//!
//! A change of the store goes `Core::on_changes` → processor → `Core::publish`, from where renderers, health checks and
//! history are served. The state is a function of the inputs, so a fresh start over the same store reaches the same state.

mod carriers;
mod deletion_guard;
mod describe;
mod explanation;
mod failover;
mod former_frontends;
mod history;
mod log_rate_limiter;
mod object_changes;
mod own_node;
mod places;
mod pods;
mod quarantine;
mod renderers;
mod rereads;
mod self_check;
mod status;
mod store_state;
mod unserved;
mod verification;
mod warnings;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{
    ChangeSet, ContivService, Event, Families, InterfaceName, LocalInterfaces, Object, ObjectKey,
    PodId, Processor, ProcessorConfig, ServiceChange, ServiceId, Snapshot, Trace, UnservedService,
    object::ObjectKind,
    processor::{EndpointPlace, NodeView},
    wire,
};
use contiv_renderer::{Drift, ForeignChange, ForwardingNeeds};
use contiv_store::{Batch, Change, Problem};
use tracing::{debug, info, warn};

use super::{
    decode::{DecodedChanges, DecodedList, StoreEvent, ValueStatus},
    message::{
        Answer, Input, MAX_PODS, Metric, MirrorReport, Now, Output, PodNotAdded, RequestId, Saving,
        VerifierReport, WorkDone,
    },
};
use crate::{
    health::{HealthUpdate, ProxyHealth},
    plural::counted,
};
use carriers::CarrierReassignment;
use deletion_guard::{DeletionDecision, DeletionGuard};
use failover::Failover;
use former_frontends::FormerFrontends;
use history::{EventRange, FOREIGN_CHANGE, History, NewRecord, Timestamps};
use own_node::OwnNode;
use places::Places;
use pods::{PodAddition, PodAdditions};
use quarantine::Quarantine;
use renderers::{ExpiredTimer, RendererReport, Renderers};
use rereads::Rereads;
use self_check::SelfCheck;
use store_state::{SAVED_LIMIT, StoreState};
use unserved::UnservedWorkloads;
use verification::{VerificationResult, Verifications};
use warnings::Warnings;

pub use deletion_guard::{GuardConfig, HeldDeletions};
pub use explanation::{Caveat, Explanation, FormerDestination};
pub use failover::{FailingBackend, FailoverStatus};
pub use former_frontends::FormerFrontend;
pub use history::{HistoryLimits, Outcome, Record};
pub use object_changes::ObjectChanges;
pub use own_node::own_node_key;
pub use quarantine::Quarantined;
pub use renderers::{LastError, LastReport, RendererView};
pub use self_check::SelfCheckFailure;
pub use status::Status;
pub use store_state::{MirrorStatus, StoreDown};
pub use verification::{VerificationConfig, VerificationView};
pub use warnings::Warning;

/// The kind of events of failover.
const FAILOVER: &str = "failover";

/// The most objects in quarantine that the answer to a trace names.
const MAX_QUARANTINED_CAVEATS: usize = 3;

/// The configuration of the core.
#[derive(Debug, Clone)]
pub struct CoreConfig {
    /// The store as configured.
    pub store: String,
    /// The configuration of the service processor.
    pub processor: ProcessorConfig,
    /// Whether there is a mirror.
    pub has_mirror: bool,
    /// The addresses of this node's interfaces at the start.
    pub local_addresses: BTreeSet<IpAddr>,
    /// The interfaces of this node at the start.
    pub local_interfaces: LocalInterfaces,
    /// The pods that were attached when the agent was stopped.
    pub attached: BTreeMap<PodId, InterfaceName>,
    /// When deletions are held.
    pub guard: GuardConfig,
    /// When dataplanes are verified.
    pub verification: VerificationConfig,
    /// The limits of the history.
    pub history: HistoryLimits,
    /// The names of the renderers.
    pub renderers: Vec<Arc<str>>,
    /// The renderers whose dataplane can be verified.
    pub verified_renderers: Vec<Arc<str>>,
    /// The renderer of this node's traffic, on which the node's health depends.
    pub traffic_renderer: Arc<str>,
    /// The agent's own service, through which it proves its dataplane. Renderers have it beside those of the store.
    pub self_check: Option<Arc<ContivService>>,
}

/// The state of the agent.
#[derive(Debug)]
pub struct Core {
    store_name: String,
    processor: Processor,
    quarantine: Quarantine,
    rereads: Rereads,
    former_frontends: FormerFrontends,
    warnings: Warnings,
    unserved: UnservedWorkloads,
    guard: DeletionGuard,
    own_node: OwnNode,
    carriers: CarrierReassignment,
    history: History,
    renderers: Renderers,
    verifications: Verifications,
    /// Whether a dataplane that has drifted is resynced.
    resyncs_on_drift: bool,
    pods: PodAdditions,
    failover: Failover,
    self_check: SelfCheck,
    store: StoreState,
    traffic_renderer: Arc<str>,
    started: Now,
    /// The time of the current input.
    now: Now,
    /// The outputs of the current input so far.
    out: Vec<Output>,
}

impl Core {
    /// A core without a state of the store. Its first outputs come with the first input.
    pub fn new(config: CoreConfig, now: Now) -> Self {
        let node = config.processor.node_name.clone();
        let has_node_ips = !config.processor.node_ips.is_empty();
        let mut processor = Processor::new(config.processor);
        let attached = config.attached.into_iter().take(MAX_PODS);
        let attached = attached.map(|(pod, interface)| Event::AddPod { pod, interface });
        let local = [
            Event::LocalAddresses(config.local_addresses),
            Event::LocalInterfaces(config.local_interfaces),
        ];
        processor.apply(local.into_iter().chain(attached));
        let node_ips = Some(processor.snapshot().node.node_ips);
        let interval = config.verification.interval;
        let own_node = OwnNode::new(node, &config.store, has_node_ips);
        Self {
            quarantine: Quarantine::of_store(&config.store),
            rereads: Rereads::default(),
            former_frontends: FormerFrontends::default(),
            warnings: Warnings::of_store(&config.store),
            unserved: UnservedWorkloads::default(),
            store_name: config.store,
            processor,
            guard: DeletionGuard::new(config.guard),
            own_node,
            carriers: CarrierReassignment::default(),
            history: History::new(config.history),
            renderers: Renderers::new(config.renderers),
            verifications: Verifications::new(config.verified_renderers, interval, now.instant),
            resyncs_on_drift: config.verification.resync_on_drift,
            pods: PodAdditions::default(),
            failover: Failover::default(),
            self_check: SelfCheck::new(config.self_check),
            store: StoreState::new(config.has_mirror, now.instant),
            traffic_renderer: config.traffic_renderer,
            started: now,
            now,
            out: vec![Output::HealthChecks(HealthUpdate {
                services: Vec::new(),
                node_ips,
            })],
        }
    }

    /// Handles one input. `execute` gets the outputs, in order.
    pub fn handle(&mut self, input: Input, now: Now, execute: &mut dyn FnMut(Output)) {
        self.now = now;
        match input {
            Input::Store(event, received) => self.on_store(event, received, execute),
            Input::Mirror(report) => self.on_mirror(report, execute),
            Input::WorkDone(done) => self.on_work_done(done),
            Input::RendererLost(renderer, error) => {
                self.renderers.on_lost(&renderer, error, self.now);
            }
            Input::ForeignChange(renderer, change) => self.on_foreign_change(&renderer, change),
            Input::Verified(report) => self.on_verified(report),
            Input::Timer => self.on_timer(execute),
            Input::LocalAddresses(addresses) => {
                let description = format!(
                    "the interfaces of this node have {} addresses now",
                    addresses.len()
                );
                let changes = self.processor.apply([Event::LocalAddresses(addresses)]);
                self.publish("addresses", description, changes, Timestamps::now(self.now));
            }
            // Only what concerns services is an event: interfaces come and go with every pod.
            Input::LocalInterfaces(interfaces) => {
                let changes = self.processor.apply([Event::LocalInterfaces(interfaces)]);
                if !changes.is_empty() {
                    let description = "the interfaces of this node have changed".to_owned();
                    self.publish("addresses", description, changes, Timestamps::now(self.now));
                }
            }
            Input::Resync { cause } => self.resync(cause),
            Input::ConfirmDeletions(request) => {
                let is_confirmed = self.confirm_deletions("they were confirmed");
                self.answer(request, Ok(is_confirmed));
            }
            Input::AddPod {
                pod,
                interface,
                wait,
            } => self.add_pod(pod, interface, wait),
            Input::DeletePod(pod, request) => {
                let is_attached = self.processor.attached().contains_key(&pod);
                if is_attached {
                    let description = format!("pod {pod} is detached");
                    self.apply_pod_event("pod-deleted", description, Event::DeletePod(pod));
                }
                self.answer(request, Ok(is_attached));
            }
            Input::BackendsRefused(backends) => {
                let update = self.failover.on_refused(&backends, self.now);
                self.apply_failover(update);
            }
            Input::BackendsSilent(backends) => {
                let update = self.failover.on_silent(backends, self.now);
                self.apply_failover(update);
            }
            Input::Probed {
                backend,
                is_answered,
            } => {
                let update = self.failover.on_probed(backend, is_answered, self.now);
                self.apply_failover(update);
            }
            Input::FailoverState(state) => {
                let update = self.failover.on_state(state);
                self.apply_failover(update);
            }
            Input::SelfChecked(failure) => {
                if let Some(text) = self.self_check.on_checked(failure, self.now.time) {
                    self.note("self-check", text);
                }
            }
        }
        self.out.drain(..).for_each(execute);
    }

    /// When [`Input::Timer`] is due if there is no other input before.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.renderers.deadline(),
            self.guard.deadline(),
            self.verifications.deadline(),
            self.pods.deadline(),
            self.store.deadline,
            self.unserved.deadline(),
            self.failover.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }
}

/// Events of the store.
impl Core {
    fn on_store(&mut self, event: StoreEvent, received: Instant, execute: &mut dyn FnMut(Output)) {
        if !self.store.waiting.is_empty() {
            return self.store.waiting.push((event, received));
        }
        match event {
            StoreEvent::Listed(list)
                if self.store.needs_saved_state(&list, self.own_node.path()) =>
            {
                self.store
                    .waiting
                    .push((StoreEvent::Listed(list), received));
                self.store.deadline = Some(self.now.instant + SAVED_LIMIT);
                self.out.push(Output::LoadSaved);
            }
            StoreEvent::Listed(list) => self.apply_list(*list, received, None, execute),
            StoreEvent::ListProgress => self.store.extend_deadline(self.now.instant),
            StoreEvent::Changed(batch, decoded) => self.on_changes(batch, decoded, received),
            StoreEvent::Progress { revision } => self.on_progress(revision),
            StoreEvent::Problems(problems) => self.on_problems(problems),
            StoreEvent::Down { reason } => self.on_down(reason),
            StoreEvent::Replaced { reason } => self.note("store-replaced", reason),
            StoreEvent::Inconsistent {
                inconsistency,
                reason,
            } => {
                self.out
                    .push(Output::Count(Metric::StoreRepair(inconsistency)));
                self.note("store-repair", reason);
            }
            StoreEvent::Up => {
                self.report_store_up();
                self.note("store-up", "nothing was missed".to_owned());
            }
        }
    }

    /// Applies the first list, which has waited, and the events received meanwhile.
    fn resume_list(&mut self, mut saved: Option<DecodedList>, execute: &mut dyn FnMut(Output)) {
        for (event, received) in std::mem::take(&mut self.store.waiting) {
            match event {
                StoreEvent::Listed(list) => self.apply_list(*list, received, saved.take(), execute),
                event => self.on_store(event, received, execute),
            }
        }
    }

    /// Makes a list the active state. The saved state is recalled before, for the deletion guard and for values that cannot be
    /// read; both together are one change.
    fn apply_list(
        &mut self,
        list: DecodedList,
        received: Instant,
        saved: Option<DecodedList>,
        execute: &mut dyn FnMut(Output),
    ) {
        let at = Timestamps::received(received, self.now);
        let mut changes = saved.map_or_else(ChangeSet::default, |saved| self.recall(saved));
        self.report_store_up();
        self.store.deadline = None;
        self.store.revision = list.revision;
        self.store.is_from_mirror = false;
        let mut keep = BTreeSet::new();
        if !list.has(self.own_node.path()) {
            keep.insert(self.own_node.path().to_owned());
        }
        let DecodedList {
            revision,
            mut resync,
            names,
            bad,
            warnings,
            unserved,
            problems,
            entries,
            is_saved,
        } = list;
        let decision = self
            .guard
            .check_list(&self.processor, &mut resync, self.now);
        self.own_node.keep_in_list(&self.processor, &mut resync);
        self.report_held(&decision);
        // The mirror keeps what stays active, and always the Node object of this node.
        let kept = resync.undecodable.iter().filter_map(wire::stored_key);
        keep.extend(kept.map(|key| key.to_path()));
        // Values beyond the store's limit of which nothing else is known.
        let unread = problems.iter().map(|problem| &problem.source);
        keep.extend(unread.filter(|source| entries.has(source)).cloned());
        if is_saved {
            self.store.note_saved(revision);
            drop(entries);
        } else {
            // At once: the mirror writes and frees the entries while the services are combined.
            self.out.push(Output::Save(Saving::List {
                revision,
                entries,
                keep,
            }));
            self.out.drain(..).for_each(execute);
        }
        let objects = resync.objects.len();
        debug!(list = %resync, revision, "a list of the store");
        self.renderers
            .note_seen(ObjectChanges::of_objects(&resync.objects));
        changes.merge(self.processor.resync_sharing(resync, names));
        self.own_node.check(&self.processor);
        let unusable = bad
            .iter()
            .filter(|bad| !bad.is_used)
            .map(|bad| bad.key.clone());
        self.warnings
            .replace_values(warnings, &unusable.collect(), self.now);
        let unusable = bad.iter().filter(|bad| !bad.is_used);
        let unusable: Vec<&str> = unusable.map(|bad| bad.key.as_str()).collect();
        self.rereads.clear();
        // A saved value was read at least twice.
        let again = self.rereads.after([], unusable).filter(|_| !is_saved);
        self.out.extend(again.map(Output::Reread));
        self.quarantine.replace_values(bad, self.now);
        self.replace_problems(problems);
        self.replace_unserved(unserved);
        let unreadable = self.quarantine.len();
        let description = format!(
            "{}, {unreadable} that cannot be used",
            counted(objects, "object")
        );
        if self.store.is_synced {
            self.publish("snapshot", description, changes, at);
        } else {
            let services = self.processor.count(ObjectKind::Service);
            info!(
                objects,
                unreadable, services, revision, "first snapshot of the store"
            );
            self.publish_first("snapshot", description, &changes, at);
        }
    }

    fn on_changes(&mut self, batch: Batch, decoded: DecodedChanges, received: Instant) {
        let DecodedChanges {
            mut events,
            statuses,
            warnings,
            unserved,
            triggered,
        } = decoded;
        let at = Timestamps {
            triggered,
            ..Timestamps::received(received, self.now)
        };
        self.store.revision = batch.revision;
        self.renderers.note_seen(ObjectChanges::of_events(&events));
        let decision = self
            .guard
            .check_changes(&self.processor, &mut events, self.now);
        self.report_held(&decision);
        let bad = statuses
            .iter()
            .filter(|status| matches!(status, ValueStatus::Bad(_)))
            .count();
        let description = describe::changes(&events, bad);
        self.own_node.keep_in_changes(&self.processor, &mut events);
        let is_about_nodes = OwnNode::is_concerned(&events);
        let changes = self.processor.apply(events);
        if is_about_nodes {
            self.own_node.check(&self.processor);
        }
        self.publish("change", description, changes, at);
        let again = {
            let keys = batch.changes.iter().map(Change::key);
            let is_bad = |status: &&ValueStatus| matches!(status, ValueStatus::Bad(_));
            let bad = batch.changes.iter().zip(&statuses);
            let bad = bad.filter(|(_, status)| is_bad(status));
            self.rereads
                .after(keys, bad.map(|(change, _)| change.key()))
        };
        self.out.extend(again.map(Output::Reread));
        let with_deletions = decision == DeletionDecision::Pass;
        let kept = self.own_node.path();
        let saving = usable_changes(batch, &statuses, with_deletions, kept);
        self.out.push(Output::Save(saving));
        self.warnings.update_values(&statuses, warnings, self.now);
        if let Some(unserved) = unserved {
            self.replace_unserved(unserved);
        }
        self.quarantine.update_values(statuses, self.now);
    }

    /// Saves the revision: a later start can go on from it, even if the store has forgotten earlier ones by then.
    fn on_progress(&mut self, revision: i64) {
        self.store.revision = revision;
        self.renderers.advance_revision(revision);
        let batch = Batch {
            revision,
            changes: Vec::new(),
        };
        let deviating = BTreeSet::new();
        self.out
            .push(Output::Save(Saving::Apply { batch, deviating }));
    }

    fn on_problems(&mut self, problems: Vec<Problem>) {
        let places = Places::of_store(&self.store_name);
        let unreadable = problems.iter().filter(|problem| !problem.is_warning);
        let shown: Vec<Problem> = unreadable
            .map(|problem| places.shown_problem(problem))
            .collect();
        // A change of warnings alone is no event.
        if self.replace_problems(problems) {
            self.note("problems", describe::problems(&shown));
        }
    }

    /// Replaces the problems and warnings of the store itself. False if that changed warnings alone.
    fn replace_problems(&mut self, problems: Vec<Problem>) -> bool {
        let (warnings, problems) = problems
            .into_iter()
            .partition(|problem: &Problem| problem.is_warning);
        let has_other_warnings = self.warnings.replace_manifests(warnings, self.now);
        let has_other_problems = self.quarantine.replace_problems(problems, self.now);
        has_other_problems || !has_other_warnings
    }

    /// Replaces the external workloads that no controller serves.
    fn replace_unserved(&mut self, unserved: Vec<Problem>) {
        self.unserved.replace(unserved, self.now.instant);
        self.warn_of_unserved();
    }

    fn warn_of_unserved(&mut self) {
        let due = self.unserved.take_due(self.now.instant);
        self.warnings.replace_workloads(due, self.now);
    }

    fn on_down(&mut self, reason: String) {
        self.note("store-down", reason.clone());
        // An outage may have several causes.
        let first = self.store.down.take();
        let since = first.as_ref().map_or(self.now.time, |first| first.since);
        self.store.down = Some(StoreDown { since, reason });
        if first.is_none() {
            // The feed has logged the reason.
            info!("the dataplane stays as it is while the store is down");
            if !self.store.is_synced {
                self.store.deadline = None;
                self.out.push(Output::LoadSaved);
            }
        }
    }

    fn report_store_up(&mut self) {
        if let Some(down) = self.store.down.take() {
            info!(since = %down.since, "the store is watched again");
        }
    }

    fn report_held(&mut self, decision: &DeletionDecision) {
        let held = self
            .guard
            .held()
            .filter(|_| *decision == DeletionDecision::HeldNow);
        let Some(HeldDeletions { objects, until, .. }) = held.cloned() else {
            return;
        };
        warn!(
            objects,
            %until,
            "too many objects were deleted from the store at once: they stay active; confirm with `contiv confirm-deletions`"
        );
        let objects = counted(objects, "object");
        self.note(
            "held",
            format!("deleted from the store at once, and still active: {objects}"),
        );
    }

    /// Lists the store again and applies its deletions. False if none are held.
    fn confirm_deletions(&mut self, cause: &'static str) -> bool {
        let is_confirmed = self.guard.confirm();
        if is_confirmed {
            info!(cause, "held deletions will be applied");
            self.note(
                "confirmed",
                format!("held deletions will be applied: {cause}"),
            );
            self.out.push(Output::Relist);
        }
        is_confirmed
    }
}

/// The saved state of the mirror.
impl Core {
    /// Continues with a waiting first list. Otherwise the store has not been read, and the saved state goes to the renderers
    /// until the store can be read.
    fn on_saved(&mut self, saved: Option<DecodedList>, execute: &mut dyn FnMut(Output)) {
        if !self.store.waiting.is_empty() {
            return self.resume_list(saved, execute);
        }
        let Some(saved) = saved.filter(|_| !self.store.is_synced) else {
            return;
        };
        let (revision, objects) = (saved.revision, saved.resync.objects.len());
        let changes = self.recall(saved);
        self.own_node.check(&self.processor);
        self.store.revision = revision;
        self.store.is_from_mirror = true;
        warn!(
            objects,
            revision, "the store could not be read yet; using its saved state"
        );
        let objects = counted(objects, "object");
        let description =
            format!("{objects} as saved at revision {revision}: the store could not be read yet");
        self.publish_first("mirror", description, &changes, Timestamps::now(self.now));
    }

    fn recall(&mut self, saved: DecodedList) -> ChangeSet {
        self.warnings
            .replace_values(saved.warnings, &BTreeSet::new(), self.now);
        self.processor.resync_sharing(saved.resync, saved.names)
    }

    fn on_mirror(&mut self, report: MirrorReport, execute: &mut dyn FnMut(Output)) {
        let Some(status) = &mut self.store.mirror else {
            return;
        };
        match report {
            MirrorReport::Summary(summary) => self.store.saved = Some(summary),
            // The driver gives them to the decoder and to the feed.
            MirrorReport::Page(_) | MirrorReport::Start(_) => {}
            MirrorReport::Loaded(saved) => self.on_saved(saved.map(DecodedList::of_saved), execute),
            MirrorReport::Written {
                revision,
                is_behind,
            } => {
                *status = MirrorStatus {
                    revision: Some(revision),
                    written: Some(self.now.time),
                    error: None,
                };
                if is_behind {
                    info!("the disk was too slow for the mirror; listing the store again");
                    self.out.push(Output::Relist);
                }
            }
            MirrorReport::CaughtUp => self.out.push(Output::Relist),
            MirrorReport::Failed(error) => status.error = Some(error),
        }
    }
}

/// Work for renderers and their reports.
impl Core {
    /// Makes changes active and passes them to every consumer of changes. Returns the number of the event. Before the first
    /// snapshot they are only stored: nothing is rendered from an incomplete cache.
    fn publish(
        &mut self,
        kind: &'static str,
        description: String,
        mut changes: ChangeSet,
        at: Timestamps,
    ) -> u64 {
        let event = self.history.next_seq_num();
        self.carriers.set_carriers_of_changes(&mut changes, event);
        self.quarantine.update_services(&changes.services, self.now);
        self.former_frontends
            .update(&changes.services, self.now.time);
        let changes = Arc::new(changes);
        let renderers = self.renderers_of(&changes);
        let has_work = !renderers.is_empty();
        self.count_queued(&renderers, || changes.families());
        self.record(kind, description, Some(&changes), renderers, at);
        if has_work {
            self.renderers
                .add_changes(&changes, EventRange::one(event, at));
            self.dispatch();
        } else {
            self.renderers.advance_revision(self.store.revision);
        }
        self.out
            .extend(HealthUpdate::of(&changes).map(Output::HealthChecks));
        self.update_failover(&changes);
        event
    }

    /// Tells failover of changed services. Its decisions about them are published at once.
    fn update_failover(&mut self, changes: &ChangeSet) {
        let concerned = changes
            .services
            .iter()
            .filter(|(id, change)| self.failover.is_concerned(id, change.new.as_deref()));
        let services: Vec<_> = concerned
            .map(|(id, change)| {
                let service = change.new.as_ref();
                (
                    id.clone(),
                    service.map(|service| self.with_carrier(service)),
                )
            })
            .collect();
        if !services.is_empty() {
            let update = self.failover.update_services(services);
            self.apply_failover(update);
        }
    }

    /// Publishes what failover has decided.
    fn apply_failover(&mut self, update: failover::Update) {
        let failover::Update {
            failing,
            changes: descriptions,
            notes,
            outputs,
        } = update;
        self.out.extend(outputs);
        for failover::Note {
            description,
            is_warning,
        } in notes
        {
            if is_warning {
                warn!("{description}");
            } else {
                info!("{description}");
            }
            self.note(FAILOVER, description);
        }
        if failing.is_empty() {
            return;
        }
        let changes = self.processor.apply(failing);
        // What is out may have gone with its service.
        if !changes.is_empty() {
            let description = describe::failover(&descriptions);
            info!("{description}");
            self.publish(FAILOVER, description, changes, Timestamps::now(self.now));
        }
    }

    /// The renderers with work for these changes.
    fn renderers_of(&self, changes: &ChangeSet) -> Vec<Arc<str>> {
        if self.store.is_synced && !changes.is_empty() {
            self.renderers.names()
        } else {
            Vec::new()
        }
    }

    /// Gives renderers the first snapshot.
    fn publish_first(
        &mut self,
        kind: &'static str,
        description: String,
        changes: &ChangeSet,
        at: Timestamps,
    ) {
        self.store.is_synced = true;
        self.quarantine.update_services(&changes.services, self.now);
        // The carriers of services before the start are unknown.
        let services = self.processor.services().map(|(_, service)| service);
        self.carriers.begin(services, self.history.next_seq_num());
        self.record_resync(kind, description, Some(changes), self.renderers.names(), at);
        self.out
            .extend(HealthUpdate::of(changes).map(Output::HealthChecks));
        self.update_failover(changes);
    }

    /// Records an event after which these renderers are resynced.
    fn record_resync(
        &mut self,
        kind: &'static str,
        description: String,
        changes: Option<&ChangeSet>,
        renderers: Vec<Arc<str>>,
        at: Timestamps,
    ) {
        self.renderers
            .need_resync(&renderers, EventRange::one(self.history.next_seq_num(), at));
        self.count_queued(&renderers, || Families::ALL);
        self.record(kind, description, changes, renderers, at);
        self.dispatch();
    }

    /// Gives pending work to all idle renderers.
    fn dispatch(&mut self) {
        let snapshot = || {
            let snapshot = self.carriers.with_carriers(self.processor.snapshot());
            self.self_check.with_service(snapshot)
        };
        self.renderers
            .dispatch(self.store.revision, self.now, snapshot, &mut self.out);
    }

    /// Counts new work for these renderers, if that of this node's traffic is one of them.
    fn count_queued(&mut self, renderers: &[Arc<str>], families: impl Fn() -> Families) {
        if renderers.contains(&self.traffic_renderer) {
            self.out.push(Output::Count(Metric::Queued(families())));
        }
    }

    /// Adds an event to the history and returns its number.
    fn record(
        &mut self,
        kind: &'static str,
        description: String,
        changes: Option<&ChangeSet>,
        renderers: Vec<Arc<str>>,
        at: Timestamps,
    ) -> u64 {
        self.out.push(Output::Count(Metric::Event(kind)));
        let revision = self.store.revision;
        self.history.push(NewRecord {
            kind,
            description,
            at,
            revision,
            changes,
            renderers,
        })
    }

    /// Records an event without work for renderers.
    fn note(&mut self, kind: &'static str, description: String) {
        self.record(
            kind,
            description,
            None,
            Vec::new(),
            Timestamps::now(self.now),
        );
    }

    fn on_work_done(&mut self, done: WorkDone) {
        let was_ready = self.is_ready();
        if let Some(report) = self.renderers.work_done(done, self.now, &mut self.out) {
            self.reassign_carriers(&report);
            let RendererReport {
                renderer,
                events,
                outcome,
                is_update,
            } = &report;
            if let Outcome::Applied { report, .. } = outcome {
                self.quarantine
                    .replace_rejected(renderer, &report.rejected, self.now);
            }
            self.history
                .set_outcome(*events, renderer, outcome, *is_update);
            let finished = self.pods.on_report(&report);
            self.finish_pods(finished);
        }
        if !was_ready && self.is_ready() {
            let after = self
                .now
                .instant
                .saturating_duration_since(self.started.instant);
            let revision = self.store.revision;
            info!(
                ?after,
                revision, "ready: every renderer has applied its first snapshot"
            );
        }
        self.dispatch();
    }

    /// Updates renderers when the carrier of a service changes because of a report of the renderer `route`.
    fn reassign_carriers(&mut self, report: &RendererReport) {
        let Outcome::Applied {
            report: applied, ..
        } = &report.outcome
        else {
            return;
        };
        if &*report.renderer != carriers::ROUTE {
            return;
        }
        let moved = self
            .carriers
            .reassign(report.events.last, &applied.rejected);
        let services = moved.iter().filter_map(|id| self.processor.service(id));
        let services = services
            .map(|service| (service.id.clone(), self.carriers.change(service)))
            .collect();
        let changes = ChangeSet {
            services,
            ..ChangeSet::default()
        };
        if !changes.is_empty() {
            let (at, renderers) = (Timestamps::now(self.now), self.renderers.names());
            let services = counted(changes.services.len(), "service");
            let description = format!("{services}, between nftables and routes");
            self.count_queued(&renderers, || changes.families());
            let event = self.record("handover", description, Some(&changes), renderers, at);
            let changes = Arc::new(changes);
            self.renderers
                .add_changes(&changes, EventRange::one(event, at));
            self.update_failover(&changes);
        }
    }

    /// Lists the store again and resyncs every renderer immediately, so that it works while the store is down too.
    fn resync(&mut self, cause: &'static str) {
        info!(cause, "resync");
        self.out.push(Output::Relist);
        // Before the first snapshot there is nothing to apply.
        let renderers = if self.store.is_synced {
            self.renderers.names()
        } else {
            Vec::new()
        };
        self.record_resync(
            "resync",
            cause.to_owned(),
            None,
            renderers,
            Timestamps::now(self.now),
        );
    }

    /// Schedules the repair of a foreign change of a renderer's dataplane.
    fn on_foreign_change(&mut self, renderer: &Arc<str>, change: Result<ForeignChange, String>) {
        self.out
            .push(Output::Count(Metric::ForeignChange(Arc::clone(renderer))));
        let what = match change {
            Ok(change) => change.to_string(),
            Err(error) => format!("another process may have changed it unnoticed: {error}"),
        };
        let at = Timestamps::now(self.now);
        let event = EventRange::one(self.history.next_seq_num(), at);
        if !self
            .renderers
            .on_foreign_change(renderer, event, self.now.instant)
        {
            debug!(%renderer, what, "another process changed the dataplane again; a repair is scheduled already");
            return;
        }
        warn!(%renderer, what, "another process changed the dataplane; repairing it");
        let description = format!("dataplane of renderer {renderer}: {what}");
        self.count_queued(std::slice::from_ref(renderer), || Families::ALL);
        self.record(
            FOREIGN_CHANGE,
            description,
            None,
            vec![Arc::clone(renderer)],
            at,
        );
        self.dispatch();
    }

    fn on_verified(&mut self, report: VerifierReport) {
        let renderer = Arc::clone(&report.renderer);
        let calls_if_settled = self.renderers.calls_if_settled(&renderer);
        let rejected = self.renderers.rejected(&renderer);
        match self
            .verifications
            .on_report(report, calls_if_settled, rejected, self.now)
        {
            None => {}
            Some(Err(error)) => warn!(%renderer, error, "the dataplane could not be verified"),
            Some(Ok(VerificationResult { drift, had_drift })) => {
                self.out.push(Output::Count(Metric::Verified(
                    Arc::clone(&renderer),
                    drift.len(),
                )));
                if !drift.is_empty() {
                    self.on_drift(&renderer, &drift);
                } else if had_drift {
                    info!(%renderer, "the dataplane equals the snapshot again");
                }
            }
        }
    }

    fn on_drift(&mut self, renderer: &Arc<str>, drift: &BTreeSet<Drift>) {
        let (what, count, resyncs) = (describe::drift(drift), drift.len(), self.resyncs_on_drift);
        let then = if resyncs {
            "resyncing"
        } else {
            "not repaired, as verify-heal is off"
        };
        warn!(%renderer, count, what, "the dataplane differs from the snapshot; {then}");
        let description =
            format!("dataplane of renderer {renderer} differs from the snapshot: {what}; {then}");
        let renderers = if resyncs {
            vec![Arc::clone(renderer)]
        } else {
            Vec::new()
        };
        self.record_resync(
            "drift",
            description,
            None,
            renderers,
            Timestamps::now(self.now),
        );
    }
}

/// Timers.
impl Core {
    fn on_timer(&mut self, execute: &mut dyn FnMut(Output)) {
        for (renderer, due) in self.renderers.take_due(self.now.instant) {
            match due {
                ExpiredTimer::Slow => {
                    warn!(%renderer, "busy for more than 10 s; other renderers are not delayed");
                    self.note(
                        "slow",
                        format!("renderer {renderer} is busy for more than 10 s"),
                    );
                }
                ExpiredTimer::Retry(error) => {
                    let description = format!("renderer {renderer}, after: {error}");
                    self.record_resync(
                        "retry",
                        description,
                        None,
                        vec![renderer],
                        Timestamps::now(self.now),
                    );
                }
                ExpiredTimer::LeftOut(services) => self.try_left_out(&renderer, &services),
            }
        }
        self.dispatch();
        if self
            .guard
            .deadline()
            .is_some_and(|deadline| deadline <= self.now.instant)
        {
            self.confirm_deletions("they were held long enough");
        }
        if self
            .store
            .deadline
            .take_if(|deadline| *deadline <= self.now.instant)
            .is_some()
        {
            if self.store.waiting.is_empty() {
                let after = self
                    .now
                    .instant
                    .saturating_duration_since(self.store.started);
                warn!(
                    ?after,
                    "the store has not been read yet; loading its saved state meanwhile"
                );
                self.note("store-slow", format!("not read within {after:.0?}"));
                self.out.push(Output::LoadSaved);
            } else {
                warn!(after = ?SAVED_LIMIT, "the saved state could not be loaded in time; the first list is applied without it");
                self.note(
                    "mirror-slow",
                    format!("the saved state was not loaded within {SAVED_LIMIT:?}"),
                );
                self.resume_list(None, execute);
            }
        }
        if self
            .unserved
            .deadline()
            .is_some_and(|deadline| deadline <= self.now.instant)
        {
            self.warn_of_unserved();
        }
        self.verify_due();
        let update = self.failover.on_timer(self.now);
        self.apply_failover(update);
        let expired = self.pods.take_expired(self.now.instant);
        self.finish_pods(expired);
    }

    /// Gives a renderer the services again that it has left out.
    fn try_left_out(&mut self, renderer: &Arc<str>, services: &BTreeSet<ServiceId>) {
        let unchanged = |service: &Arc<ContivService>| {
            let service = Some(self.with_carrier(service));
            ServiceChange {
                old: service.clone(),
                new: service,
            }
        };
        let services = services.iter().filter_map(|id| self.processor.service(id));
        let services: BTreeMap<_, _> = services
            .map(|service| (service.id.clone(), unchanged(service)))
            .collect();
        if services.is_empty() {
            return;
        }
        let description = format!(
            "renderer {renderer}, {} that it left out",
            counted(services.len(), "service")
        );
        let changes = ChangeSet {
            services,
            ..ChangeSet::default()
        };
        let at = Timestamps::now(self.now);
        self.count_queued(std::slice::from_ref(renderer), || changes.families());
        let event = self.record(
            "retry",
            description,
            Some(&changes),
            vec![Arc::clone(renderer)],
            at,
        );
        self.renderers
            .add_changes_of(renderer, &Arc::new(changes), EventRange::one(event, at));
    }

    /// Starts the verifications that are due.
    fn verify_due(&mut self) {
        let Self {
            verifications,
            renderers,
            store,
            ..
        } = self;
        let calls_if_settled =
            |name: &str| renderers.calls_if_settled(name).filter(|_| store.is_synced);
        let due = verifications.take_due(self.now.instant, calls_if_settled);
        if due.is_empty() {
            return;
        }
        let snapshot = Arc::new(
            self.self_check
                .with_service(self.carriers.with_carriers(self.processor.snapshot())),
        );
        self.out.extend(
            due.into_iter()
                .map(|renderer| Output::Verify(renderer, Arc::clone(&snapshot))),
        );
    }
}

/// This node's interfaces and pods.
impl Core {
    fn add_pod(
        &mut self,
        pod: PodId,
        interface: InterfaceName,
        wait: Option<(Duration, RequestId)>,
    ) {
        let previous = self.processor.attached().get(&pod).cloned();
        let refusal = if previous.is_none() && self.processor.attached().len() >= MAX_PODS {
            Some(PodNotAdded::TooManyPods)
        } else if wait.is_some() && !self.store.is_synced {
            Some(PodNotAdded::NotReady)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            warn!(%pod, %refusal, "a pod is not attached");
            if let Some((_, request)) = wait {
                self.answer(request, Err(refusal));
            }
            return;
        }
        let description = format!("pod {pod} is attached by {interface}");
        let added = Event::AddPod {
            pod: pod.clone(),
            interface: interface.clone(),
        };
        let (event, renderers) = self.apply_pod_event("pod-added", description, added);
        let Some((limit, request)) = wait else { return };
        let (event, renderers) = match self.pods.last_of_interface(&interface) {
            // The same request again, which some renderer has not applied yet.
            Some(first) if renderers.is_empty() => (first.event, first.renderers.clone()),
            _ => (event, renderers),
        };
        if renderers.is_empty() {
            self.answer(request, Ok(true));
        } else {
            let deadline = self.now.instant + limit;
            self.pods.add(PodAddition {
                pod,
                interface,
                previous,
                event,
                renderers,
                deadline,
                request,
            });
        }
    }

    /// Answers the callers of additions, and reverts the additions that have failed.
    fn finish_pods(&mut self, finished: Vec<(PodAddition, Answer)>) {
        for (
            PodAddition {
                pod,
                interface,
                previous,
                request,
                ..
            },
            answer,
        ) in finished
        {
            if let Err(cause) = &answer {
                warn!(%pod, %cause, "the addition of a pod is reverted");
                // It may have been attached to another interface, or detached, meanwhile; or another caller waits for the same.
                let is_awaited = self
                    .pods
                    .last_of_interface(&interface)
                    .is_some_and(|other| other.pod == pod);
                if self.processor.attached().get(&pod) == Some(&interface) && !is_awaited {
                    let reverted = match previous {
                        Some(interface) => Event::AddPod {
                            pod: pod.clone(),
                            interface,
                        },
                        None => Event::RevertAddPod(pod.clone()),
                    };
                    self.apply_pod_event("pod-reverted", format!("pod {pod}: {cause}"), reverted);
                }
            }
            self.answer(request, answer);
        }
    }

    /// Returns the number of the event, and the renderers with work.
    fn apply_pod_event(
        &mut self,
        kind: &'static str,
        description: String,
        event: Event,
    ) -> (u64, BTreeSet<Arc<str>>) {
        let changes = self.processor.apply([event]);
        self.out
            .push(Output::SavePods(self.processor.attached().clone()));
        let renderers = self.renderers_of(&changes).into_iter().collect();
        (
            self.publish(kind, description, changes, Timestamps::now(self.now)),
            renderers,
        )
    }

    fn answer(&mut self, request: RequestId, answer: Answer) {
        self.out.push(Output::Answer(request, answer));
    }
}

/// Views of the state, all derived from it.
impl Core {
    /// The state of the agent. Cheap, so that probes may ask often.
    pub fn status(&self) -> Status {
        Status {
            node: self.own_node.name().to_string(),
            node_problem: self.own_node.problem(),
            version: env!("CARGO_PKG_VERSION"),
            started: self.started.time,
            store: self.store_name.clone(),
            ready: self.is_ready(),
            synced: self.store.is_synced,
            revision: self.store.revision,
            held_deletions: self.guard.held().cloned(),
            from_mirror: self.store.is_from_mirror,
            mirror: self.store.mirror.clone(),
            store_down: self.store.down.clone(),
            quarantined: self.quarantine.len(),
            warnings: self.warnings.len(),
            failover: self.failover.status(),
            self_check: self.self_check.failure().cloned(),
            events: self.events(),
        }
    }

    /// Whether every renderer has applied its first snapshot; never becomes false again.
    pub fn is_ready(&self) -> bool {
        self.renderers.are_ready()
    }

    /// How many renderers are working.
    pub fn working(&self) -> usize {
        self.renderers.working()
    }

    /// The health of this node's traffic.
    pub fn proxy_health(&self) -> ProxyHealth {
        let health = self
            .renderers
            .health(&self.traffic_renderer, self.started.instant);
        ProxyHealth {
            node_eligible: self.own_node.is_eligible(&self.processor),
            is_proven: self.self_check.failure().is_none(),
            ..health
        }
    }

    /// The current snapshot for renderers; none before there is a list of the store or its saved state.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.store.is_synced.then(|| {
            self.self_check
                .with_service(self.carriers.with_carriers(self.processor.snapshot()))
        })
    }

    /// Adds to the outcome of a flow what the stored objects and the state of this agent say about it.
    pub fn explain(&self, trace: Trace, now: Instant) -> Explanation {
        let reasons = self.processor.reasons(&trace);
        let trace = Trace { reasons, ..trace };
        let former = self.former_destination(&trace);
        Explanation {
            former,
            caveats: self.caveats(&trace, now),
            trace,
        }
    }

    /// The service that had the destination of a flow, if no service has it now.
    fn former_destination(&self, trace: &Trace) -> Option<FormerDestination> {
        let flow = &trace.flow;
        let is_node_port = self.processor.serves_node_ports_at(flow.to());
        let frontend = self.former_frontends.find(flow, is_node_port)?;
        let service = self.processor.service(&frontend.service);
        let now = service.map(|service| service.addresses().collect());
        trace.matched_port.is_none().then(|| FormerDestination {
            frontend: frontend.clone(),
            now,
        })
    }

    /// Why the state behind the outcome of a flow may not be the one that is meant.
    fn caveats(&self, trace: &Trace, now: Instant) -> Vec<Caveat> {
        let revision = self.store.revision;
        let mut caveats = Vec::new();
        if self.store.is_from_mirror {
            caveats.push(Caveat::FromMirror { revision });
        }
        caveats.extend(self.store.down.clone().map(|StoreDown { since, reason }| {
            Caveat::StoreDown {
                since,
                reason,
                revision,
            }
        }));
        caveats.extend(self.guard.held().map(|held| Caveat::HeldDeletions {
            objects: held.objects,
        }));
        let is_known = |object: &ObjectKey| self.processor.object(object).is_some();
        let is_relevant = |object: &ObjectKey| match (&trace.matched_port, object) {
            (_, ObjectKey::Node(name)) => name == self.own_node.name(),
            (Some(port), ObjectKey::Service(id) | ObjectKey::Endpoints(id)) => *id == port.service,
            (Some(port), ObjectKey::EndpointSlice(slice)) => {
                self.processor.is_slice_of(slice, &port.service)
            }
            // It may be the one with this destination.
            (None, ObjectKey::Service(_)) => !is_known(object),
            _ => false,
        };
        let quarantined =
            self.quarantine
                .concerning(is_relevant, is_known, MAX_QUARANTINED_CAVEATS);
        caveats.extend(quarantined.into_iter().map(Caveat::quarantined));
        let failing = self
            .renderers(now)
            .into_iter()
            .filter(|renderer| renderer.failures > 0);
        caveats.extend(failing.filter_map(|renderer| {
            let error = renderer.last_error?.error;
            Some(Caveat::RendererFailing {
                renderer: renderer.name.to_string(),
                error,
            })
        }));
        caveats
    }

    /// Every service as renderers have it.
    pub fn services(&self) -> Vec<Arc<ContivService>> {
        self.processor
            .services()
            .map(|(_, service)| self.with_carrier(service))
            .collect()
    }

    /// One service.
    pub fn service(&self, id: &ServiceId) -> Option<Arc<ContivService>> {
        self.processor
            .service(id)
            .map(|service| self.with_carrier(service))
    }

    fn with_carrier(&self, service: &Arc<ContivService>) -> Arc<ContivService> {
        let mut service = Arc::clone(service);
        self.carriers.set_carrier(&mut service);
        service
    }

    /// Every service as the processor has it, without the carrier that it has for now: [`Core::services`] sets that.
    pub fn processor_services(&self) -> impl Iterator<Item = &ContivService> {
        self.processor.services().map(|(_, service)| &**service)
    }

    /// The stored services that are not served here, in the order of ids.
    pub fn unserved_services(&self) -> impl Iterator<Item = UnservedService> {
        self.processor.unserved_services()
    }

    /// The changes that the store has sent since the start, each object of a list being one; and those of them that the renderer
    /// of this node's traffic has not applied.
    pub fn seen_and_pending(&self) -> (ObjectChanges, ObjectChanges) {
        self.renderers.seen_and_pending(&self.traffic_renderer)
    }

    /// The active objects of a type.
    pub fn objects(&self, kind: ObjectKind) -> Vec<Object> {
        self.processor.objects(kind)
    }

    /// Every node.
    pub fn nodes(&self) -> Vec<NodeView> {
        self.processor.nodes()
    }

    /// Where the endpoints of a service run, as far as stored objects name their nodes.
    pub fn endpoint_places(&self, service: &ServiceId) -> BTreeMap<IpAddr, EndpointPlace> {
        self.processor.endpoint_places(service)
    }

    /// The pods that are attached to this node's dataplane, with their main interfaces.
    pub const fn pods(&self) -> &BTreeMap<PodId, InterfaceName> {
        self.processor.attached()
    }

    /// Which services need this machine to forward packets.
    pub fn forwarding_needs(&self) -> ForwardingNeeds {
        let services = self.processor.services().map(|(_, service)| &**service);
        ForwardingNeeds::of(
            services,
            &self.processor.node_facts(),
            self.processor.packet_interfaces(),
        )
    }

    /// True if an interface of this node leads to the external network, and so is none of a pod.
    pub fn is_external_interface(&self, interface: &InterfaceName) -> bool {
        self.processor.is_external_interface(interface)
    }

    /// The state of the renderers.
    pub fn renderers(&self, now: Instant) -> Vec<RendererView> {
        self.renderers
            .views(now, |name| self.verifications.view(name))
    }

    /// The quarantine without the first entries; the number of returned entries is limited.
    pub fn quarantine(&self, skip: usize) -> Vec<Quarantined> {
        self.quarantine.list(skip, |object: &ObjectKey| {
            self.processor.object(object).is_some()
        })
    }

    /// The warnings without the first ones; the number of returned ones is limited.
    pub fn warnings(&self, skip: usize) -> Vec<Warning> {
        self.warnings.list(skip)
    }

    /// The number of events so far.
    pub const fn events(&self) -> u64 {
        self.history.newest_seq_num()
    }

    /// The recorded events, oldest first.
    pub fn history(&self, now: Instant) -> impl Iterator<Item = &Record> {
        self.history.records(now)
    }

    /// Records how long handling the events after this one took.
    pub fn set_duration_after(&mut self, event: u64, duration: Duration) {
        self.history.set_duration_after(event, duration);
    }
}

/// The usable changes, which are saved, and the keys of the others. Held deletions are not saved, and neither is a deletion of the
/// key `kept`.
fn usable_changes(
    batch: Batch,
    statuses: &[ValueStatus],
    with_deletions: bool,
    kept: &str,
) -> Saving {
    let Batch { revision, changes } = batch;
    let (mut usable, mut deviating) = (Vec::new(), BTreeSet::new());
    for (change, status) in changes.into_iter().zip(statuses) {
        let is_kept = |key: &str| !with_deletions || key == kept;
        let is_usable = match (&change, status) {
            (_, ValueStatus::Superseded) => continue,
            (_, ValueStatus::Bad(_)) => false,
            (Change::Put(_), _) => true,
            (Change::Delete { key }, _) => !is_kept(key),
        };
        if is_usable {
            usable.push(change);
        } else {
            deviating.insert(change.key().to_owned());
        }
    }
    let batch = Batch {
        revision,
        changes: usable,
    };
    Saving::Apply { batch, deviating }
}
