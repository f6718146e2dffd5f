//! The schedules of all renderers. Each has one piece of work at a time; later changes are merged, so that no renderer delays
//! another or the core. Pure.

mod left_out;
mod repairs;
mod schedule;
mod view;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{ChangeSet, Snapshot};
use contiv_renderer::Rejected;
use jiff::Timestamp;
use tracing::{debug, info, warn};

use super::{
    history::{EventRange, Outcome, milliseconds},
    object_changes::ObjectChanges,
    verification::VerificationView,
};
use crate::{
    health::ProxyHealth,
    message::{Metric, Now, Output, Work, WorkDone},
};
use schedule::{CurrentWork, RendererSchedule};

pub(super) use schedule::ExpiredTimer;
pub use schedule::{LastError, LastReport};
pub use view::RendererView;

/// Every renderer, in the order of the configuration.
#[derive(Debug)]
pub(super) struct Renderers {
    all: Vec<RendererSchedule>,
    /// The changes that the store has sent.
    seen: ObjectChanges,
}

/// The result of work.
#[derive(Debug)]
pub(super) struct RendererReport {
    pub(super) renderer: Arc<str>,
    pub(super) events: EventRange,
    pub(super) outcome: Outcome,
    /// Whether the work was an update.
    pub(super) is_update: bool,
}

impl Renderers {
    pub(super) fn new(names: impl IntoIterator<Item = Arc<str>>) -> Self {
        Self {
            all: names.into_iter().map(RendererSchedule::new).collect(),
            seen: ObjectChanges::default(),
        }
    }

    /// All names.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.all
            .iter()
            .map(|renderer| Arc::clone(&renderer.name))
            .collect()
    }

    /// Counts changes of the store, before the work for them is scheduled.
    pub(super) fn note_seen(&mut self, changes: ObjectChanges) {
        for renderer in self.all.iter_mut().filter(|renderer| !renderer.has_work()) {
            renderer.applied_changes = self.seen;
        }
        self.seen = self.seen.plus(changes);
    }

    /// The counted changes, and those of them that a renderer has not applied.
    pub(super) fn seen_and_pending(&self, name: &str) -> (ObjectChanges, ObjectChanges) {
        let waiting = self.find(name).filter(|renderer| renderer.has_work());
        (
            self.seen,
            waiting.map_or_else(ObjectChanges::default, |renderer| {
                self.seen.since(renderer.applied_changes)
            }),
        )
    }

    /// Adds these changes to the pending work of all.
    pub(super) fn add_changes(&mut self, changes: &Arc<ChangeSet>, event: EventRange) {
        for renderer in &mut self.all {
            renderer.add_changes(changes, event);
        }
    }

    /// Adds changes to the pending work of one renderer.
    pub(super) fn add_changes_of(
        &mut self,
        name: &str,
        changes: &Arc<ChangeSet>,
        event: EventRange,
    ) {
        if let Some(renderer) = self.find_mut(name) {
            renderer.add_changes(changes, event);
        }
    }

    /// Records that the changes up to this revision of the store concern no renderer.
    pub(super) fn advance_revision(&mut self, revision: i64) {
        for renderer in &mut self.all {
            renderer.advance_revision(revision);
        }
    }

    /// Schedules a resync of these, whether or not they wait after a failure.
    pub(super) fn need_resync(&mut self, names: &[Arc<str>], event: EventRange) {
        for renderer in self
            .all
            .iter_mut()
            .filter(|renderer| names.contains(&renderer.name))
        {
            renderer.retry_at = None;
            renderer.need_resync(event);
        }
    }

    /// Schedules the repair of a foreign change: immediately, or later if such changes are repeated. False if one is scheduled
    /// already.
    pub(super) fn on_foreign_change(
        &mut self,
        name: &str,
        event: EventRange,
        now: Instant,
    ) -> bool {
        let Some(renderer) = self.find_mut(name) else {
            return false;
        };
        let Some(due) = renderer.repairs.note_change(event, now) else {
            return false;
        };
        // The foreign change may be why it failed.
        renderer.retry_at = renderer.retry_at.map(|retry_at| retry_at.min(due));
        true
    }

    /// Gives work to all idle renderers. `snapshot` is called at most once.
    pub(super) fn dispatch(
        &mut self,
        revision: i64,
        now: Now,
        snapshot: impl Fn() -> Snapshot,
        out: &mut Vec<Output>,
    ) {
        let mut shared: Option<Arc<Snapshot>> = None;
        for renderer in &mut self.all {
            let snapshot = || Arc::clone(shared.get_or_insert_with(|| Arc::new(snapshot())));
            if let Some(work) = renderer.next_work(revision, now, self.seen, snapshot) {
                out.push(Output::Render(Arc::clone(&renderer.name), work));
            }
        }
    }

    /// Handles the end of work. None if this renderer had no work.
    pub(super) fn work_done(
        &mut self,
        done: WorkDone,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Option<RendererReport> {
        let WorkDone {
            renderer: name,
            result,
            is_watched,
            duration,
        } = done;
        let renderer = self.find_mut(&name)?;
        renderer.is_watched = is_watched;
        let CurrentWork {
            work,
            events,
            revision,
            repaired,
            changes_after,
            ..
        } = renderer.busy.take()?;
        let is_update = matches!(work, Work::Update(_));
        let (duration_ms, extent) = (milliseconds(duration), work.extent());
        let outcome = match result {
            Ok(report) => {
                out.push(Output::Count(Metric::Applied(
                    Arc::clone(&name),
                    duration,
                    extent,
                )));
                renderer.applied_changes = changes_after;
                let since_trigger = events
                    .at
                    .triggered
                    .map(|triggered| time_between(triggered, now.time));
                let since_receipt = now.instant.saturating_duration_since(events.at.received);
                let programmed = |since_receipt| Metric::Programmed {
                    renderer: Arc::clone(&name),
                    since_receipt,
                    since_trigger,
                    families: extent.families,
                };
                match work {
                    // A list has no trigger time: these are changes that were to be applied alone, and failed or had to wait.
                    Work::Resync(_) if since_trigger.is_some() => {
                        out.push(Output::Count(programmed(None)));
                    }
                    Work::Resync(_) => {}
                    Work::Update(_) => out.push(Output::Count(programmed(Some(since_receipt)))),
                    Work::Heal(_) => {
                        out.push(Output::Count(Metric::Repaired(Arc::clone(&name))));
                        let after = now
                            .instant
                            .saturating_duration_since(events.at.handled.instant);
                        info!(
                            renderer = &*name,
                            changes = repaired,
                            ?after,
                            "foreign changes are repaired"
                        );
                    }
                }
                let sent_after = report
                    .sent
                    .map(|sent| sent.saturating_duration_since(events.at.handled.instant));
                let last = LastReport {
                    call: work.name(),
                    at: now.time,
                    duration_ms,
                    report: report.clone(),
                };
                renderer.left_out.replace(&last.report.rejected, now);
                succeeded(renderer, revision, last);
                let sent_after_ms = sent_after.map(milliseconds);
                Outcome::Applied {
                    first_seq_num: events.first,
                    at: now.time,
                    report,
                    duration_ms,
                    sent_after_ms,
                }
            }
            Err(error) => {
                out.push(Output::Count(Metric::Failed(
                    Arc::clone(&name),
                    extent.families,
                )));
                failed(renderer, error.clone(), now);
                renderer.need_resync(events);
                Outcome::Failed {
                    at: now.time,
                    error,
                    duration_ms,
                }
            }
        };
        Some(RendererReport {
            renderer: name,
            events,
            outcome,
            is_update,
        })
    }

    /// Handles the loss of a renderer's state. Its current work fails by itself, and its first snapshot comes in any case.
    pub(super) fn on_lost(&mut self, name: &str, error: String, now: Now) {
        let is_lost =
            |renderer: &&mut RendererSchedule| renderer.busy.is_none() && renderer.is_ready;
        if let Some(renderer) = self.find_mut(name).filter(is_lost) {
            failed(renderer, error, now);
        }
    }

    /// When the next timer expires.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.iter().filter_map(RendererSchedule::deadline).min()
    }

    /// The renderers whose timers have expired.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(Arc<str>, ExpiredTimer)> {
        let due = |renderer: &mut RendererSchedule| {
            Some((Arc::clone(&renderer.name), renderer.take_due(now)?))
        };
        self.all.iter_mut().filter_map(due).collect()
    }

    /// Whether every renderer has applied its first snapshot.
    pub(super) fn are_ready(&self) -> bool {
        self.all.iter().all(|renderer| renderer.is_ready)
    }

    /// After how many calls a renderer has applied everything and is idle; none if it has not.
    pub(super) fn calls_if_settled(&self, name: &str) -> Option<u64> {
        self.find(name)
            .filter(|renderer| renderer.is_settled())
            .map(|renderer| renderer.calls)
    }

    /// The services that a renderer has left out.
    pub(super) fn rejected(&self, name: &str) -> &[Rejected] {
        let report = self
            .find(name)
            .and_then(|renderer| renderer.last_report.as_ref());
        report.map_or(&[], |last| &last.report.rejected)
    }

    /// The health of the traffic of a renderer. `started` is when the core was created.
    pub(super) fn health(&self, name: &str, started: Instant) -> ProxyHealth {
        let ready = self.find(name).filter(|renderer| renderer.is_ready);
        ProxyHealth {
            in_sync: ready.is_some_and(|renderer| renderer.backoff.failures() == 0),
            // Everything not applied yet has been waiting since the start.
            unapplied_since: ready.map_or(Some(started), RendererSchedule::unapplied_since),
            last_applied: ready
                .and_then(|renderer| renderer.last_report.as_ref())
                .map(|report| report.at),
            node_eligible: true,
            is_proven: true,
        }
    }

    /// How many renderers are working.
    pub(super) fn working(&self) -> usize {
        self.all
            .iter()
            .filter(|renderer| renderer.busy.is_some())
            .count()
    }

    /// The views of all renderers, with the last verification of each.
    pub(super) fn views(
        &self,
        now: Instant,
        verification: impl Fn(&str) -> Option<VerificationView>,
    ) -> Vec<RendererView> {
        let view = |renderer: &RendererSchedule| {
            RendererView::of(renderer, verification(&renderer.name), now)
        };
        self.all.iter().map(view).collect()
    }

    fn find(&self, name: &str) -> Option<&RendererSchedule> {
        self.all.iter().find(|renderer| &*renderer.name == name)
    }

    fn find_mut(&mut self, name: &str) -> Option<&mut RendererSchedule> {
        self.all.iter_mut().find(|renderer| &*renderer.name == name)
    }
}

fn succeeded(renderer: &mut RendererSchedule, revision: i64, last: LastReport) {
    let LastReport {
        call,
        duration_ms,
        report,
        ..
    } = &last;
    debug!(
        renderer = &*renderer.name,
        call,
        revision,
        duration_ms,
        ?report,
        "applied"
    );
    if renderer.backoff.failures() > 0 {
        info!(
            renderer = &*renderer.name,
            failures = renderer.backoff.failures(),
            "recovered"
        );
        renderer.backoff.reset();
    }
    let known = renderer
        .last_report
        .as_ref()
        .map_or(&[][..], |last| &last.report.notes);
    for note in report.notes.iter().filter(|note| !known.contains(note)) {
        warn!(renderer = &*renderer.name, "{note}");
    }
    renderer.is_ready = true;
    renderer.applied_revision = revision;
    renderer.calls += 1;
    renderer.last_report = Some(last);
}

fn failed(renderer: &mut RendererSchedule, error: String, now: Now) {
    if renderer.backoff.failures() == 0 {
        warn!(
            renderer = &*renderer.name,
            error, "failed; a resync is scheduled"
        );
    } else {
        debug!(
            renderer = &*renderer.name,
            error,
            failures = renderer.backoff.failures(),
            "failed again"
        );
    }
    // Repeated foreign changes may be why it failed, so it is not retried before the next repair is due.
    let retry_at = now.instant + renderer.backoff.next(now.random);
    renderer.retry_at = Some(
        renderer
            .repairs
            .due()
            .map_or(retry_at, |due| due.at.max(retry_at)),
    );
    renderer.last_error = Some(LastError {
        at: now.time,
        error,
    });
}

/// Zero if the clock of another machine is ahead.
fn time_between(then: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(then).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests;
