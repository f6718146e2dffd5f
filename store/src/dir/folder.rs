//! The state of a folder: every file as last read, and the resulting entries.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use contiv_proto::Key;
use tokio::time::Instant;

use super::{
    file::{Definition, File, Fingerprint},
    index::Index,
};
use crate::{
    Entry, Problem, Snapshot, WatchEvent,
    manifest::{self, Links, walk::Walk},
};

/// How long a file that had objects must stay empty before its objects are deleted. A writer truncates a file first, and the
/// kernel reports the write only when it is complete: ext4 shows a size of zero while it waits for its journal, behind all
/// other writes to the disk. Nothing distinguishes such a file from one that stays empty.
const EMPTY_GRACE: Duration = Duration::from_secs(5);
/// The same for a file that is open for writing: its writer may still be waiting for data, but there is no event when it gave
/// up, or when the file was truncated by path without being opened.
const EMPTY_OPEN_GRACE: Duration = Duration::from_secs(60);

/// The limit for the bytes of all manifests: eight times those of a cluster of 10,000 services.
const TOTAL_LIMIT: u64 = 256 << 20;

/// A folder of manifests. [`super::pending`] decides what to read when.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) root: PathBuf,
    pub(super) links: Links,
    files: BTreeMap<Arc<Path>, File>,
    /// The bytes of all files, and their limit.
    size: u64,
    limit: u64,
    /// Files that had objects and were empty when last read, with the time since when they are so without a change. Their
    /// objects are kept for now.
    emptied: BTreeMap<PathBuf, (Fingerprint, Instant)>,
    pub(super) index: Index,
    /// Unreadable folders and the like.
    unreadable: Vec<Problem>,
    /// The complete list as last published, with the warnings.
    problems: Vec<Problem>,
    revision: i64,
}

/// The result of reading a file again.
pub(super) enum RereadResult {
    /// Its content is known.
    Done,
    /// It is empty, and was not before.
    Emptied {
        /// When its current state was first seen.
        since: Instant,
    },
    /// There is no such file.
    Absent,
}

/// The state of a file when it is read.
enum FileState {
    /// Unchanged since it was last read.
    AsBefore,
    /// It does not exist.
    Nothing,
    File(File),
}

impl Folder {
    pub(super) fn new(root: &Path, links: Links) -> Self {
        Self {
            root: root.to_owned(),
            links,
            files: BTreeMap::new(),
            size: 0,
            limit: TOTAL_LIMIT,
            emptied: BTreeMap::new(),
            index: Index::default(),
            unreadable: Vec::new(),
            problems: Vec::new(),
            revision: 0,
        }
    }

    /// The current entries below `prefix`.
    pub(super) fn snapshot(&self, prefix: &str) -> Snapshot {
        Snapshot {
            revision: self.revision,
            entries: self.index.entries(prefix),
            problems: self.problems.clone(),
        }
    }

    /// Reads one file again. A missing file is not forgotten yet, because it may return at once. An empty file keeps its
    /// objects for now: a writer truncates it first.
    pub(super) fn refresh(&mut self, path: &Path) -> RereadResult {
        let found = self.read(path);
        self.apply_file(path, found)
    }

    /// Reads a file.
    fn read(&self, path: &Path) -> FileState {
        let before = self.files.get(path);
        if before.is_some_and(|before| !before.is_stale(path)) {
            return FileState::AsBefore;
        }
        let budget = (self.limit + before.map_or(0, File::size)).saturating_sub(self.size);
        File::read(path, &self.root, self.links, budget, before)
            .map_or(FileState::Nothing, FileState::File)
    }

    fn apply_file(&mut self, path: &Path, found: FileState) -> RereadResult {
        let now = match found {
            FileState::AsBefore => {
                self.emptied.remove(path);
                return RereadResult::Done;
            }
            FileState::Nothing => return RereadResult::Absent,
            FileState::File(now) => now,
        };
        let before = self.files.get(path);
        let had_objects = before.is_some_and(|before| !before.definitions.is_empty());
        match now.emptied() {
            Some(fingerprint) if had_objects => {
                let seen = self
                    .emptied
                    .get(path)
                    .filter(|(seen, _)| *seen == fingerprint);
                let since = seen.map_or_else(Instant::now, |(_, since)| *since);
                self.emptied.insert(path.to_owned(), (fingerprint, since));
                RereadResult::Emptied { since }
            }
            _ => {
                self.put(path, now);
                RereadResult::Done
            }
        }
    }

    /// Reads one file again, and removes its objects if it is missing, or was empty and untouched for [`EMPTY_GRACE`].
    pub(super) fn refresh_or_forget(&mut self, path: &Path) {
        match self.refresh(path) {
            RereadResult::Done => {}
            RereadResult::Absent => self.forget(path),
            RereadResult::Emptied { since } => {
                if since.elapsed() >= EMPTY_GRACE {
                    self.forget(path);
                }
            }
        }
    }

    /// Files that were empty when last read, and until when they keep their objects.
    pub(super) fn emptied(
        &self,
        is_being_written: impl Fn(&Path) -> bool,
    ) -> impl Iterator<Item = (&PathBuf, Instant)> {
        self.emptied.iter().map(move |(path, (_, since))| {
            let grace = if is_being_written(path) {
                EMPTY_OPEN_GRACE
            } else {
                EMPTY_GRACE
            };
            (path, *since + grace)
        })
    }

    /// Checks whether a file that is being written is empty at the moment. It is not read.
    pub(super) fn check_size(&mut self, path: &Path) {
        let has_objects = self
            .files
            .get(path)
            .is_some_and(|file| !file.definitions.is_empty());
        let fingerprint = Fingerprint::of(path)
            .ok()
            .filter(|now| has_objects && now.is_empty());
        match fingerprint {
            None => {
                self.emptied.remove(path);
            }
            Some(now) if self.emptied.get(path).is_none_or(|(seen, _)| *seen != now) => {
                self.emptied.insert(path.to_owned(), (now, Instant::now()));
            }
            Some(_) => {}
        }
    }

    /// Removes the objects of an empty file that is being written, if it has not changed since it was last checked.
    pub(super) fn forget_emptied(&mut self, path: &Path) {
        let (seen, _) = self.emptied.remove(path).unzip();
        if seen.is_some() && Fingerprint::of(path).ok() == seen {
            self.forget(path);
        }
    }

    /// Applies the result of a walk: reads changed files, and forgets missing ones. Files for which `must_not_be_read` is true
    /// stay as they are; it is called after a file was read, and before one is forgotten, because a writer may just have begun.
    pub(super) async fn apply(
        &mut self,
        found: &Walk,
        mut must_not_be_read: impl AsyncFnMut(&Path) -> bool,
    ) {
        self.unreadable = found
            .unreadable
            .iter()
            .flat_map(|(folder, error)| manifest::unreadable(folder, error).problems)
            .collect();
        for path in &found.files {
            let file = self.read(path);
            if !must_not_be_read(path).await {
                self.apply_file(path, file);
            }
        }
        let is_gone = |path: &Arc<Path>| {
            !found.files.contains(&**path)
                && !found
                    .unreadable
                    .iter()
                    .any(|(folder, _)| path.starts_with(folder))
        };
        for path in self
            .files
            .keys()
            .filter(|path| is_gone(path))
            .cloned()
            .collect::<Vec<_>>()
        {
            if !must_not_be_read(&path).await {
                self.forget(&path);
            }
        }
    }

    /// The folder itself cannot be read: everything stays as it was, with this as a problem.
    pub(super) fn apply_failure(&mut self, error: &io::Error) {
        self.unreadable = manifest::unreadable(&self.root, error).problems;
    }

    /// True if something could not be read, so that an earlier run may know more of it.
    pub(super) fn may_be_incomplete(&self) -> bool {
        !self.unreadable.is_empty() || self.files.values().any(File::may_be_incomplete)
    }

    /// Adds saved entries of an earlier run, if they may be in unreadable files. A saved entry does not name its file: until
    /// all files can be read, no object counts as deleted. Returns the number of objects.
    pub(super) fn recall(&mut self, found: &Walk, saved: impl IntoIterator<Item = Entry>) -> usize {
        for (folder, _) in &found.unreadable {
            self.files.insert(folder.as_path().into(), File::unread());
        }
        let (mut recalled, mut held) = (0, BTreeMap::<Arc<Path>, Vec<Arc<Definition>>>::new());
        for Entry {
            key: path, value, ..
        } in saved
        {
            let Ok(Some(key)) = Key::parse(&path) else {
                continue;
            };
            if self.index.has(&key) {
                continue;
            }
            let (key, value) = (Arc::new(key), value.as_ref().into());
            let definition = Arc::new(Definition {
                key,
                value,
                place: Box::default(),
                is_recalled: true,
            });
            let holders = self
                .files
                .iter()
                .filter(|(_, file)| file.may_hold(&definition.key));
            let mut is_held = false;
            for (path, _) in holders {
                self.index
                    .replace(path, &[], std::slice::from_ref(&definition));
                held.entry(Arc::clone(path))
                    .or_default()
                    .push(Arc::clone(&definition));
                is_held = true;
            }
            recalled += usize::from(is_held);
        }
        for (path, more) in held {
            if let Some(file) = self.files.get_mut(&path) {
                file.definitions = file.definitions.iter().cloned().chain(more).collect();
            }
        }
        recalled
    }

    /// The changes since the last call, each with its revision. A change of the problems has a revision too, so that a later
    /// watch receives it.
    pub(super) fn publish(&mut self) -> Vec<(i64, WatchEvent)> {
        let mut events = Vec::new();
        if let Some(batch) = self.index.commit(self.revision) {
            self.revision = batch.revision;
            events.push((self.revision, WatchEvent::Changed(batch)));
        }
        let findings = self.files.values().map(File::findings);
        let files = findings
            .flat_map(|of| of.problems.iter().chain(&of.warnings))
            .cloned();
        let folders = self.unreadable.iter().cloned();
        let mut problems: Vec<Problem> = files
            .chain(folders)
            .chain(self.index.duplicates())
            .collect();
        problems.sort();
        if problems != self.problems {
            self.problems.clone_from(&problems);
            self.revision += 1;
            events.push((self.revision, WatchEvent::Problems(problems)));
        }
        events
    }

    /// Gives back the memory that maps filled in order leave unused, which is nearly half of theirs.
    pub(super) fn compact(&mut self) {
        self.files = std::mem::take(&mut self.files).into_iter().collect();
        self.index.compact();
    }

    /// The value of a full key.
    pub(super) fn entry(&self, key: &str) -> Option<Entry> {
        self.index.entry(key)
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// Every file that defines the object, or in which it is broken.
    pub(super) fn files_with(&self, key: &Key) -> BTreeMap<&Path, &File> {
        let defining: BTreeSet<&Path> = self.index.files(key).into_iter().collect();
        let concerns = |path: &Path, file: &File| {
            defining.contains(path) || file.findings().broken.contains(key)
        };
        let files = self.files.iter().map(|(path, file)| (&**path, file));
        files.filter(|(path, file)| concerns(path, file)).collect()
    }

    fn put(&mut self, path: &Path, now: File) {
        self.emptied.remove(path);
        let (path, before) = match self.files.get_key_value(path) {
            Some((path, before)) => (Arc::clone(path), &*before.definitions),
            None => (Arc::from(path), [].as_slice()),
        };
        self.index.replace(&path, before, &now.definitions);
        self.size += now.size();
        let before = self.files.insert(path, now);
        self.size -= before.map_or(0, |before| before.size());
    }

    fn forget(&mut self, path: &Path) {
        self.emptied.remove(path);
        if let Some((path, before)) = self.files.remove_entry(path) {
            self.size -= before.size();
            self.index.replace(&path, &before.definitions, &[]);
        }
    }
}

#[cfg(test)]
mod tests;
