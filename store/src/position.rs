//! How far a reader has followed a store, and by what it notices that the store's history is another one now.
//!
//! A store that was restored from an old backup goes back. That shows as long as its revision is lower than that of the
//! reader; once it was written to, revisions say nothing. What then differs is what the last changes left behind.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{Batch, Change, Entry, Snapshot};

/// How many keys are remembered, of those that were written last and of those that were deleted last. Another history would
/// have to have written all of them at the same revisions with the same values.
const KEYS: usize = 4;
/// Larger values are not kept; their revisions are.
const LARGEST_VALUE: usize = 16 << 10;

/// How far a reader has followed a prefix of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    revision: i64,
    /// What was written last, the oldest first.
    written: VecDeque<Written>,
    /// The keys that were deleted last, the oldest first.
    deleted: VecDeque<String>,
    is_empty: bool,
}

/// A key as it is at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The full key.
    pub key: String,
    /// Store revision at which the key came to be.
    pub create_revision: i64,
    /// Store revision at which the value was last written.
    pub mod_revision: i64,
    /// The value; none if it is too large to be kept.
    pub value: Option<Bytes>,
}

impl Position {
    /// A revision of which nothing else is known.
    pub fn at(revision: i64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// That of a reader who has just listed.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut newest: Vec<&Entry> = snapshot.entries.iter().collect();
        if let Some(surplus) = newest.len().checked_sub(KEYS).filter(|surplus| *surplus > 0) {
            newest.select_nth_unstable_by_key(surplus, |entry| entry.mod_revision);
            newest.drain(..surplus);
        }
        newest.sort_by_key(|entry| entry.mod_revision);
        let mut position = Self { is_empty: snapshot.entries.is_empty(), ..Self::at(snapshot.revision) };
        for entry in newest {
            position.put(entry);
        }
        position
    }

    /// Goes on to the end of a batch.
    pub fn advance(&mut self, batch: &Batch) {
        self.revision = batch.revision;
        for change in &batch.changes {
            match change {
                Change::Put(entry) => self.put(entry),
                Change::Delete { key } => self.delete(key),
            }
        }
    }

    /// The newest revision that the reader has.
    pub const fn revision(&self) -> i64 {
        self.revision
    }

    /// Some keys that are there at this revision, as they are.
    pub fn written(&self) -> impl ExactSizeIterator<Item = &Written> {
        self.written.iter()
    }

    /// Some keys that are not there at this revision.
    pub fn deleted(&self) -> impl ExactSizeIterator<Item = &str> {
        self.deleted.iter().map(String::as_str)
    }

    /// Whether it is known that there is no key at all at this revision.
    pub const fn is_empty(&self) -> bool {
        self.is_empty
    }

    fn put(&mut self, entry: &Entry) {
        self.is_empty = false;
        let Entry { key, value, create_revision, mod_revision } = entry;
        // What is empty may be too large for the client.
        let is_kept = !value.is_empty() && value.len() <= LARGEST_VALUE;
        let value = is_kept.then(|| value.clone());
        self.forget(key);
        if is_exact(key) {
            let (create_revision, mod_revision) = (*create_revision, *mod_revision);
            push(&mut self.written, Written { key: key.clone(), create_revision, mod_revision, value });
        }
    }

    fn delete(&mut self, key: &str) {
        self.forget(key);
        if is_exact(key) {
            push(&mut self.deleted, key.to_owned());
        }
    }

    fn forget(&mut self, key: &str) {
        self.written.retain(|written| written.key != key);
        self.deleted.retain(|deleted| deleted != key);
    }
}

fn push<T>(newest: &mut VecDeque<T>, one: T) {
    if newest.len() == KEYS {
        newest.pop_front();
    }
    newest.push_back(one);
}

/// Whether this is the key itself. One that is no UTF-8 was made readable, and cannot be asked for.
fn is_exact(key: &str) -> bool {
    !key.contains(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: i64) -> Entry {
        let (key, value) = (format!("/{number}"), number.to_string().into());
        Entry { key, value, create_revision: number, mod_revision: number }
    }

    fn written(position: &Position) -> Vec<&str> {
        position.written().map(|written| written.key.as_str()).collect()
    }

    #[test]
    fn newest_keys_are_remembered_each_once_as_it_is_last() {
        let entries = [3, 1, 9, 4, 8, 2].map(entry).to_vec();
        let mut position = Position::of(&Snapshot { revision: 9, entries, problems: Vec::new() });
        assert_eq!(written(&position), ["/3", "/4", "/8", "/9"]);
        let delete = |number: i64| Change::Delete { key: format!("/{number}") };
        let again = Entry { create_revision: 13, mod_revision: 13, ..entry(8) };
        let changes = vec![delete(4), delete(8), Change::Put(again.clone()), Change::Put(entry(13))];
        position.advance(&Batch { revision: 14, changes });
        assert_eq!((position.revision(), written(&position)), (14, vec!["/3", "/9", "/8", "/13"]));
        assert_eq!(position.deleted().collect::<Vec<_>>(), ["/4"]);
        assert_eq!(position.written().nth(2).unwrap().value, Some(again.value));
    }

    #[test]
    fn values_too_large_are_remembered_only_by_revision() {
        let put = |key: &str, value: Vec<u8>| {
            Change::Put(Entry { key: key.to_owned(), value: value.into(), ..entry(2) })
        };
        let mut position = Position::of(&Snapshot { revision: 1, ..Snapshot::default() });
        assert!(position.is_empty());
        position.advance(&Batch { revision: 2, changes: vec![put("/\u{fffd}", vec![1])] });
        assert!(!position.is_empty() && written(&position).is_empty());
        let changes = vec![put("/large", vec![1; LARGEST_VALUE + 1]), put("/empty", Vec::new())];
        position.advance(&Batch { revision: 3, changes });
        assert!(position.written().all(|written| written.value.is_none() && written.mod_revision == 2));
    }
}
