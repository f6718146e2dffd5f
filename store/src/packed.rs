//! The entries of a long list in few allocations.

use bytes::Bytes;
use itertools::Itertools;

use crate::Entry;

/// Entries of a page. A page is freed as a whole, so a long one is split.
const PAGE_ENTRIES: usize = 500;

/// Entries with distinct keys, in pages of three allocations each, where an [`Entry`] has two of its own: many small allocations
/// take more memory than their content, and leave gaps when they are freed.
#[derive(Debug, Default)]
pub struct PackedEntries {
    pages: Vec<Page>,
}

impl PackedEntries {
    /// Adds entries, in any order.
    pub fn add(&mut self, mut entries: Vec<Entry>) {
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        let pages = entries.into_iter().chunks(PAGE_ENTRIES);
        self.pages
            .extend(pages.into_iter().map(|page| Page::pack(page.collect())));
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.pages.iter().map(|page| page.rows.len()).sum()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether there is an entry with this key.
    pub fn has(&self, key: &str) -> bool {
        self.pages.iter().any(|page| page.has(key))
    }

    /// All keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.pages.iter().flat_map(Page::keys)
    }

    /// The entries whose keys match, in the order of their keys.
    pub fn matching(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Entry> {
        let pages = self.pages.iter().flat_map(|page| page.matching(&is_wanted));
        pages
            .sorted_by(|one, other| one.key.cmp(&other.key))
            .collect()
    }

    /// Keeps only the entries whose keys match.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        for page in &mut self.pages {
            if !page.keys().all(&is_kept) {
                *page = Page::pack(page.matching(&is_kept).collect());
            }
        }
        self.pages.retain(|page| !page.rows.is_empty());
    }

    /// All entries, in the order of their keys. Each page is freed with its last entry.
    pub fn into_entries(self) -> impl Iterator<Item = Entry> {
        let pages = self.pages.into_iter().map(Page::into_entries);
        pages.kmerge_by(|one, other| one.key < other.key)
    }
}

/// Some entries, in the order of their keys.
#[derive(Debug)]
struct Page {
    /// All keys; `rows` says where each ends.
    keys: String,
    /// All values, likewise.
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
    /// Packs entries that are in the order of their keys.
    fn pack(entries: Vec<Entry>) -> Self {
        let sum = |size: fn(&Entry) -> usize| entries.iter().map(size).sum();
        let mut keys = String::with_capacity(sum(|entry| entry.key.len()));
        let mut values = Vec::with_capacity(sum(|entry| entry.value.len()));
        let mut rows = Vec::with_capacity(entries.len());
        for Entry {
            key,
            value,
            create_revision,
            mod_revision,
        } in entries
        {
            keys.push_str(&key);
            values.extend_from_slice(&value);
            rows.push(Row {
                key_end: keys.len(),
                value_end: values.len(),
                create_revision,
                mod_revision,
            });
        }
        Self {
            keys,
            values: values.into(),
            rows,
        }
    }

    /// Where the key and the value of an entry begin.
    fn begin(&self, row: usize) -> (usize, usize) {
        row.checked_sub(1).map_or((0, 0), |before| {
            (self.rows[before].key_end, self.rows[before].value_end)
        })
    }

    fn key(&self, row: usize) -> &str {
        &self.keys[self.begin(row).0..self.rows[row].key_end]
    }

    fn has(&self, key: &str) -> bool {
        let ends = self
            .rows
            .len()
            .checked_sub(1)
            .map(|last| (self.key(0), self.key(last)));
        ends.is_some_and(|(first, last)| first <= key && key <= last)
            && self.keys().any(|found| found == key)
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        (0..self.rows.len()).map(|row| self.key(row))
    }

    /// An entry; its value is a part of the page.
    fn entry(&self, row: usize) -> Entry {
        let Row {
            value_end,
            create_revision,
            mod_revision,
            ..
        } = self.rows[row];
        let value = self.values.slice(self.begin(row).1..value_end);
        Entry {
            key: self.key(row).to_owned(),
            value,
            create_revision,
            mod_revision,
        }
    }

    fn matching(&self, is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = Entry> {
        (0..self.rows.len())
            .filter(move |row| is_wanted(self.key(*row)))
            .map(|row| self.entry(row))
    }

    fn into_entries(self) -> impl Iterator<Item = Entry> {
        (0..self.rows.len()).map(move |row| self.entry(row))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn entry(key: &str, length: u8) -> Entry {
        let (value, revision) = (key.repeat(length.into()).into(), length.into());
        Entry {
            key: key.to_owned(),
            value,
            create_revision: revision,
            mod_revision: revision + 1,
        }
    }

    fn packed<'a>(pages: impl IntoIterator<Item = &'a [Entry]>) -> PackedEntries {
        let mut packed = PackedEntries::default();
        pages.into_iter().for_each(|page| packed.add(page.to_vec()));
        packed
    }

    #[test]
    fn page_is_freed_with_its_last_entry() {
        let all: Vec<Entry> = (0..=PAGE_ENTRIES)
            .map(|number| entry(&format!("{number:05}"), 1))
            .collect();
        let mut entries = packed([&all[..]]).into_entries();
        let mut first: Vec<Entry> = entries.by_ref().take(PAGE_ENTRIES).collect();
        let last = first.pop().unwrap();
        assert!(
            !last.value.is_unique(),
            "the others have parts of the same page"
        );
        drop(first);
        assert!(
            last.value.is_unique(),
            "the page is freed although the next one is not"
        );
        assert!(entries.eq([all[PAGE_ENTRIES].clone()]));
    }

    proptest! {
        #[test]
        fn entries_come_in_order_whatever_their_pages_are(
            values in prop::collection::btree_map("[a-cé]{1,3}", 0u8..4, 0..40),
            shift in 0usize..40,
            page in 1usize..9,
        ) {
            let expected: Vec<Entry> = values.iter().map(|(key, length)| entry(key, *length)).collect();
            let odd = expected.iter().skip(1).step_by(2);
            let mut mixed: Vec<Entry> = expected.iter().step_by(2).chain(odd).cloned().collect();
            mixed.rotate_left(shift % expected.len().max(1));
            let all = packed(mixed.chunks(page));
            prop_assert_eq!(all.len(), expected.len());
            prop_assert_eq!(all.is_empty(), expected.is_empty());
            prop_assert_eq!(all.keys().collect::<BTreeSet<_>>(), values.keys().map(String::as_str).collect());
            for key in ["a", "b", "cé", "éc"] {
                prop_assert_eq!(all.has(key), values.contains_key(key));
            }
            let is_wanted = |key: &str| key.starts_with('a');
            let wanted: Vec<Entry> = expected.iter().filter(|entry| is_wanted(&entry.key)).cloned().collect();
            prop_assert_eq!(&all.matching(is_wanted), &wanted);
            let mut retained = packed(mixed.chunks(page));
            retained.retain(is_wanted);
            prop_assert_eq!(retained.is_empty(), wanted.is_empty());
            prop_assert!(retained.into_entries().eq(wanted));
            prop_assert!(all.into_entries().eq(expected));
        }
    }
}
