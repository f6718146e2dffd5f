//! The state shared by all threads of a run.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use contiv_tests::{
    cluster::{Etcd, Service, State},
    lab::{Lab, Result, wait_until},
};
use parking_lot::RwLock;

/// The time limit for expected events. Generous, so that a busy machine fails no test.
pub(super) const EVENT_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit for writes: a member of etcd may be down for some seconds, and the machine may be busy.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// The processes that may change the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// The agent only, the default: a flush skips the table, and no connection needs a retry.
    Owned,
    /// Every process: when the rules are missing for a moment, a client must connect again.
    Open,
}

/// The shared state of the threads of a run.
pub(super) struct RunState<'lab> {
    pub(super) lab: &'lab Lab,
    pub(super) steady: Service,
    /// When the faults end.
    pub(super) end: Instant,
    /// Set when a thread has failed or the run is over.
    pub(super) done: AtomicBool,
    /// Write-locked while etcd has lost its data: the mirror is the last copy of the state then, and must not be removed.
    pub(super) mirror_removal: RwLock<()>,
    /// Write-locked at the same time: no thread writes to etcd, or the agent would take a nearly empty store for a complete one.
    pub(super) store_writes: RwLock<()>,
}

impl RunState<'_> {
    pub(super) fn is_over(&self) -> bool {
        self.done.load(Ordering::Relaxed) || Instant::now() >= self.end
    }

    /// Runs `work`; a failure ends the run of all threads.
    pub(super) fn unless_failed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        work().inspect_err(|_| self.done.store(true, Ordering::Relaxed))
    }
}

/// Repeats the write until etcd accepts it.
pub(super) fn put_until_accepted(etcd: &Etcd<'_>, service: &Service) -> Result<()> {
    wait_until("etcd accepts a service", EVENT_TIMEOUT, || {
        etcd.put(service).is_ok()
    })
    .map(drop)
}
