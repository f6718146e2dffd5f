//! Waits for a condition, with a time limit.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{LabError, Result};

/// Short compared with every awaited event, long compared with the cost of a check.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Polls until `condition` holds; returns how long that took.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<Duration> {
    let start = Instant::now();
    wait_for(what, limit, || condition().then(|| start.elapsed()))
}

/// Polls until `look` returns something.
pub fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if start.elapsed() >= limit {
            return Err(LabError::TooLate { what: what.to_owned(), limit });
        }
        thread::sleep(POLL_INTERVAL);
    }
}
