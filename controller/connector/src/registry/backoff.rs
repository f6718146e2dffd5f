//! How long to wait before a registry is asked again that failed.

use std::time::Duration;

use rand::Rng;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Twice as long after each failure, less up to a quarter, so that not all come back at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.next.mul_f64(rand::rng().random_range(0.75..=1.0));
        self.next = (self.next * 2).min(LONGEST);
        wait
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_over() {
        let mut backoff = Backoff::default();
        let first = backoff.next();
        assert!(first <= FIRST && first >= FIRST.mul_f64(0.75));
        let waits: Vec<Duration> = (0..20).map(|_| backoff.next()).collect();
        assert!(waits.iter().all(|wait| *wait <= LONGEST) && waits[19] >= LONGEST.mul_f64(0.75));
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
