//! Waits for a condition, with a time limit.

use std::{
    env, thread,
    time::{Duration, Instant},
};

use super::{LabError, Result, threads::print_threads};

/// The bounds of the pause between two checks. It is a sixteenth of the time waited so far: short compared with the awaited event,
/// while long waits leave the processor to what they wait for, and to other tests. A check that takes long has a pause as long.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// By what all time limits and poll intervals are multiplied, for machines that are much slower, such as emulated ones.
const TIMEOUT_FACTOR: &str = "CONTIV_TEST_TIMEOUT_FACTOR";

/// By what the limit of a wait is multiplied, since limits are meant for an idle machine. In a whole run eight labs share the
/// processors, and the machine may be busy besides: single steps were seen to take 12 times as long. Who waits for an event that
/// comes loses nothing by it.
const BUSY_MACHINE: u32 = 6;

/// The time limit on this machine. Every wait, connection and command of the lab uses it.
pub(crate) fn scaled(limit: Duration) -> Duration {
    limit * timeout_factor(env::var(TIMEOUT_FACTOR).ok().as_deref())
}

/// 1 unless the text is a whole number above it.
fn timeout_factor(text: Option<&str>) -> u32 {
    text.and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

/// Polls until `condition` holds; returns how long that took.
pub fn wait_until(
    event: &str,
    limit: Duration,
    mut condition: impl FnMut() -> bool,
) -> Result<Duration> {
    let start = Instant::now();
    wait_for(event, limit, || condition().then(|| start.elapsed()))
}

/// Polls until `poll` returns something. If it does not, the threads of all processes of the lab are printed.
pub fn wait_for<T>(event: &str, limit: Duration, poll: impl FnMut() -> Option<T>) -> Result<T> {
    wait_at_most(event, limit * BUSY_MACHINE, poll).inspect_err(|_| print_threads())
}

/// As [`wait_for`], for a limit that holds on a busy machine too.
pub(super) fn wait_at_most<T>(
    event: &str,
    limit: Duration,
    mut poll: impl FnMut() -> Option<T>,
) -> Result<T> {
    let (start, limit) = (Instant::now(), scaled(limit));
    loop {
        let begin = Instant::now();
        if let Some(found) = poll() {
            return Ok(found);
        }
        if start.elapsed() >= limit {
            return Err(LabError::TooLate {
                event: event.to_owned(),
                limit,
            });
        }
        thread::sleep(scaled(poll_interval(start.elapsed())).max(begin.elapsed()));
    }
}

fn poll_interval(waited: Duration) -> Duration {
    (waited / 16).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_factor_never_shortens_a_wait() {
        let texts = [
            None,
            Some(""),
            Some("0"),
            Some("fast"),
            Some("-3"),
            Some("1"),
        ];
        assert!(texts.into_iter().all(|text| timeout_factor(text) == 1));
        assert_eq!(timeout_factor(Some("10")), 10);
    }
}
