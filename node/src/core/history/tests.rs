use std::sync::LazyLock;

use contiv_renderer::Report;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The start, and so long after it.
fn after(seconds: u64) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START + Duration::from_secs(seconds)
}

fn record_at(second: i64, instant: Instant) -> NewRecord<'static> {
    NewRecord {
        kind: "change",
        description: String::new(),
        at: Timestamps::now(Now {
            instant,
            time: at(second),
            random: 0.0,
        }),
        revision: second,
        changes: None,
        renderers: vec!["a".into()],
    }
}

fn record(second: i64) -> NewRecord<'static> {
    record_at(second, after(0))
}

fn range(first: u64, last: u64) -> EventRange {
    let at = record(110).at;
    EventRange::one(first, at).union(EventRange::one(last, at))
}

const LARGE: HistoryLimits = HistoryLimits {
    events: 1000,
    age: Duration::from_secs(60),
    bytes: 1 << 20,
};

/// Events 1 to 10, one a second from second 101 on.
fn history(limit: usize) -> History {
    let mut history = History::new(HistoryLimits {
        events: limit,
        ..LARGE
    });
    for second in 101..=110 {
        history.push(record(second));
    }
    history
}

fn numbers(history: &History) -> Vec<u64> {
    history
        .records(after(0))
        .map(|record| record.seq_num)
        .collect()
}

#[test]
fn oldest_events_go_when_too_many_or_too_old() {
    let mut history = history(3);
    let numbers_at = |history: &History, now| -> Vec<u64> {
        history.records(now).map(|record| record.seq_num).collect()
    };
    assert_eq!(numbers_at(&history, after(0)), [8, 9, 10]);
    history.push(record_at(170, after(60)));
    assert_eq!(numbers_at(&history, after(60)), [9, 10, 11]);
    assert_eq!(numbers_at(&history, after(61)), [11]);
    assert_eq!(history.newest_seq_num(), 11);
}

#[test]
fn oldest_events_go_when_too_large_newest_stays() {
    let mut history = History::new(HistoryLimits {
        bytes: 10_000,
        ..LARGE
    });
    let of_size = |size| NewRecord {
        description: "x".repeat(size),
        ..record(110)
    };
    for _ in 0..20 {
        history.push(of_size(1000));
    }
    let kept = numbers(&history);
    assert!(
        (5..10).contains(&kept.len()) && kept.last() == Some(&20),
        "{kept:?}"
    );
    assert!(history.bytes <= 10_000);
    history.push(of_size(50_000));
    assert_eq!(numbers(&history), [21]);
    history.push(of_size(10));
    assert_eq!(numbers(&history), [22]);
    // Outcomes count too.
    let outcome = Outcome::Failed {
        at: at(110),
        error: "x".repeat(9_000),
        duration_ms: 1.0,
    };
    history.push(of_size(10));
    history.set_outcome(range(22, 23), "a", &outcome, true);
    assert_eq!(numbers(&history), [23]);
    let report = Report {
        notes: vec!["x".repeat(9_000)],
        ..Report::default()
    };
    let outcome = Outcome::Applied {
        first_seq_num: 24,
        at: at(110),
        report,
        duration_ms: 1.0,
        sent_after_ms: None,
    };
    history.push(of_size(10));
    history.push(of_size(10));
    history.set_outcome(range(24, 25), "a", &outcome, true);
    assert_eq!(numbers(&history), [25], "notes of reports count");
    let left: usize = history.records.iter().map(Record::size).sum();
    assert_eq!(history.bytes, left, "the size is right");
}

#[test]
fn history_as_large_as_its_limit_stays() {
    let mut history = History::new(LARGE);
    history.push(record(110));
    history.push(record(111));
    let bytes = history.bytes;
    for (limit, kept) in [(bytes, vec![1, 2]), (bytes - 1, vec![2])] {
        let mut history = History::new(HistoryLimits {
            bytes: limit,
            ..LARGE
        });
        history.push(record(110));
        history.push(record(111));
        assert_eq!(numbers(&history), kept, "of {limit} bytes");
    }
}

#[test]
fn size_of_outcome_is_that_of_its_texts() {
    let failed = |error: &str| Outcome::Failed {
        at: at(110),
        error: error.to_owned(),
        duration_ms: 1.0,
    };
    assert_eq!(failed("four").size(), failed("").size() + 4);
    let applied = |notes: &[&str]| {
        let report = Report {
            notes: notes.iter().map(|&note| note.to_owned()).collect(),
            ..Report::default()
        };
        Outcome::Applied {
            first_seq_num: 1,
            at: at(110),
            report,
            duration_ms: 1.0,
            sent_after_ms: None,
        }
    };
    let string = size_of::<String>();
    assert_eq!(
        applied(&["a", "four"]).size(),
        applied(&[]).size() + 2 * string + 5
    );
}

#[test]
fn outcome_goes_to_covered_events_with_work() {
    let mut history = history(100);
    let outcome = Outcome::Failed {
        at: at(110),
        error: "no".to_owned(),
        duration_ms: 1.0,
    };
    history.set_outcome(range(4, 5), "a", &outcome, true);
    history.set_outcome(range(6, 6), "b", &outcome, true);
    let with_outcome: Vec<u64> = history
        .records(after(0))
        .filter(|record| {
            record
                .renderers
                .values()
                .any(|outcome| *outcome != Outcome::Pending)
        })
        .map(|record| record.seq_num)
        .collect();
    assert_eq!(with_outcome, [4, 5]);
}

#[test]
fn clock_that_is_set_makes_no_event_older() {
    let mut history = history(100);
    // An hour ahead, and an hour back.
    for second in [110 + 3600, 110 - 3600] {
        history.push(record(second));
    }
    assert_eq!(numbers(&history).len(), 12);
    history.push(record_at(111, after(61)));
    assert_eq!(numbers(&history), [13]);
}

#[test]
fn duration_is_that_of_the_events_of_one_input() {
    let mut history = history(100);
    history.set_duration_after(8, Duration::from_millis(5));
    let durations: Vec<f64> = history
        .records(after(0))
        .map(|record| record.duration_ms)
        .collect();
    assert_eq!(
        durations,
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0]
    );
}
