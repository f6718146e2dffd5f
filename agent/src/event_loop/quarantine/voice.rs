//! How much of the quarantine is logged: each thing once, but a store whose values change between good and bad all the time
//! must not fill the disk.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// So many lines at most,
pub(super) const MOST: u32 = 20;
/// in so much time.
const PERIOD: Duration = Duration::from_secs(60);

/// A budget of log lines.
#[derive(Debug)]
pub(super) struct Voice {
    left: u32,
    since: Instant,
}

impl Default for Voice {
    fn default() -> Self {
        Self { left: MOST, since: Instant::now() }
    }
}

impl Voice {
    /// Whether one more line may be logged. The last one says where the rest is.
    pub(super) fn may_speak(&mut self) -> bool {
        if self.since.elapsed() >= PERIOD {
            *self = Self::default();
        }
        if self.left == 1 {
            warn!(
                "more has come into the quarantine, or left it, than is logged; GET /quarantine lists what is there"
            );
        }
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whatever_comes_there_are_so_many_lines_a_minute() {
        let mut voice = Voice::default();
        let mut lines = 0;
        for _ in 0..600 {
            lines += (0..100).filter(|_| voice.may_speak()).count();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(lines, 10 * (MOST as usize - 1));
    }
}
