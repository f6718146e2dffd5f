use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};
use redb::ReadableTable;

use super::*;
use crate::{Change, Mirror, MirrorSummary, Saved, mirror::STATE};

const SOURCE: &str = "etcd://127.0.0.1:2379";

fn entry(key: &str, value: &str, revision: i64) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.to_owned().into(),
        create_revision: 1,
        mod_revision: revision,
    }
}

fn put(key: &str, value: &str, revision: i64) -> Batch {
    Batch {
        revision,
        changes: vec![Change::Put(entry(key, value, revision))],
    }
}

fn log(folder: &Path) -> Log {
    Log::begin(folder, SOURCE, Mirror::prepare_log(folder))
}

/// Writes a list that keeps nothing.
fn list(log: &mut Log, revision: i64, entries: &[Entry]) -> u64 {
    let (number, list) = log.append_list(revision, entries.to_vec(), &BTreeSet::new());
    list.unwrap();
    number
}

fn change(log: &mut Log, batch: &Batch) -> u64 {
    let (number, written) = log.append(batch, &BTreeSet::new());
    written.unwrap();
    number
}

fn saved(folder: &Path) -> Option<Saved> {
    let (mirror, quarantined) = Mirror::open(folder, SOURCE).unwrap();
    assert_eq!(quarantined, None);
    mirror.load().unwrap()
}

#[test]
fn log_of_a_killed_process_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = log(folder.path());
    list(&mut killed, 3, &[entry("/a", "1", 2), entry("/b", "1", 3)]);
    change(&mut killed, &put("/a", "2", 4));
    let gone = Batch {
        revision: 5,
        changes: vec![Change::Delete {
            key: "/b".to_owned(),
        }],
    };
    let last = change(&mut killed, &gone);
    drop(killed);
    // It counts for the summary, and can be recalled, without a database.
    let path = folder.path();
    assert_eq!(
        Mirror::summary(path, SOURCE, "/b"),
        MirrorSummary {
            entries: 3,
            has_key: true
        }
    );
    assert!(!Mirror::summary(path, SOURCE, "/c").has_key);
    let expected = Some(Saved {
        revision: 5,
        entries: vec![entry("/a", "2", 4)],
    });
    assert_eq!(Mirror::recall(path, SOURCE).unwrap(), expected);
    for _ in 0..2 {
        assert_eq!(saved(path), expected);
        assert_eq!(
            Mirror::summary(path, SOURCE, "/b"),
            MirrorSummary {
                entries: 1,
                has_key: false
            }
        );
    }
    assert_eq!(log(path).next(), last + 1);
    remove_until(path, last);
    assert_eq!(segments(path), []);
    assert_eq!(log(path).next(), last + 1);
}

#[test]
fn list_in_the_log_replaces_what_the_summary_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let summary = |key| {
        let MirrorSummary { entries, has_key } = Mirror::summary(path, SOURCE, key);
        (entries, has_key)
    };
    let mut killed = log(path);
    list(
        &mut killed,
        3,
        &[
            entry("/a", "1", 2),
            entry("/b", "1", 3),
            entry("/c", "1", 3),
        ],
    );
    saved(path);
    assert_eq!((summary("/a"), summary("/d")), ((3, true), (3, false)));
    change(&mut killed, &put("/a", "2", 4));
    assert_eq!(
        summary("/d"),
        (4, false),
        "a changed value may be a new one"
    );
    // The list of a process that was killed before the database had it.
    let (number, written) = killed.append_list(
        5,
        vec![entry("/a", "1", 2), entry("/d", "1", 5)],
        &BTreeSet::from(["/c".into()]),
    );
    written.unwrap();
    change(&mut killed, &put("/e", "1", 6));
    drop(killed);
    assert_eq!(
        ["/b", "/c", "/d", "/e"].map(summary),
        [(4, false), (4, true), (4, true), (4, true)]
    );
    assert_eq!(
        Mirror::summary(path, "dir:/elsewhere", "/d"),
        MirrorSummary {
            entries: 3,
            has_key: false
        }
    );
    // A truncated list has no effect; the change after it is counted in any case.
    let file = OpenOptions::new()
        .write(true)
        .open(path_of(path, number))
        .unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    assert_eq!(["/b", "/d"].map(summary), [(5, true), (5, false)]);
}

#[test]
fn log_of_changes_alone_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    change(&mut log(folder.path()), &put("/a", "1", 1));
    assert_eq!(saved(folder.path()), None);
}

#[test]
fn log_of_another_store_is_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    list(&mut log(folder.path()), 3, &[entry("/a", "1", 3)]);
    let (mirror, _) = Mirror::open(folder.path(), "dir:/elsewhere").unwrap();
    assert_eq!(mirror.load().unwrap(), None);
}

#[test]
fn truncated_list_keeps_the_earlier_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = log(folder.path());
    list(&mut killed, 3, &[entry("/a", "1", 3), entry("/b", "1", 3)]);
    change(&mut killed, &put("/b", "2", 4));
    let number = list(&mut killed, 5, &[entry("/a", "5", 5), entry("/b", "5", 5)]);
    change(&mut killed, &put("/a", "6", 6));
    let path = path_of(folder.path(), number);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 20).unwrap();
    let entries = vec![entry("/a", "1", 3), entry("/b", "2", 4)];
    assert_eq!(
        saved(folder.path()),
        Some(Saved {
            revision: 4,
            entries
        })
    );
}

#[test]
fn list_is_read_back_as_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let entries = vec![
        entry("", "", i64::MAX),
        entry("/a", &"7".repeat(2 * PIECE_BYTES), 2),
        entry("/\u{e9}", "0", 3),
    ];
    let (number, list) =
        log(folder.path()).append_list(3, entries.clone(), &BTreeSet::from(["/kept".to_owned()]));
    assert_eq!(
        list.unwrap()
            .into_entries()
            .collect::<io::Result<Vec<_>>>()
            .unwrap(),
        entries
    );
    let path = path_of(folder.path(), number);
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(200)
        .unwrap();
    let entries = List::open(&path).unwrap().into_entries();
    assert_eq!(
        entries.filter(Result::is_err).count(),
        1,
        "half a list is an error and not the end"
    );
}

#[test]
fn log_is_of_no_use_after_a_version_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = log(folder.path());
    list(&mut before, 3, &[entry("/a", "1", 3)]);
    assert!(saved(folder.path()).is_some());
    change(&mut before, &put("/a", "2", 4));
    // It does not write numbers, and neither reads nor removes segments.
    let (mirror, _) = Mirror::open_before(folder.path(), SOURCE, 0).unwrap();
    let transaction = mirror.database.begin_write().unwrap();
    let mut state = transaction.open_table(STATE).unwrap();
    let (format, _, count, total) = state.get("mirror").unwrap().unwrap().value();
    state.insert("mirror", (format, 9, count, total)).unwrap();
    drop(state);
    transaction.commit().unwrap();
    drop(mirror);
    assert_eq!(saved(folder.path()).unwrap().revision, 9);
    let mut after = log(folder.path());
    assert_eq!(segments(folder.path()), []);
    change(&mut after, &put("/a", "3", 10));
    let entries = vec![entry("/a", "3", 10)];
    assert_eq!(
        saved(folder.path()),
        Some(Saved {
            revision: 10,
            entries
        })
    );
}

#[test]
fn lists_in_a_row_stay_until_the_mirror_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = log(folder.path());
    for revision in 1..4 {
        list(
            &mut log,
            revision,
            &[entry("/a", "1", 1), entry("/b", "1", 1)],
        );
    }
    let keep = BTreeSet::from(["/b".to_owned()]);
    log.append_list(4, vec![], &keep).1.unwrap();
    drop(log);
    assert_eq!(
        saved(folder.path()),
        Some(Saved {
            revision: 4,
            entries: vec![entry("/b", "1", 1)]
        })
    );
}

#[test]
fn value_kept_by_several_lists_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = log(folder.path());
    list(&mut log, 1, &[entry("/a", "1", 1)]);
    let keep = BTreeSet::from(["/a".to_owned()]);
    for revision in 2..4 {
        log.append_list(revision, vec![], &keep).1.unwrap();
    }
    drop(log);
    assert_eq!(
        saved(folder.path()),
        Some(Saved {
            revision: 3,
            entries: vec![entry("/a", "1", 1)]
        })
    );
}

#[test]
fn log_is_bounded_until_the_mirror_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = log(folder.path());
    let large = put("/a", &"x".repeat(1 << 20), 2);
    let lists = |log: &Log| log.closed.iter().filter(|segment| segment.is_list).count();
    for revision in 0..5 {
        list(&mut log, revision, &[]);
    }
    assert_eq!(lists(&log), 2, "each replaces what is before it");
    let keep = BTreeSet::from(["/a".to_owned()]);
    let mut keeping = (5..20).map(|revision| log.append_list(revision, vec![], &keep).1);
    let error = keeping.find_map(Result::err).expect("a limit");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(lists(&log), 1 + MAX_KEEPING_LISTS);
    list(&mut log, 20, &[]);
    assert_eq!(lists(&log), 2 + MAX_KEEPING_LISTS);
    log.append_list(21, vec![], &keep).1.unwrap();
    assert_eq!(lists(&log), 2);
    let mut written = (0..100).map(|_| log.append(&large, &BTreeSet::new()));
    let full = written.find_map(|(number, written)| written.err().map(|error| (number, error)));
    let (number, error) = full.expect("a limit");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let bytes: u64 = segments(folder.path())
        .iter()
        .map(|(_, path)| path.metadata().unwrap().len())
        .sum();
    assert!(bytes <= MAX_CHANGES_BYTES + 2 * SEGMENT_BYTES, "{bytes}");
    assert!(log.append(&large, &BTreeSet::new()).1.is_err());
    // The mirror has been written.
    log.set_saved(number + 1);
    change(&mut log, &large);
    remove_saved(folder.path(), number + 1);
    assert_eq!(segments(folder.path()).len(), 1);
}

/// The content after a record.
type State = (i64, BTreeMap<String, Entry>);

#[derive(Debug, Clone)]
enum Step {
    Changes(Vec<(String, bool)>),
    List {
        keys: BTreeSet<String>,
        keep: BTreeSet<String>,
    },
    /// A record that could not be written.
    Lost,
    /// The mirror is written.
    Save,
    /// The process is killed; after a power cut the end of the log is missing too.
    Kill {
        power_cut: Option<prop::sample::Index>,
    },
}

fn steps() -> impl Strategy<Value = Step> {
    let key = || "/[a-f]";
    let keys = || proptest::collection::btree_set(key(), 0..5);
    prop_oneof![
        6 => vec((key(), any::<bool>()), 0..3).prop_map(Step::Changes),
        2 => (keys(), keys()).prop_map(|(keys, keep)| Step::List { keys, keep }),
        1 => Just(Step::Lost),
        2 => Just(Step::Save),
        2 => proptest::option::of(any::<prop::sample::Index>()).prop_map(|power_cut| Step::Kill { power_cut }),
    ]
}

/// A log and a mirror, and their expected content.
struct Run {
    folder: tempfile::TempDir,
    log: Log,
    mirror: Mirror,
    revision: i64,
    /// The state of the store, and the states after each unsaved record: with its number, whether it is a list, and none if it
    /// is lost.
    state: State,
    unsaved: Vec<(u64, bool, Option<State>)>,
    saved: State,
}

impl Run {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mut mirror, _) = Mirror::open(folder.path(), SOURCE).unwrap();
        mirror.replace(0, [], &BTreeSet::new()).unwrap();
        drop(mirror);
        let log = log(folder.path());
        let (mirror, _) = Mirror::open(folder.path(), SOURCE).unwrap();
        let (unsaved, state) = (Vec::new(), State::default());
        Self {
            folder,
            log,
            mirror,
            revision: 0,
            saved: state.clone(),
            state,
            unsaved,
        }
    }

    fn has_gap(&self) -> bool {
        self.unsaved.iter().any(|(.., state)| state.is_none())
    }

    fn apply(&mut self, step: Step) {
        self.revision += 1;
        let revision = self.revision;
        match step {
            Step::Changes(changes) => {
                self.state.0 = revision;
                let mut batch = Batch {
                    revision,
                    changes: Vec::new(),
                };
                for (key, is_put) in changes {
                    if is_put {
                        let entry = entry(&key, &revision.to_string(), revision);
                        self.state.1.insert(key, entry.clone());
                        batch.changes.push(Change::Put(entry));
                    } else {
                        self.state.1.remove(&key);
                        batch.changes.push(Change::Delete { key });
                    }
                }
                let number = change(&mut self.log, &batch);
                self.unsaved.push((number, false, Some(self.state.clone())));
            }
            Step::List { keys, mut keep } => {
                if self.has_gap() {
                    // The kept values would be those before the gap.
                    keep.clear();
                }
                let entries: Vec<Entry> = keys
                    .iter()
                    .map(|key| entry(key, &revision.to_string(), revision))
                    .collect();
                self.state
                    .1
                    .retain(|key, _| keep.contains(key) && !keys.contains(key));
                self.state.1.extend(
                    entries
                        .iter()
                        .map(|entry| (entry.key.clone(), entry.clone())),
                );
                self.state.0 = revision;
                let (number, list) = self.log.append_list(revision, entries.clone(), &keep);
                let state = match list {
                    Ok(list) => {
                        let written = list.into_entries().collect::<io::Result<Vec<_>>>();
                        assert_eq!(written.unwrap(), entries);
                        Some(self.state.clone())
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::StorageFull);
                        None
                    }
                };
                self.unsaved.push((number, true, state));
            }
            Step::Lost => {
                let number = self.log.take_number();
                self.log.close();
                self.unsaved.push((number, false, None));
            }
            Step::Save => {
                let Some((number, ..)) = self.unsaved.last() else {
                    return;
                };
                self.mirror.set_last_record(*number);
                let entries = self.state.1.values().cloned().map(Ok);
                self.mirror
                    .replace(self.state.0, entries, &BTreeSet::new())
                    .unwrap();
                self.log.set_saved(*number);
                remove_saved(self.folder.path(), *number);
                self.unsaved.clear();
                self.saved = self.state.clone();
            }
            Step::Kill { power_cut } => self.kill(power_cut),
        }
    }

    fn kill(&mut self, power_cut: Option<prop::sample::Index>) {
        let folder = self.folder.path();
        let newest = segments(folder).pop();
        if let Some((at, (_, path))) = power_cut.zip(newest) {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
            file.set_len(at.index(length + 1) as u64).unwrap();
        }
        // The possible results of the replay, in order; without a power cut it is the last one.
        let (mut possible, mut has_gap) = (vec![self.saved.clone()], false);
        for (_, is_list, state) in self.unsaved.drain(..) {
            has_gap = (has_gap && !is_list) || state.is_none();
            if !has_gap {
                possible.extend(state);
            }
        }
        // An open database is locked.
        let (other, _) = Mirror::open(tempfile::tempdir().unwrap().path(), SOURCE).unwrap();
        drop(std::mem::replace(&mut self.mirror, other));
        let recalled = Mirror::recall(folder, SOURCE).unwrap().unwrap();
        self.log = log(folder);
        self.mirror = Mirror::open_before(folder, SOURCE, self.log.next())
            .unwrap()
            .0;
        let found = self.mirror.load().unwrap().unwrap();
        assert_eq!(found, recalled);
        let is_found = |(revision, entries): &&State| {
            *revision == found.revision && entries.values().eq(&found.entries)
        };
        let state = possible
            .iter()
            .rev()
            .find(is_found)
            .unwrap_or_else(|| panic!("{found:?} of {possible:?}"));
        assert!(
            power_cut.is_some() || Some(state) == possible.last(),
            "{found:?} of {possible:?}"
        );
        (self.saved, self.state) = (state.clone(), state.clone());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn replayed_log_has_the_last_state_of_the_store(steps in vec(steps(), 1..24)) {
        let mut run = Run::new();
        for step in steps {
            run.apply(step);
        }
        run.kill(None);
    }
}
