//! How soon a controller that stopped by itself is started again: consul's supervisor.

use std::time::Duration;

use rand::Rng;

/// After a run that long it is started again at once.
const LONG_RUN: Duration = Duration::from_secs(2);
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// Up to this part is added, so that not all processes come at once.
const JITTER: f64 = 0.25;

#[derive(Debug, Default)]
pub(super) struct Backoff {
    short_runs: u32,
}

impl Backoff {
    /// How long to wait after a run of this length.
    pub(super) fn after(&mut self, run: Duration) -> Duration {
        if run > LONG_RUN {
            self.reset();
            return Duration::ZERO;
        }
        let pause = FIRST.saturating_mul(2_u32.saturating_pow(self.short_runs)).min(LONGEST);
        self.short_runs = self.short_runs.saturating_add(1);
        pause.mul_f64(1.0 + rand::rng().random_range(0.0..=JITTER))
    }

    pub(super) fn reset(&mut self) {
        self.short_runs = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_have_their_jitter() {
        let mut backoff = Backoff::default();
        for millis in [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
            let pause = backoff.after(Duration::ZERO);
            let least = Duration::from_millis(millis);
            assert!(pause >= least && pause <= least.mul_f64(1.25), "{pause:?} for {least:?}");
        }
    }

    #[test]
    fn after_a_long_run_it_starts_at_once_and_over() {
        let mut backoff = Backoff { short_runs: 5 };
        assert_eq!(backoff.after(Duration::from_millis(2001)), Duration::ZERO);
        assert!(backoff.after(Duration::from_secs(2)) < Duration::from_secs(1));
    }
}
