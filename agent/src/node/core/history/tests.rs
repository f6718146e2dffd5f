use std::sync::LazyLock;

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
        at: Timestamps::now(Now { instant, time: at(second), random: 0.0 }),
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
    EventRange::one(first, at).and(EventRange::one(last, at))
}

const LARGE: HistoryLimits = HistoryLimits { events: 1000, age: Duration::from_secs(60), bytes: 1 << 20 };

/// Events 1 to 10, one a second from second 101 on.
fn history(limit: usize) -> History {
    let mut history = History::new(HistoryLimits { events: limit, ..LARGE });
    for second in 101..=110 {
        history.push(record(second));
    }
    history
}

fn numbers(history: &History, query: HistoryQuery) -> Vec<u64> {
    history.query(query, after(0)).iter().map(|record| record.seq_num).collect()
}

#[test]
fn query_argument_selects_its_events() {
    let history = history(100);
    let none = HistoryQuery::default();
    for (query, expected) in [
        (none, 1..=10),
        (HistoryQuery { seq_num: Some(4), ..none }, 4..=4),
        (HistoryQuery { since: Some(108), ..none }, 8..=10),
        (HistoryQuery { until: Some(102), ..none }, 1..=2),
        (HistoryQuery { since: Some(103), until: Some(104), ..none }, 3..=4),
        (HistoryQuery { from: Some(9), ..none }, 9..=10),
        (HistoryQuery { to: Some(1), ..none }, 1..=1),
        (HistoryQuery { from: Some(2), to: Some(3), ..none }, 2..=3),
        (HistoryQuery { first: Some(2), ..none }, 1..=2),
        (HistoryQuery { last: Some(2), ..none }, 9..=10),
        (HistoryQuery { last: Some(99), ..none }, 1..=10),
    ] {
        assert_eq!(numbers(&history, query), expected.collect::<Vec<_>>(), "{query:?}");
    }
}

#[test]
fn impossible_query_selects_nothing() {
    let history = history(100);
    let none = HistoryQuery::default();
    for query in [
        HistoryQuery { seq_num: Some(11), ..none },
        HistoryQuery { from: Some(5), to: Some(3), ..none },
        HistoryQuery { since: Some(105), until: Some(103), ..none },
        HistoryQuery { first: Some(0), ..none },
    ] {
        assert_eq!(numbers(&history, query), [0_u64; 0], "{query:?}");
    }
}

#[test]
fn first_argument_in_contivs_order_counts() {
    let history = history(100);
    let mut query = HistoryQuery {
        seq_num: Some(7),
        since: Some(103),
        until: Some(104),
        from: Some(1),
        to: Some(2),
        first: Some(1),
        last: Some(1),
    };
    assert_eq!(numbers(&history, query), [7]);
    query.seq_num = None;
    assert_eq!(numbers(&history, query), [3, 4]);
    (query.since, query.until) = (None, None);
    assert_eq!(numbers(&history, query), [1, 2]);
    (query.from, query.to) = (None, None);
    assert_eq!(numbers(&history, query), [1]);
    query.first = None;
    assert_eq!(numbers(&history, query), [10]);
}

#[test]
fn oldest_events_go_when_too_many_or_too_old() {
    let mut history = history(3);
    let numbers_at = |history: &History, now| -> Vec<u64> {
        history.query(HistoryQuery::default(), now).iter().map(|record| record.seq_num).collect()
    };
    assert_eq!(numbers_at(&history, after(0)), [8, 9, 10]);
    history.push(record_at(170, after(60)));
    assert_eq!(numbers_at(&history, after(60)), [9, 10, 11]);
    assert_eq!(numbers_at(&history, after(61)), [11]);
    assert_eq!(history.newest(), 11);
}

#[test]
fn oldest_events_go_when_too_large_newest_stays() {
    let mut history = History::new(HistoryLimits { bytes: 10_000, ..LARGE });
    let of_size = |size| NewRecord { description: "x".repeat(size), ..record(110) };
    for _ in 0..20 {
        history.push(of_size(1000));
    }
    let kept = numbers(&history, HistoryQuery::default());
    assert!((5..10).contains(&kept.len()) && kept.last() == Some(&20), "{kept:?}");
    assert!(history.bytes <= 10_000);
    history.push(of_size(50_000));
    assert_eq!(numbers(&history, HistoryQuery::default()), [21]);
    history.push(of_size(10));
    assert_eq!(numbers(&history, HistoryQuery::default()), [22]);
    // What renderers say counts too.
    let outcome = Outcome::Failed { at: at(110), error: "x".repeat(9_000), duration_ms: 1.0 };
    history.push(of_size(10));
    history.set_outcome(range(22, 23), "a", &outcome, true);
    assert_eq!(numbers(&history, HistoryQuery::default()), [23]);
    let left: usize = history.records.iter().map(Record::size).sum();
    assert_eq!(history.bytes, left, "the size is right");
}

#[test]
fn outcome_goes_to_covered_events_with_work() {
    let mut history = history(100);
    let outcome = Outcome::Failed { at: at(110), error: "no".to_owned(), duration_ms: 1.0 };
    history.set_outcome(range(4, 5), "a", &outcome, true);
    history.set_outcome(range(6, 6), "b", &outcome, true);
    let settled: Vec<u64> = history
        .query(HistoryQuery::default(), after(0))
        .iter()
        .filter(|record| record.renderers.values().any(|outcome| *outcome != Outcome::Pending))
        .map(|record| record.seq_num)
        .collect();
    assert_eq!(settled, [4, 5]);
}

#[test]
fn clock_that_is_set_makes_no_event_older() {
    let mut history = history(100);
    // An hour ahead, and an hour back.
    for second in [110 + 3600, 110 - 3600] {
        history.push(record(second));
    }
    assert_eq!(numbers(&history, HistoryQuery::default()).len(), 12);
    history.push(record_at(111, after(61)));
    assert_eq!(numbers(&history, HistoryQuery::default()), [13]);
}

#[test]
fn duration_is_that_of_the_events_of_one_input() {
    let mut history = history(100);
    history.set_duration_after(8, Duration::from_millis(5));
    let durations: Vec<f64> =
        history.query(HistoryQuery::default(), after(0)).iter().map(|record| record.duration_ms).collect();
    assert_eq!(durations, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 5.0]);
}
