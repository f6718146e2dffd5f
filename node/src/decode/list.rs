//! A list of the store, decoded page by page while the next one is in transit.

use std::collections::BTreeSet;

use contiv_external_workloads::{DerivedList, DerivedSlices, derived};
use contiv_model::{
    Event, Object, ObjectKey, Resync, parallel::in_shares, processor::StringInterner, wire,
};
use contiv_proto::Key;
use contiv_store::{Entry, PackedEntries, Problem, Saved};

use super::value::{BadValue, DecodedValue, decode};

/// The number of entries per piece when a page is decoded in parallel,
const ENTRIES_PER_PIECE: usize = 500;
/// and the minimum number of pieces per thread, below which a thread costs more than it gains.
const PIECES_PER_THREAD: usize = 4;

/// A complete list.
#[derive(Debug, Default)]
pub struct DecodedList {
    /// The revision at which it was read.
    pub revision: i64,
    /// For the processor.
    pub resync: Resync,
    /// The strings that the objects share.
    pub names: StringInterner,
    /// Values that cannot be used, or only in part.
    pub bad: Vec<BadValue>,
    /// Warnings of the fields of values.
    pub warnings: Vec<Problem>,
    /// The external workloads that no controller serves.
    pub unserved: Vec<Problem>,
    /// The problems of the store itself.
    pub problems: Vec<Problem>,
    /// All entries; none for a saved state.
    pub entries: PackedEntries,
    /// The store has what is saved, so that nothing of it needs to be saved.
    pub is_saved: bool,
}

impl DecodedList {
    /// The saved state of a mirror, in which all values are good. It has no entries, as they are saved already.
    pub fn of_saved(Saved { revision, entries }: Saved) -> Self {
        let mut list = ListDecoder::default();
        list.decode(&entries);
        list.finish(revision, Vec::new())
    }

    /// Whether this key is listed.
    pub fn has(&self, key: &str) -> bool {
        self.entries.has(key)
    }
}

/// Decodes the pages of a list.
#[derive(Debug, Default)]
pub struct ListDecoder(DecodedList);

impl ListDecoder {
    /// Reserves memory for so many entries, if there is enough: growing step by step would take up to three times as much.
    pub(super) fn reserve(&mut self, entries: usize) {
        let _ = self.0.resync.objects.try_reserve_exact(entries);
    }

    /// Adds a page. Pages may come in any order; each key is in one of them.
    pub fn add(&mut self, entries: Vec<Entry>) {
        self.decode(&entries);
        self.0.entries.add(entries);
    }

    fn decode(&mut self, entries: &[Entry]) {
        let pieces: Vec<&[Entry]> = entries.chunks(ENTRIES_PER_PIECE).collect();
        let decode_share = |share: &[&[Entry]]| {
            let mut names = StringInterner::default();
            share
                .iter()
                .map(|entries| decode_all(entries, &mut names))
                .collect::<Vec<_>>()
        };
        let list = &mut self.0;
        let decoded = in_shares(&pieces, PIECES_PER_THREAD, decode_share);
        let mut decoded: Vec<_> = decoded.into_iter().flatten().collect();
        let objects = decoded.iter_mut().flat_map(|values| &mut values.objects);
        objects.for_each(|object| list.names.share(object));
        for DecodedValues {
            objects,
            bad,
            warnings,
        } in decoded
        {
            list.resync.objects.extend(objects);
            list.bad.extend(bad);
            list.warnings.extend(warnings);
        }
    }

    /// Adds slices of external workloads, when all pages are there.
    pub(super) fn derive(&mut self, slices: &mut DerivedSlices, revision: i64) {
        let DerivedList { replaced, entries } =
            slices.list(&derived::inputs(&self.0.entries), revision);
        // A derived slice takes the place of one that has its name.
        let derived = entries.iter().map(|entry| entry.key.clone());
        let replaced: BTreeSet<String> = replaced.into_iter().chain(derived).collect();
        if !replaced.is_empty() {
            let of_key = |path: &String| wire::object_key(&Key::parse(path).ok()??);
            let objects: BTreeSet<ObjectKey> = replaced.iter().filter_map(of_key).collect();
            self.0.entries.retain(|key| !replaced.contains(key));
            self.0.bad.retain(|bad| !replaced.contains(&bad.key));
            self.0
                .warnings
                .retain(|warning| !replaced.contains(&warning.source));
            self.0
                .resync
                .objects
                .retain(|object| !objects.contains(&object.key()));
        }
        self.add(entries);
    }

    /// The entries so far.
    pub(super) const fn entries(&self) -> &PackedEntries {
        &self.0.entries
    }

    /// Sets the external workloads that no controller serves.
    pub(super) fn set_unserved(&mut self, unserved: Vec<Problem>) {
        self.0.unserved = unserved;
    }

    /// The complete list, as read at this revision.
    pub fn finish(self, revision: i64, problems: Vec<Problem>) -> DecodedList {
        let mut list = DecodedList {
            revision,
            problems,
            ..self.0
        };
        list.bad.sort_by(|one, other| one.key.cmp(&other.key));
        let unused = list.bad.iter().filter(|bad| !bad.is_used);
        list.resync.undecodable = unused.filter_map(|bad| bad.object.clone()).collect();
        list
    }
}

/// The content of several entries.
struct DecodedValues {
    objects: Vec<Object>,
    /// Values that cannot be used, or only in part.
    bad: Vec<BadValue>,
    warnings: Vec<Problem>,
}

/// Decodes entries. Objects share `names`.
fn decode_all(entries: &[Entry], names: &mut StringInterner) -> DecodedValues {
    let (mut objects, mut bad) = (Vec::with_capacity(entries.len()), Vec::new());
    let mut all_warnings = Vec::new();
    for entry in entries {
        match decode(entry) {
            DecodedValue::Good {
                event: Event::Put(mut object),
                partly,
                warnings,
                ..
            } => {
                names.share(&mut object);
                objects.push(object);
                bad.extend(partly.map(|bad| *bad));
                all_warnings.extend(warnings);
            }
            DecodedValue::Good { .. } | DecodedValue::Ignored => {}
            DecodedValue::Bad(value) => bad.push(value),
        }
    }
    DecodedValues {
        objects,
        bad,
        warnings: all_warnings,
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::{ObjectKey, ServiceId};
    use contiv_proto::{Key, Kind};
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, value: &str) -> Entry {
        let key = Key::new(Kind::Service, "default", name).unwrap().to_path();
        Entry {
            key,
            value: value.to_owned().into(),
            create_revision: 1,
            mod_revision: 1,
        }
    }

    fn decoded<'a>(pages: impl IntoIterator<Item = &'a [Entry]>) -> DecodedList {
        let mut list = ListDecoder::default();
        pages.into_iter().for_each(|page| list.add(page.to_vec()));
        let mut list = list.finish(7, Vec::new());
        list.resync.objects.sort_by_key(Object::key);
        list
    }

    #[test]
    fn large_page_is_decoded_whole_and_bad_values_are_named() {
        let count = ENTRIES_PER_PIECE * PIECES_PER_THREAD * 3 + 7;
        let mut entries: Vec<Entry> = (0..count)
            .map(|i| entry(&format!("s{i:05}"), r#"{"cluster_ip":"None"}"#))
            .collect();
        entries[count / 2] = entry("web", "{");
        entries.push(Entry {
            key: "/elsewhere".to_owned(),
            ..entry("x", "{}")
        });
        let DecodedList { resync, bad, .. } = decoded([&entries[..]]);
        assert_eq!(resync.objects.len(), count - 1);
        let web = ObjectKey::Service(ServiceId::new("default", "web"));
        assert_eq!(resync.undecodable.into_iter().collect::<Vec<_>>(), [web]);
        assert_eq!(bad.len(), 1);
    }

    proptest! {
        #[test]
        fn list_in_pages_equals_the_whole_list(
            bad in prop::collection::vec(any::<bool>(), 0..60),
            page in 1usize..20,
            reverse in any::<bool>(),
        ) {
            let value = |bad: &bool| if *bad { "{" } else { r#"{"cluster_ip":"None"}"# };
            let entries: Vec<Entry> =
                bad.iter().enumerate().map(|(i, bad)| entry(&format!("s{i:03}"), value(bad))).collect();
            let mut pages: Vec<&[Entry]> = entries.chunks(page).collect();
            if reverse {
                pages.reverse();
            }
            let (in_pages, whole) = (decoded(pages), decoded([&entries[..]]));
            prop_assert_eq!(in_pages.resync, whole.resync);
            prop_assert_eq!(in_pages.bad, whole.bad);
            prop_assert!(in_pages.entries.into_entries().eq(entries.iter().cloned()));
            prop_assert!(whole.entries.into_entries().eq(entries));
        }
    }
}
