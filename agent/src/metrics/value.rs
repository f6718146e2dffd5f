//! Values of metrics.

/// The value of a gauge.
pub(super) fn gauge(size: usize) -> i64 {
    size.try_into().unwrap_or(i64::MAX)
}
