//! The state of a process, as it is reported to the service manager.

use std::time::Duration;

/// The interval of queries.
pub(super) const STATUS_QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// The state of a process at one moment.
#[derive(Debug)]
pub(crate) struct ProcessStatus {
    /// Whether the worker answers.
    pub(super) alive: bool,
    /// Whether the start is complete.
    pub(super) ready: bool,
    /// Whether no work is left.
    pub(super) at_rest: bool,
    pub(super) status: String,
}

impl ProcessStatus {
    /// The worker does not answer.
    pub(super) fn silent(status: String) -> Self {
        Self {
            alive: false,
            ready: false,
            at_rest: false,
            status,
        }
    }
}
