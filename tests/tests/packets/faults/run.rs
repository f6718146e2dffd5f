//! The result of a run, and its printed form.

use std::{fmt, time::Duration};

use contiv_tests::{agent::Agent, cluster::Etcd, lab::Probes};

use super::{changes::Changes, tally::Tally};

/// The results of a run.
pub(super) struct Run<'lab> {
    pub(super) etcd: Etcd<'lab>,
    pub(super) agent: Agent<'lab>,
    pub(super) troubles: Tally,
    pub(super) changes: Changes,
    pub(super) probes: Probes,
    pub(super) lasted: Duration,
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
