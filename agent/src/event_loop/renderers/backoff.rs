//! How long to wait before a renderer that failed is tried again.

use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Doubles from 100 ms to 10 s. Each pause is between half of that and all of it, so that many agents with one cause
/// do not try at one moment.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure.
    pub(super) fn next(&mut self) -> Duration {
        let pause = SHORTEST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause.mul_f64(rand::random_range(0.5..=1.0))
    }

    /// Back to the start, after a success.
    pub(super) const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_again_after_a_success() {
        let mut backoff = Backoff::default();
        for full in [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000].map(Duration::from_millis) {
            let pause = backoff.next();
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        }
        for _ in 0..100 {
            assert!(backoff.next() <= LONGEST);
        }
        backoff.reset();
        assert!(backoff.next() <= SHORTEST);
    }
}
