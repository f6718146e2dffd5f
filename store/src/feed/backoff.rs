//! How long to wait before the next attempt: longer each time, up to a limit, and never all clients at once.

use std::time::Duration;

use rand::Rng;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// A jittered, capped, exponential back-off.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next pause: between half and all of `FIRST` times two to the number of failures, `LONGEST` at most.
    pub(super) fn next(&mut self) -> Duration {
        let full = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// All is well: the next pause is the shortest.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Starts over when things were well for as long as the longest pause. Less does not count, or a watch that always
    /// opens and always fails would be opened again without pause.
    pub(super) fn reset_after(&mut self, healthy: Duration) {
        if healthy >= LONGEST {
            self.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_keep_their_jitter() {
        let mut backoff = Backoff::default();
        for full in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let pause = backoff.next();
            let full = Duration::from_millis(full);
            assert!(pause >= full / 2 && pause <= full, "{pause:?} for {full:?}");
        }
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let mut backoff = Backoff::default();
        for _ in 0..1000 {
            assert!(backoff.next() <= LONGEST);
        }
    }

    #[test]
    fn only_lasting_health_starts_over() {
        let mut backoff = Backoff { failures: 5 };
        backoff.reset_after(LONGEST / 2);
        assert!(backoff.next() > FIRST);
        backoff.reset_after(LONGEST);
        assert!(backoff.next() <= FIRST);
    }
}
