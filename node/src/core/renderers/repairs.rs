//! When foreign changes are undone: immediately, unless they are repeated.

use std::time::{Duration, Instant};

use crate::core::history::EventRange;

/// How many consecutive repairs are immediate.
const IMMEDIATE_REPAIRS: u32 = 10;
/// The first pause between later repairs, doubled after each.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest pause, for foreign changes that never stop.
const MAX_DELAY: Duration = Duration::from_secs(5);
/// Enough to double from the first pause to the maximum.
const MAX_DOUBLINGS: u32 = 6;
/// For each such time without a foreign change, one repair is subtracted from the count.
const DECAY_INTERVAL: Duration = Duration::from_secs(5);

/// The foreign changes of one dataplane, and when they are undone.
#[derive(Debug, Default)]
pub(super) struct RepairSchedule {
    due: Option<DueRepair>,
    /// The number of consecutive repairs, less those subtracted.
    in_a_row: u32,
    last_repair: Option<Instant>,
    last_change: Option<Instant>,
    total: u64,
}

/// A scheduled repair.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueRepair {
    pub(super) at: Instant,
    pub(super) events: EventRange,
    /// The number of changes it undoes.
    pub(super) changes: u64,
}

impl RepairSchedule {
    /// Records a foreign change. Returns when the repair is due that this schedules; none if one is scheduled already.
    pub(super) fn note_change(&mut self, events: EventRange, now: Instant) -> Option<Instant> {
        self.total += 1;
        self.in_a_row = self.in_a_row(now);
        self.last_change = Some(now);
        if let Some(due) = &mut self.due {
            due.changes += 1;
            return None;
        }
        let at = self
            .last_repair
            .map_or(now, |last| last + self.pause())
            .max(now);
        self.due = Some(DueRepair {
            at,
            events,
            changes: 1,
        });
        Some(at)
    }

    /// The scheduled repair.
    pub(super) const fn due(&self) -> Option<DueRepair> {
        self.due
    }

    /// Takes the repair if it is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<DueRepair> {
        if self.due?.at > now {
            return None;
        }
        self.repaired(now)
    }

    /// Marks the scheduled repair as being done.
    pub(super) fn repaired(&mut self, now: Instant) -> Option<DueRepair> {
        let due = self.due.take()?;
        self.in_a_row = (self.in_a_row + 1).min(IMMEDIATE_REPAIRS + MAX_DOUBLINGS);
        self.last_repair = Some(now);
        Some(due)
    }

    /// Whether repairs wait because foreign changes are repeated.
    pub(super) fn is_damped(&self, now: Instant) -> bool {
        self.in_a_row(now) >= IMMEDIATE_REPAIRS
    }

    /// The number of consecutive repairs as of now.
    fn in_a_row(&self, now: Instant) -> u32 {
        let calm = self
            .last_change
            .map_or(Duration::ZERO, |last| now.duration_since(last));
        let forgotten = calm.as_secs() / DECAY_INTERVAL.as_secs();
        self.in_a_row
            .saturating_sub(forgotten.try_into().unwrap_or(u32::MAX))
    }

    /// The number of foreign changes since the start.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// The pause between the last repair and the next.
    fn pause(&self) -> Duration {
        match self.in_a_row.checked_sub(IMMEDIATE_REPAIRS) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{core::history::Timestamps, message::Now};

    fn test_range(seq_num: u64) -> EventRange {
        let now = Now {
            instant: Instant::now(),
            time: Timestamp::UNIX_EPOCH,
            random: 0.0,
        };
        EventRange::one(seq_num, Timestamps::now(now))
    }

    /// The times of the repairs for `changes`, in milliseconds since the start.
    fn repairs(changes: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let start = Instant::now();
        let mut schedule = RepairSchedule::default();
        let mut repairs = Vec::new();
        let mut repair = |schedule: &mut RepairSchedule, until: Instant| {
            while let Some(due) = schedule.due().filter(|due| due.at <= until) {
                assert!(schedule.take_due(due.at).is_some());
                repairs.push(u64::try_from(due.at.duration_since(start).as_millis()).unwrap());
            }
        };
        for at in changes
            .into_iter()
            .map(|at| start + Duration::from_millis(at))
        {
            repair(&mut schedule, at);
            schedule.note_change(test_range(1), at);
        }
        repair(&mut schedule, start + Duration::from_secs(100_000));
        repairs
    }

    #[test]
    fn first_changes_are_undone_at_once() {
        assert_eq!(repairs([0, 10, 300, 301, 302]), [0, 10, 300, 301, 302]);
    }

    #[test]
    fn storm_of_changes_is_repaired_with_growing_pauses() {
        let storm = repairs((0..60_000).step_by(10));
        assert_eq!(storm[8..15], [80, 90, 190, 390, 790, 1590, 3190]);
        let pauses: Vec<u64> = storm.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            pauses.is_sorted() && *pauses.last().unwrap() == 5000,
            "{pauses:?}"
        );
        assert!(*storm.last().unwrap() >= 59_990);
    }

    #[test]
    fn change_after_a_calm_time_is_undone_at_once() {
        let storm_and_one_more = (0..60_000).step_by(10).chain([96_000]);
        assert_eq!(repairs(storm_and_one_more).last(), Some(&96_000));
    }

    #[test]
    fn changes_while_a_repair_is_due_are_counted_only() {
        let now = Instant::now();
        let mut repairs = RepairSchedule::default();
        assert_eq!(repairs.note_change(test_range(7), now), Some(now));
        assert!((0..2).all(|_| repairs.note_change(test_range(8), now).is_none()));
        assert!(!repairs.is_damped(now));
        let due = repairs.take_due(now).unwrap();
        assert_eq!((repairs.total(), due.changes, due.events.first), (3, 3, 7));
        assert!(repairs.take_due(now).is_none());
    }
}
