//! The mirror's log: the changes and lists of the store since the mirror was last written.
//!
//! Writing the mirror waits for the disk, so that is done every two seconds. The log is written at once and without fsync: after a
//! crash of the process the kernel still has all of it; a power failure may cut off its end. Each record has a number, one more
//! than the record before, and the mirror stores the number of the last one that it contains. A start replays the rest.
//!
//! The log consists of a few files (segments), each named by the number of its first record. A list has its own segment.

mod record;
mod segment;
pub(super) mod unsaved;

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use crate::{Batch, Entry};
use segment::{path_of, remove, remove_if, segments};

pub use segment::{List, remove_saved, remove_until};

/// After this size a new segment begins, so that the old one can be removed.
const SEGMENT_BYTES: u64 = 4 << 20;
/// The limit of changes that are not in the mirror. Beyond it changes are not logged.
const MAX_CHANGES_BYTES: u64 = 64 << 20;
/// How many lists in a row that keep saved values may wait for the mirror. A list that keeps none replaces all earlier records,
/// so it is always written.
const MAX_KEEPING_LISTS: usize = 8;
/// The size of a write of a list.
const PIECE_BYTES: usize = 256 << 10;

/// The writing end of the log. Numbers are consecutive even if a write fails: so a start notices the gap.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    source: String,
    /// The number of the next record.
    next: u64,
    current: Option<(File, Segment)>,
    /// Earlier segments of this process that the mirror does not have yet, in their order.
    closed: VecDeque<Segment>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    last: u64,
    bytes: u64,
    /// It has no changes and no list yet, only the record of its source.
    is_empty: bool,
    is_list: bool,
    /// It is a list that replaces all earlier records, since it keeps no saved values.
    replaces_all: bool,
}

impl Log {
    /// Continues the log in a folder. Its records stay there until the mirror has them. `saved` is the number of the last
    /// record that the mirror has.
    pub fn begin(folder: &Path, source: &str, saved: Option<u64>) -> Self {
        let last = match saved {
            Some(_) => {
                let last = unsaved::read(folder, source, saved, u64::MAX)
                    .last()
                    .map(|unsaved| unsaved.number());
                let last = last.or(saved).unwrap_or_default();
                // Segments after a gap are never replayed, and neither would be new ones after them.
                remove_if(folder, |first| first > last);
                last
            }
            None => unused_number(folder),
        };
        let (folder, source) = (folder.to_owned(), source.to_owned());
        Self {
            folder,
            source,
            next: last + 1,
            current: None,
            closed: VecDeque::new(),
            buffer: Vec::new(),
        }
    }

    /// The number of the next record.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Writes changes, and the keys of those that are not saved. Returns their number, and whether the write succeeded.
    pub fn append(&mut self, batch: &Batch, deviating: &BTreeSet<String>) -> (u64, io::Result<()>) {
        let number = self.take_number();
        let written = self.try_append(number, batch, deviating);
        if written.is_err() {
            // It may end with half a record.
            self.close();
        }
        (number, written)
    }

    fn try_append(
        &mut self,
        number: u64,
        batch: &Batch,
        deviating: &BTreeSet<String>,
    ) -> io::Result<()> {
        if self
            .current
            .as_ref()
            .is_some_and(|(_, segment)| segment.bytes >= SEGMENT_BYTES)
        {
            self.close();
        }
        if self.current.is_none() {
            let waiting: u64 = self
                .closed
                .iter()
                .filter(|segment| !segment.is_list)
                .map(|s| s.bytes)
                .sum();
            if waiting >= MAX_CHANGES_BYTES {
                return Err(mirror_lags());
            }
            self.current = Some(self.create(number)?);
        }
        self.buffer.clear();
        record::put_changes(&mut self.buffer, number, batch, deviating);
        let Some((file, segment)) = &mut self.current else {
            return Ok(());
        };
        file.write_all(&self.buffer)?;
        self.buffer.shrink_to(PIECE_BYTES);
        segment.last = number;
        segment.is_empty = false;
        segment.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Writes a list, the complete content of the store, in the order of its distinct keys. The saved values of the keys in `keep`
    /// stay. Returns the number, and the list for the mirror.
    pub fn append_list(
        &mut self,
        revision: i64,
        entries: impl IntoIterator<Item = Entry>,
        keep: &BTreeSet<String>,
    ) -> (u64, io::Result<List>) {
        let number = self.take_number();
        self.close();
        let lists = self.closed.iter().rev().filter(|segment| segment.is_list);
        let keeping = lists.take_while(|segment| !segment.replaces_all).count();
        if !keep.is_empty() && keeping >= MAX_KEEPING_LISTS {
            return (number, Err(mirror_lags()));
        }
        let list = self.write_list(number, revision, entries, keep);
        self.forget_old_lists();
        // The segment of the list can only be removed when there is a later one. If this fails, the next change creates it.
        self.current = self.create(self.next).ok();
        (number, list)
    }

    fn write_list(
        &mut self,
        number: u64,
        revision: i64,
        entries: impl IntoIterator<Item = Entry>,
        keep: &BTreeSet<String>,
    ) -> io::Result<List> {
        let (file, segment) = self.create(number)?;
        self.buffer.clear();
        record::put_list(&mut self.buffer, number, revision, keep);
        let written = self
            .write_entries(file, entries)
            .and_then(|()| List::open(&segment.path));
        match written {
            Ok(list) => {
                self.closed.push_back(Segment {
                    last: number,
                    is_empty: false,
                    is_list: true,
                    replaces_all: keep.is_empty(),
                    ..segment
                });
                Ok(list)
            }
            Err(error) => {
                // An incomplete list is never replayed, and takes up space.
                remove(&segment.path);
                Err(error)
            }
        }
    }

    fn write_entries(
        &mut self,
        mut file: File,
        entries: impl IntoIterator<Item = Entry>,
    ) -> io::Result<()> {
        for entry in entries {
            record::put_entry(&mut self.buffer, &entry);
            if self.buffer.len() >= PIECE_BYTES {
                file.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        record::put_list_end(&mut self.buffer);
        file.write_all(&self.buffer)
    }

    /// Records up to this number are in the mirror.
    pub fn set_saved(&mut self, number: u64) {
        self.closed.retain(|segment| segment.last > number);
    }

    /// Removes the segments before the last list that replaces them. The newest list does not count: a power failure may
    /// truncate it.
    fn forget_old_lists(&mut self) {
        let newest = self
            .closed
            .iter()
            .rposition(|segment| segment.is_list)
            .unwrap_or_default();
        if let Some(base) = self
            .closed
            .range(..newest)
            .rposition(|segment| segment.replaces_all)
        {
            self.closed
                .drain(..base)
                .for_each(|segment| remove(&segment.path));
        }
    }

    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn close(&mut self) {
        let Some((_, segment)) = self.current.take() else {
            return;
        };
        if segment.is_empty {
            // The next segment may begin with the same number, so it would have the same name.
            remove(&segment.path);
        } else {
            self.closed.push_back(segment);
        }
    }

    /// Creates a segment, with its first record.
    fn create(&mut self, first: u64) -> io::Result<(File, Segment)> {
        let path = path_of(&self.folder, first);
        let mut options = OpenOptions::new();
        // The target of a symbolic link is never written to.
        options.append(true).create_new(true);
        let mut file = match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                options.open(&path)?
            }
            other => other?,
        };
        self.buffer.clear();
        record::put_segment(&mut self.buffer, &self.source);
        file.write_all(&self.buffer)?;
        let bytes = self.buffer.len() as u64;
        let last = first.saturating_sub(1);
        let segment = Segment {
            path,
            last,
            bytes,
            is_empty: true,
            is_list: false,
            replaces_all: false,
        };
        Ok((file, segment))
    }
}

fn mirror_lags() -> io::Error {
    io::Error::new(
        ErrorKind::StorageFull,
        "the mirror has not been written for long",
    )
}

/// A number greater than all in the log, and most likely than all in a mirror that cannot be read at the moment.
fn unused_number(folder: &Path) -> u64 {
    // Every record has more than one byte.
    let newest = segments(folder).pop();
    let in_log = newest.map(|(first, path)| first + path.metadata().map_or(0, |file| file.len()));
    let time = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros());
    in_log
        .unwrap_or_default()
        .max(time.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests;
