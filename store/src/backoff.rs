//! The pauses between attempts of an operation that fails. Pure: the random number is an argument.

use std::time::Duration;

/// Exponential backoff with equal jitter. The full pause doubles with each failure, up to a maximum; the actual pause is a
/// random part of it, at least half, so that clients that failed at the same time do not all retry at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// `first` is the full pause after the first failure, `max` the largest.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
        }
    }

    /// The same pauses up to another maximum.
    #[must_use]
    pub const fn up_to(self, max: Duration) -> Self {
        Self { max, ..self }
    }

    /// Counts a failure and returns the pause before the next attempt. `random` is from 0 (half of the full pause) to 1 (all of
    /// it), as from `rand::random()`; any other value counts as 1.
    pub fn next(&mut self, random: f64) -> Duration {
        let full = self
            .first
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(self.max);
        self.failures = self.failures.saturating_add(1);
        let random = if (0.0..=1.0).contains(&random) {
            random
        } else {
            1.0
        };
        full.saturating_sub((full / 2).mul_f64(1.0 - random))
    }

    /// Starts again with the first pause. To be called after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// The number of failures since the last reset.
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_DELAY: Duration = Duration::from_millis(50);
    const MAX_DELAY: Duration = Duration::from_secs(5);

    fn pauses(random: f64) -> Vec<u128> {
        let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
        (0..9).map(|_| backoff.next(random).as_millis()).collect()
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        assert_eq!(
            pauses(1.0),
            [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]
        );
    }

    #[test]
    fn jitter_takes_at_most_half_of_a_pause() {
        assert_eq!(pauses(0.0), [25, 50, 100, 200, 400, 800, 1600, 2500, 2500]);
        assert_eq!(pauses(0.5), [37, 75, 150, 300, 600, 1200, 2400, 3750, 3750]);
        for other in [-1.0, 2.0, f64::NAN, f64::INFINITY] {
            assert_eq!(pauses(other), pauses(1.0), "{other}");
        }
    }

    #[test]
    fn reset_starts_over() {
        let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
        backoff.next(1.0);
        backoff.next(1.0);
        assert_eq!(backoff.failures(), 2);
        backoff.reset();
        assert_eq!((backoff.failures(), backoff.next(1.0)), (0, FIRST_DELAY));
    }

    #[test]
    fn thousand_failures_do_not_overflow() {
        let mut backoff = Backoff::new(FIRST_DELAY, Duration::MAX);
        for _ in 0..1000 {
            backoff.next(0.0);
        }
        assert!(backoff.next(0.0) >= backoff.next(1.0) / 2 && backoff.failures() == 1002);
    }
}
