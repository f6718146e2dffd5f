//! How long a member may take to prove itself: to accept a client, or to answer a cheap read. Pure.

use std::time::Duration;

/// A stopped or partitioned member is abandoned then, and the next one is tried. An election takes a second or two.
const FIRST: Duration = Duration::from_secs(5);
/// The limit for a member that may be merely busy, as when many agents start at once. A stopped one shows sooner: it answers no ping.
const LONGEST: Duration = Duration::from_secs(30);

/// It grows with each attempt for which it was too short, and if there is no other member it is long from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    first: Duration,
    now: Duration,
}

impl Patience {
    /// Of one of so many members.
    pub(super) const fn of_one_of(members: usize) -> Self {
        let first = if members == 1 { LONGEST } else { FIRST };
        Self { first, now: first }
    }

    /// The limit of the next attempt.
    pub(super) const fn limit(self) -> Duration {
        self.now
    }

    /// After an attempt that took so long.
    pub(super) fn after(self, is_success: bool, took: Duration) -> Self {
        let now = match is_success {
            true => self.first,
            false if took >= self.now => (self.now * 2).min(LONGEST),
            false => self.now,
        };
        Self { now, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_while_members_are_busy() {
        let first = Patience::of_one_of(3);
        let mut patience = first;
        let mut limits = Vec::new();
        for _ in 0..5 {
            limits.push(patience.limit().as_secs());
            patience = patience.after(false, patience.limit());
        }
        assert_eq!(limits, [5, 10, 20, 30, 30]);
        let refused = Duration::from_millis(1);
        assert_eq!(
            patience.after(false, refused),
            patience,
            "a refusal says nothing about it"
        );
        assert_eq!(patience.after(true, refused), first);
    }

    #[test]
    fn only_member_gets_all_the_time_at_once() {
        let patience = Patience::of_one_of(1);
        assert_eq!(patience.limit(), LONGEST);
        for is_success in [false, true] {
            assert_eq!(patience.after(is_success, FIRST), patience);
        }
    }
}
