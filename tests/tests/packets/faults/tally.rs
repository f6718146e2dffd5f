//! Counts of actions, and how they are printed.

use std::{collections::BTreeMap, fmt, ops::AddAssign};

use super::Run;

/// How often each action was done.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(BTreeMap<&'static str, usize>);

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

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:.0} s", self.lasted.as_secs_f64())?;
        for (what, count) in &self.troubles.0 {
            writeln!(f, "{count:8} × {what}")?;
        }
        let rate = self.changes.written / usize::try_from(self.lasted.as_secs().max(1)).unwrap_or(1);
        writeln!(
            f,
            "{:8} changes ({rate}/s), and {} that etcd refused",
            self.changes.written, self.changes.refused
        )?;
        let probes = &self.probes;
        write!(
            f,
            "{:8} connections opened, {} of them slowly and {} only when tried again; {} failed",
            probes.opened,
            probes.slow,
            probes.again,
            probes.failed.len()
        )
    }
}
