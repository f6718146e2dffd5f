//! Decides which files to read, and when, from inotify's events. It is pure: the time is an argument.
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

/// How long a file may be missing before its objects are removed.
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
    MetadataChanged(PathBuf),
    /// A file was removed.
    Removed(PathBuf),
    /// A folder or link was created or replaced: the whole folder is read at once.
    FoldersChanged,
    /// A folder or link was removed, or something that may be one was created or removed: the whole folder is read after the
    /// grace time.
    FoldersMayHaveChanged,
    /// The queue of inotify overflowed, or inotify failed: the whole folder is read.
    EventsLost,
}

/// Everything that has to be read.
#[derive(Debug, Default)]
pub(super) struct Pending {
    rescan: bool,
    complete: BTreeSet<PathBuf>,
    /// Files that may have been removed, with the end of their grace time.
    maybe_removed: BTreeMap<PathBuf, Instant>,
    /// When the whole folder is read.
    rescan_at: Option<Instant>,
    /// Files open for writing, and whether they were written to since they were created.
    being_written: BTreeMap<PathBuf, bool>,
    /// Files that were written to since the last [`Pending::take`].
    written: BTreeSet<PathBuf>,
}

/// Everything to read now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReadPlan {
    /// Read the whole folder.
    pub(super) rescan: bool,
    /// Files that are complete.
    pub(super) complete: BTreeSet<PathBuf>,
    /// Files whose grace time has ended: they are forgotten if they are missing.
    pub(super) overdue: BTreeSet<PathBuf>,
    /// Files that are being written: they may be empty now, and are not to be read.
    pub(super) written: BTreeSet<PathBuf>,
}

impl Pending {
    /// Handles a signal.
    pub(super) fn note(&mut self, signal: Signal, now: Instant) {
        match signal {
            Signal::Complete(path) => {
                self.being_written.remove(&path);
                self.maybe_removed.remove(&path);
                self.complete.insert(path);
            }
            Signal::Renamed { from, to } => {
                // Its new place is known, so there is no grace time: its objects are never in two files, or in none.
                self.note(Signal::Removed(from.clone()), now);
                self.maybe_removed.insert(from, now);
                self.note(Signal::Complete(to), now);
            }
            Signal::Created(path) => {
                self.being_written.insert(path.clone(), false);
                // A hard-linked file is never closed.
                self.maybe_removed.insert(path, now + REMOVAL_GRACE);
            }
            Signal::Written(path) => {
                self.written.insert(path.clone());
                self.being_written.insert(path, true);
            }
            Signal::MetadataChanged(path) => {
                if !self.being_written.contains_key(&path) {
                    self.complete.insert(path);
                }
            }
            Signal::Removed(path) => {
                self.being_written.remove(&path);
                self.complete.remove(&path);
                self.maybe_removed
                    .entry(path)
                    .or_insert(now + REMOVAL_GRACE);
            }
            Signal::FoldersChanged => self.rescan = true,
            Signal::FoldersMayHaveChanged => {
                self.rescan_at.get_or_insert(now + REMOVAL_GRACE);
            }
            Signal::EventsLost => {
                // The lost events may include the close of a file.
                self.being_written.clear();
                self.rescan = true;
            }
        }
    }

    /// The time at which the next [`Pending::take`] is due if no other signal comes.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let is_due = self.rescan || !self.complete.is_empty() || !self.written.is_empty();
        self.maybe_removed
            .values()
            .copied()
            .chain(self.rescan_at)
            .chain(is_due.then_some(now))
            .min()
    }

    /// Takes everything to read now.
    pub(super) fn take(&mut self, now: Instant) -> ReadPlan {
        let mut overdue = BTreeSet::new();
        self.maybe_removed.retain(|path, at| {
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

    /// The content of a folder has moved to another one, or is no longer watched. Files that are being written move along, or are
    /// forgotten.
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

    /// Handles a file that was reported as complete, but is missing: it may have been removed.
    pub(super) fn note_missing(&mut self, path: PathBuf, now: Instant) {
        self.maybe_removed
            .entry(path)
            .or_insert(now + REMOVAL_GRACE);
    }

    /// Whether a file was created or written to and has not been closed since.
    pub(super) fn is_being_written(&self, path: &Path) -> bool {
        self.being_written.contains_key(path)
    }

    /// Handles a created file that is complete although it was not closed, since it is a hard link.
    pub(super) fn finish(&mut self, path: &Path) {
        self.being_written.remove(path);
    }

    /// True if a file may have been removed; it is checked when its grace time ends.
    pub(super) fn may_be_removed(&self, path: &Path) -> bool {
        self.maybe_removed.contains_key(path)
    }

    /// True if a rescan must skip the file, whether it exists or not: it is being written, or is read or checked soon anyway.
    pub(super) fn must_not_be_read(&self, path: &Path) -> bool {
        self.being_written.contains_key(path)
            || self.maybe_removed.contains_key(path)
            || self.complete.contains(path)
    }
}

#[cfg(test)]
mod tests;
