//! The result of a successful reconciliation.

use std::time::Duration;

use thiserror::Error;

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

/// An outcome returned as an error, to end a reconciliation from a nested call: the key is reconciled again after this time,
/// or immediately if it is zero. It is no failure: it is neither logged as one nor counted against the retry budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("to be reconciled again after {0:?}")]
pub struct RequeueAfterError(pub Duration);

impl From<RequeueAfterError> for Outcome {
    fn from(RequeueAfterError(delay): RequeueAfterError) -> Self {
        if delay.is_zero() {
            Self::RequeueNow
        } else {
            Self::RequeueAfter(delay)
        }
    }
}
