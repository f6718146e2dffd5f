//! Decides whether this node's dataplane is up to date.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// How long a change may be pending until the dataplane counts as out of date. kube-proxy uses twice its `syncPeriod`, which is
/// 30 s.
pub const UNAPPLIED_LIMIT: Duration = Duration::from_secs(60);

/// The health of the agent, as far as the traffic of this node depends on it. All of it concerns one renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHealth {
    /// The first snapshot has been applied, and the last call did not fail.
    pub in_sync: bool,
    /// When the oldest pending change arrived; the agent's start until the first snapshot is applied.
    pub unapplied_since: Option<Instant>,
    /// When something was last applied.
    pub last_applied: Option<Timestamp>,
    /// False when the Node object of this node was deleted, or is about to be. True if it never existed.
    pub node_eligible: bool,
    /// False if the agent tries to reach itself through its rules, and does not.
    pub is_proven: bool,
}

impl ProxyHealth {
    /// The state of an agent that starts now.
    pub const fn starting(now: Instant) -> Self {
        Self {
            in_sync: false,
            unapplied_since: Some(now),
            last_applied: None,
            node_eligible: true,
            is_proven: true,
        }
    }

    /// True if the rules are seen to work, or nobody looks, and no change has been pending for too long. So an agent that starts, or
    /// fails for a moment, is not out of date yet: the kernel's state keeps working.
    pub fn is_up_to_date(self, now: Instant) -> bool {
        let is_waiting = self
            .unapplied_since
            .is_some_and(|since| now.saturating_duration_since(since) > UNAPPLIED_LIMIT);
        self.is_proven && !is_waiting
    }

    /// True if the dataplane matches the store, so that a load balancer can rely on the local endpoints of a service.
    pub fn is_healthy(self, now: Instant) -> bool {
        self.in_sync && self.is_up_to_date(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dataplane_is_outdated_when_a_change_waits_over_60_s() {
        let start = Instant::now();
        let health = ProxyHealth {
            in_sync: true,
            unapplied_since: Some(start),
            ..ProxyHealth::starting(start)
        };
        for (seconds, expected) in [(0, true), (60, true), (61, false)] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(health.is_up_to_date(now), expected, "{seconds}");
            assert_eq!(health.is_healthy(now), expected, "{seconds}");
        }
        let applied = ProxyHealth {
            unapplied_since: None,
            ..health
        };
        assert!(applied.is_healthy(start + Duration::from_secs(1000)));
    }

    #[test]
    fn dataplane_that_is_seen_to_fail_is_not_up_to_date() {
        let now = Instant::now();
        let health = ProxyHealth {
            in_sync: true,
            unapplied_since: None,
            is_proven: false,
            ..ProxyHealth::starting(now)
        };
        assert_eq!(
            (health.is_up_to_date(now), health.is_healthy(now)),
            (false, false)
        );
    }

    #[test]
    fn failed_renderer_is_up_to_date_but_not_healthy() {
        let now = Instant::now();
        let health = ProxyHealth {
            in_sync: false,
            ..ProxyHealth::starting(now)
        };
        assert_eq!(
            (health.is_up_to_date(now), health.is_healthy(now)),
            (true, false)
        );
    }
}
