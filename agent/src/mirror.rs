//! The mirror's own thread: saves the store's content on disk, apart from the path from the store to the kernel.

mod pending;
mod spool;

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use contiv_store::{
    Batch, Entry, Mirror, MirrorError, MirrorSummary, QuarantinedFile, Saved, dir::LoadSaved,
};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use pending::Pending;

/// How many jobs may be queued for a slow disk. If there are more, the store is listed again when the disk has caught up.
const CAPACITY: usize = 1024;
/// The same in bytes of changes.
const CAPACITY_BYTES: usize = 64 << 20;
/// The least time between two writes: several changes of a key meanwhile are written once.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a whole list waits: it usually arrives at the start, when the renderers need the processors.
const AFTER_LIST: Duration = Duration::from_secs(3);

/// After a failure a write is retried with the next change, and after this time in any case.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Reads the saved content of a store, for the store itself: before the mirror's thread starts, and read-only.
pub(crate) fn recall(folder: PathBuf, source: String) -> LoadSaved {
    Box::new(move || match Mirror::recall(&folder, &source) {
        Ok(saved) => saved.map(|saved| saved.entries).unwrap_or_default(),
        Err(error) => {
            warn!(%error, "the mirror cannot be read: what it held of manifests that are broken now is lost");
            Vec::new()
        }
    })
}

/// A message to the thread.
#[derive(Debug)]
enum Job {
    Replace { revision: i64, entries: Vec<Entry>, keep: BTreeSet<String> },
    Apply(Batch),
    Load,
}

/// A report of the thread.
#[derive(Debug)]
pub(crate) enum MirrorReport {
    /// How much was saved when the agent started, told once.
    Summary(MirrorSummary),
    /// What was saved, as was asked for; none if nothing was, or it cannot be read.
    Loaded(Option<Saved>),
    /// Everything up to this revision is saved.
    Written(i64),
    /// Nothing can be saved at the moment.
    Failed(String),
    /// After a failed write the mirror can be written again: its content must be replaced.
    CaughtUp,
}

/// The handle of the mirror's thread.
#[derive(Debug)]
pub(crate) struct MirrorHandle {
    jobs: SyncSender<Job>,
    /// How many bytes of changes the thread has not taken up.
    waiting: Arc<AtomicUsize>,
    /// A job was dropped; only a replacement can come next.
    is_behind: bool,
}

impl MirrorHandle {
    /// Starts the thread, which first reports the size of the mirror and whether it has `key`, and which retries after
    /// `retry_after` when it has failed and nothing changes. It ends, with everything written, when the handle is dropped; the
    /// receiver reports the end.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        folder: PathBuf,
        source: String,
        key: String,
        reports: mpsc::Sender<MirrorReport>,
        retry_after: Duration,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let (jobs, work) = sync_channel(CAPACITY);
        let (done, ended) = oneshot::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&waiting);
        let thread = thread::Builder::new().name("mirror".to_owned());
        thread.spawn(move || {
            // While the store is being listed. The node may be gone.
            let _ = reports.blocking_send(MirrorReport::Summary(Mirror::summary(&folder, &key)));
            Writer { folder, source, reports, retry_after, taken, mirror: None, gap: None }.run(&work);
            // The receiver may be gone.
            let _ = done.send(());
        })?;
        Ok((Self { jobs, waiting, is_behind: false }, ended))
    }

    /// Saves the complete content. The keys in `keep` have unusable values in the store: their saved values stay.
    pub(crate) fn replace(&mut self, revision: i64, entries: Vec<Entry>, keep: BTreeSet<String>) {
        self.is_behind = false;
        self.give(Job::Replace { revision, entries, keep });
    }

    /// Saves changes. They must not contain unusable values.
    pub(crate) fn apply(&mut self, batch: Batch) {
        let (size, waiting) = (batch.size(), self.waiting.load(Ordering::Relaxed));
        // While something is queued, a write will follow, after which the store is listed again.
        self.is_behind |= waiting > 0 && waiting + size > CAPACITY_BYTES;
        if !self.is_behind {
            self.waiting.fetch_add(size, Ordering::Relaxed);
            self.give(Job::Apply(batch));
        }
    }

    /// Asks for what was saved. It comes as a report.
    pub(crate) fn load(&mut self) {
        self.give(Job::Load);
    }

    fn give(&mut self, job: Job) {
        // A thread that has ended has reported why.
        if let Err(TrySendError::Full(job)) = self.jobs.try_send(job) {
            self.is_behind = true;
            if let Job::Apply(batch) = job {
                self.waiting.fetch_sub(batch.size(), Ordering::Relaxed);
            }
        }
    }

    /// A job was dropped: list the store, and replace the content.
    pub(crate) const fn is_behind(&self) -> bool {
        self.is_behind
    }
}

/// The state of the thread.
struct Writer {
    folder: PathBuf,
    source: String,
    reports: mpsc::Sender<MirrorReport>,
    retry_after: Duration,
    taken: Arc<AtomicUsize>,
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
    fn run(&mut self, work: &Receiver<Job>) {
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
                Ok(Job::Load) => {
                    let saved = self.load();
                    self.report(MirrorReport::Loaded(saved));
                }
                Ok(Job::Replace { revision, entries, keep }) => {
                    pending.replace(&self.folder, revision, entries, keep);
                    next_write = Instant::now() + AFTER_LIST;
                }
                Ok(Job::Apply(batch)) => {
                    self.taken.fetch_sub(batch.size(), Ordering::Relaxed);
                    match &mut self.gap {
                        // Added to the saved content it would produce a state that never existed, with a revision that says it
                        // is complete.
                        Some(gap) if pending.is_empty() => gap.next_try = gap.next_try.min(next_write),
                        _ => pending.apply(batch),
                    }
                }
                Err(end) => {
                    if !pending.is_empty() {
                        let had_gap = self.gap.is_some();
                        self.write(std::mem::take(&mut pending));
                        // A full disk must not cause repeated lists of the store.
                        let pause = if had_gap && self.gap.is_some() { self.retry_after } else { PERIOD };
                        next_write = Instant::now() + pause;
                    } else if end == RecvTimeoutError::Timeout {
                        self.request_list();
                        next_write = Instant::now() + self.retry_after;
                    }
                    if end == RecvTimeoutError::Disconnected {
                        return;
                    }
                }
            }
        }
    }

    fn load(&mut self) -> Option<Saved> {
        let error = match self.opened().and_then(|mirror| mirror.load()) {
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
        let revision = pending.revision();
        match self.opened().and_then(|mirror| pending.write(mirror)) {
            Ok(()) => {
                if self.gap.take().is_some() {
                    info!(revision, "the mirror is written again");
                }
                self.report(MirrorReport::Written(revision));
            }
            Err(error) => self.fail(&error),
        }
    }

    /// The failed write is lost: only a replacement can be written next.
    fn fail(&mut self, error: &MirrorError) {
        // Once, and not for each similar failure.
        if self.gap.is_none() {
            error!(%error, "the mirror cannot be written: without the store, a start would find an older state");
        }
        self.gap = Some(MissedChanges { next_try: Instant::now() + self.retry_after });
        // Whatever it contains: the next write opens and checks it again.
        self.mirror = None;
        self.report(MirrorReport::Failed(error.to_string()));
    }

    /// Requests a list of the store, if the mirror can be written again.
    fn request_list(&mut self) {
        // Opening it writes to it.
        match self.opened().map(drop) {
            Ok(()) => {
                self.gap = Some(MissedChanges { next_try: Instant::now() + self.retry_after });
                self.report(MirrorReport::CaughtUp);
            }
            Err(error) => self.fail(&error),
        }
    }

    fn opened(&mut self) -> Result<&mut Mirror, MirrorError> {
        let mirror = if let Some(mirror) = self.mirror.take() {
            mirror
        } else {
            let (mirror, quarantined) = Mirror::open(&self.folder, &self.source)?;
            if let Some(QuarantinedFile { path, reason }) = quarantined {
                warn!(path = %path.display(), reason, "the mirror cannot be used; renamed its file and began a new one");
            }
            mirror
        };
        Ok(self.mirror.insert(mirror))
    }

    /// Waits while the loop's queue is full. The loop may be gone already: at the end it accepts no more reports.
    fn report(&self, report: MirrorReport) {
        let _ = self.reports.blocking_send(report);
    }
}

#[cfg(test)]
mod tests;
