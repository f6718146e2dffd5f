//! The last good state of a store, on this machine's disk: used while the store cannot be reached.
//!
//! An embedded database ([`redb`]) makes each write atomic, whenever the process or the machine stops. It does not detect
//! flipped bits in values, so a checksum over all entries is stored beside them: content with a wrong checksum is quarantined
//! and never used.

mod sum;

use std::{
    collections::BTreeSet,
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableError,
    WriteTransaction, backends::InMemoryBackend,
};
use thiserror::Error;

use crate::{Change, Entry, StoreUrl};
use sum::EntriesChecksum;

/// The file within the state folder.
const FILE: &str = "mirror.redb";
/// The name of a quarantined file.
const QUARANTINED_FILE: &str = "mirror.redb.damaged";
/// The layout of the tables below. A file with another layout is quarantined.
const FORMAT: u64 = 1;
/// The database's cache. The file is read once and then only written to.
const CACHE_BYTES: usize = 1 << 20;

/// Key -> create revision, modification revision, value.
const ENTRIES: TableDefinition<'_, &str, (i64, i64, &[u8])> = TableDefinition::new("entries");
/// One row: format, revision, number of entries, checksum over them.
const STATE: TableDefinition<'_, &str, (u64, i64, u64, u64)> = TableDefinition::new("state");
/// One row: the store that is mirrored.
const SOURCE: TableDefinition<'_, &str, &str> = TableDefinition::new("source");
const ROW: &str = "mirror";

/// Why a call of the mirror failed. The store is not affected.
#[derive(Debug, Error)]
pub enum MirrorError {
    /// The file cannot be opened or created.
    #[error("failed to open {path}: {reason}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// The content can no longer be read or written.
    #[error("failed to {action} the mirror: {reason}")]
    Database {
        /// Such as "write".
        action: &'static str,
        /// What went wrong.
        reason: String,
    },
}

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

/// An opened mirror.
#[derive(Debug)]
pub struct Mirror {
    database: Database,
}

impl Mirror {
    /// Opens the mirror in a folder, or creates one. `source` names the mirrored store: the content of another store is not
    /// used. A damaged file, or one with a wrong checksum, is quarantined and a new one is created.
    ///
    /// # Errors
    /// When no file can be opened or created.
    pub fn open(folder: &Path, source: &str) -> Result<(Self, Option<QuarantinedFile>), MirrorError> {
        let path = folder.join(FILE);
        if fs::symlink_metadata(&path).is_ok_and(|file| file.is_symlink()) {
            // Its target would be written to.
            return Err(MirrorError::Open { path, reason: "it is a symbolic link; remove it".to_owned() });
        }
        let create = || Database::builder().set_cache_size(CACHE_BYTES).create(&path);
        let reason = match open_and_check(create, source) {
            Ok(database) => return Ok((Self { database }, None)),
            // A file with another owner, or one that cannot be opened, is not damaged.
            Err(LoadError::System(error)) => {
                return Err(MirrorError::Open { path, reason: error.to_string() });
            }
            Err(LoadError::Content(reason)) => reason,
        };
        let quarantine_file = QuarantinedFile { path: folder.join(QUARANTINED_FILE), reason };
        let failed = |reason: String| MirrorError::Open { path: path.clone(), reason };
        fs::rename(&path, &quarantine_file.path).map_err(|error| failed(error.to_string()))?;
        let database = open_and_check(create, source).map_err(|error| failed(error.to_string()))?;
        Ok((Self { database }, Some(quarantine_file)))
    }

    /// The number of saved entries, and whether this key is one of them, without reading the rest. Zero if unknown.
    pub fn summary(folder: &Path, key: &str) -> MirrorSummary {
        let path = folder.join(FILE);
        if !path.exists() {
            return MirrorSummary::default();
        }
        let summary = guarded("read", || {
            let database = Database::builder().set_cache_size(CACHE_BYTES).open(path)?;
            let Some((_, _, count, _)) = state(&database)? else { return Ok(MirrorSummary::default()) };
            let has_key = database.begin_read()?.open_table(ENTRIES)?.get(key)?.is_some();
            Ok(MirrorSummary { entries: count.try_into().unwrap_or(usize::MAX), has_key })
        });
        summary.unwrap_or_default()
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
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => {
                other.map_err(|error| MirrorError::Open { path: path.clone(), reason: error.to_string() })?
            }
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let copy = || {
            let memory = InMemoryBackend::new();
            memory.set_len(bytes.len() as u64)?;
            memory.write(0, &bytes)?;
            Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(memory)
        };
        let database = open_and_check(copy, source)
            .map_err(|error| MirrorError::Open { path: path.clone(), reason: error.to_string() })?;
        Self { database }.load()
    }

    /// The saved content; none if nothing was saved.
    ///
    /// # Errors
    /// When it can no longer be read.
    pub fn load(&self) -> Result<Option<Saved>, MirrorError> {
        guarded("read", || read(&self.database))
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
        self.write(revision, |transaction, sum| {
            let mut table = transaction.open_table(ENTRIES)?;
            // The previous content is read in step with the new one: both are sorted.
            let before = self.database.begin_read()?;
            let before = match before.open_table(ENTRIES) {
                Err(TableError::TableDoesNotExist(_)) => None,
                other => Some(other?),
            };
            let mut rows = before.as_ref().map(ReadableTable::iter).transpose()?.into_iter().flatten();
            let mut row = rows.next().transpose()?;
            let mut entries = entries.into_iter();
            loop {
                let entry = entries.next().transpose().map_err(redb::Error::Io)?;
                while let Some((key, value)) = &row
                    && entry.as_ref().is_none_or(|entry| key.value() < entry.key.as_str())
                {
                    if !keep.contains(key.value()) && table.remove(key.value())?.is_some() {
                        sum.remove(key.value(), value.value());
                    }
                    row = rows.next().transpose()?;
                }
                let Some(entry) = entry else { return Ok(()) };
                if row.as_ref().is_some_and(|(key, _)| key.value() == entry.key) {
                    row = rows.next().transpose()?;
                }
                put(&mut table, sum, &entry)?;
            }
        })
    }

    /// Saves changes that lead to this revision.
    ///
    /// # Errors
    /// When nothing was saved.
    pub fn apply(&mut self, revision: i64, changes: &[Change]) -> Result<(), MirrorError> {
        self.write(revision, |transaction, sum| {
            let mut table = transaction.open_table(ENTRIES)?;
            for change in changes {
                match change {
                    Change::Put(entry) => put(&mut table, sum, entry)?,
                    Change::Delete { key } => {
                        if let Some(old) = table.remove(key.as_str())? {
                            sum.remove(key, old.value());
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
        work: impl FnOnce(&WriteTransaction, &mut EntriesChecksum) -> Result<(), redb::Error>,
    ) -> Result<(), MirrorError> {
        guarded("write", || {
            let transaction = self.database.begin_write()?;
            {
                let mut state = transaction.open_table(STATE)?;
                let before = state.get(ROW)?.map(|row| row.value());
                let mut sum = before.map_or_else(EntriesChecksum::default, |(_, _, count, total)| {
                    EntriesChecksum { count, total }
                });
                work(&transaction, &mut sum)?;
                state.insert(ROW, (FORMAT, revision, sum.count, sum.total))?;
            }
            transaction.commit()?;
            Ok(())
        })
    }
}

type EntriesTable<'a> = redb::Table<'a, &'static str, (i64, i64, &'static [u8])>;

fn put(table: &mut EntriesTable<'_>, sum: &mut EntriesChecksum, entry: &Entry) -> Result<(), redb::Error> {
    let new = (entry.create_revision, entry.mod_revision, entry.value.as_ref());
    let is_there = table.get(entry.key.as_str())?.is_some_and(|old| old.value() == new);
    if !is_there {
        if let Some(old) = table.insert(entry.key.as_str(), new)? {
            sum.remove(&entry.key, old.value());
        }
        sum.add(&entry.key, new);
    }
    Ok(())
}

/// Why a file is not used.
#[derive(Debug, Error)]
enum LoadError {
    #[error(transparent)]
    System(io::Error),
    #[error("{0}")]
    Content(String),
}

/// Opens a database and reads all of it, so that its content can be trusted afterwards.
fn open_and_check(
    open: impl Fn() -> Result<Database, DatabaseError>,
    source: &str,
) -> Result<Database, LoadError> {
    let open = || {
        let database = open().map_err(|error| unusable(error.into()))?;
        check(&database, source)?;
        Ok(database)
    };
    // The database may panic on a damaged file.
    catch_unwind(AssertUnwindSafe(open))
        .unwrap_or_else(|_| Err(LoadError::Content("it is damaged".to_owned())))
}

/// Distinguishes errors of the machine, which leave the content unknown, from a damaged file, which makes the database read
/// beyond its end.
fn unusable(error: redb::Error) -> LoadError {
    match error {
        redb::Error::Io(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof
            ) =>
        {
            LoadError::System(error)
        }
        redb::Error::PreviousIo => LoadError::System(io::Error::other(error.to_string())),
        redb::Error::DatabaseAlreadyOpen => LoadError::System(io::ErrorKind::ResourceBusy.into()),
        error => LoadError::Content(error.to_string()),
    }
}

fn check(database: &Database, source: &str) -> Result<(), LoadError> {
    // A read error means damage, whatever the reason; a write error does not.
    let content = |error: redb::Error| LoadError::Content(error.to_string());
    if let Some((format, _, count, total)) = state(database).map_err(content)? {
        if format != FORMAT {
            return Err(LoadError::Content(format!("its format is {format}, and this is {FORMAT}")));
        }
        let (expected, found) = (EntriesChecksum { count, total }, sum_of(database).map_err(content)?);
        if expected != found {
            return Err(LoadError::Content(format!("its content does not add up: {found}, not {expected}")));
        }
    }
    let is_of_source = claim(database, source).map_err(unusable)?;
    if is_of_source { Ok(()) } else { Err(LoadError::Content(format!("it is not of {source}"))) }
}

/// True if this is a mirror of the source; a new one becomes it. A changed URL of the same store still matches.
fn claim(database: &Database, source: &str) -> Result<bool, redb::Error> {
    let transaction = database.begin_write()?;
    let is_of_source = {
        let mut table = transaction.open_table(SOURCE)?;
        let found = table.get(ROW)?.map(|row| row.value().to_owned());
        let is_of_source = found.as_deref().is_none_or(|found| is_same_store(found, source));
        if is_of_source && found.as_deref() != Some(source) {
            table.insert(ROW, source)?;
        }
        is_of_source
    };
    transaction.commit()?;
    Ok(is_of_source)
}

fn is_same_store(one: &str, other: &str) -> bool {
    let urls = one.parse::<StoreUrl>().ok().zip(other.parse().ok());
    urls.map_or(one == other, |(one, other)| one.names_the_store_of(&other))
}

/// Format, revision, number of entries and checksum; none if nothing was ever saved.
fn state(database: &Database) -> Result<Option<(u64, i64, u64, u64)>, redb::Error> {
    match database.begin_read()?.open_table(STATE) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        other => Ok(other?.get(ROW)?.map(|row| row.value())),
    }
}

fn read(database: &Database) -> Result<Option<Saved>, redb::Error> {
    let Some((_, revision, ..)) = state(database)? else { return Ok(None) };
    let transaction = database.begin_read()?;
    let mut entries = Vec::new();
    for row in transaction.open_table(ENTRIES)?.iter()? {
        let (key, value) = row?;
        let (create_revision, mod_revision, value) = value.value();
        let value = Bytes::copy_from_slice(value);
        entries.push(Entry { key: key.value().to_owned(), value, create_revision, mod_revision });
    }
    Ok(Some(Saved { revision, entries }))
}

fn sum_of(database: &Database) -> Result<EntriesChecksum, redb::Error> {
    let mut sum = EntriesChecksum::default();
    for row in database.begin_read()?.open_table(ENTRIES)?.iter()? {
        let (key, value) = row?;
        sum.add(key.value(), value.value());
    }
    Ok(sum)
}

/// Runs work on the database, which may panic on a damaged file.
fn guarded<T>(action: &'static str, work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, MirrorError> {
    let failed = |reason| MirrorError::Database { action, reason };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed("it is damaged".to_owned())),
    }
}

#[cfg(test)]
mod tests;
