//! What the loop has to do with the mirror: what it gives it, and what it takes from it.

use std::{collections::BTreeSet, io, time::Duration};

use contiv_model::ChangeSet;
use contiv_store::{Batch, Change, Entry, Saved, Snapshot};
use jiff::Timestamp;
use serde::Serialize;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tracing::{info, warn};

use super::{
    EventLoop, LIST_LIMIT, MirrorConfig, guard,
    history::Moment,
    intake::{self, Ahead, BadValue, Verdict},
};
use crate::mirror::{MirrorHandle, MirrorReport, RETRY_AFTER};

/// How long the loop waits at its start for what was saved.
const LOAD_LIMIT: Duration = Duration::from_secs(2);
/// How many reports may wait for the loop before the mirror has to.
const REPORTS: usize = 16;
/// A first list of fewer entries than this is held against what was saved, and so is one that has fewer than were saved: the
/// store may have been wiped, or put back to an old backup. Others need not wait for the disk.
const SMALL: usize = 1000;

/// What is saved on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MirrorStatus {
    /// Everything up to this revision is saved; none if nothing has been since the start.
    pub revision: Option<i64>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<Timestamp>,
    /// Why nothing is saved at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The loop's end of the mirror; without one nothing is saved.
#[derive(Debug)]
pub(super) struct Mirroring {
    mirror: Option<(MirrorHandle, oneshot::Receiver<()>)>,
    reports: mpsc::Sender<MirrorReport>,
    status: MirrorStatus,
}

impl Mirroring {
    /// `own_node` is the key of this node's object, of which the mirror says whether it has it.
    pub(super) fn start(
        config: Option<MirrorConfig>,
        own_node: &str,
    ) -> io::Result<(Self, mpsc::Receiver<MirrorReport>)> {
        let (reports, receiver) = mpsc::channel(REPORTS);
        let start = |MirrorConfig { folder, source }| {
            MirrorHandle::start(folder, source, own_node.to_owned(), reports.clone(), RETRY_AFTER)
        };
        let mirror = config.map(start).transpose()?;
        Ok((Self { mirror, reports, status: MirrorStatus::default() }, receiver))
    }

    pub(super) fn status(&self) -> Option<MirrorStatus> {
        self.mirror.is_some().then(|| self.status.clone())
    }

    /// Asks for what was saved. It comes as a report.
    pub(super) fn load(&mut self) {
        let Some((handle, _)) = &mut self.mirror else { return };
        let (loaded, reports) = (handle.load(), self.reports.clone());
        tokio::spawn(async move {
            if let Ok(Some(saved)) = loaded.await {
                // The loop may be gone.
                let _ = reports.send(MirrorReport::Loaded(saved)).await;
            }
        });
    }

    /// What was saved, where a first list of so many entries leaves doubt. It is waited for: without it, things would be taken out
    /// of the kernel that must stay. But only once, whatever the disk has to be asked.
    async fn saved_for(&mut self, entries: usize, has_bad: bool, has_own_node: bool) -> Option<Saved> {
        let (handle, _) = self.mirror.as_mut()?;
        let answer = async {
            let needs_saved = has_bad || entries < SMALL || {
                let saved = handle.summary().await;
                saved.entries >= entries + guard::LEAST || (saved.has_key && !has_own_node)
            };
            if needs_saved { handle.load().await.ok()? } else { None }
        };
        timeout(LOAD_LIMIT, answer).await.ok()?
    }

    /// Saves everything but what these keys hold: of them what was saved before stays.
    pub(super) fn replace(&mut self, revision: i64, mut entries: Vec<Entry>, bad: BTreeSet<String>) {
        let Some((handle, _)) = &mut self.mirror else { return };
        entries.retain(|entry| !bad.contains(&entry.key));
        handle.replace(revision, entries, bad);
    }

    /// Saves the changes that are good; there is one verdict for each. Deletions that are held are not saved, nor ever that
    /// of the key `kept`.
    pub(super) fn apply(&mut self, batch: Batch, verdicts: &[Verdict], with_deletions: bool, kept: &str) {
        let Some((handle, _)) = &mut self.mirror else { return };
        let good = |(change, verdict): (Change, &Verdict)| {
            let counts = match &change {
                Change::Put(_) => true,
                Change::Delete { key } => with_deletions && key != kept,
            };
            (counts && matches!(verdict, Verdict::Good(_) | Verdict::Partly(_))).then_some(change)
        };
        let changes = batch.changes.into_iter().zip(verdicts).filter_map(good).collect();
        handle.apply(Batch { revision: batch.revision, changes });
    }

    /// Lets the mirror write what it still has to.
    pub(super) async fn finish(self, deadline: Instant) {
        let Some((handle, ended)) = self.mirror else { return };
        drop(handle);
        if timeout_at(deadline, ended).await.is_err() {
            warn!("the mirror is still being written; leaving it");
        }
    }
}

impl EventLoop {
    pub(super) fn take_in_report(&mut self, report: MirrorReport) {
        match report {
            MirrorReport::Loaded(saved) => self.take_in_saved(saved),
            MirrorReport::Written(revision) => {
                let written = Some(Timestamp::now());
                self.mirror.status = MirrorStatus { revision: Some(revision), written, error: None };
                if self.mirror.mirror.as_ref().is_some_and(|(handle, _)| handle.is_behind()) {
                    info!("the disk was too slow for the mirror; listing the store again");
                    self.feed.request_resync();
                }
            }
            MirrorReport::Failed(error) => self.mirror.status.error = Some(error),
            MirrorReport::CaughtUp => self.feed.request_resync(),
        }
    }

    /// Before the first list counts, recalls what was in force when the agent stopped, where the list leaves doubt: values
    /// that are no good keep what was saved of them, as does this node's object, and it is noticed if too much is gone.
    /// Returns what that changed, which is everything that was recalled: nobody has been told of it.
    pub(super) async fn remember(&mut self, list: &Snapshot, bad: &[BadValue]) -> ChangeSet {
        let has_bad = bad.iter().any(|bad| !bad.is_used);
        let has_own_node = self.own_node.is_listed(&list.entries);
        let saved = self.mirror.saved_for(list.entries.len(), has_bad, has_own_node).await;
        let Some(Saved { revision, entries }) = saved else { return ChangeSet::default() };
        self.recall(&Snapshot { revision, entries, ..Snapshot::default() }).0
    }

    /// Gives what was saved to the processor. What that comes to, and how many objects there are.
    fn recall(&mut self, saved: &Snapshot) -> (ChangeSet, usize) {
        let mut ahead = Ahead::default();
        let (resync, _) = intake::snapshot(saved, &mut ahead);
        let objects = resync.objects.len();
        (self.processor.resync_sharing(resync, ahead.names), objects)
    }

    /// The store takes too long for its first list: it is not waited for any more.
    pub(super) fn stop_waiting_for_list(&mut self) {
        if self.store.awaited_until.is_some_and(|until| until <= Instant::now()) {
            self.store.awaited_until = None;
            warn!(after = ?LIST_LIMIT, "the store has not been read yet; going on with it, and looking for what was saved");
            let description = format!("not read within {LIST_LIMIT:?}");
            self.record("store-slow", description, None, Vec::new());
            self.mirror.load();
        }
    }

    /// The store has not been read: what it said last goes to the renderers, until it says something again.
    fn take_in_saved(&mut self, saved: Saved) {
        if self.store.is_synced {
            return;
        }
        let moment = Moment::now();
        let Saved { revision, entries } = saved;
        let (changes, objects) = self.recall(&Snapshot { revision, entries, ..Snapshot::default() });
        self.begin_handover();
        self.health.tell_changes(&changes);
        self.store.revision = revision;
        self.store.is_synced = true;
        self.store.is_of_mirror = true;
        warn!(objects, revision, "the store could not be read yet; going on with what was saved of it");
        let description =
            format!("{objects} objects as saved at revision {revision}: the store could not be read yet");
        let (renderers, duration) = (self.renderers.names(), moment.since.elapsed());
        let event = self.record_timed("mirror", description, Some(&changes), renderers, moment, duration);
        self.renderers.need_resync(event);
        self.dispatch();
    }
}

#[cfg(test)]
mod tests {
    use contiv_store::MirrorSummary;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn saved_state_on_a_silent_disk_is_waited_for_once() {
        let (_counted, count) = oneshot::channel();
        let (handle, _jobs) = MirrorHandle::on_silent_disk(count);
        let (mut mirroring, _reports) = Mirroring::start(None, "").unwrap();
        mirroring.mirror = Some((handle, oneshot::channel().1));
        let start = Instant::now();
        assert_eq!(mirroring.saved_for(SMALL, true, true).await, None);
        assert_eq!(start.elapsed(), LOAD_LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn saved_state_is_read_for_the_own_node_only_where_it_has_it() {
        for has_key in [false, true] {
            let (told, summary) = oneshot::channel();
            let (handle, _jobs) = MirrorHandle::on_silent_disk(summary);
            told.send(MirrorSummary { entries: SMALL, has_key }).unwrap();
            let (mut mirroring, _reports) = Mirroring::start(None, "").unwrap();
            mirroring.mirror = Some((handle, oneshot::channel().1));
            let start = Instant::now();
            assert_eq!(mirroring.saved_for(SMALL, false, false).await, None);
            let expected = if has_key { LOAD_LIMIT } else { Duration::ZERO };
            assert_eq!(start.elapsed(), expected, "has_key: {has_key}");
        }
    }
}
