//! How additions of one key become one.

use std::time::Duration;

/// How several additions of one key within a short time are merged (debounce).
///
/// consul-k8s and flomesh use 1 s of quiet and 5 s at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debounce {
    /// The key is handed out when it was not added for this long.
    pub quiet: Duration,
    /// It is handed out at most this long after it was first added, so that constant additions cannot delay it indefinitely.
    pub max_delay: Duration,
}
