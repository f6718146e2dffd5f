//! When changes arrived at the watchers: how many have each, and when the last one got it.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// The arrivals of each revision after the first one. Shared by all watchers, and without a lock, since each delivery is recorded.
#[derive(Debug)]
pub(super) struct Arrivals {
    begin: Instant,
    first_revision: i64,
    revisions: Vec<RevisionArrivals>,
    deliveries: AtomicU64,
    last: AtomicU64,
}

#[derive(Debug, Default)]
struct RevisionArrivals {
    watchers: AtomicU32,
    /// In nanoseconds since the beginning.
    last: AtomicU64,
}

impl Arrivals {
    /// Of so many revisions after `first_revision`. Later ones are only counted.
    pub(super) fn after(first_revision: i64, revisions: usize) -> Self {
        let revisions = std::iter::repeat_with(RevisionArrivals::default).take(revisions);
        Self {
            begin: Instant::now(),
            first_revision,
            revisions: revisions.collect(),
            deliveries: AtomicU64::new(0),
            last: AtomicU64::new(0),
        }
    }

    /// Records that a change has arrived at one watcher.
    pub(super) fn record(&self, revision: i64, at: Instant) {
        let since = at.saturating_duration_since(self.begin).as_nanos();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.deliveries.fetch_add(1, Relaxed);
        self.last.fetch_max(since, Relaxed);
        if let Some(arrivals) = self.of(revision) {
            arrivals.last.fetch_max(since, Relaxed);
            arrivals.watchers.fetch_add(1, Relaxed);
        }
    }

    /// All deliveries so far.
    pub(super) fn deliveries(&self) -> u64 {
        self.deliveries.load(Relaxed)
    }

    /// When the last one arrived; the beginning if none did.
    pub(super) fn last(&self) -> Instant {
        self.begin + Duration::from_nanos(self.last.load(Relaxed))
    }

    /// How many watchers have the change of this revision.
    pub(super) fn watchers(&self, revision: i64) -> u32 {
        self.of(revision)
            .map_or(0, |arrivals| arrivals.watchers.load(Relaxed))
    }

    /// When the last of so many watchers got the change of this revision; none if one of them has not got it.
    pub(super) fn last_of(&self, revision: i64, watchers: u32) -> Option<Instant> {
        let arrivals = self.of(revision)?;
        let is_everywhere = arrivals.watchers.load(Relaxed) >= watchers;
        is_everywhere.then(|| self.begin + Duration::from_nanos(arrivals.last.load(Relaxed)))
    }

    fn of(&self, revision: i64) -> Option<&RevisionArrivals> {
        let index = usize::try_from(revision - self.first_revision - 1).ok()?;
        self.revisions.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_watcher_counts_in_any_order_of_arrival() {
        let arrivals = Arrivals::after(10, 2);
        let at = |milliseconds| arrivals.begin + Duration::from_millis(milliseconds);
        arrivals.record(11, at(7));
        assert_eq!(arrivals.last_of(11, 2), None);
        arrivals.record(11, at(3));
        arrivals.record(12, at(5));
        assert_eq!(arrivals.last_of(11, 2), Some(at(7)));
        assert_eq!(arrivals.last_of(12, 2), None);
        assert_eq!((arrivals.watchers(11), arrivals.watchers(12)), (2, 1));
        assert_eq!((arrivals.deliveries(), arrivals.last()), (3, at(7)));
    }

    #[test]
    fn revisions_outside_are_only_counted() {
        let arrivals = Arrivals::after(10, 2);
        for revision in [9, 10, 13] {
            arrivals.record(revision, arrivals.begin);
            assert_eq!(arrivals.last_of(revision, 1), None);
        }
        assert_eq!(arrivals.deliveries(), 3);
    }
}
