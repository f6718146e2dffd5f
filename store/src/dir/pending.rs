//! What to read when: from inotify's events to files that are complete. Pure, with the time handed in.
//!
//! A file is complete when its writer closed it, or renamed it into place. A file that went may be back in a moment,
//! because many editors write that way; it gets [`REMOVAL_GRACE`] before its objects go. A file that is being written is left
//! alone until it is closed, also by a rescan for another reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

/// How long a file may be gone.
pub(super) const REMOVAL_GRACE: Duration = Duration::from_millis(10);

/// What happened to one file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signal {
    /// A file is complete: closed, renamed or linked into place.
    Complete(PathBuf),
    /// A file has another name, which is that of a manifest too.
    Renamed {
        /// The name it had.
        from: PathBuf,
        /// The name it has.
        to: PathBuf,
    },
    /// A file has begun to be.
    Created(PathBuf),
    /// Someone wrote to a file.
    Written(PathBuf),
    /// Something about a file is different, such as who may read it.
    Altered(PathBuf),
    /// A file went.
    Gone(PathBuf),
    /// Folders or links are different.
    Moved,
    /// A folder or link went, or something came or went that may have been one.
    MaybeMoved,
    /// Events were lost.
    Lost,
}

/// What is to be read.
#[derive(Debug, Default)]
pub(super) struct Pending {
    rescan: bool,
    complete: BTreeSet<PathBuf>,
    /// Files that may be gone, until when they get.
    in_question: BTreeMap<PathBuf, Instant>,
    rescan_at: Option<Instant>,
    /// Files that are open for writing, and whether something was written since they were created.
    being_written: BTreeMap<PathBuf, bool>,
    /// Those that were written to since this was last taken.
    written: BTreeSet<PathBuf>,
}

/// What to read now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReadPlan {
    /// Look at the whole folder.
    pub(super) rescan: bool,
    /// Files that are complete.
    pub(super) complete: BTreeSet<PathBuf>,
    /// Files that are forgotten if they are not there.
    pub(super) overdue: BTreeSet<PathBuf>,
    /// Files that are being written: they may be empty now, and are not to be read.
    pub(super) written: BTreeSet<PathBuf>,
}

impl Pending {
    pub(super) fn note(&mut self, signal: Signal, now: Instant) {
        match signal {
            Signal::Complete(path) => {
                self.being_written.remove(&path);
                self.in_question.remove(&path);
                self.complete.insert(path);
            }
            Signal::Renamed { from, to } => {
                // Where it went is known, so nothing is waited for: its objects never have two files, or none.
                self.note(Signal::Gone(from.clone()), now);
                self.in_question.insert(from, now);
                self.note(Signal::Complete(to), now);
            }
            Signal::Created(path) => {
                self.being_written.insert(path.clone(), false);
                // A file that was linked into place is never closed.
                self.in_question.insert(path, now + REMOVAL_GRACE);
            }
            Signal::Written(path) => {
                self.written.insert(path.clone());
                self.being_written.insert(path, true);
            }
            Signal::Altered(path) => {
                if !self.being_written.contains_key(&path) {
                    self.complete.insert(path);
                }
            }
            Signal::Gone(path) => {
                self.being_written.remove(&path);
                self.complete.remove(&path);
                self.in_question.entry(path).or_insert(now + REMOVAL_GRACE);
            }
            Signal::Moved => self.rescan = true,
            Signal::MaybeMoved => drop(self.rescan_at.get_or_insert(now + REMOVAL_GRACE)),
            Signal::Lost => {
                // Among the lost events may be that of a file being closed.
                self.being_written.clear();
                self.rescan = true;
            }
        }
    }

    /// When there is something to do, at `now` or later, without a further signal.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let is_due = self.rescan || !self.complete.is_empty() || !self.written.is_empty();
        self.in_question.values().copied().chain(self.rescan_at).chain(is_due.then_some(now)).min()
    }

    /// Takes what is to be read now.
    pub(super) fn take(&mut self, now: Instant) -> ReadPlan {
        let mut overdue = BTreeSet::new();
        self.in_question.retain(|path, at| {
            // What was written to is read when it is closed.
            if *at <= now && self.being_written.get(path) != Some(&true) {
                overdue.insert(path.clone());
            }
            *at > now
        });
        let rescan_is_due = self.rescan_at.take_if(|at| *at <= now).is_some();
        let mut written = std::mem::take(&mut self.written);
        written.retain(|path| self.being_written.contains_key(path));
        ReadPlan {
            rescan: std::mem::take(&mut self.rescan) || rescan_is_due,
            complete: std::mem::take(&mut self.complete),
            overdue,
            written,
        }
    }

    /// What was in one folder is in another one now, or nothing is heard of it any more. Its writers go along.
    pub(super) fn move_folder(&mut self, from: &Path, to: Option<&Path>) {
        let all = std::mem::take(&mut self.being_written);
        let moved = all.into_iter().filter_map(|(path, is_written)| {
            if path.parent() != Some(from) {
                return Some((path, is_written));
            }
            Some((to?.join(path.file_name()?), is_written))
        });
        self.being_written = moved.collect();
    }

    /// A file that was complete a moment ago and is not there now: it may be gone.
    pub(super) fn question(&mut self, path: PathBuf, now: Instant) {
        self.in_question.entry(path).or_insert(now + REMOVAL_GRACE);
    }

    /// Whether a file was created and has not been closed.
    pub(super) fn is_being_written(&self, path: &Path) -> bool {
        self.being_written.contains_key(path)
    }

    /// A file that was created is complete although it was not closed: it was linked into place.
    pub(super) fn finish(&mut self, path: &Path) {
        self.being_written.remove(path);
    }

    /// Whether a file may be gone; it is looked at soon.
    pub(super) fn is_in_question(&self, path: &Path) -> bool {
        self.in_question.contains_key(path)
    }

    /// Whether nothing must be read from the file, or concluded from its absence, at the moment. One that is complete since this
    /// was last taken is read soon.
    pub(super) fn is_untouchable(&self, path: &Path) -> bool {
        self.being_written.contains_key(path)
            || self.in_question.contains_key(path)
            || self.complete.contains(path)
    }
}

#[cfg(test)]
mod tests;
