//! The entries of a long list in few pieces of memory.

use bytes::Bytes;
use itertools::Itertools;

use crate::Entry;

/// Entries with distinct keys, page by page as they were added. A page is three pieces of memory, where each [`Entry`] has two of
/// its own; so it is smaller, and can be used for anything else once it is freed.
#[derive(Debug, Clone, Default)]
pub struct PackedEntries {
    pages: Vec<Page>,
}

impl PackedEntries {
    /// Adds a page. Pages may come in any order.
    pub fn add(&mut self, page: Vec<Entry>) {
        if !page.is_empty() {
            self.pages.push(Page::pack(page));
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.pages.iter().map(|page| page.rows.len()).sum()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// All keys, in the order of their pages.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.pages.iter().flat_map(Page::keys)
    }

    /// The entries with keys like this, in the order of their keys.
    pub fn matching(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Entry> {
        let pages = self.pages.iter().flat_map(|page| page.matching(&is_wanted));
        pages.sorted_by(|one, other| one.key.cmp(&other.key)).collect()
    }

    /// Removes the entries with other keys.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        for page in &mut self.pages {
            if !page.keys().all(&is_kept) {
                *page = Page::pack(page.matching(&is_kept).collect());
            }
        }
        self.pages.retain(|page| !page.rows.is_empty());
    }

    /// All entries, in the order of their keys. A page is freed with its last entry.
    pub fn into_entries(self) -> impl Iterator<Item = Entry> {
        let pages = self.pages.into_iter().map(Page::into_entries);
        pages.kmerge_by(|one, other| one.key < other.key)
    }
}

/// Some entries, in the order of their keys.
#[derive(Debug, Clone)]
struct Page {
    /// One after the other, as the values.
    keys: String,
    values: Bytes,
    rows: Vec<Row>,
}

/// An entry: where its key and its value end, and its revisions.
#[derive(Debug, Clone, Copy)]
struct Row {
    key_end: usize,
    value_end: usize,
    create_revision: i64,
    mod_revision: i64,
}

impl Page {
    fn pack(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        let sum = |size: fn(&Entry) -> usize| entries.iter().map(size).sum();
        let mut keys = String::with_capacity(sum(|entry| entry.key.len()));
        let mut values = Vec::with_capacity(sum(|entry| entry.value.len()));
        let mut rows = Vec::with_capacity(entries.len());
        for Entry { key, value, create_revision, mod_revision } in entries {
            keys.push_str(&key);
            values.extend_from_slice(&value);
            rows.push(Row { key_end: keys.len(), value_end: values.len(), create_revision, mod_revision });
        }
        Self { keys, values: values.into(), rows }
    }

    /// Where the key and the value of an entry begin.
    fn begin(&self, row: usize) -> (usize, usize) {
        row.checked_sub(1).map_or((0, 0), |before| (self.rows[before].key_end, self.rows[before].value_end))
    }

    fn key(&self, row: usize) -> &str {
        &self.keys[self.begin(row).0..self.rows[row].key_end]
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        (0..self.rows.len()).map(|row| self.key(row))
    }

    /// An entry; its value is a part of the page.
    fn entry(&self, row: usize) -> Entry {
        let Row { value_end, create_revision, mod_revision, .. } = self.rows[row];
        let value = self.values.slice(self.begin(row).1..value_end);
        Entry { key: self.key(row).to_owned(), value, create_revision, mod_revision }
    }

    fn matching(&self, is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = Entry> {
        (0..self.rows.len()).filter(move |row| is_wanted(self.key(*row))).map(|row| self.entry(row))
    }

    fn into_entries(self) -> impl Iterator<Item = Entry> {
        (0..self.rows.len()).map(move |row| self.entry(row))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(key: &str, revision: i64) -> Entry {
        let value = key.repeat(revision.unsigned_abs() as usize).into();
        Entry { key: key.to_owned(), value, create_revision: revision, mod_revision: revision + 1 }
    }

    #[test]
    fn value_stays_when_its_page_is_freed() {
        let mut packed = PackedEntries::default();
        packed.add(vec![entry("/b", 2), entry("/é", 0)]);
        packed.add(vec![entry("/a", 1)]);
        packed.add(Vec::new());
        let entries: Vec<Entry> = packed.into_entries().collect();
        assert_eq!(entries, [entry("/a", 1), entry("/b", 2), entry("/é", 0)]);
    }

    proptest! {
        #[test]
        fn entries_come_in_order_whatever_their_pages_are(
            values in prop::collection::btree_map("[a-cé]{1,3}", 0i64..4, 0..40),
            shift in 0usize..40,
            page in 1usize..9,
        ) {
            let expected: Vec<Entry> = values.iter().map(|(key, revision)| entry(key, *revision)).collect();
            let mut shuffled: Vec<Entry> = expected.iter().step_by(2).chain(expected.iter().skip(1).step_by(2)).cloned().collect();
            shuffled.rotate_left(shift % expected.len().max(1));
            let mut packed = PackedEntries::default();
            shuffled.chunks(page).for_each(|page| packed.add(page.to_vec()));
            prop_assert_eq!(packed.len(), expected.len());
            prop_assert_eq!(packed.is_empty(), expected.is_empty());
            prop_assert_eq!(packed.keys().collect::<std::collections::BTreeSet<_>>().len(), expected.len());
            let is_wanted = |key: &str| key.starts_with('a');
            let wanted: Vec<Entry> = expected.iter().filter(|entry| is_wanted(&entry.key)).cloned().collect();
            prop_assert_eq!(&packed.matching(is_wanted), &wanted);
            let mut retained = packed.clone();
            retained.retain(is_wanted);
            prop_assert_eq!(retained.len(), wanted.len());
            prop_assert!(retained.into_entries().eq(wanted));
            prop_assert!(packed.into_entries().eq(expected));
        }
    }
}
