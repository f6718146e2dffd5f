//! Limits the log lines of the quarantine and of warnings, so that values that alternate between good and bad cannot fill the disk.

use std::time::{Duration, Instant};

use tracing::warn;

/// Lines per period; the last one reports that more are left out.
const LINES_PER_PERIOD: u32 = 20;
/// After this time a new budget begins.
const RATE_PERIOD: Duration = Duration::from_secs(60);

/// A budget of log lines.
#[derive(Debug, Default)]
pub(super) struct LogRateLimiter {
    used: u32,
    since: Option<Instant>,
}

impl LogRateLimiter {
    /// Whether one more line may be logged now.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        if self
            .since
            .is_none_or(|since| now.saturating_duration_since(since) >= RATE_PERIOD)
        {
            *self = Self {
                used: 0,
                since: Some(now),
            };
        }
        self.used = self.used.saturating_add(1);
        if self.used == LINES_PER_PERIOD {
            warn!(
                "too many changes of the quarantine or of warnings to log them all; GET /quarantine and /warnings list them"
            );
        }
        self.used < LINES_PER_PERIOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_rate_is_limited_per_minute() {
        let (mut limiter, start) = (LogRateLimiter::default(), Instant::now());
        let mut lines = 0;
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            lines += (0..100).filter(|_| limiter.allow(now)).count();
        }
        assert_eq!(lines, 10 * (LINES_PER_PERIOD as usize - 1));
    }
}
