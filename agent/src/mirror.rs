//! The mirror's own threads: save the store's content on disk, apart from the path from the store to the kernel.
//!
//! The first thread writes each change to the log at once and passes it on to the second, which writes the mirror and waits for
//! the disk.

mod logger;
mod messages;
mod pending;
mod writer;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use contiv_node::message::{MirrorReport, Saving};
use contiv_store::{Mirror, StoreIdentity, dir::LoadSaved, mirror::log::Log};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::warn;

use logger::Logger;
use messages::{Job, size};
use writer::Writer;

/// How many jobs may be queued for a slow disk. If there are more, the store is listed again when the disk has caught up.
const CAPACITY: usize = 1024;
/// The same in bytes of changes.
const CAPACITY_BYTES: usize = 64 << 20;
/// After a failure a write is retried with the next change, and after this time in any case.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Reads the saved content of a store, for the store itself: before the mirror's thread starts, and read-only.
pub(crate) fn recall(folder: PathBuf, source: String) -> LoadSaved {
    Box::new(move || match Mirror::recall(&folder, &source) {
        Ok(saved) => saved.map(|saved| saved.entries).unwrap_or_default(),
        Err(error) => {
            warn!(%error, "the mirror cannot be read: the saved state of manifests that are invalid now is lost");
            Vec::new()
        }
    })
}

/// The handle of the mirror's threads.
#[derive(Debug)]
pub(crate) struct MirrorHandle {
    jobs: SyncSender<Job>,
    /// The queued bytes of changes, until the second thread takes them.
    waiting: Arc<AtomicUsize>,
    /// A job was dropped; only a replacement can come next.
    is_behind: bool,
}

impl MirrorHandle {
    /// Starts the threads, which first report the size of the mirror and whether it has `key`, and which retry after
    /// `retry_after` when they have failed and nothing changes. They end, with everything written, when the handle is dropped;
    /// the receiver reports the end.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        folder: PathBuf,
        source: String,
        key: String,
        reports: mpsc::Sender<MirrorReport>,
        retry_after: Duration,
        identity: watch::Receiver<Option<StoreIdentity>>,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let (jobs, work) = sync_channel(CAPACITY);
        let (done, ended) = oneshot::channel();
        let waiting = Arc::<AtomicUsize>::default();
        let saved = Arc::default();
        let summary = reports.clone();
        // Its length is limited by `waiting`.
        let (to_writer, from_logger) = channel();
        let writer = Writer::new(
            folder.clone(),
            source.clone(),
            reports,
            retry_after,
            Arc::clone(&waiting),
            Arc::clone(&saved),
            identity,
        );
        thread::Builder::new()
            .name("mirror".to_owned())
            .spawn(move || {
                writer.run(&from_logger);
                // The database is closed, so a waiting opener may open it. The receiver may be dropped.
                let _ = done.send(());
            })?;
        thread::Builder::new()
            .name("mirror-log".to_owned())
            .spawn(move || {
                // While the store is being listed. The node may be gone.
                let _ = summary.blocking_send(MirrorReport::Summary(Mirror::summary(
                    &folder, &source, &key,
                )));
                let log = Log::begin(&folder, &source, Mirror::prepare_log(&folder));
                Logger::new(log, to_writer, saved).run(&work);
            })?;
        Ok((
            Self {
                jobs,
                waiting,
                is_behind: false,
            },
            ended,
        ))
    }

    /// Saves a list, or changes.
    pub(crate) fn save(&mut self, saving: Saving) {
        match &saving {
            Saving::List { .. } => self.is_behind = false,
            Saving::Apply { batch, .. } => {
                let (size, waiting) = (size(batch), self.waiting.load(Ordering::Relaxed));
                // While something is queued, a write will follow, after which the store is listed again.
                self.is_behind |= waiting > 0 && waiting + size > CAPACITY_BYTES;
                if self.is_behind {
                    return;
                }
                self.waiting.fetch_add(size, Ordering::Relaxed);
            }
        }
        self.enqueue(Job::Save(saving));
    }

    /// Asks for what was saved. It comes as a report.
    pub(crate) fn load(&mut self) {
        self.enqueue(Job::Load);
    }

    /// Asks for what was saved, in parts, for a store's feed that goes on from it.
    pub(crate) fn start_feed(&mut self) {
        self.enqueue(Job::Start);
    }

    fn enqueue(&mut self, job: Job) {
        // A thread that has ended has reported why.
        if let Err(TrySendError::Full(job)) = self.jobs.try_send(job) {
            self.is_behind = true;
            if let Job::Save(Saving::Apply { batch, .. }) = job {
                self.waiting.fetch_sub(size(&batch), Ordering::Relaxed);
            }
        }
    }

    /// A job was dropped: list the store, and replace the content.
    pub(crate) const fn is_behind(&self) -> bool {
        self.is_behind
    }
}

#[cfg(test)]
mod tests;
