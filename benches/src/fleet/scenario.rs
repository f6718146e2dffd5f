//! What is measured, and for how long.

use std::time::Duration;

/// The section of these figures in the table.
pub const SECTION: &str = "fleet";

/// Watchers, and the proxies to which they are connected; none: directly to etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Topology {
    pub(super) watchers: usize,
    pub(super) proxies: usize,
}

/// How long each phase takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phases {
    /// Without changes: before that is measured, and while it is.
    pub(super) rest: Duration,
    /// With a constant rate of changes.
    pub(super) constant_rate: Duration,
    /// With as many changes as etcd acknowledges.
    pub(super) saturation: Duration,
}

/// The sizes, the times, and the number of services that agents read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scenario {
    pub(super) topologies: &'static [Topology],
    pub(super) phases: Phases,
    pub(super) services: usize,
}

impl Scenario {
    /// About a minute, or about twenty.
    pub(super) const fn new(is_quick: bool) -> Self {
        if is_quick { QUICK } else { FULL }
    }
}

const QUICK: Scenario = Scenario {
    topologies: &[topology(100, 0), topology(100, 1)],
    phases: Phases {
        rest: Duration::from_secs(4),
        constant_rate: Duration::from_secs(6),
        saturation: Duration::from_secs(5),
    },
    services: 1000,
};

const FULL: Scenario = Scenario {
    topologies: &[
        topology(100, 0),
        topology(1000, 0),
        topology(100, 1),
        topology(1000, 1),
        topology(10_000, 1),
        topology(10_000, 0),
        topology(10_000, 2),
    ],
    phases: Phases {
        rest: Duration::from_secs(8),
        constant_rate: Duration::from_secs(20),
        saturation: Duration::from_secs(10),
    },
    services: 10_000,
};

const fn topology(watchers: usize, proxies: usize) -> Topology {
    Topology { watchers, proxies }
}
