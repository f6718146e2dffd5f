//! The schedule of one renderer: its current work, pending work, and the last results. Pure.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{ChangeSet, ServiceId, Snapshot};
use contiv_renderer::Report;
use contiv_store::Backoff;
use jiff::Timestamp;
use serde::Serialize;

use super::{left_out::LeftOutServices, repairs::RepairSchedule};
use crate::{
    core::{history::EventRange, object_changes::ObjectChanges},
    message::{Now, Work},
};

/// A call that takes longer is reported.
const SLOW_AFTER: Duration = Duration::from_secs(10);
/// The pauses after failures: each is twice the one before, up to the maximum.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// One renderer as the core sees it.
#[derive(Debug)]
pub(super) struct RendererSchedule {
    pub(super) name: Arc<str>,
    pub(super) busy: Option<CurrentWork>,
    pub(super) pending: Pending,
    pub(super) backoff: Backoff,
    pub(super) repairs: RepairSchedule,
    pub(super) left_out: LeftOutServices,
    /// Whether foreign changes of its dataplane are detected.
    pub(super) is_watched: bool,
    /// After a failure, it gets no work before this time.
    pub(super) retry_at: Option<Instant>,
    pub(super) is_ready: bool,
    pub(super) applied_revision: i64,
    /// How many calls have succeeded.
    pub(super) calls: u64,
    /// The changes of the store in its dataplane.
    pub(super) applied_changes: ObjectChanges,
    pub(super) last_report: Option<LastReport>,
    pub(super) last_error: Option<LastError>,
}

/// The current work of a renderer.
#[derive(Debug)]
pub(super) struct CurrentWork {
    pub(super) work: Work,
    pub(super) events: EventRange,
    /// The store's revision in its dataplane afterwards.
    pub(super) revision: i64,
    /// The changes of the store in its dataplane afterwards.
    pub(super) changes_after: ObjectChanges,
    /// How many foreign changes it undoes.
    pub(super) repaired: u64,
    pub(super) since: Now,
    /// Whether it was reported as taking too long.
    pub(super) is_slow: bool,
}

/// A call that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LastReport {
    /// `resync`, `update` or `heal`.
    pub call: &'static str,
    /// When it was finished.
    pub at: Timestamp,
    /// How long it took.
    pub duration_ms: f64,
    /// The renderer's report.
    #[serde(flatten)]
    pub report: Report,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastError {
    /// When it failed.
    pub at: Timestamp,
    /// Why.
    pub error: String,
}

/// The pending work of a renderer.
#[derive(Debug, Default)]
pub(super) enum Pending {
    #[default]
    Nothing,
    Changes {
        changes: Arc<ChangeSet>,
        events: EventRange,
    },
    /// A resync with the state at the time when it starts.
    Resync { events: EventRange },
}

impl Pending {
    const fn events(&self) -> Option<EventRange> {
        match self {
            Self::Nothing => None,
            Self::Changes { events, .. } | Self::Resync { events } => Some(*events),
        }
    }
}

/// An expired timer.
#[derive(Debug)]
pub(in crate::core) enum ExpiredTimer {
    /// It is retried after this error.
    Retry(String),
    /// These services, which it has left out, are tried again.
    LeftOut(BTreeSet<ServiceId>),
    /// It has been busy for too long.
    Slow,
}

impl RendererSchedule {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            busy: None,
            pending: Pending::Nothing,
            backoff: Backoff::new(MIN_PAUSE, MAX_PAUSE),
            repairs: RepairSchedule::default(),
            left_out: LeftOutServices::new(),
            is_watched: false,
            retry_at: None,
            is_ready: false,
            applied_revision: 0,
            calls: 0,
            applied_changes: ObjectChanges::default(),
            last_report: None,
            last_error: None,
        }
    }

    /// Adds changes to the pending work.
    pub(super) fn add_changes(&mut self, new: &Arc<ChangeSet>, event: EventRange) {
        self.pending = match std::mem::take(&mut self.pending) {
            Pending::Nothing => Pending::Changes {
                changes: Arc::clone(new),
                events: event,
            },
            Pending::Changes {
                mut changes,
                events,
            } => {
                Arc::make_mut(&mut changes).merge(ChangeSet::clone(new));
                Pending::Changes {
                    changes,
                    events: events.union(event),
                }
            }
            Pending::Resync { events } => Pending::Resync {
                events: events.union(event),
            },
        };
    }

    /// Records that the changes up to this revision of the store need no work.
    pub(super) const fn advance_revision(&mut self, revision: i64) {
        match (&self.pending, &mut self.busy) {
            (Pending::Nothing, Some(busy)) => busy.revision = revision,
            (Pending::Nothing, None) if self.is_ready => self.applied_revision = revision,
            // The pending or current work sets it when it is done.
            _ => {}
        }
    }

    /// Schedules a resync.
    pub(super) fn need_resync(&mut self, event: EventRange) {
        let events = self
            .pending
            .events()
            .map_or(event, |events| events.union(event));
        self.pending = Pending::Resync { events };
    }

    /// Whether it works, or has to.
    pub(super) const fn has_work(&self) -> bool {
        self.busy.is_some() || !matches!(self.pending, Pending::Nothing)
    }

    /// Whether it has applied everything and is idle.
    pub(super) fn is_settled(&self) -> bool {
        let is_idle =
            self.busy.is_none() && self.retry_at.is_none() && self.repairs.due().is_none();
        self.is_ready && is_idle && matches!(self.pending, Pending::Nothing)
    }

    /// The next work, unless it is busy or waits after a failure. `snapshot` returns the current state.
    pub(super) fn next_work(
        &mut self,
        revision: i64,
        now: Now,
        seen: ObjectChanges,
        snapshot: impl FnOnce() -> Arc<Snapshot>,
    ) -> Option<Work> {
        if self.busy.is_some() || self.retry_at.is_some() {
            return None;
        }
        let is_resync = matches!(self.pending, Pending::Resync { .. });
        let repair = if is_resync {
            None
        } else {
            self.repairs.take_due(now.instant)
        };
        let (work, events, repaired) = if let Some(due) = repair {
            (Work::Heal(snapshot()), due.events, due.changes)
        } else {
            match std::mem::take(&mut self.pending) {
                Pending::Nothing => return None,
                Pending::Changes { changes, events } => (Work::Update(changes), events, 0),
                Pending::Resync { events } => {
                    // A resync undoes foreign changes too.
                    let repaired = self.repairs.repaired(now.instant);
                    (
                        Work::Resync(snapshot()),
                        repaired.map_or(events, |due| events.union(due.events)),
                        0,
                    )
                }
            }
        };
        let (revision, changes_after) = match work {
            Work::Heal(_) => (self.applied_revision, self.applied_changes),
            _ => (revision, seen),
        };
        let (since, is_slow) = (now, false);
        self.busy = Some(CurrentWork {
            work: work.clone(),
            events,
            revision,
            changes_after,
            repaired,
            since,
            is_slow,
        });
        Some(work)
    }

    /// When the oldest change was handled that is not applied.
    pub(super) fn unapplied_since(&self) -> Option<Instant> {
        let under_way = self.busy.as_ref().map(|busy| busy.events);
        let repair = self.repairs.due().map(|due| due.events);
        let waiting = under_way
            .into_iter()
            .chain(self.pending.events())
            .chain(repair);
        waiting.map(|events| events.at.handled.instant).min()
    }

    /// When the next timer expires.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.busy {
            Some(busy) => (!busy.is_slow).then(|| busy.since.instant + SLOW_AFTER),
            // The resync after a failure tries everything again.
            None => self.retry_at.or_else(|| {
                let repair = self.repairs.due().map(|due| due.at);
                repair.into_iter().chain(self.left_out.retry_at()).min()
            }),
        }
    }

    /// The expired timer, if it needs more than dispatching pending work.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<ExpiredTimer> {
        if self.deadline()? > now {
            return None;
        }
        match &mut self.busy {
            Some(busy) => {
                busy.is_slow = true;
                Some(ExpiredTimer::Slow)
            }
            None if self.retry_at.is_some() => self
                .last_error
                .as_ref()
                .map(|last| ExpiredTimer::Retry(last.error.clone())),
            None => self.left_out.take_due(now).map(ExpiredTimer::LeftOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::history::Timestamps;

    #[test]
    fn renderer_is_settled_only_with_nothing_left_to_do() {
        let now = Instant::now();
        let ready = || RendererSchedule {
            is_ready: true,
            ..RendererSchedule::new("a".into())
        };
        assert!(ready().is_settled());
        assert!(
            !RendererSchedule {
                is_ready: false,
                ..ready()
            }
            .is_settled()
        );
        assert!(
            !RendererSchedule {
                retry_at: Some(now),
                ..ready()
            }
            .is_settled()
        );
        let mut repaired = ready();
        let at = Timestamps::now(Now {
            instant: now,
            time: Timestamp::UNIX_EPOCH,
            random: 0.0,
        });
        repaired.need_resync(EventRange::one(1, at));
        assert!(!repaired.is_settled() && repaired.has_work());
    }
}
