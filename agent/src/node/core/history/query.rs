//! Selects records of the history.

use serde::Deserialize;

use super::record::Record;

/// The arguments of `/controller/event-history`. Where several are given, the first of them in the order below counts,
/// as in Contiv: `seq-num`; `since` and `until`; `from` and `to`; `first`; `last`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct HistoryQuery {
    /// The event of this number.
    pub seq_num: Option<u64>,
    /// Events that began at this time or later, in seconds since 1970.
    pub since: Option<i64>,
    /// Events that began at this time or before, in seconds since 1970.
    pub until: Option<i64>,
    /// Events of this number or a later one.
    pub from: Option<u64>,
    /// Events of this number or an earlier one.
    pub to: Option<u64>,
    /// This many of the oldest.
    pub first: Option<usize>,
    /// This many of the newest.
    pub last: Option<usize>,
}

impl HistoryQuery {
    /// The selected part of the records; all without arguments. Records are sorted by number, and by time unless the clock has
    /// been set back.
    pub(super) fn select<'a, 'b>(self, records: &'b [&'a Record]) -> &'b [&'a Record] {
        let Self { seq_num, since, until, from, to, first, last } = self;
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
