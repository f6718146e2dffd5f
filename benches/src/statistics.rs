//! Repeated measurements of a time.

use std::time::{Duration, Instant};

/// Samples in ascending order.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// The median; zero without samples.
    pub fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// The percentile by nearest rank; zero without samples.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<T: IntoIterator<Item = Duration>>(samples: T) -> Self {
        let mut samples: Vec<Duration> = samples.into_iter().collect();
        samples.sort_unstable();
        Self(samples)
    }
}

/// How long `work` took, and what it returned.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let samples: Samples = (1..=200).rev().map(Duration::from_millis).collect();
        let percentiles = [1, 50, 99, 100].map(|percent| samples.percentile(percent).as_millis());
        assert_eq!(percentiles, [2, 100, 198, 200]);
        assert_eq!(Samples::default().median(), Duration::ZERO);
    }
}
