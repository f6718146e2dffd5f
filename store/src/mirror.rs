//! The last good state of a store, on this machine's disk: used while the store cannot be reached.
//!
//! An embedded database ([`redb`]) makes each write atomic, whenever the process or the machine stops. It does not detect
//! flipped bits in values, so a checksum over all entries is stored beside them: content with a wrong checksum is quarantined
//! and never used. Content that is not written yet is in a [`log`].

mod checksum;
mod database;
pub mod log;
mod resume;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use redb::{
    Database, ReadableDatabase, ReadableTable, StorageBackend, TableError, WriteTransaction,
    backends::InMemoryBackend,
};

use crate::{Change, Entry, SavedStart, StoreIdentity};
use checksum::EntriesChecksum;
pub use database::MirrorError;
use database::{
    CACHE_BYTES, ENTRIES, FORMAT, LOG, LoadError, ROW_KEY, ReadAll, STATE, checksum_of, guarded,
    is_of, last_record, open_and_check, read, state,
};
use log::unsaved::{Piece, Unsaved};
use resume::Evidence;

/// The file within the state folder.
const FILE: &str = "mirror.redb";
/// The name of a quarantined file.
const QUARANTINED_FILE: &str = "mirror.redb.damaged";

/// The saved content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The revision of the store.
    pub revision: i64,
    /// Sorted by key.
    pub entries: Vec<Entry>,
}

/// A file that was quarantined because it cannot be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedFile {
    /// Its new path.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// The properties of a mirror that are known without reading all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MirrorSummary {
    /// The number of saved entries.
    pub entries: usize,
    /// Whether it has the given key.
    pub has_key: bool,
}

impl MirrorSummary {
    /// Counts an entry, which may have the key.
    fn count(&mut self, entry: &Entry, key: &str) {
        self.entries = self.entries.saturating_add(1);
        self.has_key |= entry.key == key;
    }
}

/// An opened mirror.
#[derive(Debug)]
pub struct Mirror {
    database: Database,
    /// The next write saves the content of the log up to the record with this number.
    last_record: u64,
    /// What the store says of itself; none if it is not known yet.
    identity: Option<StoreIdentity>,
}

impl Mirror {
    /// Opens the mirror in a folder, or creates one. `source` names the mirrored store: the content of another store is not
    /// used. A damaged file, or one with a wrong checksum, is quarantined and a new one is created. Newer content of the log is
    /// saved.
    ///
    /// # Errors
    /// When no file can be opened or created.
    pub fn open(
        folder: &Path,
        source: &str,
    ) -> Result<(Self, Option<QuarantinedFile>), MirrorError> {
        Self::open_before(folder, source, u64::MAX)
    }

    /// Like [`Self::open`], but saves only the segments of the log that begin before this record number: none before 0. The
    /// process that is writing the later ones saves them itself.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_before(
        folder: &Path,
        source: &str,
        before: u64,
    ) -> Result<(Self, Option<QuarantinedFile>), MirrorError> {
        Self::open_with(folder, source, before, &mut checksum_of)
    }

    /// Like [`Self::open_before`], and as [`Self::read_pages`], in one pass over the content unless newer content of the log is saved
    /// first. What was shown counts only with a [`SavedStart::Usable`]: the content is known to be whole when all was read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_and_read(
        folder: &Path,
        source: &str,
        before: u64,
        mut show: impl FnMut(Vec<Entry>) -> bool,
    ) -> Result<(Self, Option<QuarantinedFile>, SavedStart), MirrorError> {
        let mut read = None;
        let mut read_all = |database: &Database| {
            let is_logged = last_record(database)?.is_some_and(|number| {
                let mut newer = log::unsaved::read(folder, source, Some(number), before);
                newer.next().is_some()
            });
            if is_logged {
                return checksum_of(database);
            }
            let (start, checksum) = resume::read_pages(database, &mut show)?;
            read = Some(start);
            Ok(checksum)
        };
        let (mirror, quarantined) = Self::open_with(folder, source, before, &mut read_all)?;
        let start = match read {
            Some(_) if quarantined.is_some() => SavedStart::Unusable,
            Some(start) => start,
            None => mirror.read_pages(show)?,
        };
        Ok((mirror, quarantined, start))
    }

    fn open_with(
        folder: &Path,
        source: &str,
        before: u64,
        read_all: &mut ReadAll<'_>,
    ) -> Result<(Self, Option<QuarantinedFile>), MirrorError> {
        let path = folder.join(FILE);
        if fs::symlink_metadata(&path).is_ok_and(|file| file.is_symlink()) {
            // Its target would be written to.
            return Err(MirrorError::Open {
                path,
                reason: "it is a symbolic link; remove it".to_owned(),
            });
        }
        let create = || {
            Database::builder()
                .set_cache_size(CACHE_BYTES)
                .create(&path)
        };
        let reason = match open_and_check(create, source, read_all) {
            Ok(database) => return Ok((Self::replayed(database, folder, source, before)?, None)),
            // A file with another owner, or one that cannot be opened, is not damaged.
            Err(LoadError::System(error)) => {
                return Err(MirrorError::Open {
                    path,
                    reason: error.to_string(),
                });
            }
            Err(LoadError::Content(reason)) => reason,
        };
        let quarantine_file = QuarantinedFile {
            path: folder.join(QUARANTINED_FILE),
            reason,
        };
        let failed = |reason: String| MirrorError::Open {
            path: path.clone(),
            reason,
        };
        fs::rename(&path, &quarantine_file.path).map_err(|error| failed(error.to_string()))?;
        let database =
            open_and_check(create, source, read_all).map_err(|error| failed(error.to_string()))?;
        Ok((
            Self::replayed(database, folder, source, before)?,
            Some(quarantine_file),
        ))
    }

    /// A mirror to which the newer content of the log was added.
    fn replayed(
        database: Database,
        folder: &Path,
        source: &str,
        before: u64,
    ) -> Result<Self, MirrorError> {
        let (is_filled, number) = guarded("read", || {
            Ok((state(&database)?.is_some(), last_record(&database)?))
        })?;
        let mut mirror = Self {
            database,
            last_record: number.unwrap_or_default(),
            identity: None,
        };
        if let Some(number) = number {
            for unsaved in log::unsaved::read(folder, source, is_filled.then_some(number), before) {
                match unsaved {
                    Unsaved::Changes {
                        number,
                        revision,
                        changes,
                        deviating,
                    } => {
                        mirror.last_record = number;
                        mirror.apply(revision, &changes, &deviating)?;
                    }
                    Unsaved::List {
                        number,
                        revision,
                        keep,
                        list,
                    } => {
                        mirror.last_record = number;
                        mirror.replace(revision, list.into_entries(), &keep)?;
                    }
                }
            }
        }
        Ok(mirror)
    }

    /// The number of saved entries, and whether this key is one of them, without reading the whole database. Of a database
    /// that cannot be read the largest possible number is returned, as it may hold anything. A complete list in newer records of
    /// this store's log is counted instead of what is saved, with all keys that it keeps. Each changed value in these records
    /// is counted as one more entry, and deletions are not subtracted.
    pub fn summary(folder: &Path, source: &str, key: &str) -> MirrorSummary {
        let path = folder.join(FILE);
        let in_database = || {
            let database = Database::builder()
                .set_cache_size(CACHE_BYTES)
                .open(&path)?;
            let Some((_, _, count, _)) = state(&database)? else {
                return Ok(Default::default());
            };
            let has_key = database
                .begin_read()?
                .open_table(ENTRIES)?
                .get(key)?
                .is_some();
            let entries = count.try_into().unwrap_or(usize::MAX);
            Ok((
                MirrorSummary { entries, has_key },
                last_record(&database)?.unwrap_or(u64::MAX),
            ))
        };
        let saved = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Default::default()),
            _ if is_regular(&path) => guarded("read", in_database).ok(),
            _ => None,
        };
        // A database that cannot be read now may hold anything: its owner must read all of it.
        let Some((mut summary, number)) = saved else {
            return MirrorSummary {
                entries: usize::MAX,
                has_key: true,
            };
        };
        let mut list = MirrorSummary::default();
        log::unsaved::for_each_piece(folder, source, number, |piece| match piece {
            Piece::ListBegin { keep } => {
                list = MirrorSummary {
                    entries: keep.len(),
                    has_key: keep.contains(key),
                };
            }
            Piece::Listed(entry) => list.count(entry, key),
            Piece::ListEnd => summary = list,
            Piece::Changed(entry) => summary.count(entry, key),
        });
        summary
    }

    /// Calls `show` with the key and the modification revision of each saved value of this store, without keeping any, and
    /// before the database is opened for writing. Then it calls it with every value in newer records of the log, even if a later
    /// record changes that value, or if it is part of a truncated list.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn for_each_revision(
        folder: &Path,
        source: &str,
        mut show: impl FnMut(&str, i64),
    ) -> Result<(), MirrorError> {
        let path = folder.join(FILE);
        if !is_regular(&path) {
            return Ok(());
        }
        guarded("read", || {
            let database = Database::builder()
                .set_cache_size(CACHE_BYTES)
                .open(&path)?;
            if !is_of(&database, source)? || state(&database)?.is_none() {
                return Ok(());
            }
            for row in database.begin_read()?.open_table(ENTRIES)?.iter()? {
                let (key, value) = row?;
                show(key.value(), value.value().1);
            }
            let saved = last_record(&database)?.unwrap_or(u64::MAX);
            log::unsaved::for_each_piece(folder, source, saved, |piece| {
                if let Piece::Listed(entry) | Piece::Changed(entry) = piece {
                    show(&entry.key, entry.mod_revision);
                }
            });
            Ok(())
        })
    }

    /// The number of the last log record that is saved; none if nothing is, or if it is unknown. After a version without a log
    /// has written, older records are outdated, and removed.
    pub fn prepare_log(folder: &Path) -> Option<u64> {
        let path = folder.join(FILE);
        let prepare = || {
            let database = Database::builder()
                .set_cache_size(CACHE_BYTES)
                .open(&path)?;
            let Some((_, revision, count, total)) = state(&database)? else {
                return Ok(None);
            };
            if let Some(number) = last_record(&database)? {
                return Ok(Some(number));
            }
            log::remove_until(folder, u64::MAX);
            let transaction = database.begin_write()?;
            transaction
                .open_table(LOG)?
                .insert(ROW_KEY, (0, revision, count, total))?;
            transaction.commit()?;
            Ok(Some(0))
        };
        if is_regular(&path) {
            guarded("open", prepare).ok()?
        } else {
            None
        }
    }

    /// Sets the number of the last log record that the next write contains.
    pub const fn set_last_record(&mut self, number: u64) {
        self.last_record = number;
    }

    /// Sets what the store says of itself, which the next write saves. With none, what was saved stays.
    pub const fn set_identity(&mut self, identity: Option<StoreIdentity>) {
        self.identity = identity;
    }

    /// The saved content of a folder that cannot be written to, as on a full or read-only disk. The file is not changed. None
    /// if nothing was saved of this store.
    ///
    /// # Errors
    /// When the file cannot be read, or cannot be trusted.
    pub fn recall(folder: &Path, source: &str) -> Result<Option<Saved>, MirrorError> {
        let path = folder.join(FILE);
        // The database writes to the file that it opens, so it gets a copy.
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other.map_err(|error| MirrorError::Open {
                path: path.clone(),
                reason: error.to_string(),
            })?,
        };
        let copy = || {
            let memory = InMemoryBackend::new();
            memory.set_len(bytes.len() as u64)?;
            memory.write(0, &bytes)?;
            Database::builder()
                .set_cache_size(CACHE_BYTES)
                .create_with_backend(memory)
        };
        let database =
            open_and_check(copy, source, &mut checksum_of).map_err(|error| MirrorError::Open {
                path: path.clone(),
                reason: error.to_string(),
            })?;
        Self::replayed(database, folder, source, u64::MAX)?.load()
    }

    /// The saved content; none if nothing was saved.
    ///
    /// # Errors
    /// When it can no longer be read.
    pub fn load(&self) -> Result<Option<Saved>, MirrorError> {
        let content = guarded("read", || read(&self.database))?;
        Ok(content.map(|(revision, entries)| Saved { revision, entries }))
    }

    /// Calls `show` with all saved entries, page by page, until it returns false. Returns where a reader of them goes on.
    ///
    /// # Errors
    /// When they can no longer be read.
    pub fn read_pages(
        &self,
        mut show: impl FnMut(Vec<Entry>) -> bool,
    ) -> Result<SavedStart, MirrorError> {
        let read = || resume::read_pages(&self.database, &mut show);
        guarded("read", read).map(|(start, _)| start)
    }

    /// Saves the complete content at this revision, sorted by key. The saved values of the keys in `keep` stay: the store has
    /// unusable values for them.
    ///
    /// # Errors
    /// When nothing was saved, because of the mirror or because an entry could not be read.
    pub fn replace(
        &mut self,
        revision: i64,
        entries: impl IntoIterator<Item = io::Result<Entry>>,
        keep: &BTreeSet<String>,
    ) -> Result<(), MirrorError> {
        let evidence = |before| Some(Evidence::of_list(keep, before));
        self.write(revision, evidence, |transaction, checksum| {
            let mut table = transaction.open_table(ENTRIES)?;
            // The previous content is read in step with the new one: both are sorted.
            let before = self.database.begin_read()?;
            let before = match before.open_table(ENTRIES) {
                Err(TableError::TableDoesNotExist(_)) => None,
                other => Some(other?),
            };
            let mut rows = before
                .as_ref()
                .map(ReadableTable::iter)
                .transpose()?
                .into_iter()
                .flatten();
            let mut row = rows.next().transpose()?;
            let mut entries = entries.into_iter();
            loop {
                let entry = entries.next().transpose().map_err(redb::Error::Io)?;
                while let Some((key, value)) = &row
                    && entry
                        .as_ref()
                        .is_none_or(|entry| key.value() < entry.key.as_str())
                {
                    if !keep.contains(key.value()) && table.remove(key.value())?.is_some() {
                        checksum.remove(key.value(), value.value());
                    }
                    row = rows.next().transpose()?;
                }
                let Some(entry) = entry else { return Ok(()) };
                if row
                    .as_ref()
                    .is_some_and(|(key, _)| key.value() == entry.key)
                {
                    row = rows.next().transpose()?;
                }
                put(&mut table, checksum, &entry)?;
            }
        })
    }

    /// Saves changes that lead to this revision. Those of the keys `deviating` are not among them, or not the last ones.
    ///
    /// # Errors
    /// When nothing was saved.
    pub fn apply(
        &mut self,
        revision: i64,
        changes: &[Change],
        deviating: &BTreeSet<String>,
    ) -> Result<(), MirrorError> {
        let evidence = |before: Option<Evidence>| {
            let mut evidence = before?;
            evidence.follow(changes, deviating);
            Some(evidence)
        };
        self.write(revision, evidence, |transaction, checksum| {
            let mut table = transaction.open_table(ENTRIES)?;
            for change in changes {
                match change {
                    Change::Put(entry) => put(&mut table, checksum, entry)?,
                    Change::Delete { key } => {
                        if let Some(old) = table.remove(key.as_str())? {
                            checksum.remove(key, old.value());
                        }
                    }
                }
            }
            Ok(())
        })
    }

    fn write(
        &self,
        revision: i64,
        evidence: impl FnOnce(Option<Evidence>) -> Option<Evidence>,
        work: impl FnOnce(&WriteTransaction, &mut EntriesChecksum) -> Result<(), redb::Error>,
    ) -> Result<(), MirrorError> {
        guarded("write", || {
            let mut evidence = evidence(self.evidence()?);
            if let Some(evidence) = &mut evidence {
                evidence.identity = self.identity.or(evidence.identity);
            }
            let transaction = self.database.begin_write()?;
            {
                let mut state = transaction.open_table(STATE)?;
                let before = state.get(ROW_KEY)?.map(|row| row.value());
                let mut checksum = before
                    .map_or_else(EntriesChecksum::default, |(_, _, count, total)| {
                        EntriesChecksum { count, total }
                    });
                work(&transaction, &mut checksum)?;
                state.insert(ROW_KEY, (FORMAT, revision, checksum.count, checksum.total))?;
                let mut log = transaction.open_table(LOG)?;
                log.insert(
                    ROW_KEY,
                    (self.last_record, revision, checksum.count, checksum.total),
                )?;
                resume::write(&transaction, revision, checksum, evidence.as_ref())?;
            }
            transaction.commit()?;
            Ok(())
        })
    }

    fn evidence(&self) -> Result<Option<Evidence>, redb::Error> {
        match state(&self.database)? {
            None => Ok(None),
            Some((_, revision, count, total)) => {
                resume::read(&self.database, revision, EntriesChecksum { count, total })
            }
        }
    }
}

/// True for a file that may be opened. The target of a symbolic link would be written to.
fn is_regular(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| file.is_file())
}

type EntriesTable<'a> = redb::Table<'a, &'static str, (i64, i64, &'static [u8])>;

fn put(
    table: &mut EntriesTable<'_>,
    checksum: &mut EntriesChecksum,
    entry: &Entry,
) -> Result<(), redb::Error> {
    let new = (
        entry.create_revision,
        entry.mod_revision,
        entry.value.as_ref(),
    );
    let is_there = table
        .get(entry.key.as_str())?
        .is_some_and(|old| old.value() == new);
    if !is_there {
        if let Some(old) = table.insert(entry.key.as_str(), new)? {
            checksum.remove(&entry.key, old.value());
        }
        checksum.add(&entry.key, new);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
