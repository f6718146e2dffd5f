//! The tables of the mirror's database, and whether their content can be trusted.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use thiserror::Error;

use super::checksum::EntriesChecksum;
use crate::{Entry, url::names_the_same_store};

/// The layout of the tables below. A file with another layout is quarantined.
pub(super) const FORMAT: u64 = 1;
/// The database's cache. The file is read once and then only written to.
pub(super) const CACHE_BYTES: usize = 1 << 20;

/// Key -> create revision, modification revision, value.
pub(super) const ENTRIES: TableDefinition<'_, &str, (i64, i64, &[u8])> =
    TableDefinition::new("entries");
/// One row: format, revision, number of entries, checksum over them.
pub(super) const STATE: TableDefinition<'_, &str, (u64, i64, u64, u64)> =
    TableDefinition::new("state");
/// One row: the number of the last log record that is contained, and the state without its format. A version without a log
/// changes the state only.
pub(super) const LOG: TableDefinition<'_, &str, (u64, i64, u64, u64)> = TableDefinition::new("log");
/// One row: the state without its format, the cluster's id and term, each 0 if it is unknown, and a checksum over these two and the
/// tables below. A version without this table changes the state only: then it is out of date.
pub(super) const RESUME: TableDefinition<'_, &str, (i64, u64, u64, u64, u64, u64)> =
    TableDefinition::new("resume");
/// The keys whose saved values are not those of the store.
pub(super) const DEVIATING: TableDefinition<'_, &str, ()> = TableDefinition::new("deviating");
/// The keys that were deleted last, in their order.
pub(super) const DELETED: TableDefinition<'_, u64, &str> = TableDefinition::new("deleted");
/// One row: the store that is mirrored.
const SOURCE: TableDefinition<'_, &str, &str> = TableDefinition::new("source");
pub(super) const ROW_KEY: &str = "mirror";

/// Why a call of the mirror failed. The store is not affected.
#[derive(Debug, Error)]
pub enum MirrorError {
    /// The file cannot be opened or created.
    #[error("failed to open {path}: {reason}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The log cannot be written.
    #[error("failed to write the mirror's log in {path}: {reason}")]
    Log {
        /// The folder.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The content can no longer be read or written.
    #[error("failed to {action} the mirror: {reason}")]
    Database {
        /// Such as "write".
        action: &'static str,
        /// The problem.
        reason: String,
    },
}

/// Why a file is not used.
#[derive(Debug, Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    System(io::Error),
    #[error("{0}")]
    Content(String),
}

/// Reads all entries, and returns their checksum.
pub(super) type ReadAll<'a> = dyn FnMut(&Database) -> Result<EntriesChecksum, redb::Error> + 'a;

/// Opens a database and has all of it read, so that its content can be trusted afterwards.
pub(super) fn open_and_check(
    open: impl Fn() -> Result<Database, DatabaseError>,
    source: &str,
    read_all: &mut ReadAll<'_>,
) -> Result<Database, LoadError> {
    let open = || {
        let database = open().map_err(|error| unusable(error.into()))?;
        check(&database, source, read_all)?;
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
                io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::UnexpectedEof
            ) =>
        {
            LoadError::System(error)
        }
        redb::Error::PreviousIo => LoadError::System(io::Error::other(error.to_string())),
        redb::Error::DatabaseAlreadyOpen => LoadError::System(io::ErrorKind::ResourceBusy.into()),
        error => LoadError::Content(error.to_string()),
    }
}

fn check(database: &Database, source: &str, read_all: &mut ReadAll<'_>) -> Result<(), LoadError> {
    // Any read error means damage; a write error does not.
    let content = |error: redb::Error| LoadError::Content(error.to_string());
    if let Some((format, _, count, total)) = state(database).map_err(content)? {
        if format != FORMAT {
            return Err(LoadError::Content(format!(
                "its format is {format}, and this is {FORMAT}"
            )));
        }
        let (expected, found) = (
            EntriesChecksum { count, total },
            read_all(database).map_err(content)?,
        );
        if expected != found {
            return Err(LoadError::Content(format!(
                "its content does not add up: {found}, not {expected}"
            )));
        }
    }
    let is_of_source = claim(database, source).map_err(unusable)?;
    if is_of_source {
        Ok(())
    } else {
        Err(LoadError::Content(format!("it is not of {source}")))
    }
}

/// True if this is a mirror of the source; a new one becomes it. A changed URL of the same store still matches.
fn claim(database: &Database, source: &str) -> Result<bool, redb::Error> {
    let transaction = database.begin_write()?;
    let is_of_source = {
        let mut table = transaction.open_table(SOURCE)?;
        let found = table.get(ROW_KEY)?.map(|row| row.value().to_owned());
        let is_of_source = found
            .as_deref()
            .is_none_or(|found| names_the_same_store(found, source));
        if is_of_source && found.as_deref() != Some(source) {
            table.insert(ROW_KEY, source)?;
        }
        is_of_source
    };
    transaction.commit()?;
    Ok(is_of_source)
}

/// True if this is a mirror of the source.
pub(super) fn is_of(database: &Database, source: &str) -> Result<bool, redb::Error> {
    match database.begin_read()?.open_table(SOURCE) {
        Err(TableError::TableDoesNotExist(_)) => Ok(false),
        other => Ok(other?
            .get(ROW_KEY)?
            .is_some_and(|row| names_the_same_store(row.value(), source))),
    }
}

/// Format, revision, number of entries and checksum; none if nothing was ever saved.
pub(super) fn state(database: &Database) -> Result<Option<(u64, i64, u64, u64)>, redb::Error> {
    match database.begin_read()?.open_table(STATE) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        other => Ok(other?.get(ROW_KEY)?.map(|row| row.value())),
    }
}

/// The number of the last log record that is contained; none if a version without a log has written since.
pub(super) fn last_record(database: &Database) -> Result<Option<u64>, redb::Error> {
    let Some((_, revision, count, total)) = state(database)? else {
        return Ok(Some(0));
    };
    let row = match database.begin_read()?.open_table(LOG) {
        Err(TableError::TableDoesNotExist(_)) => None,
        other => other?.get(ROW_KEY)?.map(|row| row.value()),
    };
    let row = row.filter(|row| (row.1, row.2, row.3) == (revision, count, total));
    Ok(row.map(|(number, ..)| number))
}

/// The revision, and all entries by their keys; none if nothing was ever saved.
pub(super) fn read(database: &Database) -> Result<Option<(i64, Vec<Entry>)>, redb::Error> {
    let Some((_, revision, ..)) = state(database)? else {
        return Ok(None);
    };
    let mut entries = Vec::new();
    for_each_page(database, &mut |page| entries.extend(page))?;
    Ok(Some((revision, entries)))
}

/// How many entries a page has: as many as one of a list, so that it is decoded in parallel.
const PAGE_ENTRIES: usize = 5000;

/// Calls `show` with all entries by their keys, page by page.
pub(super) fn for_each_page(
    database: &Database,
    show: &mut dyn FnMut(Vec<Entry>),
) -> Result<(), redb::Error> {
    let transaction = database.begin_read()?;
    let mut page = Vec::new();
    for row in transaction.open_table(ENTRIES)?.iter()? {
        let (key, value) = row?;
        let (create_revision, mod_revision, value) = value.value();
        page.push(Entry {
            key: key.value().to_owned(),
            value: Bytes::copy_from_slice(value),
            create_revision,
            mod_revision,
        });
        if page.len() == PAGE_ENTRIES {
            show(std::mem::take(&mut page));
        }
    }
    show(page);
    Ok(())
}

pub(super) fn checksum_of(database: &Database) -> Result<EntriesChecksum, redb::Error> {
    let mut checksum = EntriesChecksum::default();
    for row in database.begin_read()?.open_table(ENTRIES)?.iter()? {
        let (key, value) = row?;
        checksum.add(key.value(), value.value());
    }
    Ok(checksum)
}

/// Runs work on the database, which may panic on a damaged file.
pub(super) fn guarded<T>(
    action: &'static str,
    work: impl FnOnce() -> Result<T, redb::Error>,
) -> Result<T, MirrorError> {
    let failed = |reason| MirrorError::Database { action, reason };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed("it is damaged".to_owned())),
    }
}
