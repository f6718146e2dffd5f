//! When changes were acknowledged and committed, and what is sampled.

use std::{collections::BTreeMap, time::Instant};

use serde::Serialize;

use crate::statistics::Samples;

/// How the agent was at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Since the start.
    pub seconds: f64,
    /// Memory of the process that is in memory.
    pub resident_mebibytes: f64,
    /// Open file descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Processors kept busy since the sample before.
    pub cores: f64,
    /// How many tasks of the whole machine wanted a processor, over a minute.
    pub load: f64,
    /// Changes that came to the kernel since the sample before.
    pub changes: usize,
    /// Changes that were sent to etcd, and not seen in the kernel yet.
    pub waiting: usize,
    /// From the request to etcd to the kernel's commit.
    pub p50_milliseconds: f64,
    /// The same at the 99th percentile.
    pub p99_milliseconds: f64,
}

/// The changes that are under way, by number, and the latencies of those that have arrived.
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
        self.under_way.insert(number, PendingChange { sent: at, is_acknowledged: false });
    }

    /// etcd has taken it in, or not. The kernel may have been faster.
    pub(super) fn acknowledged(&mut self, number: u32, is_in: bool) {
        self.acknowledged += usize::from(is_in);
        match self.under_way.get_mut(&number) {
            Some(under_way) if is_in => under_way.is_acknowledged = true,
            Some(_) => drop(self.under_way.remove(&number)),
            None => {}
        }
    }

    /// The kernel has it. A number that nobody waits for is that of a change that was seen before.
    pub(super) fn committed(&mut self, number: u32, at: Instant) {
        if let Some(under_way) = self.under_way.remove(&number) {
            self.arrived.push(at.saturating_duration_since(under_way.sent));
        }
    }

    /// The latencies since the last time, and how many changes are under way.
    pub(super) fn take(&mut self) -> (Samples, usize) {
        (std::mem::take(&mut self.arrived).into_iter().collect(), self.under_way.len())
    }

    /// How many were acknowledged and never seen in the kernel. To be asked at the end.
    pub(super) fn never_committed(&self) -> usize {
        self.under_way.values().filter(|under_way| under_way.is_acknowledged).count()
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
        assert_eq!([50, 99].map(|percent| latencies.percentile(percent).as_millis()), [0, 5]);
        assert_eq!((moments.acknowledged, moments.never_committed()), (3, 1));
        assert!(moments.take().0.is_empty());
    }
}
