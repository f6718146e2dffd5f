//! When the services that a renderer has left out are tried again: what refused them, such as a lack of memory, may have passed.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use contiv_model::ServiceId;
use contiv_renderer::{Rejected, renderer::LEFT_TO_NFTABLES};
use contiv_store::Backoff;

use crate::message::Now;

/// The pauses between attempts: each is twice the one before, up to the maximum. An attempt costs a few transactions.
const MIN_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The services that are left out, and when they are tried again.
#[derive(Debug)]
pub(super) struct LeftOutServices {
    services: BTreeSet<ServiceId>,
    backoff: Backoff,
    retry_at: Option<Instant>,
}

impl LeftOutServices {
    pub(super) const fn new() -> Self {
        Self {
            services: BTreeSet::new(),
            backoff: Backoff::new(MIN_PAUSE, MAX_PAUSE),
            retry_at: None,
        }
    }

    /// Records the services that the last call has left out. If there are new ones, all are tried again after the first pause.
    pub(super) fn replace(&mut self, rejected: &[Rejected], now: Now) {
        let left_out = rejected
            .iter()
            .filter(|rejected| rejected.active_state != LEFT_TO_NFTABLES);
        let services: BTreeSet<ServiceId> =
            left_out.map(|rejected| rejected.service.clone()).collect();
        let has_new = !services.is_subset(&self.services);
        if services.is_empty() || has_new {
            self.backoff.reset();
            self.retry_at = None;
        }
        if !services.is_empty() && self.retry_at.is_none() {
            self.retry_at = Some(now.instant + self.backoff.next(now.random));
        }
        self.services = services;
    }

    /// When they are tried again; none if there are none, or if they are being tried.
    pub(super) const fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// The services to be tried again now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<BTreeSet<ServiceId>> {
        self.retry_at.take_if(|retry_at| *retry_at <= now)?;
        Some(self.services.clone())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn rejected(names: &[&str], active_state: &'static str) -> Vec<Rejected> {
        let rejected = |name: &&str| Rejected {
            service: ServiceId::new("default", *name),
            reason: "no memory".to_owned(),
            active_state,
        };
        names.iter().map(rejected).collect()
    }

    /// When the services are tried again, in seconds after `start`, if each attempt leaves out these.
    fn pauses(attempts: &[&[Rejected]]) -> Vec<u64> {
        let start = Instant::now();
        let mut left_out = LeftOutServices::new();
        let mut now = Now {
            instant: start,
            time: Timestamp::UNIX_EPOCH,
            random: 1.0,
        };
        let mut pauses = Vec::new();
        for rejected in attempts {
            left_out.replace(rejected, now);
            let Some(retry_at) = left_out.retry_at() else {
                break;
            };
            pauses.push(retry_at.duration_since(now.instant).as_secs());
            now.instant = retry_at;
            let expected: Vec<ServiceId> = rejected
                .iter()
                .map(|rejected| rejected.service.clone())
                .collect();
            assert!(
                left_out
                    .take_due(retry_at)
                    .is_some_and(|due| due.into_iter().eq(expected))
            );
            assert_eq!(left_out.take_due(retry_at), None, "they are being tried");
        }
        pauses
    }

    #[test]
    fn pauses_grow_while_the_same_are_left_out() {
        let web = rejected(&["web"], "nothing");
        assert_eq!(pauses(&[&*web; 9]), [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(
            pauses(&[&web, &web, &[], &web]),
            [5, 10],
            "nothing is left to try"
        );
    }

    #[test]
    fn service_left_out_anew_is_tried_after_the_first_pause() {
        let (web, both) = (
            rejected(&["web"], "last good"),
            rejected(&["db", "web"], "last good"),
        );
        assert_eq!(
            pauses(&[&web, &web, &both, &both, &web]),
            [5, 10, 5, 10, 20]
        );
    }

    #[test]
    fn service_that_another_renderer_serves_is_not_tried_again() {
        assert!(pauses(&[&rejected(&["web"], LEFT_TO_NFTABLES)]).is_empty());
    }

    #[test]
    fn calls_in_between_do_not_postpone_the_attempt() {
        let now = Now {
            instant: Instant::now(),
            time: Timestamp::UNIX_EPOCH,
            random: 1.0,
        };
        let mut left_out = LeftOutServices::new();
        left_out.replace(&rejected(&["web"], "nothing"), now);
        let due = left_out.retry_at();
        left_out.replace(
            &rejected(&["web"], "nothing"),
            Now {
                instant: now.instant + MIN_PAUSE / 2,
                ..now
            },
        );
        assert_eq!(left_out.retry_at(), due);
    }
}
