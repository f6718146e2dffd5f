//! Counts of injected faults.

use std::{collections::BTreeMap, ops::AddAssign};

/// How often each fault was injected, by its description.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(pub(super) BTreeMap<&'static str, usize>);

impl Tally {
    pub(super) fn count(&mut self, fault: &'static str) {
        *self.0.entry(fault).or_default() += 1;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for (fault, count) in other.0 {
            *self.0.entry(fault).or_default() += count;
        }
    }
}
