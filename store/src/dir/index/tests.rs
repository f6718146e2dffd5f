use contiv_proto::Kind;
use proptest::{collection::vec, prelude::*};

use super::*;

fn definition(name: u8, (value, is_recalled): (u8, bool)) -> Arc<Definition> {
    let key = Key::new(Kind::Service, "default", format!("s{name}")).unwrap();
    Arc::new(Definition {
        key: Arc::new(key),
        value: [value].into(),
        place: Box::default(),
        is_recalled,
    })
}

/// The objects of a file: number, value and whether it is recalled. No object is twice in one file.
type Objects = BTreeMap<u8, (u8, bool)>;

fn definitions(file: &Objects) -> Vec<Arc<Definition>> {
    file.iter()
        .map(|(name, value)| definition(*name, *value))
        .collect()
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
            Change::Delete { key } => {
                assert!(entries.remove(&key).is_some(), "{key} was not there");
            }
        }
    }
}

fn file() -> impl Strategy<Value = (u8, Objects)> {
    (
        0..4_u8,
        prop::collection::btree_map(0..5_u8, (0..3_u8, prop::bool::weighted(0.3)), 0..5),
    )
}

proptest! {
    #[test]
    fn random_changes_end_where_reading_all_at_once_does(
        changes in vec((file(), any::<bool>()), 0..40)
    ) {
        let mut files = BTreeMap::<u8, Objects>::new();
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

        // The first definition that was read counts, and a recalled one only without any; further ones that were read are mistakes.
        let mut by_key: BTreeMap<String, Vec<Arc<Definition>>> = BTreeMap::new();
        for definition in files.values().flat_map(definitions) {
            by_key.entry(definition.key.to_path()).or_default().push(definition);
        }
        let (mut expected, mut duplicates) = (BTreeMap::new(), 0);
        for (key, all) in by_key {
            let read: Vec<_> = all.iter().filter(|definition| !definition.is_recalled).collect();
            duplicates += read.len().saturating_sub(1);
            expected.insert(key, read.first().copied().unwrap_or(&all[0]).value.clone());
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
    index.replace(
        &path(1),
        &[],
        &[definition(1, (1, false)), definition(2, (1, false))],
    );
    index.commit(0);
    let one = index.entries("/vnf-agent/contiv-ksr/k8s/service/s1/");
    assert_eq!(one.len(), 1);
    assert_eq!(index.entries("/vnf-agent/contiv-ksr/k8s/service/t"), []);
}
