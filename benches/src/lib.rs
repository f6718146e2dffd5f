//! What contiv costs, measured: its parts beside the kernel's floor, the whole from a real etcd, and packets beside its
//! peers. `scripts/bench` runs it all; `docs/performance.md` says how each figure is obtained and what limits it.

pub mod cluster;
pub mod command;
pub mod controllers;
pub mod figures;
pub mod netlink;
pub mod parts;
pub mod peers;
pub mod plot;
pub mod routes;
pub mod runtime;
pub mod soak;
pub mod statistics;

pub use contiv_workload as workload;

use std::{sync::LazyLock, time::Instant};

/// When the first one waited.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Tells a person who waits what goes on, and since how many seconds something does.
#[expect(clippy::print_stderr, reason = "results go to the standard output, and this beside them")]
pub fn progress(what: &str) {
    eprintln!("{:4} s  {what}", BEGIN.elapsed().as_secs());
}
