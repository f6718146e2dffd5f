//! Reports of an outage: each cause once, and reminders while it lasts.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use crate::Backoff;

/// The pause before the first reminder. It doubles with each reminder.
const FIRST_REMINDER: Duration = Duration::from_secs(60);
/// The longest pause between reminders.
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// How many causes of one outage are reported.
const MAX_REPORTED_CAUSES: usize = 8;

/// A period in which the store cannot be watched.
#[derive(Debug)]
pub(super) struct Outage {
    since: Instant,
    /// The reported causes, without digits: those are ports, times and the like.
    causes: BTreeSet<String>,
    reminders: Backoff,
    next_reminder: Instant,
}

/// The report after a failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// A new cause.
    Cause,
    /// A reminder, with the duration of the outage so far.
    Reminder(Duration),
    Nothing,
}

impl Outage {
    pub(super) fn begin(now: Instant) -> Self {
        let mut reminders = Backoff::new(FIRST_REMINDER, MAX_PAUSE);
        let next_reminder = now + reminders.next(1.0);
        Self {
            since: now,
            causes: BTreeSet::new(),
            reminders,
            next_reminder,
        }
    }

    /// Records the cause of a failed attempt.
    pub(super) fn add(&mut self, reason: &str, now: Instant) -> Report {
        let cause = reason.chars().filter(|c| !c.is_ascii_digit()).collect();
        if self.causes.len() < MAX_REPORTED_CAUSES && self.causes.insert(cause) {
            return Report::Cause;
        }
        if now < self.next_reminder {
            return Report::Nothing;
        }
        self.next_reminder = now + self.reminders.next(1.0);
        Report::Reminder(now - self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn outage_reports_each_cause_once_up_to_a_limit() {
        let now = Instant::now();
        let mut outage = Outage::begin(now);
        assert_eq!(outage.add("refused at port 1", now), Report::Cause);
        assert_eq!(outage.add("refused at port 2", now), Report::Nothing);
        assert_eq!(outage.add("no login", now), Report::Cause);
        assert_eq!(outage.add("refused at port 3", now), Report::Nothing);
        let others = "abcdefghijk"
            .chars()
            .filter(|c| outage.add(&c.to_string(), now) == Report::Cause);
        assert_eq!(others.count(), MAX_REPORTED_CAUSES - 2);
    }

    #[tokio::test(start_paused = true)]
    async fn long_outage_is_reported_at_growing_intervals() {
        let start = Instant::now();
        let mut outage = Outage::begin(start);
        outage.add("refused", start);
        let minutes = (0..=24 * 60).filter(|minute| {
            let now = start + Duration::from_secs(60 * minute);
            outage.add("refused", now) == Report::Reminder(now - start)
        });
        let minutes: Vec<_> = minutes.take(8).collect();
        assert_eq!(minutes, [1, 3, 7, 15, 31, 63, 123, 183]);
    }
}
