//! Counts of actions, and how they are printed.

use std::{collections::BTreeMap, ops::AddAssign};

/// How often each action was done.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(pub(super) BTreeMap<&'static str, usize>);

impl Tally {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}
