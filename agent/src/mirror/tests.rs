use std::collections::BTreeSet;

use contiv_store::{Batch, Change, Entry, MirrorSummary, PackedEntries, Saved};

use super::{messages::Replacement, pending::Pending, *};

/// Short, so that tests do not wait for it.
const RETRY: Duration = Duration::from_millis(50);

fn entry(key: &str, value: &str, revision: i64) -> Entry {
    let value = value.to_owned().into();
    Entry {
        key: key.to_owned(),
        value,
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

struct RunningMirror {
    handle: MirrorHandle,
    ended: oneshot::Receiver<()>,
    reports: mpsc::Receiver<MirrorReport>,
}

fn start(folder: &std::path::Path) -> RunningMirror {
    let (sender, reports) = mpsc::channel(16);
    let (handle, ended) = MirrorHandle::start(
        folder.to_owned(),
        "dir:/x".to_owned(),
        "/a".to_owned(),
        sender,
        RETRY,
        watch::channel(None).1,
    )
    .unwrap();
    RunningMirror {
        handle,
        ended,
        reports,
    }
}

impl MirrorHandle {
    fn replace(&mut self, revision: i64, page: Vec<Entry>, keep: BTreeSet<String>) {
        let mut entries = PackedEntries::default();
        entries.add(page);
        self.save(Saving::List {
            revision,
            entries,
            keep,
        });
    }

    fn apply(&mut self, batch: Batch) {
        self.save(Saving::Apply {
            batch,
            deviating: BTreeSet::new(),
        });
    }
}

impl RunningMirror {
    async fn load(&mut self) -> Option<Saved> {
        self.handle.load();
        loop {
            if let MirrorReport::Loaded(saved) = self.reports.recv().await.unwrap() {
                return saved;
            }
        }
    }
}

async fn wait_until_failed(reports: &mut mpsc::Receiver<MirrorReport>) -> String {
    loop {
        match reports.recv().await.unwrap() {
            MirrorReport::Failed(reason) => return reason,
            MirrorReport::Summary(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn values(saved: &Saved) -> Vec<(&str, &[u8])> {
    saved
        .entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.as_ref()))
        .collect()
}

#[tokio::test]
async fn mirror_dropped_writes_everything_for_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut started = start(folder.path());
    assert_eq!(started.load().await, None);
    // Reports must be taken, or nothing more is written.
    let RunningMirror {
        mut handle,
        ended,
        reports: _reports,
    } = started;
    handle.replace(
        3,
        vec![entry("/a", "1", 2), entry("/b", "1", 3)],
        BTreeSet::new(),
    );
    for revision in 4..40 {
        handle.apply(put("/a", &revision.to_string(), revision));
    }
    handle.apply(Batch {
        revision: 40,
        changes: vec![Change::Delete {
            key: "/b".to_owned(),
        }],
    });
    drop(handle);
    ended.await.unwrap();

    let saved = start(folder.path()).load().await.unwrap();
    assert_eq!(
        (saved.revision, values(&saved)),
        (40, vec![("/a", b"39".as_slice())])
    );
}

#[tokio::test]
async fn mirror_that_has_ended_can_be_opened_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for revision in 1..=20 {
        let RunningMirror {
            mut handle,
            ended,
            reports: _reports,
        } = start(folder.path());
        let entries = (0..200)
            .map(|number| entry(&format!("/{number:03}"), &"x".repeat(4096), revision))
            .collect();
        handle.replace(revision, entries, BTreeSet::new());
        drop(handle);
        ended.await.unwrap();
        let (mirror, quarantined) = Mirror::open(folder.path(), "dir:/x").unwrap();
        assert!(quarantined.is_none());
        assert_eq!(mirror.load().unwrap().unwrap().revision, revision);
    }
}

#[tokio::test]
async fn list_after_a_kill_replaces_what_was_only_logged() {
    let folder = tempfile::tempdir().unwrap();
    // The log of a process that was killed before its list was in the database.
    let mut log = Log::begin(folder.path(), "dir:/x", Mirror::prepare_log(folder.path()));
    let logged = vec![entry("/a", "1", 2), entry("/b", "1", 2)];
    log.append_list(3, logged, &BTreeSet::new()).1.unwrap();
    drop(log);
    for (revision, keep, expected) in [
        (4, None, vec![("/c", b"4".as_slice())]),
        (5, Some("/c"), vec![("/c", b"4"), ("/d", b"5")]),
    ] {
        let RunningMirror {
            mut handle,
            ended,
            reports: _reports,
        } = start(folder.path());
        let (key, value) = (
            if keep.is_some() { "/d" } else { "/c" },
            revision.to_string(),
        );
        let keep = keep.into_iter().map(str::to_owned).collect();
        handle.replace(revision, vec![entry(key, &value, revision)], keep);
        drop(handle);
        ended.await.unwrap();
        let saved = start(folder.path()).load().await.unwrap();
        assert_eq!((saved.revision, values(&saved)), (revision, expected));
    }
}

#[tokio::test]
async fn list_after_unsaved_list_keeps_its_kept_keys() {
    let folder = tempfile::tempdir().unwrap();
    let RunningMirror {
        mut handle,
        ended,
        reports: _reports,
    } = start(folder.path());
    handle.replace(3, vec![entry("/a", "1", 2)], BTreeSet::new());
    handle.replace(
        4,
        vec![entry("/b", "1", 4)],
        BTreeSet::from(["/a".to_owned()]),
    );
    drop(handle);
    ended.await.unwrap();
    let saved = start(folder.path()).load().await.unwrap();
    assert_eq!(
        (saved.revision, values(&saved)),
        (4, vec![("/a", b"1".as_slice()), ("/b", b"1")])
    );
}

async fn wait_until_caught_up(reports: &mut mpsc::Receiver<MirrorReport>) {
    while !matches!(reports.recv().await.unwrap(), MirrorReport::CaughtUp) {}
}

#[tokio::test]
async fn unwritable_folder_is_reported_and_the_agent_continues() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let RunningMirror {
        mut handle,
        mut reports,
        ended,
    } = start(&missing);
    handle.replace(3, vec![entry("/a", "1", 2)], BTreeSet::new());
    let reason = wait_until_failed(&mut reports).await;
    assert!(
        reason.contains("log in") && reason.contains("missing: No such file"),
        "{reason}"
    );
    std::fs::create_dir(&missing).unwrap();
    handle.apply(put("/a", "2", 4));
    wait_until_caught_up(&mut reports).await;
    handle.replace(4, vec![entry("/a", "2", 4)], BTreeSet::new());
    drop(handle);
    ended.await.unwrap();
    let saved = start(&missing).load().await.unwrap();
    assert_eq!(
        (saved.revision, values(&saved)),
        (4, vec![("/a", b"2".as_slice())])
    );
}

#[tokio::test]
async fn mirror_after_write_failure_asks_for_the_whole_state() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let RunningMirror {
        mut handle,
        mut reports,
        ended,
    } = start(&missing);
    handle.replace(3, vec![entry("/a", "1", 2)], BTreeSet::new());
    wait_until_failed(&mut reports).await;
    std::fs::create_dir(&missing).unwrap();
    wait_until_caught_up(&mut reports).await;
    drop(handle);
    ended.await.unwrap();
}

#[tokio::test]
async fn stop_after_a_failure_keeps_the_older_mirror() {
    let folder = tempfile::tempdir().unwrap();
    let (there, away) = (folder.path().join("there"), folder.path().join("away"));
    std::fs::create_dir(&there).unwrap();
    let RunningMirror {
        mut handle, ended, ..
    } = start(&there);
    handle.replace(
        3,
        vec![entry("/a", "1", 2), entry("/b", "1", 3)],
        BTreeSet::new(),
    );
    drop(handle);
    ended.await.unwrap();

    std::fs::rename(&there, &away).unwrap();
    let RunningMirror {
        mut handle,
        ended,
        mut reports,
    } = start(&there);
    handle.apply(put("/a", "2", 4));
    wait_until_failed(&mut reports).await;
    std::fs::rename(&away, &there).unwrap();
    // Without the preceding change it is a state that never existed.
    handle.apply(put("/b", "2", 5));
    wait_until_caught_up(&mut reports).await;
    handle.apply(put("/b", "3", 6));
    drop(handle);
    ended.await.unwrap();

    let saved = start(&there).load().await.unwrap();
    assert_eq!(
        (saved.revision, values(&saved)),
        (3, vec![("/a", b"1".as_slice()), ("/b", b"1")])
    );
}

#[test]
fn mirror_writes_a_key_once_and_a_list_replaces_pending_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (mut mirror, _) = Mirror::open(folder.path(), "dir:/x").unwrap();
    let mut pending = Pending::default();
    pending.apply(1, put("/gone", "1", 1), BTreeSet::new());
    let mut log = Log::begin(folder.path(), "dir:/x", Some(1));
    let entries = log
        .append_list(2, vec![entry("/a", "1", 2)], &BTreeSet::new())
        .1
        .unwrap();
    pending.replace(Replacement {
        number: 2,
        revision: 2,
        entries,
        keep: BTreeSet::new(),
    });
    pending.apply(3, put("/a", "2", 3), BTreeSet::new());
    pending.apply(4, put("/a", "3", 4), BTreeSet::new());
    assert!(!pending.is_empty());
    pending.write(&mut mirror).unwrap();
    let saved = mirror.load().unwrap().unwrap();
    assert_eq!(
        (saved.revision, values(&saved)),
        (4, vec![("/a", b"3".as_slice())])
    );
}

#[tokio::test]
async fn mirror_that_cannot_be_written_is_restored_from_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("mirror.redb");
    std::fs::create_dir(&database).unwrap();
    let RunningMirror {
        mut handle,
        mut reports,
        ended,
    } = start(folder.path());
    handle.replace(
        3,
        vec![entry("/a", "1", 2), entry("/b", "1", 3)],
        BTreeSet::new(),
    );
    handle.apply(put("/a", "2", 4));
    handle.apply(Batch {
        revision: 5,
        changes: vec![],
    });
    handle.apply(put("/a", "3", 6));
    wait_until_failed(&mut reports).await;
    // The writer drops this one, as it has missed others.
    handle.apply(put("/b", "2", 7));
    drop(handle);
    ended.await.unwrap();

    std::fs::remove_dir(&database).unwrap();
    let mut started = start(folder.path());
    let Some(MirrorReport::Summary(summary)) = started.reports.recv().await else {
        panic!()
    };
    assert_eq!(
        summary,
        MirrorSummary {
            entries: 5,
            has_key: true
        }
    );
    let saved = started.load().await.unwrap();
    assert_eq!(
        (saved.revision, values(&saved)),
        (7, vec![("/a", b"3".as_slice()), ("/b", b"2")])
    );
    // This process continues the log, and removes it when it ends.
    let RunningMirror {
        mut handle,
        ended,
        reports: _reports,
    } = started;
    handle.apply(put("/b", "3", 8));
    drop(handle);
    ended.await.unwrap();
    let names: Vec<_> = folder
        .path()
        .read_dir()
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(names, ["mirror.redb"]);
    let saved = start(folder.path()).load().await.unwrap();
    assert_eq!(
        (saved.revision, values(&saved)),
        (8, vec![("/a", b"3".as_slice()), ("/b", b"3")])
    );
}
