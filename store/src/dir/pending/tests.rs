use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn path(name: &str) -> PathBuf {
    PathBuf::from(name)
}

/// The plan as text.
fn words(work: &ReadPlan) -> Vec<String> {
    let complete = work
        .complete
        .iter()
        .map(|path| format!("read {}", path.display()));
    let overdue = work
        .overdue
        .iter()
        .map(|path| format!("check {}", path.display()));
    let rescan = work.rescan.then(|| "rescan".to_owned());
    complete.chain(overdue).chain(rescan).collect()
}

/// The work immediately after some events, and after the grace time.
fn work(signals: &[Signal]) -> (Vec<String>, Vec<String>) {
    let now = Instant::now();
    let mut pending = Pending::default();
    for signal in signals {
        pending.note(signal.clone(), now);
    }
    let at_once = words(&pending.take(now));
    let later = words(&pending.take(now + REMOVAL_GRACE));
    assert_eq!(pending.deadline(now), None);
    (at_once, later)
}

#[test]
fn file_is_read_when_it_is_complete_and_not_before() {
    use Signal::{Complete, Created, MetadataChanged, Written};
    let none: Vec<String> = Vec::new();
    for (signals, at_once, later) in [
        (vec![Complete(path("a"))], vec!["read a"], vec![]),
        (vec![Written(path("a"))], vec![], vec![]),
        (
            vec![Written(path("a")), Complete(path("a"))],
            vec!["read a"],
            vec![],
        ),
        (vec![Created(path("a")), Written(path("a"))], vec![], vec![]),
        (
            vec![Created(path("a")), Complete(path("a"))],
            vec!["read a"],
            vec![],
        ),
        // A hard link: it is never closed.
        (vec![Created(path("a"))], vec![], vec!["check a"]),
        (vec![MetadataChanged(path("a"))], vec!["read a"], vec![]),
        (
            vec![Written(path("a")), MetadataChanged(path("a"))],
            vec![],
            vec![],
        ),
    ] {
        let found = work(&signals);
        assert_eq!(found.0, at_once, "{signals:?}");
        assert_eq!(
            found.1,
            if later.is_empty() {
                none.clone()
            } else {
                vec!["check a".to_owned()]
            },
            "{signals:?}"
        );
    }
}

#[test]
fn removed_file_is_checked_after_the_grace_time() {
    let gone = Signal::Removed(path("a"));
    assert_eq!(
        work(std::slice::from_ref(&gone)),
        (vec![], vec!["check a".to_owned()])
    );
    assert_eq!(
        work(&[gone.clone(), Signal::Complete(path("a"))]),
        (vec!["read a".to_owned()], vec![])
    );
    // vim: the new file exists, and is still being written when the grace time ends.
    let slow = [gone, Signal::Created(path("a")), Signal::Written(path("a"))];
    assert_eq!(work(&slow), (vec![], vec![]));
}

#[test]
fn renamed_file_is_read_and_its_old_name_checked_in_one_go() {
    let renamed = Signal::Renamed {
        from: path("a"),
        to: path("b"),
    };
    assert_eq!(work(&[renamed]).0, ["read b", "check a"]);
}

#[test]
fn file_removed_while_it_is_written_is_checked() {
    use Signal::{Complete, Created, Removed, Written};
    let check = vec!["check a".to_owned()];
    for begin in [
        vec![Written(path("a"))],
        vec![Created(path("a")), Written(path("a"))],
    ] {
        let removed: Vec<Signal> = begin.iter().cloned().chain([Removed(path("a"))]).collect();
        assert_eq!(work(&removed), (vec![], check.clone()), "{removed:?}");
        // Its writer closes what has no name any more: there is nothing to read, and its objects must go still.
        let mut closed = Pending::default();
        let now = Instant::now();
        for signal in removed.into_iter().chain([Complete(path("a"))]) {
            closed.note(signal, now);
        }
        assert_eq!(words(&closed.take(now)), ["read a"]);
        closed.note_missing(path("a"), now);
        assert_eq!(closed.deadline(now), Some(now + REMOVAL_GRACE));
        assert_eq!(words(&closed.take(now + REMOVAL_GRACE)), check);
    }
}

proptest! {
    /// What happened last to a file is never forgotten, whatever happened before and whenever plans were taken.
    #[test]
    fn last_event_of_file_leads_to_work(
        events in vec((select(&["a", "b"][..]), 0..5_u8, any::<bool>()), 1..12)
    ) {
        let mut now = Instant::now();
        let mut pending = Pending::default();
        // For each file whether it is open for writing, and the work that its last event has to lead to.
        let mut files: BTreeMap<&str, (bool, Option<String>)> = BTreeMap::new();
        let carry_out = |pending: &mut Pending, files: &mut BTreeMap<&str, (bool, Option<String>)>, now| {
            let done = words(&pending.take(now));
            for (_, awaited) in files.values_mut() {
                awaited.take_if(|awaited| done.contains(awaited));
            }
        };
        for (name, kind, takes) in events {
            let file = path(name);
            let (is_open, awaited) = files.entry(name).or_default();
            match kind {
                0 => pending.note(Signal::Created(file), now),
                1 => pending.note(Signal::Written(file), now),
                2 => pending.note(Signal::MetadataChanged(file), now),
                3 => pending.note(Signal::Complete(file), now),
                _ => pending.note(Signal::Removed(file), now),
            }
            *awaited = match kind {
                // Read when it is closed.
                1 => None,
                2 if *is_open => None,
                2 | 3 => Some(format!("read {name}")),
                // A new file is read when it is closed, or found by the check if it is a hard link.
                _ => Some(format!("check {name}")),
            };
            *is_open = kind < 2 || kind == 2 && *is_open;
            if takes {
                now += REMOVAL_GRACE / 2;
                carry_out(&mut pending, &mut files, now);
            }
        }
        for _ in 0..2 {
            now += REMOVAL_GRACE;
            carry_out(&mut pending, &mut files, now);
        }
        prop_assert!(files.values().all(|(_, awaited)| awaited.is_none()), "{:?}", files);
        prop_assert_eq!(pending.deadline(now), None);
    }
}

#[test]
fn file_removed_again_and_again_is_checked_after_the_first_grace_time() {
    let (now, half) = (Instant::now(), REMOVAL_GRACE / 2);
    let mut pending = Pending::default();
    pending.note(Signal::Removed(path("a")), now);
    pending.note(Signal::Removed(path("a")), now + half);
    assert_eq!(pending.deadline(now), Some(now + REMOVAL_GRACE));
    assert_eq!(words(&pending.take(now + REMOVAL_GRACE)), ["check a"]);
}

#[test]
fn file_being_written_moves_with_its_folder_or_is_forgotten() {
    let now = Instant::now();
    for (to, expected) in [
        (Some("to"), [false, true, true]),
        (None, [false, false, true]),
    ] {
        let mut pending = Pending::default();
        for name in ["from/a", "other/a"] {
            pending.note(Signal::Written(path(name)), now);
        }
        pending.move_folder(Path::new("from"), to.map(Path::new));
        let is_written =
            ["from/a", "to/a", "other/a"].map(|name| pending.is_being_written(&path(name)));
        assert_eq!(is_written, expected, "{to:?}");
    }
}

#[test]
fn changed_folders_cause_a_rescan() {
    let rescan = || vec!["rescan".to_owned()];
    assert_eq!(work(&[Signal::FoldersChanged]), (rescan(), vec![]));
    assert_eq!(work(&[Signal::FoldersMayHaveChanged]), (vec![], rescan()));
    assert_eq!(work(&[Signal::EventsLost]), (rescan(), vec![]));
}

#[test]
fn file_that_is_being_written_or_was_removed_is_not_read() {
    let now = Instant::now();
    let mut pending = Pending::default();
    pending.note(Signal::Written(path("open")), now);
    pending.note(Signal::Removed(path("gone")), now);
    for file in ["open", "gone"] {
        assert!(pending.must_not_be_read(&path(file)), "{file}");
    }
    assert!(!pending.must_not_be_read(&path("other")));
    // The close event may be lost with the queue.
    pending.note(Signal::EventsLost, now);
    assert!(!pending.must_not_be_read(&path("open")));
}
