//! A mirror whose writer is killed at any time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use contiv_store::{Change, Entry, Mirror};
use rand::{RngExt, SeedableRng, rngs::StdRng};

const NAME: &str = "mirror_of_a_killed_writer_has_one_revision";
/// The folder of the killed process.
const FOLDER: &str = "CONTIV_TEST_MIRROR";
const SOURCE: &str = "etcd://127.0.0.1:2379";
const KEYS: i64 = 50;
const KILLS: usize = 50;

/// The entry written at a revision: one key each.
fn written_at(revision: i64) -> Entry {
    let value = format!("{revision} {}", "x".repeat(500)).into();
    Entry {
        key: format!("/{:02}", revision % KEYS),
        value,
        create_revision: 1,
        mod_revision: revision,
    }
}

/// The content at a revision.
fn all_at(revision: i64) -> Vec<Entry> {
    let first = (revision - KEYS + 1).max(1);
    let entries: BTreeMap<String, Entry> = (first..=revision)
        .map(written_at)
        .map(|entry| (entry.key.clone(), entry))
        .collect();
    entries.into_values().collect()
}

/// Writes each revision, as a change or as a whole list, until the process is killed.
fn write_for_ever(folder: &Path) {
    let (mut mirror, _) = Mirror::open(folder, SOURCE).unwrap();
    let saved = mirror.load().unwrap().map_or(0, |saved| saved.revision);
    std::io::stderr().write_all(b".").unwrap();
    for revision in saved + 1.. {
        if revision % 5 == 0 {
            mirror
                .replace(
                    revision,
                    all_at(revision).into_iter().map(Ok),
                    &BTreeSet::new(),
                )
                .unwrap();
        } else {
            mirror
                .apply(
                    revision,
                    &[Change::Put(written_at(revision))],
                    &BTreeSet::new(),
                )
                .unwrap();
        }
    }
}

#[test]
fn mirror_of_a_killed_writer_has_one_revision() {
    if let Some(folder) = env::var_os(FOLDER) {
        return write_for_ever(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(7);
    let (mut last, mut rounds_with_progress) = (0, 0);
    for round in 0..KILLS {
        let mut writer = Command::new(env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Mostly while it writes, and sometimes while it opens the file.
        if round % 4 > 0 {
            let (errors, mut first) = (writer.stderr.as_mut().unwrap(), [0]);
            errors.read_exact(&mut first).unwrap();
            if first != *b"." {
                let mut rest = String::new();
                errors.read_to_string(&mut rest).unwrap();
                panic!(
                    "round {round}: the writer failed: {}{rest}",
                    char::from(first[0])
                );
            }
        }
        thread::sleep(Duration::from_millis(random.random_range(1..20)));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let (mirror, quarantined) = Mirror::open(folder.path(), SOURCE).unwrap();
        // A file that is being created contains nothing that could be lost.
        assert!(
            quarantined.is_none() || last == 0,
            "round {round}: {quarantined:?}"
        );
        if let Some(saved) = mirror.load().unwrap() {
            assert!(saved.revision >= last, "round {round}");
            assert!(
                saved.entries == all_at(saved.revision),
                "round {round}, revision {}",
                saved.revision
            );
            rounds_with_progress += usize::from(saved.revision > last);
            last = saved.revision;
        }
    }
    assert!(
        rounds_with_progress > KILLS / 4,
        "{rounds_with_progress}: it was killed while it wrote"
    );
}
