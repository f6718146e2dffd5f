//! Waiting for something to become true, with an end.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{LabError, Result};

/// Short beside everything that is waited for, long beside the cost of looking.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Looks again and again until `condition` holds; says how long that took.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<Duration> {
    let start = Instant::now();
    wait_for(what, limit, || condition().then(|| start.elapsed()))
}

/// Looks again and again until `look` finds something.
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
