//! Finds backends that are silent: several attempts at them were not answered in time. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use contiv_renderer::nftables::BackendAttempts;

/// So many attempts without an answer are evidence: a single one may be a client's own fault.
const EVIDENCE: u64 = 3;

/// Judges readings of the kernel's counters. A backend that answers at all is never silent, however slow it is.
#[derive(Debug)]
pub(super) struct SilenceDetector {
    answer_within: Duration,
    backends: BTreeMap<SocketAddr, Known>,
}

/// What a reading says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// The backends with several attempts that are not answered, perhaps not yet.
    pub(super) unanswered: BTreeSet<SocketAddr>,
    /// Those of them whose attempts were not answered in time.
    pub(super) silent: BTreeSet<SocketAddr>,
}

/// What is known of a backend.
#[derive(Debug, Clone, Copy)]
enum Known {
    /// Attempts count from the next reading on.
    FromNextReading,
    /// These attempts.
    Attempts(Unanswered),
}

/// The attempts at a backend since it was last heard.
#[derive(Debug, Clone, Copy)]
struct Unanswered {
    /// Both counters when it was last heard.
    tried: u64,
    answered: u64,
    /// The counter of attempts at the last reading.
    latest: u64,
    /// When there was enough evidence.
    since: Option<Instant>,
}

impl SilenceDetector {
    /// A detector that knows no backend. An attempt is to be answered within this time.
    pub(super) const fn new(answer_within: Duration) -> Self {
        Self {
            answer_within,
            backends: BTreeMap::new(),
        }
    }

    /// Begins anew for a backend: it was heard by other means, or is chosen again.
    pub(super) fn reset(&mut self, backend: SocketAddr) {
        self.backends.insert(backend, Known::FromNextReading);
    }

    /// Forgets a backend.
    pub(super) fn forget(&mut self, backend: &SocketAddr) {
        self.backends.remove(backend);
    }

    /// Takes a reading of all backends that were tried within the last minute.
    pub(super) fn judge(
        &mut self,
        attempts: impl IntoIterator<Item = BackendAttempts>,
        now: Instant,
    ) -> Judged {
        let mut judged = Judged::default();
        for attempts in attempts {
            let backend = attempts.backend;
            let before = self.backends.get(&backend).copied();
            let after = after(before, &attempts, now);
            self.backends.insert(backend, Known::Attempts(after));
            let Some(since) = after.since else {
                continue;
            };
            judged.unanswered.insert(backend);
            if now.saturating_duration_since(since) >= self.answer_within {
                judged.silent.insert(backend);
            }
        }
        judged
    }
}

/// The attempts after a reading. `before`: none if the backend is new.
fn after(before: Option<Known>, attempts: &BackendAttempts, now: Instant) -> Unanswered {
    let begin_at = |tried| Unanswered {
        tried,
        answered: attempts.answered,
        latest: attempts.tried,
        since: None,
    };
    let before = match before {
        // The counter began anew, after a minute without attempts.
        Some(Known::Attempts(before)) if attempts.tried < before.latest => begin_at(0),
        Some(Known::Attempts(before)) => before,
        // Nobody has heard it since it is watched.
        None if attempts.answered == 0 => begin_at(0),
        None | Some(Known::FromNextReading) => begin_at(attempts.tried),
    };
    // The counter of answers is gone a minute after the last one.
    if attempts.answered != before.answered && attempts.answered != 0 {
        return begin_at(attempts.tried);
    }
    let has_evidence = attempts.tried - before.tried >= EVIDENCE;
    Unanswered {
        latest: attempts.tried,
        since: before.since.or(has_evidence.then_some(now)),
        ..before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(1);
    const STEP: Duration = Duration::from_millis(100);

    /// Judges readings of one backend, a tenth of a second apart, and returns the first at which it is silent.
    fn silent_at(readings: &[(u64, u64)]) -> Option<usize> {
        let (mut detector, start) = (SilenceDetector::new(WITHIN), Instant::now());
        (0..).zip(readings).position(|(step, reading)| {
            !detector
                .judge([attempts(*reading)], start + STEP * step)
                .silent
                .is_empty()
        })
    }

    fn attempts((tried, answered): (u64, u64)) -> BackendAttempts {
        BackendAttempts {
            backend: ([10, 0, 0, 1], 80).into(),
            tried,
            answered,
        }
    }

    #[test]
    fn backend_is_silent_a_second_after_three_unanswered_attempts() {
        let from_start: Vec<_> = (0..20).map(|step| (step, 0)).collect();
        assert_eq!(silent_at(&from_start), Some(13), "3 attempts at 0.3 s");
        let after_answers: Vec<_> = (0..20).map(|step| (100 + step, 90)).collect();
        assert_eq!(silent_at(&after_answers), Some(13));
        let two: Vec<_> = (0..20).map(|step: u64| (100 + step.min(2), 90)).collect();
        assert_eq!(silent_at(&two), None, "too few attempts");
        // A minute after its last answer that counter is gone.
        let mut gone = after_answers;
        gone.truncate(5);
        gone.extend((5..20).map(|step| (100 + step, 0)));
        assert_eq!(silent_at(&gone), Some(13));
    }

    #[test]
    fn slow_answers_and_new_counters_are_no_silence() {
        let slow: Vec<_> = (0..100).map(|step| (step * 50, step / 9)).collect();
        assert_eq!(silent_at(&slow[9..]), None, "one of 450 is answered");
        let anew: Vec<_> = (0..100).map(|step| (step % 9 + 1, 0)).collect();
        assert_eq!(
            silent_at(&anew),
            None,
            "the counter begins anew each second"
        );
    }

    #[test]
    fn backend_that_is_chosen_again_is_judged_by_new_attempts_only() {
        let (mut detector, start) = (SilenceDetector::new(WITHIN), Instant::now());
        let judge = |detector: &mut SilenceDetector, tried, seconds| {
            let now = start + Duration::from_secs(seconds);
            !detector
                .judge([attempts((tried, 0))], now)
                .silent
                .is_empty()
        };
        assert!(!judge(&mut detector, 9, 0));
        assert!(judge(&mut detector, 9, 1));
        detector.reset(attempts((0, 0)).backend);
        assert!(!judge(&mut detector, 9, 2));
        assert!(!judge(&mut detector, 11, 9), "two attempts");
        assert!(!judge(&mut detector, 12, 10));
        assert!(judge(&mut detector, 12, 11));
    }

    proptest! {
        /// Whoever answers within any second is never silent.
        #[test]
        fn backend_that_answers_each_second_is_never_silent(
            tried in proptest::collection::vec(0..40u64, 1..200),
            offset in 0..9usize,
        ) {
            let (mut all, mut answered) = (0, 1);
            let readings: Vec<_> = tried.iter().enumerate().map(|(step, tried)| {
                all += tried;
                answered += u64::from(step % 9 == offset);
                (all, answered)
            }).collect();
            prop_assert_eq!(silent_at(&readings), None);
        }
    }
}
