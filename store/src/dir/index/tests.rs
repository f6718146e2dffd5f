use contiv_proto::Kind;
use proptest::{collection::vec, prelude::*};

use super::*;

fn definition(name: u8, value: u8) -> Arc<Definition> {
    let key = Key::new(Kind::Service, "default", format!("s{name}")).unwrap();
    Arc::new(Definition {
        key: Arc::new(key),
        value: [value].into(),
        place: Box::default(),
        is_recalled: false,
    })
}

/// Files by number, each with its objects: number and value. No object is twice in one file.
type Files = BTreeMap<u8, BTreeMap<u8, u8>>;

fn definitions(file: &BTreeMap<u8, u8>) -> Vec<Arc<Definition>> {
    file.iter().map(|(name, value)| definition(*name, *value)).collect()
}

fn path(number: u8) -> Arc<Path> {
    Path::new(&format!("{number}.yaml")).into()
}

/// Applies a batch as a reader does.
fn apply(entries: &mut BTreeMap<String, Entry>, batch: Batch) {
    for change in batch.changes {
        match change {
            Change::Put(entry) => {
                assert_eq!(entry.mod_revision, batch.revision);
                assert_eq!(entry.create_revision, CREATE_REVISION);
                entries.insert(entry.key.clone(), entry);
            }
            Change::Delete { key } => assert!(entries.remove(&key).is_some(), "{key} was not there"),
        }
    }
}

fn file() -> impl Strategy<Value = (u8, BTreeMap<u8, u8>)> {
    (0..4_u8, prop::collection::btree_map(0..5_u8, 0..3_u8, 0..5))
}

proptest! {
    #[test]
    fn random_changes_end_where_reading_all_at_once_does(
        changes in vec((file(), any::<bool>()), 0..40)
    ) {
        let mut files = Files::new();
        let (mut index, mut seen, mut revision) = (Index::default(), BTreeMap::new(), 0);
        for ((number, now), commits) in changes {
            let before = files.insert(number, now.clone()).unwrap_or_default();
            index.replace(&path(number), &definitions(&before), &definitions(&now));
            if commits && let Some(batch) = index.commit(revision) {
                revision = batch.revision;
                apply(&mut seen, batch);
            }
        }
        if let Some(batch) = index.commit(revision) {
            apply(&mut seen, batch);
        }

        let mut expected = BTreeMap::new();
        let mut duplicates = 0;
        for (name, value) in files.values().flatten() {
            let definition = definition(*name, *value);
            match expected.entry(definition.key.to_path()) {
                std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(definition.value.clone())),
                std::collections::btree_map::Entry::Occupied(_) => duplicates += 1,
            }
        }
        let values: BTreeMap<_, _> = seen.iter().map(|(key, entry)| (key.clone(), entry.value.as_ref().into())).collect();
        prop_assert_eq!(values, expected);
        prop_assert_eq!(index.entries(""), seen.into_values().collect::<Vec<_>>());
        prop_assert_eq!(index.duplicates().count(), duplicates);
    }
}

#[test]
fn entries_are_those_below_prefix() {
    let mut index = Index::default();
    index.replace(&path(1), &[], &[definition(1, 1), definition(2, 1)]);
    index.commit(0);
    let one = index.entries("/vnf-agent/contiv-ksr/k8s/service/s1/");
    assert_eq!(one.len(), 1);
    assert_eq!(index.entries("/vnf-agent/contiv-ksr/k8s/service/t"), []);
}
