//! What a reconciler says when it succeeded.

use std::time::Duration;

/// When a key that was reconciled is to be looked at again. Something that changes is always sooner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// When something changes, or at the next resync.
    Done,
    /// After this time.
    RequeueAfter(Duration),
    /// At once, after the keys that wait already.
    RequeueNow,
}
