use super::*;

fn path(name: &str) -> PathBuf {
    PathBuf::from(name)
}

/// The plan as text.
fn words(work: &ReadPlan) -> Vec<String> {
    let complete = work.complete.iter().map(|path| format!("read {}", path.display()));
    let overdue = work.overdue.iter().map(|path| format!("check {}", path.display()));
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
        (vec![Written(path("a")), Complete(path("a"))], vec!["read a"], vec![]),
        (vec![Created(path("a")), Written(path("a"))], vec![], vec![]),
        (vec![Created(path("a")), Complete(path("a"))], vec!["read a"], vec![]),
        // A hard link: it is never closed.
        (vec![Created(path("a"))], vec![], vec!["check a"]),
        (vec![MetadataChanged(path("a"))], vec!["read a"], vec![]),
        (vec![Written(path("a")), MetadataChanged(path("a"))], vec![], vec![]),
    ] {
        let found = work(&signals);
        assert_eq!(found.0, at_once, "{signals:?}");
        assert_eq!(
            found.1,
            if later.is_empty() { none.clone() } else { vec!["check a".to_owned()] },
            "{signals:?}"
        );
    }
}

#[test]
fn removed_file_is_checked_after_the_grace_time() {
    let gone = Signal::Removed(path("a"));
    assert_eq!(work(std::slice::from_ref(&gone)), (vec![], vec!["check a".to_owned()]));
    assert_eq!(work(&[gone.clone(), Signal::Complete(path("a"))]), (vec!["read a".to_owned()], vec![]));
    // vim: the new file exists, and is still being written when the grace time ends.
    let slow = [gone, Signal::Created(path("a")), Signal::Written(path("a"))];
    assert_eq!(work(&slow), (vec![], vec![]));
}

#[test]
fn renamed_file_is_read_and_its_old_name_checked_in_one_go() {
    let renamed = Signal::Renamed { from: path("a"), to: path("b") };
    assert_eq!(work(&[renamed]).0, ["read b", "check a"]);
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
