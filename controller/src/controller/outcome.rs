//! The result of a successful reconciliation.

use std::time::Duration;

/// When to reconcile the key again. A change of the object always leads to an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// On the next change or resync.
    Done,
    /// After this time.
    RequeueAfter(Duration),
    /// Immediately, after the keys already in the queue.
    RequeueNow,
}
