//! When and how often a failed key is retried. Pure; the time is an argument.

use std::{collections::BTreeMap, time::Duration};

use contiv_store::Backoff;
use tokio::time::Instant;

/// How retries are limited: each key has an exponential back-off, and all keys share a token bucket. The longer of the two
/// delays counts.
///
/// The default is client-go's: 5 ms doubled up to 1,000 s, 10 retries a second after a burst of 100, without an end.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// The delay after the first failure of a key.
    pub base: Duration,
    /// The maximum delay of one key.
    pub max_delay: Duration,
    /// The limit of all keys together; none for no limit.
    pub bucket: Option<TokenBucket>,
    /// How often a key may be retried before it is dropped; none for no limit.
    pub budget: Option<u32>,
}

/// A token bucket: a burst of retries, and then a fixed rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenBucket {
    /// Retries per second in the long run; above 0.
    pub per_second: f64,
    /// Retries that need not wait; at least 1.
    pub burst: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(5),
            max_delay: Duration::from_secs(1000),
            bucket: Some(TokenBucket {
                per_second: 10.0,
                burst: 100,
            }),
            budget: None,
        }
    }
}

/// The decision on a key that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It is handed out again after this time.
    After(Duration),
    /// Its budget is used up: it is not handed out again until it is added.
    Dropped,
}

/// Counts the failures of each key.
#[derive(Debug)]
pub(super) struct Retries<K> {
    policy: RetryPolicy,
    failures: BTreeMap<K, Backoff>,
    /// When the bucket will be full again. Before that it lacks the tokens that flow in until then.
    full_at: Option<Instant>,
}

impl<K: Ord + Clone> Retries<K> {
    pub(super) fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            failures: BTreeMap::new(),
            full_at: None,
        }
    }

    /// Records a failure.
    pub(super) fn failed(&mut self, key: &K, now: Instant) -> Retry {
        if self
            .policy
            .budget
            .is_some_and(|budget| self.count(key) >= budget)
        {
            self.failures.remove(key);
            return Retry::Dropped;
        }
        let (base, max_delay) = (self.policy.base, self.policy.max_delay);
        let backoff = self
            .failures
            .entry(key.clone())
            .or_insert_with(|| Backoff::new(base, max_delay));
        // No jitter, like client-go: keys that fail together are retried together, up to the burst of the token bucket.
        let delay = backoff.next(1.0);
        Retry::After(delay.max(self.reserve(now)))
    }

    /// Takes a token and returns how long to wait for it.
    fn reserve(&mut self, now: Instant) -> Duration {
        let Some(bucket) = self.policy.bucket else {
            return Duration::ZERO;
        };
        let interval = Duration::from_secs_f64(1.0 / bucket.per_second);
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + interval;
        self.full_at = Some(full_at);
        (full_at - now).saturating_sub(interval.saturating_mul(bucket.burst))
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    pub(super) fn count(&self, key: &K) -> u32 {
        self.failures.get(key).map_or(0, Backoff::failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(retry: Retry) -> u128 {
        match retry {
            Retry::After(delay) => delay.as_millis(),
            Retry::Dropped => panic!("dropped"),
        }
    }

    #[test]
    fn key_delay_doubles_to_a_maximum_until_forgotten() {
        let policy = RetryPolicy {
            max_delay: Duration::from_millis(50),
            bucket: None,
            ..RetryPolicy::default()
        };
        let mut retries = Retries::new(policy);
        let now = Instant::now();
        let delays: Vec<_> = (0..6).map(|_| millis(retries.failed(&1, now))).collect();
        assert_eq!(delays, [5, 10, 20, 40, 50, 50]);
        assert_eq!(retries.count(&1), 6);
        assert_eq!(
            millis(retries.failed(&2, now)),
            5,
            "another key has a delay of its own"
        );
        retries.forget(&1);
        assert_eq!(millis(retries.failed(&1, now)), 5);
    }

    #[test]
    fn token_bucket_after_the_burst_shares_the_refill() {
        let mut retries = Retries::new(RetryPolicy {
            bucket: Some(TokenBucket {
                per_second: 10.0,
                burst: 3,
            }),
            ..RetryPolicy::default()
        });
        let now = Instant::now();
        let delays: Vec<_> = (0..5)
            .map(|key| millis(retries.failed(&key, now)))
            .collect();
        assert_eq!(delays, [5, 5, 5, 100, 200]);
        let later = now + Duration::from_secs(60);
        let delays: Vec<_> = (10..15)
            .map(|key| millis(retries.failed(&key, later)))
            .collect();
        assert_eq!(
            delays,
            [5, 5, 5, 100, 200],
            "a full bucket holds no more than the burst"
        );
    }

    #[test]
    fn retry_budget_of_five_is_six_attempts_in_155_ms() {
        let mut retries = Retries::new(RetryPolicy {
            budget: Some(5),
            ..RetryPolicy::default()
        });
        let now = Instant::now();
        let all: u128 = (0..5).map(|_| millis(retries.failed(&1, now))).sum();
        assert_eq!(all, 155);
        assert_eq!(retries.failed(&1, now), Retry::Dropped);
        assert_eq!((retries.count(&1), millis(retries.failed(&1, now))), (0, 5));
    }

    #[test]
    fn thousand_failures_end_at_the_maximum_delay() {
        for (base, max_delay) in [
            (Duration::from_millis(5), 1_000),
            (Duration::from_secs(60), 3_600_000),
        ] {
            let max_delay = Duration::from_secs(max_delay);
            let mut retries = Retries::new(RetryPolicy {
                base,
                max_delay,
                bucket: None,
                budget: None,
            });
            let last = (0..1000).map(|_| retries.failed(&1, Instant::now())).last();
            assert_eq!(last, Some(Retry::After(max_delay)));
        }
    }
}
