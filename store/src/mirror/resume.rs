//! What the mirror knows beyond its entries, so that a reader can go on from them.

use std::collections::BTreeSet;

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableError, WriteTransaction,
};

use super::{
    checksum::EntriesChecksum,
    database::{DELETED, DEVIATING, RESUME, ROW_KEY, checksum_of, for_each_page, state},
};
use crate::{
    Change, Entry, ResumePoint, SavedStart, StoreIdentity,
    position::{ListPosition, REMEMBERED_KEYS},
    resume::MAX_DEVIATING_KEYS,
};

/// It belongs to a state of the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) identity: Option<StoreIdentity>,
    /// The keys whose saved values are not those of the store.
    pub(super) deviating: BTreeSet<String>,
    /// The keys that were deleted last, the oldest first.
    deleted: Vec<String>,
}

impl Evidence {
    /// After a list, in which these keys deviate.
    pub(super) fn of_list(deviating: &BTreeSet<String>, before: Option<Self>) -> Self {
        let before = before.map(|before| (before.identity, before.deleted));
        let (identity, deleted) = before.unwrap_or_default();
        Self {
            identity,
            deviating: deviating.clone(),
            deleted,
        }
    }

    /// Follows changes that are saved, and then those of `deviating`, which are not.
    pub(super) fn follow(&mut self, changes: &[Change], deviating: &BTreeSet<String>) {
        for change in changes {
            let key = change.key();
            self.deviating.remove(key);
            self.deleted.retain(|deleted| deleted != key);
            if let Change::Delete { key } = change {
                self.deleted.push(key.clone());
            }
        }
        self.deviating.extend(deviating.iter().cloned());
        let surplus = self.deleted.len().saturating_sub(REMEMBERED_KEYS);
        self.deleted.drain(..surplus);
    }

    /// The id and the term of the cluster; 0 if they are unknown.
    fn cluster_and_term(&self) -> (u64, u64) {
        let identity = self.identity;
        identity.map_or((0, 0), |identity| (identity.cluster, identity.term))
    }

    fn checksum(&self) -> u64 {
        let (cluster, term) = self.cluster_and_term();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&cluster.to_le_bytes());
        hasher.update(&term.to_le_bytes());
        for key in self.deviating.iter().chain(&self.deleted) {
            hasher.update(&(key.len() as u64).to_le_bytes());
            hasher.update(key.as_bytes());
        }
        hasher.update(&(self.deleted.len() as u64).to_le_bytes());
        u64::from(hasher.finalize())
    }

    /// Where a reader goes on that has these entries; none if too much of them is not as in the store.
    pub(super) fn resume_point(
        self,
        revision: i64,
        keys: u64,
        newest: ListPosition,
    ) -> Option<ResumePoint> {
        let Self {
            identity,
            deviating,
            deleted,
        } = self;
        let is_usable = deviating.len() <= MAX_DEVIATING_KEYS;
        let deleted = deleted.into_iter().filter(|key| !deviating.contains(key));
        let position = newest.finish_saved(revision, deleted);
        is_usable.then_some(ResumePoint {
            position,
            keys,
            deviating,
            identity,
        })
    }
}

/// Calls `show` with all entries, page by page, until it returns false. Returns where a reader of them goes on, and their checksum.
pub(super) fn read_pages(
    database: &Database,
    show: &mut dyn FnMut(Vec<Entry>) -> bool,
) -> Result<(SavedStart, EntriesChecksum), redb::Error> {
    let Some((_, revision, count, total)) = state(database)? else {
        return Ok((SavedStart::Nothing, EntriesChecksum::default()));
    };
    let Some(evidence) = read(database, revision, EntriesChecksum { count, total })? else {
        return Ok((SavedStart::Unusable, checksum_of(database)?));
    };
    let (mut newest, mut keys) = (ListPosition::default(), 0);
    let (mut checksum, mut is_wanted) = (EntriesChecksum::default(), true);
    for_each_page(database, &mut |page| {
        for entry in &page {
            let row = (entry.create_revision, entry.mod_revision, &*entry.value);
            checksum.add(&entry.key, row);
        }
        let is_same = |entry: &&Entry| !evidence.deviating.contains(&entry.key);
        let same: Vec<&Entry> = page.iter().filter(is_same).collect();
        keys += same.len() as u64;
        newest.add(same);
        is_wanted = is_wanted && show(page);
    })?;
    let point = evidence
        .resume_point(revision, keys, newest)
        .filter(|_| is_wanted);
    let start = point.map_or(SavedStart::Unusable, |point| {
        SavedStart::Usable(Box::new(point))
    });
    Ok((start, checksum))
}

/// What belongs to this state; none if it is not known, or cannot be trusted.
pub(super) fn read(
    database: &Database,
    revision: i64,
    state: EntriesChecksum,
) -> Result<Option<Evidence>, redb::Error> {
    let transaction = database.begin_read()?;
    let row = match transaction.open_table(RESUME) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        other => other?.get(ROW_KEY)?.map(|row| row.value()),
    };
    let Some((.., cluster, term, checksum)) =
        row.filter(|row| (row.0, row.1, row.2) == (revision, state.count, state.total))
    else {
        return Ok(None);
    };
    let evidence = Evidence {
        identity: (cluster > 0).then_some(StoreIdentity { cluster, term }),
        deviating: deviating(&transaction)?,
        deleted: deleted(&transaction)?,
    };
    Ok(Some(evidence).filter(|evidence| evidence.checksum() == checksum))
}

fn deviating(transaction: &ReadTransaction) -> Result<BTreeSet<String>, redb::Error> {
    let mut keys = BTreeSet::new();
    for row in transaction.open_table(DEVIATING)?.iter()? {
        keys.insert(row?.0.value().to_owned());
    }
    Ok(keys)
}

fn deleted(transaction: &ReadTransaction) -> Result<Vec<String>, redb::Error> {
    let mut keys = Vec::new();
    for row in transaction.open_table(DELETED)?.iter()? {
        keys.push(row?.1.value().to_owned());
    }
    Ok(keys)
}

/// Writes what belongs to the new state.
pub(super) fn write(
    transaction: &WriteTransaction,
    revision: i64,
    state: EntriesChecksum,
    evidence: Option<&Evidence>,
) -> Result<(), redb::Error> {
    let Some(evidence) = evidence else {
        transaction.delete_table(RESUME)?;
        return Ok(());
    };
    let (cluster, term) = evidence.cluster_and_term();
    let checksum = evidence.checksum();
    transaction.open_table(RESUME)?.insert(
        ROW_KEY,
        (revision, state.count, state.total, cluster, term, checksum),
    )?;
    transaction.delete_table(DEVIATING)?;
    let mut table = transaction.open_table(DEVIATING)?;
    for key in &evidence.deviating {
        table.insert(key.as_str(), ())?;
    }
    drop(table);
    transaction.delete_table(DELETED)?;
    let mut table = transaction.open_table(DELETED)?;
    for (number, key) in (0..).zip(&evidence.deleted) {
        table.insert(number, key.as_str())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        Batch, Mirror,
        mirror::{
            database::{ENTRIES, STATE},
            log::Log,
        },
    };

    const SOURCE: &str = "etcd://127.0.0.1:2379";

    fn entry(key: &str, revision: i64) -> Entry {
        Entry {
            key: key.to_owned(),
            value: "1".into(),
            create_revision: 1,
            mod_revision: revision,
        }
    }

    fn keys(keys: &[&str]) -> BTreeSet<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    fn delete(key: &str) -> Change {
        Change::Delete {
            key: key.to_owned(),
        }
    }

    fn open(folder: &Path) -> Mirror {
        Mirror::open(folder, SOURCE).unwrap().0
    }

    /// The saved keys, and what a reader of them begins with.
    fn start(mirror: &Mirror) -> (Vec<String>, SavedStart) {
        let mut shown = Vec::new();
        let show = |page: Vec<Entry>| {
            shown.extend(page.into_iter().map(|entry| entry.key));
            true
        };
        let start = mirror.read_pages(show).unwrap();
        (shown, start)
    }

    fn point(mirror: &Mirror) -> ResumePoint {
        match start(mirror).1 {
            SavedStart::Usable(point) => *point,
            other => panic!("nobody can go on: {other:?}"),
        }
    }

    fn listed(folder: &Path, entries: &[Entry], keep: &[&str]) -> Mirror {
        let mut mirror = open(folder);
        let entries = entries.iter().cloned().map(Ok);
        mirror.replace(7, entries, &keys(keep)).unwrap();
        mirror
    }

    #[test]
    fn point_has_what_is_saved_and_what_deviates_from_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(start(&open(folder.path())), (vec![], SavedStart::Nothing));
        let entries = [entry("/a", 3), entry("/b", 4), entry("/c", 5)];
        let mut mirror = listed(folder.path(), &entries, &["/bad"]);
        let of_list = point(&mirror);
        assert_eq!((of_list.position.revision(), of_list.keys), (7, 3));
        assert_eq!(
            (of_list.deviating, of_list.identity),
            (keys(&["/bad"]), None)
        );

        let identity = StoreIdentity {
            cluster: 1,
            term: 2,
        };
        mirror.set_identity(Some(identity));
        let changes = [delete("/a"), Change::Put(entry("/bad", 8))];
        mirror.apply(9, &changes, &keys(&["/b"])).unwrap();
        let later = point(&mirror);
        assert_eq!((later.position.revision(), later.keys), (9, 2));
        assert_eq!(
            (later.deviating, later.identity),
            (keys(&["/b"]), Some(identity))
        );
        let written: Vec<&str> = later
            .position
            .written()
            .map(|written| written.key.as_str())
            .collect();
        assert_eq!(written, ["/c", "/bad"], "a deviating value is no evidence");
        assert_eq!(later.position.deleted().collect::<Vec<_>>(), ["/a"]);
        // Only the revision.
        mirror.apply(12, &[], &keys(&[])).unwrap();
        drop(mirror);
        let reopened = open(folder.path());
        assert_eq!(point(&reopened).position.revision(), 12);
        assert_eq!(start(&reopened).0, ["/b", "/bad", "/c"]);
    }

    #[test]
    fn key_deleted_and_put_again_is_no_deleted_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut mirror = listed(folder.path(), &[entry("/a", 3)], &[]);
        mirror.apply(8, &[delete("/a")], &keys(&[])).unwrap();
        let put = [Change::Put(entry("/a", 9))];
        mirror.apply(9, &put, &keys(&[])).unwrap();
        let position = point(&mirror).position;
        assert_eq!((position.deleted().len(), position.written().len()), (0, 1));
    }

    #[test]
    fn too_many_deviating_keys_need_a_list() {
        let folder = tempfile::tempdir().unwrap();
        let mut mirror = listed(folder.path(), &[entry("/a", 3)], &[]);
        let many: BTreeSet<String> = (0..=MAX_DEVIATING_KEYS)
            .map(|number| format!("/bad{number}"))
            .collect();
        mirror.apply(8, &[], &many).unwrap();
        assert_eq!(start(&mirror).1, SavedStart::Unusable);
        mirror.apply(9, &[delete("/bad0")], &keys(&[])).unwrap();
        assert_eq!(point(&mirror).deviating.len(), MAX_DEVIATING_KEYS);
    }

    #[test]
    fn state_of_a_version_without_it_needs_a_list() {
        let folder = tempfile::tempdir().unwrap();
        let mut mirror = listed(folder.path(), &[entry("/a", 3)], &[]);
        let transaction = mirror.database.begin_write().unwrap();
        let mut state = transaction.open_table(STATE).unwrap();
        let (format, _, count, total) = state.get(ROW_KEY).unwrap().unwrap().value();
        state.insert(ROW_KEY, (format, 9, count, total)).unwrap();
        drop(state);
        transaction.commit().unwrap();
        assert_eq!(start(&mirror).1, SavedStart::Unusable);
        // It stays unknown until there is a list.
        mirror.apply(10, &[], &keys(&[])).unwrap();
        assert_eq!(start(&mirror).1, SavedStart::Unusable);
        mirror
            .replace(11, [Ok(entry("/a", 3))], &keys(&[]))
            .unwrap();
        assert_eq!(point(&mirror).position.revision(), 11);
    }

    #[test]
    fn changed_deviating_key_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let mirror = listed(folder.path(), &[entry("/a", 3)], &["/bad"]);
        let transaction = mirror.database.begin_write().unwrap();
        let mut table = transaction.open_table(DEVIATING).unwrap();
        table.remove("/bad").unwrap();
        table.insert("/bae", ()).unwrap();
        drop(table);
        transaction.commit().unwrap();
        assert_eq!(start(&mirror).1, SavedStart::Unusable);
    }

    /// What opening shows in the same pass, and what reading shows then.
    fn open_and_read(folder: &Path) -> (Vec<String>, SavedStart, Option<Mirror>) {
        let mut shown = Vec::new();
        let show = |page: Vec<Entry>| {
            shown.extend(page.into_iter().map(|entry| entry.key));
            true
        };
        let (mirror, quarantined, start) =
            Mirror::open_and_read(folder, SOURCE, u64::MAX, show).unwrap();
        (shown, start, quarantined.is_none().then_some(mirror))
    }

    #[test]
    fn pass_that_opens_shows_what_reading_shows() {
        let folder = tempfile::tempdir().unwrap();
        let (shown, first, mirror) = open_and_read(folder.path());
        assert_eq!((shown, first), (vec![], SavedStart::Nothing));
        drop(mirror);
        let entries = [entry("/a", 3), entry("/b", 4)];
        drop(listed(folder.path(), &entries, &["/bad"]));
        let (shown, saved, mirror) = open_and_read(folder.path());
        assert_eq!(start(&mirror.unwrap()), (shown, saved));
        // With something in the log the content is shown after that was saved.
        let mut log = Log::begin(folder.path(), SOURCE, Mirror::prepare_log(folder.path()));
        let batch = Batch {
            revision: 8,
            changes: vec![delete("/a")],
        };
        log.append(&batch, &keys(&[])).1.unwrap();
        let (shown, saved, mirror) = open_and_read(folder.path());
        assert_eq!(shown, ["/b"]);
        assert_eq!(start(&mirror.unwrap()), (shown, saved));
    }

    #[test]
    fn nobody_goes_on_from_damaged_content_that_was_shown() {
        let folder = tempfile::tempdir().unwrap();
        let mirror = listed(folder.path(), &[entry("/a", 3), entry("/b", 4)], &[]);
        let transaction = mirror.database.begin_write().unwrap();
        let mut table = transaction.open_table(ENTRIES).unwrap();
        table.insert("/a", (1, 3, &b"2"[..])).unwrap();
        drop(table);
        transaction.commit().unwrap();
        drop(mirror);
        let (shown, saved, mirror) = open_and_read(folder.path());
        assert_eq!(
            (shown, saved),
            (
                keys(&["/a", "/b"]).into_iter().collect(),
                SavedStart::Unusable
            )
        );
        assert!(mirror.is_none(), "its file is renamed");
    }

    #[test]
    fn replayed_log_has_the_deviating_keys() {
        let folder = tempfile::tempdir().unwrap();
        drop(listed(
            folder.path(),
            &[entry("/a", 3), entry("/b", 3)],
            &[],
        ));
        let mut log = Log::begin(folder.path(), SOURCE, Mirror::prepare_log(folder.path()));
        let batch = |revision, changes| Batch { revision, changes };
        for (batch, deviating) in [
            (batch(8, vec![]), keys(&["/a", "/b"])),
            (batch(9, vec![Change::Put(entry("/b", 9))]), keys(&[])),
            (batch(10, vec![delete("/c")]), keys(&["/d"])),
        ] {
            log.append(&batch, &deviating).1.unwrap();
        }
        let replayed = point(&open(folder.path()));
        assert_eq!(replayed.deviating, keys(&["/a", "/d"]));
        assert_eq!((replayed.position.revision(), replayed.keys), (10, 1));
    }
}
