//! Faults of a store and their probabilities, reproducible by seed.

use std::time::Duration;

use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// How a [`MemoryStore`](super::MemoryStore) misbehaves. Probabilities are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Faults {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The longest delay of a request.
    pub longest_delay: Duration,
    /// The probability that a watch breaks before its next changes.
    pub cut_watch: f64,
    /// The probability that the store compacts its whole history when a watch breaks or begins, which forces a new list.
    pub compaction: f64,
    /// The probability that a transaction with conditions fails as if another client had written first.
    pub conflict: f64,
    /// The probability that a transaction is committed but its answer is lost.
    pub lost_answer: f64,
}

impl Faults {
    /// No faults.
    pub const NONE: Self = Self {
        seed: 0,
        longest_delay: Duration::ZERO,
        cut_watch: 0.0,
        compaction: 0.0,
        conflict: 0.0,
        lost_answer: 0.0,
    };

    /// Some faults of every kind.
    pub const fn seeded(seed: u64) -> Self {
        Self {
            seed,
            longest_delay: Duration::from_millis(20),
            cut_watch: 0.1,
            compaction: 0.3,
            conflict: 0.1,
            lost_answer: 0.05,
        }
    }
}

/// Decides by chance which faults occur.
#[derive(Debug)]
pub(super) struct Chance {
    faults: Mutex<(Faults, StdRng)>,
}

impl Chance {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults: Mutex::new((faults, StdRng::seed_from_u64(faults.seed))),
        }
    }

    pub(super) fn stop(&self) {
        self.faults.lock().0 = Faults::NONE;
    }

    pub(super) fn occurs(&self, fault: impl Fn(&Faults) -> f64) -> bool {
        let mut guard = self.faults.lock();
        let (faults, random) = &mut *guard;
        let probability = fault(faults);
        probability > 0.0 && random.random_bool(probability)
    }

    pub(super) async fn delay(&self) {
        let delay = {
            let mut guard = self.faults.lock();
            let (faults, random) = &mut *guard;
            random.random_range(Duration::ZERO..=faults.longest_delay)
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}
