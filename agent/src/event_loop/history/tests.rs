use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn happening(second: i64) -> Happening<'static> {
    Happening {
        kind: "change",
        description: String::new(),
        moment: Moment { start: at(second), ..Moment::now() },
        duration: Duration::ZERO,
        revision: second,
        changes: None,
        renderers: vec!["a".into()],
    }
}

const LARGE: HistoryLimits = HistoryLimits { events: 1000, age: Duration::from_secs(60), bytes: 1 << 20 };

/// Events 1 to 10, one a second from second 101 on.
fn history(limit: usize) -> History {
    let mut history = History::new(HistoryLimits { events: limit, ..LARGE });
    for second in 101..=110 {
        history.push(happening(second));
    }
    history
}

fn numbers(history: &mut History, query: HistoryQuery) -> Vec<u64> {
    history.query(query).iter().map(|record| record.seq_num).collect()
}

#[test]
fn each_argument_selects_what_it_says() {
    let mut history = history(100);
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
        assert_eq!(numbers(&mut history, query), expected.collect::<Vec<_>>(), "{query:?}");
    }
}

#[test]
fn what_cannot_be_there_selects_nothing() {
    let mut history = history(100);
    let none = HistoryQuery::default();
    for query in [
        HistoryQuery { seq_num: Some(11), ..none },
        HistoryQuery { from: Some(5), to: Some(3), ..none },
        HistoryQuery { since: Some(105), until: Some(103), ..none },
        HistoryQuery { first: Some(0), ..none },
    ] {
        assert_eq!(numbers(&mut history, query), [0_u64; 0], "{query:?}");
    }
}

#[test]
fn of_several_arguments_the_first_in_contivs_order_counts() {
    let mut history = history(100);
    let mut query = HistoryQuery {
        seq_num: Some(7),
        since: Some(103),
        until: Some(104),
        from: Some(1),
        to: Some(2),
        first: Some(1),
        last: Some(1),
    };
    assert_eq!(numbers(&mut history, query), [7]);
    query.seq_num = None;
    assert_eq!(numbers(&mut history, query), [3, 4]);
    (query.since, query.until) = (None, None);
    assert_eq!(numbers(&mut history, query), [1, 2]);
    (query.from, query.to) = (None, None);
    assert_eq!(numbers(&mut history, query), [1]);
    query.first = None;
    assert_eq!(numbers(&mut history, query), [10]);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_go_when_there_are_too_many_or_they_are_too_old() {
    let mut history = history(3);
    assert_eq!(numbers(&mut history, HistoryQuery::default()), [8, 9, 10]);
    tokio::time::advance(LARGE.age).await;
    history.push(happening(170));
    assert_eq!(numbers(&mut history, HistoryQuery::default()), [9, 10, 11]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(numbers(&mut history, HistoryQuery::default()), [11]);
    assert_eq!(history.newest(), 11);
}

#[test]
fn the_oldest_go_when_all_take_up_too_much_and_the_newest_stays_whatever_it_takes_up() {
    let mut history = History::new(HistoryLimits { bytes: 10_000, ..LARGE });
    let of_size = |size| Happening { description: "x".repeat(size), ..happening(110) };
    for _ in 0..20 {
        history.push(of_size(1000));
    }
    let kept = numbers(&mut history, HistoryQuery::default());
    assert!((5..10).contains(&kept.len()) && kept.last() == Some(&20), "{kept:?}");
    assert!(history.bytes <= 10_000);
    history.push(of_size(50_000));
    assert_eq!(numbers(&mut history, HistoryQuery::default()), [21]);
    history.push(of_size(10));
    assert_eq!(numbers(&mut history, HistoryQuery::default()), [22]);
    // What renderers say counts too.
    let outcome = Outcome::Failed { at: at(110), error: "x".repeat(9_000), duration_ms: 1.0 };
    history.push(of_size(10));
    history.settle(Covers::one(22).and(Covers::one(23)), "a", &outcome);
    assert_eq!(numbers(&mut history, HistoryQuery::default()), [23]);
    let left: usize = history.records.iter().map(Record::size).sum();
    assert_eq!(history.bytes, left, "the books are right");
}

#[test]
fn an_outcome_goes_to_the_events_it_covers_where_the_renderer_had_work() {
    let mut history = history(100);
    let outcome = Outcome::Failed { at: at(110), error: "no".to_owned(), duration_ms: 1.0 };
    history.settle(Covers::one(4).and(Covers::one(5)), "a", &outcome);
    history.settle(Covers::one(6), "b", &outcome);
    let settled: Vec<u64> = history
        .query(HistoryQuery::default())
        .iter()
        .filter(|record| record.renderers.values().any(|outcome| *outcome != Outcome::Pending))
        .map(|record| record.seq_num)
        .collect();
    assert_eq!(settled, [4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_makes_no_event_older_or_younger() {
    let mut history = history(100);
    // An hour ahead, and two hours back.
    for second in [110 + 3600, 110 - 3600] {
        history.push(happening(second));
    }
    assert_eq!(numbers(&mut history, HistoryQuery::default()).len(), 12);
    tokio::time::advance(LARGE.age + Duration::from_secs(1)).await;
    history.push(happening(111));
    assert_eq!(numbers(&mut history, HistoryQuery::default()), [13]);
}
