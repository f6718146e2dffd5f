use proptest::{collection::vec, prelude::*};

use super::*;

fn encode(record: &Record, out: &mut Vec<u8>) {
    match record {
        Record::Segment { source } => put_segment(out, source),
        Record::Changes {
            number,
            batch,
            deviating,
        } => put_changes(out, *number, batch, deviating),
        Record::List {
            number,
            revision,
            keep,
        } => put_list(out, *number, *revision, keep),
        Record::Entry(entry) => put_entry(out, entry),
        Record::ListEnd => put_list_end(out),
    }
}

/// The records as bytes, and where each of them ends.
fn encoded(records: &[Record]) -> (Vec<u8>, Vec<usize>) {
    let (mut out, mut ends) = (Vec::new(), Vec::new());
    for record in records {
        encode(record, &mut out);
        ends.push(out.len());
    }
    (out, ends)
}

fn decoded(mut bytes: &[u8]) -> Vec<Record> {
    std::iter::from_fn(|| read(&mut bytes)).collect()
}

fn entries() -> impl Strategy<Value = Entry> {
    (
        any::<String>(),
        vec(any::<u8>(), 0..40),
        any::<i64>(),
        any::<i64>(),
    )
        .prop_map(|(key, value, create_revision, mod_revision)| Entry {
            key,
            value: value.into(),
            create_revision,
            mod_revision,
        })
}

fn records() -> impl Strategy<Value = Record> {
    let change = prop_oneof![
        entries().prop_map(Change::Put),
        any::<String>().prop_map(|key| Change::Delete { key })
    ];
    prop_oneof![
        any::<String>().prop_map(|source| Record::Segment { source }),
        (
            any::<u64>(),
            any::<i64>(),
            vec(change, 0..4),
            proptest::collection::btree_set(any::<String>(), 0..3)
        )
            .prop_map(|(number, revision, changes, deviating)| Record::Changes {
                number,
                batch: Batch { revision, changes },
                deviating,
            }),
        (
            any::<u64>(),
            any::<i64>(),
            proptest::collection::btree_set(any::<String>(), 0..3)
        )
            .prop_map(|(number, revision, keep)| Record::List {
                number,
                revision,
                keep
            }),
        entries().prop_map(Record::Entry),
        Just(Record::ListEnd),
    ]
}

proptest! {
    #[test]
    fn records_cut_off_anywhere_are_the_first_of_them(
        records in vec(records(), 0..8), at in any::<prop::sample::Index>(),
    ) {
        let (bytes, ends) = encoded(&records);
        prop_assert_eq!(&decoded(&bytes), &records);
        let length = at.index(bytes.len() + 1);
        let whole = ends.iter().filter(|end| **end <= length).count();
        prop_assert_eq!(decoded(&bytes[..length]), &records[..whole]);
    }

    #[test]
    fn records_with_a_flipped_bit_end_before_it(
        records in vec(records(), 1..8), at in any::<prop::sample::Index>(), bit in 0_u32..8,
    ) {
        let (mut bytes, ends) = encoded(&records);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let whole = ends.iter().filter(|end| **end <= at).count();
        prop_assert_eq!(decoded(&bytes), &records[..whole]);
    }

    #[test]
    fn records_of_any_bytes_break_nothing(bytes in vec(any::<u8>(), 0..100)) {
        let mut framed = Vec::new();
        let (tag, payload) = bytes.split_first().unwrap_or((&ENTRY, &[]));
        frame(&mut framed, *tag % 8, |out| out.extend_from_slice(payload));
        prop_assert!(decoded(&framed).len() <= 1);
        prop_assert!(decoded(&bytes).is_empty());
    }
}
