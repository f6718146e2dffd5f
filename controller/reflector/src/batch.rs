//! How much goes into one transaction.

use std::sync::Arc;

use contiv_controller::Write;

use crate::action::Action;

/// Writes per transaction: with the fence, less than etcd takes.
pub(crate) const MAX_WRITES: usize = 100;
/// And bytes: the writer begins another transaction at 1 MiB, and all of a batch must be in one.
const MAX_BATCH_BYTES: usize = 512 << 10;

/// One write, and its purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedWrite {
    pub(crate) path: Arc<str>,
    pub(crate) action: Action,
    pub(crate) write: Write,
    /// Of the value.
    pub(crate) size: usize,
}

/// As many as fit; at least one, if there is any.
pub(crate) fn fill(planned: impl Iterator<Item = PlannedWrite>, limit: usize) -> Vec<PlannedWrite> {
    let mut size = 0;
    let mut batch = Vec::new();
    for one in planned.take(limit) {
        size += one.size;
        if size > MAX_BATCH_BYTES && !batch.is_empty() {
            break;
        }
        batch.push(one);
    }
    batch
}
