use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;

const SOURCE_URL: &str = "etcd://127.0.0.1:2379";

fn entry(key: &str, value: &str, revision: i64) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.to_owned().into(),
        create_revision: 1,
        mod_revision: revision,
    }
}

fn open(folder: &Path) -> Mirror {
    let (mirror, quarantine_file) = Mirror::open(folder, SOURCE_URL).unwrap();
    assert_eq!(quarantine_file, None);
    mirror
}

fn saved(folder: &Path) -> Option<Saved> {
    open(folder).load().unwrap()
}

fn list(entries: &[Entry]) -> Vec<io::Result<Entry>> {
    entries.iter().cloned().map(Ok).collect()
}

fn none() -> BTreeSet<String> {
    BTreeSet::new()
}

#[test]
fn mirror_saved_is_there_when_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(saved(folder.path()), None, "nothing was ever saved");
    let entries = vec![entry("/a", "1", 3), entry("/b", "2", 4)];
    open(folder.path())
        .replace(7, list(&entries), &none())
        .unwrap();
    assert_eq!(
        saved(folder.path()),
        Some(Saved {
            revision: 7,
            entries
        })
    );
}

#[test]
fn changes_and_replacements_lead_to_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut mirror = open(folder.path());
    mirror
        .replace(
            7,
            list(&[entry("/a", "1", 3), entry("/b", "2", 4)]),
            &none(),
        )
        .unwrap();
    let changes = [
        Change::Put(entry("/a", "changed", 8)),
        Change::Delete {
            key: "/b".to_owned(),
        },
        Change::Delete {
            key: "/never-there".to_owned(),
        },
        Change::Put(entry("/c", "new", 9)),
    ];
    mirror.apply(9, &changes, &BTreeSet::new()).unwrap();
    let entries = vec![entry("/a", "changed", 8), entry("/c", "new", 9)];
    assert_eq!(
        mirror.load().unwrap(),
        Some(Saved {
            revision: 9,
            entries: entries.clone()
        })
    );
    mirror.replace(10, list(&entries), &none()).unwrap();
    drop(mirror);
    assert_eq!(
        saved(folder.path()),
        Some(Saved {
            revision: 10,
            entries
        })
    );
}

#[test]
fn mirror_replacement_removes_missing_keys_but_keeps_unusable_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut mirror = open(folder.path());
    let (bad, gone) = (entry("/bad", "was good", 3), entry("/gone", "1", 3));
    mirror
        .replace(3, list(&[bad.clone(), gone]), &none())
        .unwrap();
    mirror
        .replace(
            4,
            list(&[entry("/new", "1", 4)]),
            &BTreeSet::from([bad.key.clone()]),
        )
        .unwrap();
    drop(mirror);
    assert_eq!(
        saved(folder.path()).unwrap().entries,
        [bad, entry("/new", "1", 4)]
    );
}

#[test]
fn revisions_are_those_of_saved_values_of_this_store() {
    let revisions = |folder: &Path, source: &str| {
        let mut revisions = Vec::new();
        let show = |key: &str, revision| revisions.push((key.to_owned(), revision));
        Mirror::for_each_revision(folder, source, show).unwrap();
        revisions
    };
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        revisions(folder.path(), SOURCE_URL),
        [],
        "nothing was ever saved"
    );
    let entries = [entry("/a", "1", 3), entry("/b", "2", 4)];
    open(folder.path())
        .replace(7, list(&entries), &none())
        .unwrap();
    assert_eq!(
        revisions(folder.path(), SOURCE_URL),
        [("/a".to_owned(), 3), ("/b".to_owned(), 4)]
    );
    assert_eq!(revisions(folder.path(), "dir:/elsewhere"), []);
}

#[test]
fn mirror_of_another_store_is_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path())
        .replace(3, list(&[entry("/a", "1", 3)]), &none())
        .unwrap();
    let (mirror, quarantine_file) = Mirror::open(folder.path(), "dir:/elsewhere").unwrap();
    let quarantine_file = quarantine_file.unwrap();
    assert_eq!(quarantine_file.reason, "it is not of dir:/elsewhere");
    assert!(quarantine_file.path.exists());
    assert_eq!(mirror.load().unwrap(), None);
}

#[test]
fn mirror_of_etcd_named_otherwise_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let reopened = |source: &str| {
        let (mirror, quarantine_file) = Mirror::open(folder.path(), source).unwrap();
        (mirror.load().unwrap(), quarantine_file)
    };
    let (mut mirror, _) = Mirror::open(folder.path(), "etcd://a:2379,b:2379").unwrap();
    let entries = vec![entry("/a", "1", 3)];
    mirror.replace(7, list(&entries), &none()).unwrap();
    drop(mirror);
    let saved = Some(Saved {
        revision: 7,
        entries,
    });
    for source in [
        "etcd://b:2379,a:2379",
        "etcds://b:2379,a:2379",
        "etcds://c:2379,a:2379",
        // None of the first members is left, but each step shared one.
        "etcds://d:2379,c:2379",
    ] {
        assert_eq!(reopened(source), (saved.clone(), None), "{source}");
    }
    let (found, quarantine_file) = reopened("etcds://a:2379");
    assert_eq!(
        (found, quarantine_file.unwrap().reason.as_str()),
        (None, "it is not of etcds://a:2379")
    );
}

#[test]
fn symbolic_link_as_mirror_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    std::os::unix::fs::symlink(&target, folder.path().join(FILE)).unwrap();
    let error = Mirror::open(folder.path(), SOURCE_URL)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("mirror.redb: it is a symbolic link"),
        "{error}"
    );
    assert!(!target.exists());
}

#[test]
fn summary_through_symbolic_link_counts_as_full() {
    let (elsewhere, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    filled(elsewhere.path());
    let target = elsewhere.path().join(FILE);
    let bytes = fs::read(&target).unwrap();
    std::os::unix::fs::symlink(&target, folder.path().join(FILE)).unwrap();
    let full = MirrorSummary {
        entries: usize::MAX,
        has_key: true,
    };
    assert_eq!(Mirror::summary(folder.path(), SOURCE_URL, "/no/such"), full);
    assert!(
        fs::read(&target).unwrap() == bytes,
        "the target stays as it is"
    );
}

#[test]
fn mirror_of_another_kind_is_quarantined_but_unreadable_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    fs::write(&path, "no database at all, but a text file").unwrap();
    let (mirror, quarantine_file) = Mirror::open(folder.path(), SOURCE_URL).unwrap();
    assert!(quarantine_file.is_some());
    drop(mirror);
    // Root may open anything, so a folder takes the place of a file without permission.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let error = Mirror::open(folder.path(), SOURCE_URL)
        .unwrap_err()
        .to_string();
    assert!(error.contains("mirror.redb"), "{error}");
    assert!(path.is_dir());
}

#[test]
fn mirror_of_an_older_format_is_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path())
        .replace(3, [Ok(entry("/a", "1", 3))], &none())
        .unwrap();
    let database = Database::open(folder.path().join(FILE)).unwrap();
    let write = database.begin_write().unwrap();
    let mut state = write.open_table(STATE).unwrap();
    let (_, revision, count, total) = state.get(ROW_KEY).unwrap().unwrap().value();
    state
        .insert(ROW_KEY, (FORMAT - 1, revision, count, total))
        .unwrap();
    drop(state);
    write.commit().unwrap();
    drop(database);
    let (mirror, quarantine_file) = Mirror::open(folder.path(), SOURCE_URL).unwrap();
    assert_eq!(
        quarantine_file.unwrap().reason,
        "its format is 0, and this is 1"
    );
    assert_eq!(mirror.load().unwrap(), None, "a new one is begun");
}

/// A file large enough for flipped bits in all kinds of pages.
fn filled(folder: &Path) -> Saved {
    let entries: Vec<Entry> = (0..500)
        .map(|i| {
            entry(
                &format!("/k{i:04}"),
                &format!("value {i} {}", "x".repeat(100)),
                i,
            )
        })
        .collect();
    open(folder).replace(500, list(&entries), &none()).unwrap();
    Saved {
        revision: 500,
        entries,
    }
}

#[test]
fn mirror_truncated_or_changed_is_quarantined_or_unaffected() {
    let folder = tempfile::tempdir().unwrap();
    let whole = filled(folder.path());
    let good = fs::read(folder.path().join(FILE)).unwrap();
    let mut random = StdRng::seed_from_u64(1);
    let mut quarantine_count = 0;
    for round in 0..200 {
        let mut bytes = good.clone();
        if round % 4 == 0 {
            bytes.truncate(random.random_range(0..good.len()));
        } else {
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..good.len());
                bytes[at] ^= 1 << random.random_range(0..8);
            }
        }
        fs::write(folder.path().join(FILE), bytes).unwrap();
        let (mirror, quarantine_file) = Mirror::open(folder.path(), SOURCE_URL).unwrap();
        let loaded = mirror.load().unwrap();
        match quarantine_file {
            Some(_) => assert_eq!(loaded, None, "round {round}"),
            // An empty file is a new one.
            None => assert!(
                loaded.is_none() || loaded.as_ref() == Some(&whole),
                "round {round}"
            ),
        }
        quarantine_count += usize::from(quarantine_file.is_some());
    }
    assert!(
        quarantine_count > 50,
        "{quarantine_count}: the damage is real"
    );
}

proptest! {
    #[test]
    fn replacement_keeps_listed_and_retained_keys(
        before in keys(), after in keys(), keep in keys(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let entries = |keys: &BTreeSet<String>, value: &str| -> Vec<Entry> {
            keys.iter().map(|key| entry(key, value, 1)).collect()
        };
        let mut mirror = open(folder.path());
        mirror.replace(1, list(&entries(&before, "old")), &none()).unwrap();
        // Some stay unchanged, and some have another value.
        let wanted: Vec<Entry> = after
            .iter()
            .map(|key| entry(key, if key.len() % 2 == 0 { "old" } else { "new" }, 1))
            .collect();
        mirror.replace(2, list(&wanted), &keep).unwrap();
        let kept = entries(&before, "old").into_iter().filter(|old| keep.contains(&old.key) && !after.contains(&old.key));
        let mut expected: Vec<Entry> = wanted.into_iter().chain(kept).collect();
        expected.sort_by(|a, b| a.key.cmp(&b.key));
        drop(mirror);
        prop_assert_eq!(saved(folder.path()).unwrap().entries, expected);
    }
}

#[test]
fn list_that_cannot_be_read_to_its_end_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut mirror = open(folder.path());
    let entries = vec![entry("/a", "1", 3)];
    mirror.replace(3, list(&entries), &none()).unwrap();
    let broken = [
        Ok(entry("/b", "1", 4)),
        Err(io::ErrorKind::UnexpectedEof.into()),
    ];
    assert!(mirror.replace(4, broken, &none()).is_err());
    drop(mirror);
    assert_eq!(
        saved(folder.path()),
        Some(Saved {
            revision: 3,
            entries
        })
    );
}

fn keys() -> impl Strategy<Value = BTreeSet<String>> {
    proptest::collection::btree_set("/[a-e]{1,2}", 0..12)
}

#[test]
fn mirror_is_summarized_without_reading_and_recalled_read_only() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        Mirror::summary(folder.path(), SOURCE_URL, "/a"),
        MirrorSummary::default()
    );
    assert_eq!(Mirror::recall(folder.path(), SOURCE_URL).unwrap(), None);
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "no file is made"
    );
    let whole = filled(folder.path());
    let path = folder.path().join(FILE);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(
        Mirror::recall(folder.path(), SOURCE_URL).unwrap().as_ref(),
        Some(&whole)
    );
    assert!(
        Mirror::recall(folder.path(), "dir:/elsewhere")
            .unwrap_err()
            .to_string()
            .contains("is not of")
    );
    assert!(fs::read(&path).unwrap() == bytes, "the file stays as it is");
    let saved = &whole.entries[7].key;
    assert_eq!(
        Mirror::summary(folder.path(), SOURCE_URL, saved),
        MirrorSummary {
            entries: 500,
            has_key: true
        }
    );
    assert_eq!(
        Mirror::summary(folder.path(), SOURCE_URL, "/no/such"),
        MirrorSummary {
            entries: 500,
            has_key: false
        }
    );
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let full = MirrorSummary {
        entries: usize::MAX,
        has_key: true,
    };
    assert_eq!(Mirror::summary(folder.path(), SOURCE_URL, saved), full);
    assert!(
        Mirror::recall(folder.path(), SOURCE_URL).is_err(),
        "what is damaged is not trusted"
    );
}
