//! Functions shared by the measurements of the parts.

use contiv_tests::lab::LabError;

use crate::workload::UndecodableValue;

/// The section of these figures in the table.
pub const SECTION: &str = "parts";

pub(crate) fn decode_error(error: &UndecodableValue) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// The number of repetitions at this size.
pub(super) const fn repetitions(services: usize) -> usize {
    if services > 20_000 { 3 } else { 5 }
}
