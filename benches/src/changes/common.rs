//! Common parts of the measurements of single changes.

use std::{collections::BTreeMap, time::Duration};

use contiv_store::Operation;

use crate::{
    statistics::Samples,
    workload::{SingleChange, Workload, Write},
};

/// The section of these figures in the table.
pub const SECTION: &str = "changes";

/// How often a change of each kind is measured, of services all over the table. An interrupt delays one or two of some hundred, and
/// the fourth slowest counts.
pub(super) const ROUNDS: u32 = 400;

/// The times of each kind of change.
pub(super) type Times = BTreeMap<SingleChange, Samples>;

/// The service of a round: all over the table.
pub(super) const fn service(workload: Workload, round: u32) -> usize {
    round as usize * 7919 % workload.services
}

pub(super) fn by_kind(times: &[(SingleChange, Duration)]) -> Times {
    let of_kind = |wanted: SingleChange| {
        times
            .iter()
            .filter(|(kind, _)| *kind == wanted)
            .map(|(_, duration)| *duration)
            .collect()
    };
    SingleChange::ALL
        .into_iter()
        .map(|kind| (kind, of_kind(kind)))
        .collect()
}

pub(super) fn operation((key, value): Write) -> Operation {
    match value {
        Some(value) => Operation::Put {
            key,
            value: value.into(),
        },
        None => Operation::Delete { key },
    }
}
