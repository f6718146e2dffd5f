//! Values of metrics.

use std::time::{SystemTime, UNIX_EPOCH};

/// The present, in seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "metrics are counted by drivers; no decision rests on them"
)]
pub(super) fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// The value of a gauge.
pub(super) fn gauge(size: usize) -> i64 {
    size.try_into().unwrap_or(i64::MAX)
}
