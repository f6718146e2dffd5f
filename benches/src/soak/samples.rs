//! The times of changes, and the sampled values.

use std::{collections::BTreeMap, time::Instant};

use serde::Serialize;

use crate::statistics::Samples;

/// The agent's state at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Since the start.
    pub seconds: f64,
    /// Resident memory of the process.
    pub resident_mebibytes: f64,
    /// Open file descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Busy processors since the previous sample.
    pub cores: f64,
    /// The load average of the machine over a minute.
    pub load: f64,
    /// Changes that reached the kernel since the previous sample.
    pub changes: usize,
    /// Changes sent to etcd and not yet seen in the kernel.
    pub waiting: usize,
    /// From the request to etcd to the kernel's commit.
    pub p50_milliseconds: f64,
    /// The same at the 99th percentile.
    pub p99_milliseconds: f64,
}

/// Pending changes by number, and the latencies of completed ones.
#[derive(Debug, Default)]
pub(super) struct ChangeTracker {
    under_way: BTreeMap<u32, PendingChange>,
    arrived: Vec<std::time::Duration>,
    /// How many were acknowledged.
    pub(super) acknowledged: usize,
}

#[derive(Debug)]
struct PendingChange {
    sent: Instant,
    is_acknowledged: bool,
}

impl ChangeTracker {
    pub(super) fn sent(&mut self, number: u32, at: Instant) {
        self.under_way.insert(
            number,
            PendingChange {
                sent: at,
                is_acknowledged: false,
            },
        );
    }

    /// Records whether etcd has accepted a change. The kernel may have been faster.
    pub(super) fn acknowledged(&mut self, number: u32, is_in: bool) {
        self.acknowledged += usize::from(is_in);
        match self.under_way.get_mut(&number) {
            Some(under_way) if is_in => under_way.is_acknowledged = true,
            Some(_) => drop(self.under_way.remove(&number)),
            None => {}
        }
    }

    /// Records a commit. An unknown number belongs to a change that was seen before.
    pub(super) fn committed(&mut self, number: u32, at: Instant) {
        if let Some(under_way) = self.under_way.remove(&number) {
            self.arrived
                .push(at.saturating_duration_since(under_way.sent));
        }
    }

    /// The latencies since the last call, and the number of pending changes.
    pub(super) fn take(&mut self) -> (Samples, usize) {
        (
            std::mem::take(&mut self.arrived).into_iter().collect(),
            self.under_way.len(),
        )
    }

    /// The number of acknowledged changes that were never seen in the kernel. For the end of a run.
    pub(super) fn never_committed(&self) -> usize {
        self.under_way
            .values()
            .filter(|under_way| under_way.is_acknowledged)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn change_arrives_when_the_kernel_has_it_and_is_lost_otherwise() {
        let start = Instant::now();
        let later = start + Duration::from_millis(5);
        let mut moments = ChangeTracker::default();
        (1..=4).for_each(|number| moments.sent(number, start));
        moments.acknowledged(1, true);
        moments.committed(1, later);
        moments.committed(1, later);
        moments.committed(2, start);
        moments.acknowledged(2, true);
        moments.acknowledged(3, true);
        moments.acknowledged(4, false);
        moments.committed(99, later);
        let (latencies, under_way) = moments.take();
        assert_eq!((latencies.len(), under_way), (2, 1));
        assert_eq!(
            [50, 99].map(|percent| latencies.percentile(percent).as_millis()),
            [0, 5]
        );
        assert_eq!((moments.acknowledged, moments.never_committed()), (3, 1));
        assert!(moments.take().0.is_empty());
    }
}
