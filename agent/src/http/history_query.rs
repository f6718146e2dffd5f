//! The query of the event history.

use std::time::Instant;

use serde::Deserialize;

use contiv_node::{Core, Record};

/// The arguments of `/controller/event-history`. Where several are given, the first of them in the order below counts,
/// as in Contiv: `seq-num`; `since` and `until`; `from` and `to`; `first`; `last`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// The event of this number.
    pub(super) seq_num: Option<u64>,
    /// Events that began at this time or later, in seconds since 1970.
    pub(super) since: Option<i64>,
    /// Events that began at this time or before, in seconds since 1970.
    pub(super) until: Option<i64>,
    /// Events of this number or a later one.
    pub(super) from: Option<u64>,
    /// Events of this number or an earlier one.
    pub(super) to: Option<u64>,
    /// This many of the oldest.
    pub(super) first: Option<usize>,
    /// This many of the newest.
    pub(super) last: Option<usize>,
}

impl HistoryQuery {
    /// The records of the core's history that it selects, oldest first.
    pub(super) fn records(self, core: &Core, now: Instant) -> Vec<Record> {
        let records: Vec<&Record> = core.history(now).collect();
        self.select(&records).iter().copied().cloned().collect()
    }

    /// The selected part of the records; all without arguments. Records are sorted by number, and by time unless the clock has
    /// been set back.
    fn select<'a, 'b>(self, records: &'b [&'a Record]) -> &'b [&'a Record] {
        let Self {
            seq_num,
            since,
            until,
            from,
            to,
            first,
            last,
        } = self;
        let by_number = |from: u64, to: u64| {
            let start = records.partition_point(|record| record.seq_num < from);
            let end = records.partition_point(|record| record.seq_num <= to);
            &records[start..end.max(start)]
        };
        if let Some(seq_num) = seq_num {
            by_number(seq_num, seq_num)
        } else if since.is_some() || until.is_some() {
            let (since, until) = (since.unwrap_or(i64::MIN), until.unwrap_or(i64::MAX));
            let start = records.partition_point(|record| record.start.as_second() < since);
            let end = records.partition_point(|record| record.start.as_second() <= until);
            &records[start..end.max(start)]
        } else if from.is_some() || to.is_some() {
            by_number(from.unwrap_or(0), to.unwrap_or(u64::MAX))
        } else if let Some(first) = first {
            &records[..first.min(records.len())]
        } else if let Some(last) = last {
            &records[records.len().saturating_sub(last)..]
        } else {
            records
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;

    /// The numbers that a query selects of events 1 to 10, one a second from second 101 on.
    fn numbers(query: HistoryQuery) -> Vec<u64> {
        let record = |seq_num: u64| Record {
            seq_num,
            kind: "change",
            description: String::new(),
            start: Timestamp::from_second(100 + i64::try_from(seq_num).unwrap()).unwrap(),
            start_instant: Instant::now(),
            waited_ms: 0.0,
            duration_ms: 0.0,
            revision: 0,
            changed: 0,
            services: Vec::new(),
            renderers: BTreeMap::new(),
        };
        let records: Vec<Record> = (1..=10).map(record).collect();
        let records: Vec<&Record> = records.iter().collect();
        query
            .select(&records)
            .iter()
            .map(|record| record.seq_num)
            .collect()
    }

    #[test]
    fn query_argument_selects_its_events() {
        let none = HistoryQuery::default();
        for (query, expected) in [
            (none, 1..=10),
            (
                HistoryQuery {
                    seq_num: Some(4),
                    ..none
                },
                4..=4,
            ),
            (
                HistoryQuery {
                    since: Some(108),
                    ..none
                },
                8..=10,
            ),
            (
                HistoryQuery {
                    until: Some(102),
                    ..none
                },
                1..=2,
            ),
            (
                HistoryQuery {
                    since: Some(103),
                    until: Some(104),
                    ..none
                },
                3..=4,
            ),
            (
                HistoryQuery {
                    from: Some(9),
                    ..none
                },
                9..=10,
            ),
            (
                HistoryQuery {
                    to: Some(1),
                    ..none
                },
                1..=1,
            ),
            (
                HistoryQuery {
                    from: Some(2),
                    to: Some(3),
                    ..none
                },
                2..=3,
            ),
            (
                HistoryQuery {
                    first: Some(2),
                    ..none
                },
                1..=2,
            ),
            (
                HistoryQuery {
                    last: Some(2),
                    ..none
                },
                9..=10,
            ),
            (
                HistoryQuery {
                    last: Some(99),
                    ..none
                },
                1..=10,
            ),
        ] {
            assert_eq!(numbers(query), expected.collect::<Vec<_>>(), "{query:?}");
        }
    }

    #[test]
    fn impossible_query_selects_nothing() {
        let none = HistoryQuery::default();
        for query in [
            HistoryQuery {
                seq_num: Some(11),
                ..none
            },
            HistoryQuery {
                from: Some(5),
                to: Some(3),
                ..none
            },
            HistoryQuery {
                since: Some(105),
                until: Some(103),
                ..none
            },
            HistoryQuery {
                first: Some(0),
                ..none
            },
        ] {
            assert_eq!(numbers(query), [0_u64; 0], "{query:?}");
        }
    }

    #[test]
    fn first_argument_in_contivs_order_counts() {
        let mut query = HistoryQuery {
            seq_num: Some(7),
            since: Some(103),
            until: Some(104),
            from: Some(1),
            to: Some(2),
            first: Some(1),
            last: Some(1),
        };
        assert_eq!(numbers(query), [7]);
        query.seq_num = None;
        assert_eq!(numbers(query), [3, 4]);
        (query.since, query.until) = (None, None);
        assert_eq!(numbers(query), [1, 2]);
        (query.from, query.to) = (None, None);
        assert_eq!(numbers(query), [1]);
        query.first = None;
        assert_eq!(numbers(query), [10]);
    }
}
