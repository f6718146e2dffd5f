//! Decides when to read the file. Pure; the time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// The file's metadata; if it differs, the file may have changed.
pub(super) type Fingerprint = [i64; 5];

/// The polling interval of a file without notifications: one on a network, or behind a link.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How long the file must stay unchanged before it is read, even if it was closed: a writer may open it again.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

/// A file that is replaced repeatedly is read after this time at the latest.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// An event of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// It was closed by its writer, or renamed into place.
    Complete,
    /// It was written to, and is still open.
    Written,
    /// It was created or removed.
    Replaced,
}

pub(super) struct Pending {
    /// A writer has it open.
    is_open: bool,
    seen: Option<Fingerprint>,
    /// Since when a complete file waits to be read.
    complete_since: Option<Instant>,
    /// The time of the next check.
    deadline: Instant,
}

impl Pending {
    /// The initial state of the file.
    pub(super) fn new(seen: Option<Fingerprint>, now: Instant) -> Self {
        Self {
            is_open: false,
            seen,
            complete_since: None,
            deadline: now + QUIET_PERIOD,
        }
    }

    pub(super) fn note(&mut self, signal: Signal, now: Instant) {
        self.is_open = signal == Signal::Written;
        self.deadline = if signal == Signal::Complete {
            let since = *self.complete_since.get_or_insert(now);
            (now + QUIET_PERIOD).min(since + MAX_DELAY)
        } else {
            now + POLL_INTERVAL
        };
    }

    /// When to check whether it is due.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// True if the file with this fingerprint must be read: no writer has it open, and it is unchanged since the last check, or
    /// has waited for too long.
    pub(super) fn is_due(&mut self, fingerprint: Option<Fingerprint>, now: Instant) -> bool {
        let is_same = std::mem::replace(&mut self.seen, fingerprint) == fingerprint;
        let is_late = self
            .complete_since
            .is_some_and(|since| since + MAX_DELAY <= now);
        self.deadline = now
            + if is_same || is_late || self.is_open {
                POLL_INTERVAL
            } else {
                QUIET_PERIOD
            };
        let is_due = (is_same || is_late) && !self.is_open;
        if is_due {
            self.complete_since = None;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<Fingerprint> = Some([1; 5]);
    const B: Option<Fingerprint> = Some([2; 5]);

    #[tokio::test(start_paused = true)]
    async fn file_is_read_when_it_has_stayed_same_for_moment() {
        let start = Instant::now();
        let mut pending = Pending::new(A, start);
        assert_eq!(pending.deadline(), start + QUIET_PERIOD);
        assert!(
            !pending.is_due(B, start + QUIET_PERIOD),
            "it was changed meanwhile"
        );
        assert_eq!(
            pending.deadline(),
            start + QUIET_PERIOD * 2,
            "it is looked at again soon"
        );
        assert!(pending.is_due(B, start + QUIET_PERIOD * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn file_that_is_being_written_is_left_alone_until_it_is_closed() {
        let start = Instant::now();
        let mut pending = Pending::new(A, start);
        pending.note(Signal::Written, start);
        for second in 1..100 {
            assert!(!pending.is_due(A, start + POLL_INTERVAL * second));
        }
        pending.note(Signal::Complete, start + POLL_INTERVAL * 100);
        assert_eq!(
            pending.deadline(),
            start + POLL_INTERVAL * 100 + QUIET_PERIOD
        );
        assert!(pending.is_due(A, pending.deadline()));
    }

    #[tokio::test(start_paused = true)]
    async fn file_that_is_replaced_all_time_is_read_all_same() {
        let start = Instant::now();
        let mut pending = Pending::new(A, start);
        let (mut reads, mut now) = (Vec::new(), start);
        for number in 0..50 {
            now += QUIET_PERIOD / 2;
            if pending.deadline() <= now && pending.is_due(Some([number; 5]), now) {
                reads.push(now.duration_since(start));
            }
            pending.note(Signal::Complete, now);
        }
        assert_eq!(
            reads,
            [Duration::from_millis(1050), Duration::from_millis(2050)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn change_without_notification_is_detected() {
        let start = Instant::now();
        let mut pending = Pending::new(A, start);
        assert!(pending.is_due(A, start + QUIET_PERIOD));
        assert_eq!(pending.deadline(), start + QUIET_PERIOD + POLL_INTERVAL);
        assert!(!pending.is_due(B, pending.deadline()));
        assert!(pending.is_due(B, pending.deadline()));
    }
}
