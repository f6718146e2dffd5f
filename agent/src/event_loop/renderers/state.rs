//! What the loop knows of one renderer: what it does now, what comes next, and how the last call went. No I/O here
//! but handing work to its task.

use std::sync::Arc;

use contiv_model::{ChangeSet, Snapshot};
use contiv_renderer::Description;
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    SLOW_AFTER,
    backoff::Backoff,
    healing::Healing,
    view::{LastError, LastReport},
    worker::Work,
};
use crate::event_loop::history::Covers;

/// One renderer, as the loop sees it.
#[derive(Debug)]
pub(super) struct RendererState {
    pub(super) name: Arc<str>,
    /// Takes one piece of work at a time; never more is sent.
    work: mpsc::Sender<Work>,
    pub(super) busy: Option<Busy>,
    pub(super) pending: Pending,
    askers: Vec<oneshot::Sender<Description>>,
    pub(super) backoff: Backoff,
    pub(super) healing: Healing,
    /// It is heard what others do to its dataplane.
    pub(super) is_watched: bool,
    /// Nothing is sent before, after a failure.
    pub(super) retry_at: Option<Instant>,
    pub(super) is_ready: bool,
    pub(super) applied_revision: i64,
    pub(super) last_report: Option<LastReport>,
    pub(super) last_error: Option<LastError>,
}

/// What a renderer is doing.
#[derive(Debug)]
pub(super) struct Busy {
    pub(super) task: Task,
    pub(super) since: Instant,
    pub(super) started: Timestamp,
    /// The loop has not given way to it yet.
    pub(super) is_new: bool,
    /// It has been reported that this takes too long.
    pub(super) is_slow: bool,
}

/// The kinds of work, without its content.
#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    Resync {
        covers: Covers,
        revision: i64,
    },
    Update {
        covers: Covers,
        revision: i64,
    },
    /// Undo so many changes of others.
    Heal {
        covers: Covers,
        changes: u64,
    },
    Describe,
}

/// What a renderer still has to be given.
#[derive(Debug, Default)]
pub(super) enum Pending {
    #[default]
    Nothing,
    Changes {
        changes: Arc<ChangeSet>,
        covers: Covers,
    },
    /// Everything: whatever is in force when it is sent.
    Resync {
        covers: Covers,
    },
}

impl RendererState {
    pub(super) fn new(name: Arc<str>, work: mpsc::Sender<Work>) -> Self {
        Self {
            name,
            work,
            busy: None,
            pending: Pending::Nothing,
            askers: Vec::new(),
            backoff: Backoff::default(),
            healing: Healing::default(),
            is_watched: false,
            retry_at: None,
            is_ready: false,
            applied_revision: 0,
            last_report: None,
            last_error: None,
        }
    }

    /// Adds changes to what is pending.
    pub(super) fn add_changes(&mut self, new: &Arc<ChangeSet>, event: Covers) {
        self.pending = match std::mem::take(&mut self.pending) {
            Pending::Nothing => Pending::Changes { changes: Arc::clone(new), covers: event },
            Pending::Changes { mut changes, covers } => {
                Arc::make_mut(&mut changes).merge(ChangeSet::clone(new));
                Pending::Changes { changes, covers: covers.and(event) }
            }
            Pending::Resync { covers } => Pending::Resync { covers: covers.and(event) },
        };
    }

    /// Makes it get everything next.
    pub(super) fn need_resync(&mut self, event: Covers) {
        let covers = match &self.pending {
            Pending::Nothing => event,
            Pending::Changes { covers, .. } | Pending::Resync { covers } => covers.and(event),
        };
        self.pending = Pending::Resync { covers };
    }

    /// It has applied all there is, and is idle.
    pub(super) fn is_settled(&self) -> bool {
        let is_idle = self.busy.is_none() && self.retry_at.is_none() && self.healing.due().is_none();
        self.is_ready && is_idle && matches!(self.pending, Pending::Nothing)
    }

    /// Adds somebody who wants a description.
    pub(super) fn ask(&mut self, asker: oneshot::Sender<Description>) {
        self.askers.retain(|asker| !asker.is_closed());
        self.askers.push(asker);
    }

    /// Hands out what is due, unless it is busy or waits after a failure. `snapshot` gives everything there is.
    pub(super) fn dispatch(&mut self, revision: i64, now: Instant, snapshot: impl FnOnce() -> Arc<Snapshot>) {
        if self.busy.is_some() {
            return;
        }
        if self.retry_at.is_some() {
            return self.describe(now);
        }
        if !matches!(self.pending, Pending::Resync { .. })
            && let Some(due) = self.healing.take_due(now)
        {
            let task = Task::Heal { covers: due.covers, changes: due.changes };
            return self.send(Work::Heal(snapshot()), task, now);
        }
        match std::mem::take(&mut self.pending) {
            Pending::Nothing => self.describe(now),
            Pending::Changes { changes, covers } => {
                self.send(Work::Update(changes), Task::Update { covers, revision }, now);
            }
            Pending::Resync { covers } => {
                // It undoes what others did too.
                let covers = self.healing.repaired(now).map_or(covers, |due| covers.and(due.covers));
                self.send(Work::Resync(snapshot()), Task::Resync { covers, revision }, now);
            }
        }
    }

    /// Lets it describe itself, if somebody waits for that.
    pub(super) fn describe(&mut self, now: Instant) {
        if self.busy.is_none() && !self.askers.is_empty() {
            let askers = std::mem::take(&mut self.askers);
            self.send(Work::Describe(askers), Task::Describe, now);
        }
    }

    fn send(&mut self, work: Work, task: Task, now: Instant) {
        // The task catches panics, and so has room for one piece of work whenever it is not busy. Were it gone all
        // the same, the renderer would stay busy and be reported as slow.
        let _ = self.work.try_send(work);
        self.busy = Some(Busy { task, since: now, started: Timestamp::now(), is_new: true, is_slow: false });
    }

    /// Since when the oldest change waits that is not applied.
    pub(super) fn unapplied_since(&self) -> Option<Instant> {
        let under_way = self.busy.as_ref().and_then(|busy| match busy.task {
            Task::Resync { covers, .. } | Task::Update { covers, .. } | Task::Heal { covers, .. } => {
                Some(covers)
            }
            Task::Describe => None,
        });
        let pending = match &self.pending {
            Pending::Nothing => None,
            Pending::Changes { covers, .. } | Pending::Resync { covers } => Some(*covers),
        };
        let damage = self.healing.due().map(|due| due.covers);
        under_way.into_iter().chain(pending).chain(damage).map(|covers| covers.since).min()
    }

    /// When this renderer wants to be looked at again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.busy {
            Some(busy) => (!busy.is_slow).then(|| busy.since + SLOW_AFTER),
            None => self.retry_at.or_else(|| self.healing.due().map(|due| due.at)),
        }
    }
}
