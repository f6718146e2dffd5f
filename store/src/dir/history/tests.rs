use futures::FutureExt;

use super::*;
use crate::{Change, Entry};

fn put(key: &str) -> Change {
    Change::Put(Entry {
        key: key.to_owned(),
        value: "x".into(),
        create_revision: 1,
        mod_revision: 1,
    })
}

fn changed(revision: i64, keys: &[&str]) -> WatchEvent {
    WatchEvent::Changed(Batch {
        revision,
        changes: keys.iter().map(|key| put(key)).collect(),
    })
}

/// The events of a watch that are ready.
fn ready(watch: &mut WatchStream) -> Vec<Result<WatchEvent, StoreError>> {
    std::iter::from_fn(|| watch.next().now_or_never().flatten()).collect()
}

#[test]
fn watch_gets_missed_changes_before_new_ones() {
    let mut history = History::after(5);
    history.push(6, changed(6, &["/a/1"]));
    history.push(7, WatchEvent::Problems(Vec::new()));
    history.push(8, changed(8, &["/a/2"]));
    let mut watch = history.watch("/a/".to_owned(), 6, 8).unwrap();
    history.push(9, changed(9, &["/a/3"]));
    let seen: Vec<_> = ready(&mut watch).into_iter().map(Result::unwrap).collect();
    assert_eq!(
        seen,
        [
            WatchEvent::Problems(Vec::new()),
            changed(8, &["/a/2"]),
            changed(9, &["/a/3"])
        ]
    );
}

#[test]
fn watch_sees_only_its_prefix() {
    let mut history = History::after(0);
    let mut watch = history.watch("/a/".to_owned(), 0, 0).unwrap();
    history.push(1, changed(1, &["/a/1", "/b/1"]));
    history.push(2, changed(2, &["/b/2"]));
    let seen: Vec<_> = ready(&mut watch).into_iter().map(Result::unwrap).collect();
    assert_eq!(seen, [changed(1, &["/a/1"])]);
}

#[test]
fn forgotten_revision_is_compacted_and_unknown_one_rewound() {
    let mut history = History::after(0);
    let newest = i64::try_from(EVENT_CAPACITY).unwrap() + 1;
    for revision in 1..=newest {
        history.push(revision, changed(revision, &["/a"]));
    }
    assert!(history.watch(String::new(), 1, newest).is_ok());
    let error = history.watch(String::new(), 0, newest).err().unwrap();
    assert!(
        matches!(
            error,
            StoreError::Compacted {
                requested: 1,
                oldest: 2
            }
        ),
        "{error}"
    );
    let error = history
        .watch(String::new(), newest + 1, newest)
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::Rewound { .. }), "{error}");
}

#[test]
fn watch_that_is_too_slow_ends_with_compacted_error() {
    let mut history = History::after(0);
    let mut watch = history.watch(String::new(), 0, 0).unwrap();
    for revision in 1..=2 * i64::try_from(EVENT_CAPACITY).unwrap() {
        history.push(revision, changed(revision, &["/a"]));
    }
    let seen = ready(&mut watch);
    assert_eq!(seen.len(), 1, "the watch continued over a gap");
    assert!(
        matches!(seen[0], Err(StoreError::Compacted { .. })),
        "{seen:?}"
    );
}
