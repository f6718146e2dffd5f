//! All renderers: each has a task of its own, and what blocks never keeps all threads, so that none can hold up another,
//! or the loop.

mod backoff;
mod healing;
mod standby;
mod state;
mod view;
mod watcher;
mod worker;

use std::{io, sync::Arc, time::Duration};

use contiv_model::{ChangeSet, Snapshot};
use contiv_renderer::{Description, Rejected};
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tracing::{debug, info, warn};

use super::{
    event::Event,
    history::{Covers, Outcome, milliseconds},
};
use crate::{health::ProxyHealth, metrics::RendererMetrics};
use standby::Standby;
use state::{Pending, RendererState, Task};

pub(super) use standby::PATIENCE;
pub use view::{LastError, LastReport, RendererView};
pub(super) use watcher::Notice;
pub(super) use worker::Done;
pub use worker::RendererSpec;

/// A call that takes longer is reported.
const SLOW_AFTER: Duration = Duration::from_secs(10);

/// So many notices of what others do may wait for the loop. More wait in the kernel, which tells when it has no room.
const NOTICES: usize = 64;

/// Every renderer, in the order of the configuration.
#[derive(Debug)]
pub(super) struct Renderers {
    all: Vec<RendererState>,
    metrics: RendererMetrics,
}

/// What became of work that is done.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) renderer: Arc<str>,
    pub(super) covers: Covers,
    pub(super) outcome: Outcome,
}

impl Renderers {
    /// Starts a task for each; reports, and notices of what others do, come through the receivers.
    pub(super) fn start(
        specs: Vec<RendererSpec>,
        metrics: RendererMetrics,
    ) -> io::Result<(Self, mpsc::Receiver<Done>, mpsc::Receiver<Notice>)> {
        // Each has at most one report under way.
        let (reports, receiver) = mpsc::channel(specs.len().max(1));
        let (notices, heard) = mpsc::channel(NOTICES);
        let standby = Standby::of_runtime()?.map(Arc::new);
        let start = |spec: RendererSpec| {
            let name = Arc::clone(spec.name());
            metrics.introduce(&name);
            RendererState::new(name, worker::start(spec, standby.clone(), reports.clone(), notices.clone()))
        };
        let all = specs.into_iter().map(start).collect();
        Ok((Self { all, metrics }, receiver, heard))
    }

    /// All names.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.all.iter().map(|renderer| Arc::clone(&renderer.name)).collect()
    }

    /// Makes all of them get these changes next.
    pub(super) fn add_changes(&mut self, changes: &Arc<ChangeSet>, event: Covers) {
        for renderer in &mut self.all {
            renderer.add_changes(changes, event);
        }
    }

    /// Makes all of them get everything next, also those that wait after a failure.
    pub(super) fn need_resync(&mut self, event: u64) {
        for renderer in &mut self.all {
            renderer.retry_at = None;
            renderer.need_resync(Covers::one(event));
        }
    }

    /// Gives up waiting after a failure: this one gets everything next.
    pub(super) fn retry(&mut self, name: &str, event: u64) {
        if let Some(renderer) = self.find(name) {
            renderer.retry_at = None;
            renderer.need_resync(Covers::one(event));
        }
    }

    /// Takes in that others have changed the dataplane of this one. True if a repair must be made due for it.
    pub(super) fn notice(&mut self, name: &str) -> bool {
        self.metrics.foreign_change(name);
        self.find(name).is_some_and(|renderer| renderer.healing.notice(Instant::now()))
    }

    /// Makes a repair of this one due: at once, unless others do it again and again.
    pub(super) fn need_repair(&mut self, name: &str, event: u64) {
        if let Some(renderer) = self.find(name) {
            let at = renderer.healing.make_due(Instant::now(), Covers::one(event));
            // If it has failed meanwhile, that was why.
            renderer.retry_at = renderer.retry_at.map(|retry_at| retry_at.min(at));
        }
    }

    /// Hands out what is due to all that are idle. `snapshot` is called at most once.
    pub(super) fn dispatch(&mut self, revision: i64, snapshot: impl Fn() -> Snapshot) {
        let now = Instant::now();
        let mut shared: Option<Arc<Snapshot>> = None;
        // The task that is woken last goes on in the caller's thread; and the first renderer matters most.
        for renderer in self.all.iter_mut().rev() {
            renderer
                .dispatch(revision, now, || Arc::clone(shared.get_or_insert_with(|| Arc::new(snapshot()))));
        }
    }

    /// Some of them were, since this was asked last.
    pub(super) fn were_given_work(&mut self) -> bool {
        let busy = self.all.iter_mut().filter_map(|renderer| renderer.busy.as_mut());
        busy.fold(false, |any, busy| any | std::mem::take(&mut busy.is_new))
    }

    /// Lets a renderer describe itself as soon as it is idle. False if there is none of this name.
    pub(super) fn ask(&mut self, name: &str, asker: oneshot::Sender<Description>) -> bool {
        let Some(renderer) = self.find(name) else { return false };
        renderer.ask(asker);
        renderer.describe(Instant::now());
        true
    }

    /// Takes a report in. None if it was no call that changes anything.
    pub(super) fn finish(&mut self, done: Done) -> Option<Settled> {
        let Done { renderer: name, result, watched, duration } = done;
        let metrics = self.metrics.clone();
        let renderer = self.find(&name)?;
        renderer.is_watched = watched;
        let task = renderer.busy.take()?.task;
        let (covers, revision) = match (task, &result) {
            (Task::Resync { covers, revision } | Task::Update { covers, revision }, _) => (covers, revision),
            (Task::Heal { covers, changes }, result) => {
                if result.is_ok() {
                    metrics.repaired(&name);
                    info!(renderer = &*name, changes, after = ?covers.since.elapsed(), "what others did is undone");
                }
                (covers, renderer.applied_revision)
            }
            (Task::Describe, Ok(_)) => return None,
            // A panic: the new renderer knows nothing, so it has to be told again.
            (Task::Describe, Err(error)) => {
                Self::failed(renderer, error.clone());
                return None;
            }
        };
        let duration_ms = milliseconds(duration);
        let outcome = match result {
            Ok(report) => {
                metrics.applied(&name, duration);
                let sent_after = report.sent.map(|sent| Instant::from_std(sent).duration_since(covers.since));
                let last = LastReport::new(task, duration, report.clone());
                let at = last.at;
                if matches!(task, Task::Update { .. }) {
                    let triggered = covers.triggered.map(|triggered| since(triggered, at));
                    metrics.programmed(&name, covers.received.elapsed(), triggered);
                }
                Self::succeeded(renderer, revision, last);
                // Before what is pending, so that a steady stream of changes does not keep them waiting for ever.
                renderer.describe(Instant::now());
                Outcome::Applied {
                    with: covers.first,
                    at,
                    report,
                    duration_ms,
                    sent_after_ms: sent_after.map(milliseconds),
                }
            }
            Err(error) => {
                metrics.failed(&name);
                Self::failed(renderer, error.clone());
                renderer.need_resync(covers);
                Outcome::Failed { at: Timestamp::now(), error, duration_ms }
            }
        };
        Some(Settled { renderer: name, covers, outcome })
    }

    fn succeeded(renderer: &mut RendererState, revision: i64, last: LastReport) {
        let LastReport { call, duration_ms, report, .. } = &last;
        debug!(renderer = &*renderer.name, call, revision, duration_ms, ?report, "applied");
        if renderer.backoff.failures() > 0 {
            info!(renderer = &*renderer.name, failures = renderer.backoff.failures(), "recovered");
            renderer.backoff.reset();
        }
        let known = renderer.last_report.as_ref().map_or(&[][..], |last| &last.report.notes);
        for note in report.notes.iter().filter(|note| !known.contains(note)) {
            warn!(renderer = &*renderer.name, "{note}");
        }
        renderer.is_ready = true;
        renderer.applied_revision = revision;
        renderer.last_report = Some(last);
    }

    fn failed(renderer: &mut RendererState, error: String) {
        if renderer.backoff.failures() == 0 {
            warn!(renderer = &*renderer.name, error, "failed; trying again, with everything");
        } else {
            debug!(renderer = &*renderer.name, error, failures = renderer.backoff.failures(), "failed again");
        }
        // A storm of changes by others may be why it failed, so it is not tried before the next repair is due.
        let retry_at = Instant::now() + renderer.backoff.next();
        renderer.retry_at = Some(renderer.healing.due().map_or(retry_at, |due| due.at.max(retry_at)));
        renderer.last_error = Some(LastError { at: Timestamp::now(), error });
    }

    /// When to look at them again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.iter().filter_map(RendererState::deadline).min()
    }

    /// What is due by now.
    pub(super) fn due(&mut self) -> Vec<Event> {
        let now = Instant::now();
        let is_due = |renderer: &RendererState| renderer.deadline().is_some_and(|deadline| deadline <= now);
        let due = self.all.iter_mut().filter(|renderer| is_due(renderer));
        due.map(|renderer| {
            let name = Arc::clone(&renderer.name);
            match &mut renderer.busy {
                None if renderer.retry_at.is_none() => Event::Repair,
                None => Event::Retry { renderer: name },
                Some(busy) => {
                    busy.is_slow = true;
                    Event::Slow { renderer: name }
                }
            }
        })
        .collect()
    }

    /// The error that a renderer failed with last.
    pub(super) fn last_error(&self, name: &str) -> &str {
        let renderer = self.all.iter().find(|renderer| &*renderer.name == name);
        renderer.and_then(|renderer| renderer.last_error.as_ref()).map_or("", |last| &last.error)
    }

    /// Every renderer has applied its first snapshot.
    pub(super) fn are_ready(&self) -> bool {
        self.all.iter().all(|renderer| renderer.is_ready)
    }

    /// Nothing is under way to this one or waits for it.
    pub(super) fn is_settled(&self, name: &str) -> bool {
        self.all.iter().any(|renderer| &*renderer.name == name && renderer.is_settled())
    }

    /// What this one has left out.
    pub(super) fn rejected(&self, name: &str) -> &[Rejected] {
        let renderer = self.all.iter().find(|renderer| &*renderer.name == name);
        let report = renderer.and_then(|renderer| renderer.last_report.as_ref());
        report.map_or(&[], |last| &last.report.rejected)
    }

    /// Counts a verification that found so many things wrong.
    pub(super) fn verified(&self, name: &str, drift: usize) {
        self.metrics.verified(name, drift);
    }

    /// How the traffic fares that depends on this renderer. `started` is when the loop was.
    pub(super) fn health(&self, name: &str, started: Instant) -> ProxyHealth {
        let renderer = self.all.iter().find(|renderer| &*renderer.name == name);
        let ready = renderer.filter(|renderer| renderer.is_ready);
        ProxyHealth {
            in_sync: ready.is_some_and(|renderer| renderer.backoff.failures() == 0),
            // All that is not applied yet has been there since the start.
            unapplied_since: ready.map_or(Some(started), RendererState::unapplied_since),
            last_applied: ready.and_then(|renderer| renderer.last_report.as_ref()).map(|report| report.at),
            node_eligible: true,
        }
    }

    /// Some renderer is at work.
    pub(super) fn are_busy(&self) -> bool {
        self.all.iter().any(|renderer| renderer.busy.is_some())
    }

    /// Sets the metrics that change with time alone.
    pub(super) fn set_gauges(&self) {
        let now = Instant::now();
        for renderer in &self.all {
            let RendererState { name, pending, applied_revision, .. } = renderer;
            self.metrics.set_damped(name, renderer.healing.is_damped(now));
            let pending =
                if let Pending::Changes { changes, .. } = pending { changes.services.len() } else { 0 };
            self.metrics.set_progress(name, *applied_revision, pending);
        }
    }

    /// How all of them are.
    pub(super) fn views(&self) -> Vec<RendererView> {
        let now = Instant::now();
        self.all.iter().map(|renderer| RendererView::of(renderer, now)).collect()
    }

    fn find(&mut self, name: &str) -> Option<&mut RendererState> {
        self.all.iter_mut().find(|renderer| &*renderer.name == name)
    }
}

/// Nothing, where the clock of another machine is ahead.
fn since(then: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(then).try_into().unwrap_or_default()
}
