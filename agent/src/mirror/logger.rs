//! The first of the mirror's threads: writes everything to the log at once, so that it is there when the agent is killed.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender},
    },
};

use contiv_node::message::Saving;
use contiv_store::mirror::log::Log;
use tracing::{info, warn};

use super::messages::{Job, Replacement, Work};

/// The state of the thread.
pub(super) struct Logger {
    log: Log,
    writer: Sender<Work>,
    /// The last record of this process's log that is saved.
    saved: Arc<AtomicU64>,
    is_failing: bool,
}

impl Logger {
    pub(super) const fn new(log: Log, writer: Sender<Work>, saved: Arc<AtomicU64>) -> Self {
        Self {
            log,
            writer,
            saved,
            is_failing: false,
        }
    }

    /// Does not sync, so it waits for the disk only when the kernel has too much to write already.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        self.send_to_writer(Work::Begin {
            first: self.log.next(),
        });
        while let Ok(job) = jobs.recv() {
            self.log.set_saved(self.saved.load(Ordering::Relaxed));
            let work = match job {
                Job::Load => Work::Load,
                Job::Start => Work::Start,
                // Only the revision changes, and that alone is not logged.
                Job::Save(Saving::Apply { batch, deviating })
                    if batch.changes.is_empty() && deviating.is_empty() =>
                {
                    Work::Apply {
                        number: self.log.next() - 1,
                        batch,
                        deviating,
                    }
                }
                Job::Save(Saving::Apply { batch, deviating }) => {
                    let (number, written) = self.log.append(&batch, &deviating);
                    self.log_failure_or_recovery(written.as_ref().err());
                    Work::Apply {
                        number,
                        batch,
                        deviating,
                    }
                }
                Job::Save(Saving::List {
                    revision,
                    entries,
                    keep,
                }) => {
                    let entries = entries
                        .into_entries()
                        .filter(|entry| !keep.contains(&entry.key));
                    let (number, list) = self.log.append_list(revision, entries, &keep);
                    self.log_failure_or_recovery(list.as_ref().err());
                    match list {
                        Ok(entries) => Work::Replace(Replacement {
                            number,
                            revision,
                            entries,
                            keep,
                        }),
                        Err(error) => Work::Lost(error),
                    }
                }
            };
            self.send_to_writer(work);
        }
    }

    fn send_to_writer(&self, work: Work) {
        // A thread that has ended has reported why.
        let _ = self.writer.send(work);
    }

    /// Reports when writing the log begins to fail, and when it works again. The next write of the mirror closes the gap.
    fn log_failure_or_recovery(&mut self, error: Option<&io::Error>) {
        match error {
            Some(error) if !self.is_failing => {
                warn!(%error, "the mirror's log cannot be written: without the store, a start after a crash would find a state that is two seconds older");
            }
            None if self.is_failing => info!("the mirror's log is written again"),
            _ => (),
        }
        self.is_failing = error.is_some();
    }
}
