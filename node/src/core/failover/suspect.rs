//! The backends that refused or are silent, and when they are probed.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::message::{FailureCause, Now};

/// The time before the first probe.
const FIRST_PROBE_DELAY: Duration = Duration::from_secs(1);
/// The longest time between probes; before, each is twice the one before. With jitter and a probe, a backend that answers again is back
/// within 5 s.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(3);
/// A backend that fails again so soon after it came back has twice the time before its first probe.
const RELAPSE_LIMIT: Duration = Duration::from_secs(10);
/// How long a backend is out at most: then real connections try it, since a network policy may keep this node's probes away.
const TRIAL_AFTER: Duration = Duration::from_secs(5 * 60);

/// Why a backend is no longer suspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Return {
    /// It answered, so long after it was suspected.
    Answered(Duration),
    /// It was out for so long that real connections try it.
    Trial,
    /// The store says something new of it.
    News,
    /// The kernel no longer counts attempts.
    KernelError,
}

impl fmt::Display for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(after) => write!(f, "answers again after {:.1} s", after.as_secs_f64()),
            Self::Trial => write!(f, "is tried again after {} s", TRIAL_AFTER.as_secs()),
            Self::News => f.write_str("is chosen again: the store has changed it"),
            Self::KernelError => f.write_str("is chosen again: failover does not work"),
        }
    }
}

/// A backend that refused or is silent.
#[derive(Debug, Clone)]
pub(super) struct Suspect {
    pub(super) cause: FailureCause,
    pub(super) since: Now,
    /// The time before the first probe.
    first_delay: Duration,
    /// The time before the last probe.
    delay: Duration,
    /// When the next probe is due; none while one is running.
    pub(super) next_probe: Option<Instant>,
}

impl Suspect {
    /// How long it has been suspected.
    pub(super) fn age(&self, now: Now) -> Duration {
        now.instant.saturating_duration_since(self.since.instant)
    }
}

/// All suspects.
#[derive(Debug, Default)]
pub(super) struct SuspectedBackends {
    all: BTreeMap<SocketAddr, Suspect>,
    /// The backends that answered a probe a while ago: when, and the time before their first probe.
    answered: BTreeMap<SocketAddr, (Instant, Duration)>,
}

impl SuspectedBackends {
    pub(super) fn get(&self, backend: &SocketAddr) -> Option<&Suspect> {
        self.all.get(backend)
    }

    /// True if nothing is known of any backend.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.answered.is_empty()
    }

    /// All of them, in the order of addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SocketAddr, &Suspect)> {
        self.all.iter()
    }

    /// Adds a backend. False if it was suspected for this cause, or refused before.
    pub(super) fn add(&mut self, backend: SocketAddr, cause: FailureCause, now: Now) -> bool {
        if let Some(suspect) = self.all.get_mut(&backend) {
            // What refuses is reached: it does not count as silent.
            let is_news = suspect.cause == FailureCause::Silent && cause == FailureCause::Refused;
            if is_news {
                suspect.cause = cause;
            }
            return is_news;
        }
        self.answered
            .retain(|_, (at, _)| now.instant.saturating_duration_since(*at) <= RELAPSE_LIMIT);
        let first_delay = self
            .answered
            .remove(&backend)
            .map_or(FIRST_PROBE_DELAY, |(_, before)| {
                (before * 2).min(MAX_PROBE_DELAY)
            });
        let suspect = Suspect {
            cause,
            since: now,
            first_delay,
            delay: first_delay,
            next_probe: Some(now.instant + jittered(first_delay, now)),
        };
        self.all.insert(backend, suspect);
        true
    }

    /// Forgets what was known of a backend. False if it was no suspect.
    pub(super) fn forget(&mut self, backend: SocketAddr) -> bool {
        self.answered.remove(&backend);
        self.all.remove(&backend).is_some()
    }

    /// Forgets all suspects, and returns them.
    pub(super) fn forget_all(&mut self) -> Vec<SocketAddr> {
        self.answered.clear();
        std::mem::take(&mut self.all).into_keys().collect()
    }

    /// Handles the answer to a probe. Returns how long it was a suspect if it is none any more.
    pub(super) fn on_probed(
        &mut self,
        backend: SocketAddr,
        is_answered: bool,
        now: Now,
    ) -> Option<Duration> {
        // The probe of an earlier suspicion says nothing about this one.
        let suspect = self
            .all
            .get_mut(&backend)
            .filter(|suspect| suspect.next_probe.is_none())?;
        if is_answered {
            let after = suspect.age(now);
            self.answered
                .insert(backend, (now.instant, suspect.first_delay));
            self.all.remove(&backend);
            Some(after)
        } else {
            suspect.delay = (suspect.delay * 2).min(MAX_PROBE_DELAY);
            suspect.next_probe = Some(now.instant + jittered(suspect.delay, now));
            None
        }
    }

    /// When the next probe or trial is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let deadlines = self.all.values().flat_map(|suspect| {
            [
                suspect.next_probe,
                Some(suspect.since.instant + TRIAL_AFTER),
            ]
        });
        deadlines.flatten().min()
    }

    /// Forgets those that real connections shall try, and returns them.
    pub(super) fn take_trials(&mut self, now: Now) -> Vec<SocketAddr> {
        let is_due = |suspect: &Suspect| suspect.since.instant + TRIAL_AFTER <= now.instant;
        let due = self.all.iter().filter(|(_, suspect)| is_due(suspect));
        let due: Vec<SocketAddr> = due.map(|(backend, _)| *backend).collect();
        for backend in &due {
            self.all.remove(backend);
        }
        due
    }

    /// The backends whose probes are due, which begin now.
    pub(super) fn take_probes(&mut self, now: Now) -> Vec<SocketAddr> {
        let mut due = Vec::new();
        for (backend, suspect) in &mut self.all {
            if suspect
                .next_probe
                .take_if(|at| *at <= now.instant)
                .is_some()
            {
                due.push(*backend);
            }
        }
        due
    }
}

/// From three to five quarters of a delay, so that many nodes do not probe a backend at the same time.
fn jittered(delay: Duration, now: Now) -> Duration {
    delay.mul_f64(0.75 + now.random / 2.0)
}
