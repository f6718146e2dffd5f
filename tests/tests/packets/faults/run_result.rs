//! The result of a run with faults, and its printed form.

use std::{fmt, time::Duration};

use contiv_tests::{agent::Agent, cluster::Etcd, lab::Probes};

use super::{changes::Changes, tally::Tally};

/// The state after a run with faults, for the final checks, and its counts.
pub(super) struct RunResult<'lab> {
    pub(super) etcd: Etcd<'lab>,
    pub(super) agent: Agent<'lab>,
    /// The injected faults.
    pub(super) faults: Tally,
    pub(super) changes: Changes,
    pub(super) probes: Probes,
    pub(super) duration: Duration,
}

impl fmt::Display for RunResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:.0} s", self.duration.as_secs_f64())?;
        for (fault, count) in &self.faults.0 {
            writeln!(f, "{count:8} × {fault}")?;
        }
        let rate =
            self.changes.written / usize::try_from(self.duration.as_secs().max(1)).unwrap_or(1);
        writeln!(
            f,
            "{:8} changes ({rate}/s), and {} that etcd refused",
            self.changes.written, self.changes.refused
        )?;
        let probes = &self.probes;
        write!(
            f,
            "{:8} connections opened, {} of them slowly and {} only after a retry; {} failed",
            probes.opened,
            probes.slow,
            probes.retried,
            probes.failed.len()
        )
    }
}
