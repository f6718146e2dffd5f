//! Decides what to read when: turns inotify's events into complete files. Pure; the time is an argument.
//!
//! A file is complete when its writer closed it, or renamed it into place. A removed file may return at once, because many
//! editors write that way; its objects are kept for [`REMOVAL_GRACE`]. A file that is being written is not read until it is
//! closed, not even by a rescan.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

/// How long a file may be missing.
pub(super) const REMOVAL_GRACE: Duration = Duration::from_millis(10);

/// An event of one file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signal {
    /// A file is complete: closed, renamed or linked into place.
    Complete(PathBuf),
    /// A file was renamed to another manifest's name.
    Renamed {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
    },
    /// A file was created.
    Created(PathBuf),
    /// Someone wrote to a file.
    Written(PathBuf),
    /// The metadata of a file changed, such as its permissions.
    Altered(PathBuf),
    /// A file was removed.
    Gone(PathBuf),
    /// Folders or links changed.
    Moved,
    /// A folder or link was removed, or something that may have been one was created or removed.
    MaybeMoved,
    /// Events were lost.
    Lost,
}

/// Everything that has to be read.
#[derive(Debug, Default)]
pub(super) struct Pending {
    rescan: bool,
    complete: BTreeSet<PathBuf>,
    /// Files that may be removed, with the end of their grace time.
    in_question: BTreeMap<PathBuf, Instant>,
    rescan_at: Option<Instant>,
    /// Files open for writing, and whether they were written to since they were created.
    being_written: BTreeMap<PathBuf, bool>,
    /// Files that were written to since they were last taken.
    written: BTreeSet<PathBuf>,
}

/// Everything to read now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReadPlan {
    /// Read the whole folder.
    pub(super) rescan: bool,
    /// Files that are complete.
    pub(super) complete: BTreeSet<PathBuf>,
    /// Files that are forgotten if they are missing.
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
                // Its new place is known, so there is no grace time: its objects are never in two files, or in none.
                self.note(Signal::Gone(from.clone()), now);
                self.in_question.insert(from, now);
                self.note(Signal::Complete(to), now);
            }
            Signal::Created(path) => {
                self.being_written.insert(path.clone(), false);
                // A hard-linked file is never closed.
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
                // The lost events may include the close of a file.
                self.being_written.clear();
                self.rescan = true;
            }
        }
    }

    /// The next time when something is due, at `now` or later, without a further event.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let is_due = self.rescan || !self.complete.is_empty() || !self.written.is_empty();
        self.in_question.values().copied().chain(self.rescan_at).chain(is_due.then_some(now)).min()
    }

    /// Takes everything to read now.
    pub(super) fn take(&mut self, now: Instant) -> ReadPlan {
        let mut overdue = BTreeSet::new();
        self.in_question.retain(|path, at| {
            // A file that is being written is read when it is closed.
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

    /// The content of a folder has moved to another one, or is no longer watched. Pending writes move along.
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

    /// A file that was complete a moment ago is missing: it may have been removed.
    pub(super) fn question(&mut self, path: PathBuf, now: Instant) {
        self.in_question.entry(path).or_insert(now + REMOVAL_GRACE);
    }

    /// Whether a file was created and has not been closed.
    pub(super) fn is_being_written(&self, path: &Path) -> bool {
        self.being_written.contains_key(path)
    }

    /// A created file is complete without being closed: it was hard-linked.
    pub(super) fn finish(&mut self, path: &Path) {
        self.being_written.remove(path);
    }

    /// True if a file may have been removed; it is checked soon.
    pub(super) fn may_be_removed(&self, path: &Path) -> bool {
        self.in_question.contains_key(path)
    }

    /// True if the file must not be read now, and its absence means nothing. A file completed since the last call is read soon.
    pub(super) fn must_not_be_read(&self, path: &Path) -> bool {
        self.being_written.contains_key(path)
            || self.in_question.contains_key(path)
            || self.complete.contains(path)
    }
}

#[cfg(test)]
mod tests;
