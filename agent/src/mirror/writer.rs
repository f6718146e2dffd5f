//! The second of the mirror's threads: writes the mirror, at most every two seconds, and waits for the disk.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use contiv_node::message::MirrorReport;
use contiv_store::{
    Entry, Mirror, MirrorError, QuarantinedFile, Saved, SavedStart, StoreIdentity, mirror::log,
};
use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

use super::{
    messages::{Work, size},
    pending::Pending,
};

/// The least time between two writes: several changes of a key meanwhile are written once.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);
/// How long a whole list waits: it usually arrives at the start, when the renderers need the processors.
const LIST_WRITE_DELAY: Duration = Duration::from_secs(3);

/// The state of the thread.
pub(super) struct Writer {
    folder: PathBuf,
    source: String,
    reports: mpsc::Sender<MirrorReport>,
    retry_after: Duration,
    /// The bytes of queued changes.
    queued_bytes: Arc<AtomicUsize>,
    /// The last record of this process's log that is saved.
    saved: Arc<AtomicU64>,
    /// What the store says of itself.
    identity: watch::Receiver<Option<StoreIdentity>>,
    /// The first record of this process's log. Older ones are replayed when the mirror is opened.
    first: u64,
    /// Opened on first use, so that the start does not wait for it.
    mirror: Option<Mirror>,
    gap: Option<MissedChanges>,
}

/// A write has failed, so changes are missing in the mirror. It stays as it is, older but complete, until everything is written
/// again.
#[derive(Debug, Clone, Copy)]
struct MissedChanges {
    /// When to check whether the mirror can be written again: with the next change, or at this time.
    next_try: Instant,
}

impl Writer {
    pub(super) fn new(
        folder: PathBuf,
        source: String,
        reports: mpsc::Sender<MirrorReport>,
        retry_after: Duration,
        queued_bytes: Arc<AtomicUsize>,
        saved: Arc<AtomicU64>,
        identity: watch::Receiver<Option<StoreIdentity>>,
    ) -> Self {
        Self {
            folder,
            source,
            reports,
            retry_after,
            queued_bytes,
            saved,
            identity,
            first: u64::MAX,
            mirror: None,
            gap: None,
        }
    }

    /// Ends when all senders of work are dropped. The database is closed then.
    pub(super) fn run(mut self, work: &Receiver<Work>) {
        let mut pending = Pending::default();
        let mut next_write = Instant::now();
        loop {
            let pause = next_write.saturating_duration_since(Instant::now());
            let job = match (pending.is_empty(), self.gap) {
                (false, _) => work.recv_timeout(pause),
                (true, Some(MissedChanges { next_try })) => {
                    work.recv_timeout(next_try.saturating_duration_since(Instant::now()))
                }
                (true, None) => work.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match job {
                Ok(Work::Begin { first }) => self.first = first,
                Ok(Work::Load) => {
                    let saved = self.load();
                    self.report(MirrorReport::Loaded(saved));
                }
                Ok(Work::Start) => self.start(),
                Ok(Work::Replace(list)) => {
                    // The kept keys are those of the state before the list, which must be saved first.
                    if !list.keep.is_empty() && !pending.is_empty() {
                        self.write(std::mem::take(&mut pending));
                    }
                    pending.replace(list);
                    next_write = Instant::now() + LIST_WRITE_DELAY;
                }
                Ok(Work::Lost(error)) => {
                    if !pending.is_empty() {
                        self.write(std::mem::take(&mut pending));
                    }
                    let (path, reason) = (self.folder.clone(), error.to_string());
                    self.fail(&MirrorError::Log { path, reason });
                    next_write = Instant::now() + self.retry_after;
                }
                Ok(Work::Apply {
                    number,
                    batch,
                    deviating,
                }) => {
                    self.queued_bytes.fetch_sub(size(&batch), Ordering::Relaxed);
                    match &mut self.gap {
                        // Added to the saved content it would produce a state that never existed, with a revision that says it
                        // is complete.
                        Some(gap) if pending.is_empty() => {
                            gap.next_try = gap.next_try.min(next_write);
                        }
                        _ => pending.apply(number, batch, deviating),
                    }
                }
                Err(end) => {
                    if !pending.is_empty() {
                        let had_gap = self.gap.is_some();
                        self.write(std::mem::take(&mut pending));
                        // A full disk must not cause repeated lists of the store.
                        let pause = if had_gap && self.gap.is_some() {
                            self.retry_after
                        } else {
                            WRITE_INTERVAL
                        };
                        next_write = Instant::now() + pause;
                    } else if end == RecvTimeoutError::Timeout {
                        self.request_list();
                        next_write = Instant::now() + self.retry_after;
                    }
                    if end == RecvTimeoutError::Disconnected {
                        return self.finish();
                    }
                }
            }
        }
    }

    /// Removes the log, if everything in it is saved.
    fn finish(&self) {
        let saved = self.saved.load(Ordering::Relaxed);
        if saved >= self.first && self.gap.is_none() {
            log::remove_until(&self.folder, saved);
        }
    }

    /// Sends what is saved, and where the watch of the store may go on from it.
    fn start(&mut self) {
        let reports = self.reports.clone();
        // The node may be gone.
        let send = |page| reports.blocking_send(MirrorReport::Page(page)).is_ok();
        let start = self.open_and_read(send).unwrap_or_else(|error| {
            warn!(%error, "the mirror cannot be opened; listing the store");
            SavedStart::Unusable
        });
        self.report(MirrorReport::Start(start));
    }

    fn load(&mut self) -> Option<Saved> {
        let error = match self
            .open_mirror(self.first)
            .and_then(|mirror| mirror.load())
        {
            Ok(saved) => return saved,
            Err(error) => error,
        };
        warn!(%error, "the mirror cannot be opened; reading a copy of it");
        Mirror::recall(&self.folder, &self.source).unwrap_or_else(|error| {
            warn!(%error, "the mirror cannot be read");
            None
        })
    }

    fn write(&mut self, pending: Pending) {
        let (revision, number) = (pending.revision(), pending.number());
        // What an earlier process has only logged need not be saved where nothing of it stays.
        let replayed_before = if pending.replaces_all() {
            0
        } else {
            self.first
        };
        let identity = *self.identity.borrow();
        let written = self.open_mirror(replayed_before).and_then(|mirror| {
            mirror.set_identity(identity);
            pending.write(mirror)
        });
        match written {
            Ok(()) => {
                if self.gap.take().is_some() {
                    info!(revision, "the mirror is written again");
                }
                self.saved.store(number, Ordering::Relaxed);
                log::remove_saved(&self.folder, number);
                self.report(MirrorReport::Written {
                    revision,
                    is_behind: false,
                });
            }
            Err(error) => self.fail(&error),
        }
    }

    /// The failed write is lost: only a replacement can be written next.
    fn fail(&mut self, error: &MirrorError) {
        // Logged once for consecutive failures.
        if self.gap.is_none() {
            error!(%error, "the mirror cannot be written: without the store, a start would find an older state");
        }
        self.gap = Some(MissedChanges {
            next_try: Instant::now() + self.retry_after,
        });
        // The file may be damaged: the next write opens and checks it again.
        self.mirror = None;
        self.report(MirrorReport::Failed(error.to_string()));
    }

    /// Requests a list of the store, if the mirror can be written again.
    fn request_list(&mut self) {
        // Opening the database writes to it, so it shows whether the disk accepts writes.
        match self.open_mirror(self.first).map(drop) {
            Ok(()) => {
                self.gap = Some(MissedChanges {
                    next_try: Instant::now() + self.retry_after,
                });
                self.report(MirrorReport::CaughtUp);
            }
            Err(error) => self.fail(&error),
        }
    }

    /// The open database; opens it if the last use failed or there was none. Then it gets the content of the log that was
    /// written before this record.
    fn open_mirror(&mut self, replayed_before: u64) -> Result<&mut Mirror, MirrorError> {
        let mirror = if let Some(mirror) = self.mirror.take() {
            mirror
        } else {
            let (mirror, quarantined) =
                Mirror::open_before(&self.folder, &self.source, replayed_before)?;
            log_quarantine(quarantined);
            mirror
        };
        Ok(self.mirror.insert(mirror))
    }

    /// The same, and shows its content.
    fn open_and_read(
        &mut self,
        show: impl FnMut(Vec<Entry>) -> bool,
    ) -> Result<SavedStart, MirrorError> {
        if let Some(mirror) = &self.mirror {
            return mirror.read_pages(show);
        }
        let (mirror, quarantined, start) =
            Mirror::open_and_read(&self.folder, &self.source, self.first, show)?;
        log_quarantine(quarantined);
        self.mirror = Some(mirror);
        Ok(start)
    }

    /// Waits while the node's queue is full. The node may be gone already: at the end it accepts no more reports.
    fn report(&self, report: MirrorReport) {
        let _ = self.reports.blocking_send(report);
    }
}

fn log_quarantine(quarantined: Option<QuarantinedFile>) {
    if let Some(QuarantinedFile { path, reason }) = quarantined {
        warn!(path = %path.display(), reason, "the mirror cannot be used; renamed its file and began a new one");
    }
}
