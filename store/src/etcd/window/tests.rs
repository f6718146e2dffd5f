use std::time::Duration;

use super::*;

fn put(key: &str, revision: i64, value: &str) -> PbEvent {
    let (create_revision, mod_revision) = (revision, revision);
    let kv = PbKeyValue {
        key: key.into(),
        value: value.into(),
        create_revision,
        mod_revision,
        version: 1,
        lease: 0,
    };
    PbEvent {
        r#type: 0,
        kv: Some(kv),
        prev_kv: None,
    }
}

/// The events `/2` to `/5`, each of its revision.
fn history() -> Vec<PbEvent> {
    (2..6)
        .map(|revision| put(&format!("/{revision}"), revision, "1"))
        .collect()
}

/// What is found if these were delivered, up to `reached`, and the history has those; `waited` is how long the reader has waited
/// when the replay ends.
fn found(
    delivered: &[PbEvent],
    reached: i64,
    history: &[PbEvent],
    waited: Option<Duration>,
) -> Result<Window, Inconsistency> {
    let mut window = Window::after(1);
    for event in delivered {
        window.add(event);
    }
    window.advance(reached);
    let now = Instant::now();
    if let Some(waited) = waited {
        window.start_waiting(now - waited);
    }
    let mut replay = window.begin_replay();
    let compared = history
        .iter()
        .try_for_each(|event| window.compare(&mut replay, event));
    let compared = compared.and_then(|()| window.end_replay(replay, now - Duration::from_secs(5)));
    compared.map(|()| window).map_err(|error| match error {
        StoreError::Inconsistent { inconsistency, .. } => inconsistency,
        other => panic!("{other}"),
    })
}

const LONG: Option<Duration> = Some(Duration::from_secs(9));
const SHORT: Option<Duration> = Some(Duration::from_secs(3));

#[tokio::test(start_paused = true)]
async fn equal_changes_are_confirmed_and_forgotten() {
    tokio::time::advance(Duration::from_secs(60)).await;
    let all = history();
    let window = found(&all, 5, &all, LONG).unwrap();
    assert_eq!((window.since, window.changes.len()), (5, 0));
    // What follows them is compared later, and what is behind another change in one revision too.
    let window = found(&all[..2], 3, &all[..2], LONG).unwrap();
    assert_eq!(window.since, 3);
}

#[tokio::test(start_paused = true)]
async fn difference_from_the_history_is_found() {
    use Inconsistency::{Altered, Missed, NotInHistory};
    tokio::time::advance(Duration::from_secs(60)).await;
    let all = history();
    let lost_first = [&all[..1], &all[2..]].concat();
    let altered = [&all[..1], &[put("/3", 3, "2")], &all[2..]].concat();
    let mut deleted = all.clone();
    deleted[1].r#type = 1;
    for (delivered, reached, waited, expected) in [
        (&lost_first, 5, SHORT, Missed),
        (&all[..3].to_vec(), 5, SHORT, Missed),
        (&all[..3].to_vec(), 4, LONG, Missed),
        (&altered, 5, SHORT, Altered),
        (&deleted, 5, SHORT, Altered),
        (
            &[all.clone(), vec![put("/x", 4, "1")]].concat(),
            5,
            SHORT,
            NotInHistory,
        ),
    ] {
        assert_eq!(
            found(delivered, reached, &all, waited).err(),
            Some(expected),
            "{delivered:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_no_difference() {
    tokio::time::advance(Duration::from_secs(60)).await;
    let all = history();
    for waited in [None, SHORT] {
        let window = found(&all[..2], 3, &all, waited).expect("the reader may still get them");
        assert_eq!(window.since, 3, "they are compared the next time");
    }
}

#[tokio::test(start_paused = true)]
async fn change_that_no_replay_brings_is_found_by_the_second() {
    tokio::time::advance(Duration::from_secs(60)).await;
    let all = history();
    let mut window = found(&all, 5, &all[..2], LONG).expect("the replay may have been slow");
    assert_eq!(window.since, 3);
    let replay = window.begin_replay();
    assert!(!replay.is_complete());
    assert!(window.end_replay(replay, Instant::now()).is_err());
}

fn message(events: &[PbEvent]) -> PbWatchResponse {
    PbWatchResponse {
        events: events.to_vec(),
        ..PbWatchResponse::default()
    }
}

#[test]
fn lost_change_before_a_delivered_one_is_found_at_once() {
    let mut window = Window::after(1);
    window.advance(5);
    let mut replay = window.begin_replay();
    let response = message(&history());
    let found = window.read_replayed(&mut replay, Some(&response), Duration::ZERO);
    assert!(found.is_err(), "{found:?}");
}

#[test]
fn replay_ends_when_it_has_brought_what_was_delivered() {
    use ReplayStep::{Compare, Read, Skip};
    let all = history();
    let fragment = PbWatchResponse {
        fragment: true,
        ..message(&all)
    };
    let canceled = PbWatchResponse {
        canceled: true,
        ..message(&[])
    };
    let seconds = Duration::from_secs;
    for (response, elapsed, expected) in [
        (Some(message(&all)), seconds(1), Read),
        (Some(message(&all)), seconds(3), Compare),
        (Some(message(&all[..3])), seconds(3), Read),
        (Some(fragment), seconds(3), Read),
        (None, seconds(3), Read),
        (None, seconds(21), Compare),
        (Some(canceled), seconds(1), Skip),
    ] {
        let mut window = Window::after(1);
        for event in &all {
            window.add(event);
        }
        window.advance(5);
        let mut replay = window.begin_replay();
        let step = window.read_replayed(&mut replay, response.as_ref(), elapsed);
        assert_eq!(step.unwrap(), expected, "{response:?} {elapsed:?}");
        let is_skipped = expected == Skip;
        assert_eq!(
            window.changes.is_empty(),
            is_skipped,
            "they cannot be compared"
        );
        assert_eq!(window.since, if is_skipped { 5 } else { 1 });
    }
}

#[test]
fn too_many_changes_of_one_message_are_not_compared() {
    let limit = i64::try_from(MAX_CHANGES).unwrap();
    let mut window = Window::after(1);
    // The last two are of one revision.
    let changes: Vec<PbEvent> = (2..limit + 3)
        .map(|revision| put("/a", revision, "1"))
        .chain([put("/b", limit + 2, "1")])
        .collect();
    for change in &changes {
        window.add(change);
    }
    window.advance(limit + 2);
    let mut replay = window.begin_replay();
    let response = message(&changes[MAX_CHANGES - 5..]);
    let found = window.read_replayed(&mut replay, Some(&response), Duration::ZERO);
    assert!(found.is_ok(), "{found:?}");
    window.end_replay(replay, Instant::now()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn too_many_changes_are_not_compared() {
    let limit = i64::try_from(MAX_CHANGES).unwrap();
    let mut window = Window::after(1);
    for revision in 2..limit + 3 {
        window.add(&put("/a", revision, "1"));
        window.advance(revision);
    }
    assert_eq!(window.changes.len(), 0);
    assert_eq!(window.since, limit + 2, "nor is the last one of them");
}
