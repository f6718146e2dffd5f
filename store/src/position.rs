//! The position of a reader in a store, with the evidence that reveals a replaced history.
//!
//! A store restored from an old backup has a lower revision than the reader, until further writes raise it above that. From then
//! on only the keys of the reader's last changes show the difference.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{Batch, Change, Entry, Snapshot};

/// How many keys are remembered, of those written last and of those deleted last. Another history goes unnoticed only if it wrote
/// all of them at the same revisions with the same values.
pub(crate) const REMEMBERED_KEYS: usize = 4;
/// The maximum size of a kept value. Of a larger one only the revisions are kept.
const MAX_VALUE_BYTES: usize = 16 << 10;

/// How far a reader has watched a prefix of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    revision: i64,
    /// The keys written last, the oldest first.
    written: VecDeque<WrittenKey>,
    /// The keys deleted last, the oldest first.
    deleted: VecDeque<String>,
    is_empty: bool,
}

/// A key as it is at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenKey {
    /// The full key.
    pub key: String,
    /// Store revision that created the key.
    pub create_revision: i64,
    /// Store revision at which the value was last written.
    pub mod_revision: i64,
    /// The value; none if it is too large to be kept.
    pub value: Option<Bytes>,
}

impl Position {
    /// A revision without further evidence.
    pub fn at(revision: i64) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }

    /// The position after a list.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut list = ListPosition::default();
        list.add(&snapshot.entries);
        list.finish(snapshot.revision)
    }

    /// Advances to the end of a batch.
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

    /// Some keys that exist at this revision, with their state.
    pub fn written(&self) -> impl ExactSizeIterator<Item = &WrittenKey> {
        self.written.iter()
    }

    /// Some keys that do not exist at this revision.
    pub fn deleted(&self) -> impl ExactSizeIterator<Item = &str> {
        self.deleted.iter().map(String::as_str)
    }

    /// True if no key at all is known to exist at this revision.
    pub const fn is_empty(&self) -> bool {
        self.is_empty
    }

    fn put(&mut self, entry: &Entry) {
        self.is_empty = false;
        let Entry {
            key,
            value,
            create_revision,
            mod_revision,
        } = entry;
        // An empty value may be a replacement for one that is too large.
        let is_kept = !value.is_empty() && value.len() <= MAX_VALUE_BYTES;
        let value = is_kept.then(|| value.clone());
        self.forget(key);
        if is_exact(key) {
            let (create_revision, mod_revision) = (*create_revision, *mod_revision);
            push(
                &mut self.written,
                WrittenKey {
                    key: key.clone(),
                    create_revision,
                    mod_revision,
                    value,
                },
            );
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

/// Collects the position of a reader who lists page by page.
#[derive(Debug, Default)]
pub(crate) struct ListPosition {
    /// The entries that were written last.
    newest: Vec<Entry>,
}

impl ListPosition {
    /// Adds a page.
    pub(crate) fn add<'a>(&mut self, entries: impl IntoIterator<Item = &'a Entry>) {
        let mut newest: Vec<&Entry> = entries.into_iter().collect();
        newest.extend(&self.newest);
        if let Some(surplus) = newest
            .len()
            .checked_sub(REMEMBERED_KEYS)
            .filter(|surplus| *surplus > 0)
        {
            newest.select_nth_unstable_by_key(surplus, |entry| entry.mod_revision);
            newest.drain(..surplus);
        }
        self.newest = newest.into_iter().cloned().collect();
    }

    /// The position of a reader who had saved these entries. `deleted` are the keys that were deleted last, the oldest first.
    #[cfg(feature = "mirror")]
    pub(crate) fn finish_saved(
        self,
        revision: i64,
        deleted: impl IntoIterator<Item = String>,
    ) -> Position {
        let mut position = self.finish(revision);
        for key in deleted {
            if !position.written.iter().any(|written| written.key == key) {
                position.delete(&key);
            }
        }
        position
    }

    /// The position after the last page.
    pub(crate) fn finish(mut self, revision: i64) -> Position {
        self.newest.sort_by_key(|entry| entry.mod_revision);
        let mut position = Position {
            is_empty: self.newest.is_empty(),
            ..Position::at(revision)
        };
        self.newest.iter().for_each(|entry| position.put(entry));
        position
    }
}

fn push<T>(newest: &mut VecDeque<T>, item: T) {
    if newest.len() == REMEMBERED_KEYS {
        newest.pop_front();
    }
    newest.push_back(item);
}

/// True if the key in the store has this text. A key that is not UTF-8 has been made readable, and cannot be requested.
fn is_exact(key: &str) -> bool {
    !key.contains(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: i64) -> Entry {
        let (key, value) = (format!("/{number}"), number.to_string().into());
        Entry {
            key,
            value,
            create_revision: number,
            mod_revision: number,
        }
    }

    fn written(position: &Position) -> Vec<&str> {
        position
            .written()
            .map(|written| written.key.as_str())
            .collect()
    }

    #[test]
    fn newest_keys_are_remembered_once_in_their_last_state() {
        let entries = [3, 1, 9, 4, 8, 2].map(entry).to_vec();
        let mut position = Position::of(&Snapshot {
            revision: 9,
            entries,
            problems: Vec::new(),
        });
        assert_eq!(written(&position), ["/3", "/4", "/8", "/9"]);
        let delete = |number: i64| Change::Delete {
            key: format!("/{number}"),
        };
        let again = Entry {
            create_revision: 13,
            mod_revision: 13,
            ..entry(8)
        };
        let changes = vec![
            delete(4),
            delete(8),
            Change::Put(again.clone()),
            Change::Put(entry(13)),
        ];
        position.advance(&Batch {
            revision: 14,
            changes,
        });
        assert_eq!(
            (position.revision(), written(&position)),
            (14, vec!["/3", "/9", "/8", "/13"])
        );
        assert_eq!(position.deleted().collect::<Vec<_>>(), ["/4"]);
        assert_eq!(position.written().nth(2).unwrap().value, Some(again.value));
    }

    #[test]
    fn values_too_large_are_remembered_only_by_revision() {
        let put = |key: &str, value: Vec<u8>| {
            Change::Put(Entry {
                key: key.to_owned(),
                value: value.into(),
                ..entry(2)
            })
        };
        let mut position = Position::of(&Snapshot {
            revision: 1,
            ..Snapshot::default()
        });
        assert!(position.is_empty());
        position.advance(&Batch {
            revision: 2,
            changes: vec![put("/\u{fffd}", vec![1])],
        });
        assert!(!position.is_empty() && written(&position).is_empty());
        let changes = vec![
            put("/large", vec![1; MAX_VALUE_BYTES + 1]),
            put("/empty", Vec::new()),
        ];
        position.advance(&Batch {
            revision: 3,
            changes,
        });
        assert!(
            position
                .written()
                .all(|written| written.value.is_none() && written.mod_revision == 2)
        );
    }
}
