//! A watch that lies once in ten thousand events, in simulated time: each lie is reported and healed within a minute.
//!
//! `CONTIV_LIE_EVENTS` sets the number of events, `CONTIV_FAULT_SEED` the seed.

mod simulated_etcd;
mod simulation;
mod tally;

use std::time::Duration;

use etcd_client::proto::{PbKeyValue, PbResponseHeader};

use super::{super::known::KnownPrefixes, *};
use simulation::Simulation;

/// Without `CONTIV_LIE_EVENTS`.
const EVENTS: u64 = 100_000;
/// One event in so many is a lie, in runs of a million events and more.
const EVENTS_PER_LIE: u64 = 10_000;
/// In shorter ones: on average a lie in 80 s.
const EVENTS_PER_LIE_IN_SHORT_RUNS: u64 = 800;

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().expect(name))
}

fn run(events_per_lie: Option<u64>) -> Simulation {
    let seed = number_from_env("CONTIV_FAULT_SEED", 1);
    println!("CONTIV_FAULT_SEED={seed}");
    let mut simulation = Simulation::new(seed, events_per_lie);
    simulation.run(number_from_env("CONTIV_LIE_EVENTS", EVENTS));
    println!("{}", simulation.tally);
    simulation
}

#[test]
fn lies_of_a_watch_are_reported_and_healed_within_a_minute() {
    let events = number_from_env("CONTIV_LIE_EVENTS", EVENTS);
    let events_per_lie = if events < 1_000_000 {
        EVENTS_PER_LIE_IN_SHORT_RUNS
    } else {
        EVENTS_PER_LIE
    };
    let simulation = run(Some(events_per_lie));
    simulation.expect_end_of_a_fresh_start();
    let tally = &simulation.tally;
    // Some wait for an event that suits them.
    assert!(tally.lies() >= events / events_per_lie * 9 / 10, "{tally}");
    assert_eq!(tally.replaced, 0, "it is no other store");
    if events_per_lie == EVENTS_PER_LIE {
        assert!(tally.extra_read_percentage() <= 1.0, "{tally}");
    }
}

#[test]
fn truthful_watch_is_never_reported() {
    let simulation = run(None);
    simulation.expect_end_of_a_fresh_start();
    let tally = &simulation.tally;
    assert_eq!((tally.reports(), tally.replaced), (0, 0), "{tally}");
    assert!(tally.extra_read_percentage() <= 1.0, "{tally}");
}

fn reader_at(revision: i64) -> WatchReader {
    WatchReader::new(
        KnownPrefixes::default().take("/", revision),
        Arc::new(KeyRanges::below("/")),
        revision,
    )
}

/// A message with the change of `/a` of this revision.
fn message(revision: i64) -> PbWatchResponse {
    let pair = PbKeyValue {
        key: b"/a".to_vec(),
        version: revision,
        create_revision: 1,
        mod_revision: revision,
        ..PbKeyValue::default()
    };
    let event = PbEvent {
        kv: Some(pair),
        ..PbEvent::default()
    };
    PbWatchResponse {
        events: vec![event],
        ..PbWatchResponse::default()
    }
}

/// What a message brings: its revision, and the number of changes.
fn read(reader: &mut WatchReader, message: PbWatchResponse) -> Option<(i64, usize)> {
    let batch = reader.read(message).unwrap();
    batch.map(|batch| (batch.revision, batch.changes.len()))
}

#[test]
fn fragments_are_delivered_together_without_known_changes() {
    let mut reader = reader_at(2);
    assert_eq!(read(&mut reader, message(2)), None, "the reader has it");
    let fragment = PbWatchResponse {
        fragment: true,
        ..message(3)
    };
    assert_eq!(read(&mut reader, fragment), None);
    assert_eq!(read(&mut reader, message(4)), Some((4, 2)));
    assert_eq!(read(&mut reader, message(5)), Some((5, 1)));
}

#[test]
fn progress_is_reported_to_the_watch_itself_only() {
    let mut reader = reader_at(2);
    let progress = |watch_id| PbWatchResponse {
        header: Some(PbResponseHeader {
            revision: 9,
            ..PbResponseHeader::default()
        }),
        watch_id,
        ..PbWatchResponse::default()
    };
    assert_eq!(read(&mut reader, progress(ALL_WATCHES)), None);
    assert_eq!(reader.revision(), 2);
    assert_eq!(read(&mut reader, progress(0)), Some((9, 0)));
    assert!(reader.read(message(8)).is_err(), "all up to 9 was sent");
}

/// A change that a reader at work has not read may be on its way.
#[test]
fn reader_at_work_is_no_difference() {
    let now = Instant::now();
    for is_waiting in [false, true] {
        let mut reader = reader_at(1);
        reader.start_waiting(now);
        reader.read(message(2)).unwrap();
        if is_waiting {
            reader.start_waiting(now);
        }
        let window = reader.window();
        let mut replay = window.lock().begin_replay();
        for revision in [2, 3] {
            let message = message(revision);
            let replayed = window
                .lock()
                .read_replayed(&mut replay, Some(&message), Duration::ZERO);
            replayed.unwrap();
        }
        let ended = window.lock().end_replay(replay, now);
        assert_eq!(ended.is_err(), is_waiting, "{ended:?}");
    }
}
