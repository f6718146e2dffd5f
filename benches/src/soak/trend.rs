//! Detects growth by comparing the medians of the first and the last part of the samples.

use std::fmt;

use serde::Serialize;

use super::samples::Sample;

/// The first samples are left out because the agent is warming up: allocators, caches, connections.
const WARMING_UP: f64 = 0.1;
/// The share of each part.
const PART: f64 = 0.25;

/// The trend of one value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trend {
    /// The name of the value.
    pub name: &'static str,
    /// The median of the first part, after the start.
    pub first: f64,
    /// The median of the last part.
    pub last: f64,
    /// The limit of the last part.
    pub limit: f64,
    /// Whether the limit holds.
    pub is_flat: bool,
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_flat { "flat" } else { "GROWS" };
        write!(
            f,
            "{}: {:.2} -> {:.2}: {verdict}",
            self.name, self.first, self.last
        )
    }
}

/// The trends of the values that must not grow.
pub(super) fn of(samples: &[Sample]) -> Vec<Trend> {
    let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    vec![
        // The history's records and the allocator's leftovers are a mebibyte or two.
        trend(
            samples,
            "memory, MiB",
            |sample| sample.resident_mebibytes,
            |first| first * 1.05 + 2.0,
        ),
        trend(
            samples,
            "file descriptors",
            |sample| count(sample.descriptors),
            |first| first + 2.0,
        ),
        trend(
            samples,
            "threads",
            |sample| count(sample.threads),
            |first| first + 2.0,
        ),
        // Latency depends on other users of the machine.
        trend(
            samples,
            "latency p50, ms",
            |sample| sample.p50_milliseconds,
            |first| first * 2.0 + 1.0,
        ),
        trend(
            samples,
            "latency p99, ms",
            |sample| sample.p99_milliseconds,
            |first| first * 2.0 + 10.0,
        ),
    ]
}

fn trend(
    samples: &[Sample],
    name: &'static str,
    figure: impl Fn(&Sample) -> f64,
    limit: impl Fn(f64) -> f64,
) -> Trend {
    let end = samples.last().map_or(0.0, |sample| sample.seconds);
    let part = |from: f64, to: f64| {
        let within = samples
            .iter()
            .filter(|sample| (from * end..=to * end).contains(&sample.seconds));
        median(within.map(&figure).collect())
    };
    let (first, last) = (part(WARMING_UP, WARMING_UP + PART), part(1.0 - PART, 1.0));
    let limit = limit(first);
    Trend {
        name,
        first,
        last,
        limit,
        is_flat: last <= limit,
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(memory: impl Fn(u32) -> f64) -> Vec<Sample> {
        let sample = |second| Sample {
            seconds: f64::from(second),
            resident_mebibytes: memory(second),
            descriptors: 20,
            threads: 9,
            cores: 0.1,
            load: 0.5,
            changes: 1000,
            waiting: 0,
            p50_milliseconds: 1.0,
            p99_milliseconds: 5.0,
        };
        (1..=200).map(sample).collect()
    }

    fn growing(samples: &[Sample]) -> Vec<&'static str> {
        of(samples)
            .into_iter()
            .filter(|trend| !trend.is_flat)
            .map(|trend| trend.name)
            .collect()
    }

    #[test]
    fn steady_growth_is_distinguished_from_growth_at_start() {
        assert_eq!(
            growing(&samples(|second| 40.0 + f64::from(second) * 0.1)),
            ["memory, MiB"]
        );
        assert_eq!(
            growing(&samples(|second| 40.0 - 20.0 / f64::from(second))),
            [""; 0]
        );
    }
}
