//! Benchmarks of contiv: its parts beside the kernel's floor, the whole with a real etcd, and packets beside other proxies.
//! `scripts/bench` runs all of it; `docs/proof/performance.md` explains how each figure is measured and what limits it.

pub mod changes;
pub mod cluster;
pub mod command;
pub mod controllers;
pub mod figures;
pub mod fleet;
pub mod flows;
pub mod folder;
pub mod machine;
pub mod million;
pub mod netlink;
pub mod page;
pub mod parts;
pub mod peers;
pub mod plot;
pub mod rollout;
pub mod routes;
pub mod runtime;
pub mod soak;
pub mod statistics;
pub mod why;

pub use contiv_workload as workload;

use std::{sync::LazyLock, time::Instant};

/// The time of the first progress message.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Prints the current step and the seconds since the start.
#[expect(
    clippy::print_stderr,
    reason = "results go to the standard output, and this beside them"
)]
pub fn progress(what: &str) {
    eprintln!("{:4} s  {what}", BEGIN.elapsed().as_secs());
}
