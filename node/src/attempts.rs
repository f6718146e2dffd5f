//! What clients' attempts at backends say about these: which refuse, which are silent, and which have a second chance. Pure.
//!
//! What a client meets may be its own fault, as where a network policy keeps it away. So a backend is probed before it is reported, and
//! one that answers the probe is excused for a while: it stays, and its refusals reach the clients.

mod silence;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};

use contiv_renderer::nftables::BackendAttempts;

use crate::message::{Input, Watch};
use silence::SilenceDetector;

/// A backend keeps its second chance for so long: attempts at it are on their way, and renderers take a moment until no new ones are.
const LINGER: Duration = Duration::from_secs(2);
/// How long a backend is excused that answered a probe: twice as long each time, at most the second one.
const FIRST_EXCUSE: Duration = Duration::from_secs(10);
const LONGEST_EXCUSE: Duration = Duration::from_secs(300);

/// Judges the backends that the core watches.
#[derive(Debug)]
pub struct AttemptJudge {
    detector: SilenceDetector,
    watched: BTreeMap<SocketAddr, Watch>,
    /// The backends whose place in the table may be another now.
    changed: BTreeSet<SocketAddr>,
    /// The backends that keep a second chance for a moment, and until when.
    lingering: BTreeMap<SocketAddr, Instant>,
    suspects: BTreeMap<SocketAddr, Suspect>,
    excuses: BTreeMap<SocketAddr, Excuse>,
    /// The silent ones as last reported.
    silent: BTreeSet<SocketAddr>,
}

/// A backend that is probed since it refused or may be silent.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    has_refused: bool,
    /// The probe was not answered either.
    is_confirmed: bool,
}

/// That a backend answered a probe. It is known for as long again, since the next one is longer.
#[derive(Debug, Clone, Copy)]
struct Excuse {
    until: Instant,
    length: Duration,
    is_over: bool,
}

/// What follows.
#[derive(Debug, Default)]
pub struct Findings {
    /// The backends to probe. Each ends in [`AttemptJudge::on_probed`].
    pub probes: Vec<SocketAddr>,
    /// A report for the core.
    pub report: Option<Input>,
}

impl AttemptJudge {
    /// Without backends. An attempt is to be answered within this time.
    pub const fn new(answer_within: Duration) -> Self {
        Self {
            detector: SilenceDetector::new(answer_within),
            watched: BTreeMap::new(),
            changed: BTreeSet::new(),
            lingering: BTreeMap::new(),
            suspects: BTreeMap::new(),
            excuses: BTreeMap::new(),
            silent: BTreeSet::new(),
        }
    }

    /// True if a backend is watched.
    pub fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// True if there is nothing to do as time passes.
    pub fn is_idle(&self) -> bool {
        self.watched.is_empty() && self.lingering.is_empty()
    }

    /// Changes which backends are watched.
    pub fn watch(&mut self, changes: BTreeMap<SocketAddr, Option<Watch>>, now: Instant) {
        let is_chosen = |watch: Option<Watch>| watch.is_some_and(|watch| watch.is_chosen);
        for (backend, watch) in changes {
            let had_second_chance = self.place(&backend, now) == Some(true);
            let before = match watch {
                Some(watch) => self.watched.insert(backend, watch),
                None => self.watched.remove(&backend),
            };
            if watch.is_none() {
                self.detector.forget(&backend);
                self.excuses.remove(&backend);
            } else if is_chosen(watch) && !is_chosen(before) {
                // Attempts of the time before do not count.
                self.detector.reset(backend);
            }
            if !is_chosen(watch) {
                self.suspects.remove(&backend);
            }
            if watch.is_some_and(|watch| watch.has_second_chance) {
                self.lingering.remove(&backend);
            } else if had_second_chance {
                self.lingering.entry(backend).or_insert(now + LINGER);
            }
            self.changed.insert(backend);
        }
    }

    /// The places in the table that may have changed: whether a backend has a second chance; none if it is not watched.
    pub fn take_places(&mut self, now: Instant) -> Vec<(SocketAddr, Option<bool>)> {
        self.lingering.retain(|backend, until| {
            let lingers = *until > now;
            if !lingers {
                self.changed.insert(*backend);
            }
            lingers
        });
        for (backend, excuse) in &mut self.excuses {
            if !excuse.is_over && excuse.until <= now {
                excuse.is_over = true;
                self.changed.insert(*backend);
            }
        }
        self.excuses
            .retain(|_, excuse| excuse.until + excuse.length > now);
        let changed = std::mem::take(&mut self.changed);
        let place = |backend| (backend, self.place(&backend, now));
        changed.into_iter().map(place).collect()
    }

    fn place(&self, backend: &SocketAddr, now: Instant) -> Option<bool> {
        if self.lingering.contains_key(backend) {
            return Some(true);
        }
        let watch = self.watched.get(backend)?;
        Some(watch.has_second_chance && !self.is_excused(backend, now))
    }

    fn is_excused(&self, backend: &SocketAddr, now: Instant) -> bool {
        let excuse = self.excuses.get(backend);
        excuse.is_some_and(|excuse| now < excuse.until)
    }

    /// These backends refused an attempt, or an ICMP error said that they cannot be reached.
    pub fn on_refused(&mut self, backends: Vec<SocketAddr>, now: Instant) -> Findings {
        let mut refusing = BTreeSet::new();
        let mut probes = Vec::new();
        for backend in backends {
            let Some(suspect) = self.suspect(backend, now, &mut probes) else {
                continue;
            };
            suspect.has_refused = true;
            if suspect.is_confirmed {
                refusing.insert(backend);
            }
        }
        Findings {
            probes,
            report: self.refusal(refusing),
        }
    }

    /// A probe has ended.
    pub fn on_probed(&mut self, backend: SocketAddr, is_answered: bool, now: Instant) -> Findings {
        let Some(suspect) = self.suspects.get_mut(&backend) else {
            return Findings::default();
        };
        if is_answered {
            self.suspects.remove(&backend);
            self.detector.reset(backend);
            let before = self.excuses.get(&backend);
            let length = before.map_or(FIRST_EXCUSE, |before| {
                (before.length * 2).min(LONGEST_EXCUSE)
            });
            let excuse = Excuse {
                until: now + length,
                length,
                is_over: false,
            };
            self.excuses.insert(backend, excuse);
            self.changed.insert(backend);
            return Findings::default();
        }
        suspect.is_confirmed = true;
        let refusing = suspect.has_refused.then_some(backend);
        Findings {
            probes: Vec::new(),
            report: self.refusal(refusing.into_iter().collect()),
        }
    }

    /// Takes a reading of the counters. Reports which backends are silent, if that has changed; one that may be is probed meanwhile.
    pub fn on_reading(
        &mut self,
        attempts: impl IntoIterator<Item = BackendAttempts>,
        now: Instant,
    ) -> Findings {
        let judged = self.detector.judge(attempts, now);
        // Those that were answered meanwhile are none any more.
        self.suspects
            .retain(|backend, suspect| suspect.has_refused || judged.unanswered.contains(backend));
        let mut probes = Vec::new();
        for backend in judged.unanswered {
            self.suspect(backend, now, &mut probes);
        }
        let is_confirmed = |backend: &SocketAddr| {
            let suspect = self.suspects.get(backend);
            suspect.is_some_and(|suspect| suspect.is_confirmed)
        };
        let silent: BTreeSet<SocketAddr> = judged.silent.into_iter().filter(is_confirmed).collect();
        let report = (silent != self.silent).then(|| Input::BackendsSilent(silent.clone()));
        self.silent = silent;
        Findings { probes, report }
    }

    /// The core was told that nothing is known: it has forgotten what was reported.
    pub fn forget_reports(&mut self) {
        self.silent.clear();
    }

    /// The suspect that a chosen backend is, or becomes with a probe; none if it is excused.
    fn suspect(
        &mut self,
        backend: SocketAddr,
        now: Instant,
        probes: &mut Vec<SocketAddr>,
    ) -> Option<&mut Suspect> {
        let watch = self.watched.get(&backend)?;
        if !watch.is_chosen || self.is_excused(&backend, now) {
            return None;
        }
        let suspect = self.suspects.entry(backend).or_insert_with(|| {
            probes.push(backend);
            Suspect {
                has_refused: false,
                is_confirmed: false,
            }
        });
        Some(suspect)
    }

    fn refusal(&mut self, backends: BTreeSet<SocketAddr>) -> Option<Input> {
        for backend in &backends {
            self.suspects.remove(backend);
            // It is not silent.
            self.detector.reset(*backend);
        }
        (!backends.is_empty()).then_some(Input::BackendsRefused(backends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(1);
    const WATCH: Watch = Watch {
        is_chosen: true,
        has_second_chance: true,
    };

    fn backend() -> SocketAddr {
        ([10, 0, 0, 1], 80).into()
    }

    /// A judge that watches one backend, with its place taken.
    fn judge(now: Instant) -> AttemptJudge {
        let mut judge = AttemptJudge::new(WITHIN);
        judge.watch([(backend(), Some(WATCH))].into(), now);
        assert_eq!(judge.take_places(now), [(backend(), Some(true))]);
        judge
    }

    fn refused(report: Option<Input>) -> Option<BTreeSet<SocketAddr>> {
        report.map(|report| match report {
            Input::BackendsRefused(backends) => backends,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn refusal_is_reported_once_a_probe_is_not_answered_either() {
        let now = Instant::now();
        let mut judge = judge(now);
        let first = judge.on_refused(vec![backend()], now);
        assert_eq!(
            (first.probes, refused(first.report)),
            (vec![backend()], None)
        );
        let again = judge.on_refused(vec![backend()], now);
        assert!(again.probes.is_empty(), "it is probed already");
        let probed = judge.on_probed(backend(), false, now);
        assert_eq!(refused(probed.report), Some([backend()].into()));
        let late = judge.on_probed(backend(), false, now);
        assert!(late.report.is_none(), "it is no suspect any more");
        let unknown = judge.on_refused(vec![([10, 0, 0, 2], 80).into()], now);
        assert!(unknown.probes.is_empty(), "it is not watched");
    }

    #[test]
    fn backend_that_answers_probes_is_excused_for_longer_each_time() {
        let mut now = Instant::now();
        let mut judge = judge(now);
        for length in [10, 20, 40] {
            assert_eq!(judge.on_refused(vec![backend()], now).probes, [backend()]);
            assert!(judge.on_probed(backend(), true, now).report.is_none());
            let without = [(backend(), Some(false))];
            assert_eq!(judge.take_places(now), without, "its refusals are heard");
            now += Duration::from_secs(length - 1);
            assert!(judge.on_refused(vec![backend()], now).probes.is_empty());
            assert!(judge.take_places(now).is_empty());
            now += Duration::from_secs(1);
            assert_eq!(judge.take_places(now), [(backend(), Some(true))]);
            assert!(judge.take_places(now).is_empty(), "once");
        }
        // As long after the last one without any other it is forgotten.
        now += Duration::from_secs(40);
        judge.take_places(now);
        judge.on_refused(vec![backend()], now);
        judge.on_probed(backend(), true, now);
        judge.take_places(now);
        now += FIRST_EXCUSE;
        assert_eq!(judge.take_places(now), [(backend(), Some(true))]);
    }

    #[test]
    fn silence_is_reported_if_the_probe_is_not_answered() {
        for is_answered in [false, true] {
            let now = Instant::now();
            let mut judge = judge(now);
            let read = |judge: &mut AttemptJudge, tried, seconds| {
                let attempts = BackendAttempts {
                    backend: backend(),
                    tried,
                    answered: 0,
                };
                judge.on_reading([attempts], now + Duration::from_secs(seconds))
            };
            assert!(read(&mut judge, 2, 0).probes.is_empty());
            assert_eq!(read(&mut judge, 5, 0).probes, [backend()], "at once");
            let early = read(&mut judge, 6, 1);
            assert!(early.report.is_none(), "the probe may be answered");
            let later = now + WITHIN;
            assert!(
                judge
                    .on_probed(backend(), is_answered, later)
                    .report
                    .is_none()
            );
            let said = read(&mut judge, 7, 1)
                .report
                .map(|report| format!("{report:?}"));
            let silent = format!("{:?}", Input::BackendsSilent([backend()].into()));
            assert_eq!(said, (!is_answered).then_some(silent));
            assert!(read(&mut judge, 7, 1).report.is_none(), "once");
        }
    }

    #[test]
    fn second_chance_lingers_when_a_backend_leaves_or_goes() {
        let out = Watch {
            is_chosen: false,
            has_second_chance: false,
        };
        for (watch, place) in [(Some(out), Some(false)), (None, None)] {
            let now = Instant::now();
            let mut judge = judge(now);
            judge.watch([(backend(), watch)].into(), now);
            assert_eq!(judge.take_places(now), [(backend(), Some(true))]);
            assert!(!judge.is_idle());
            let ended = now + LINGER;
            assert_eq!(judge.take_places(ended), [(backend(), place)]);
            assert_eq!(judge.is_idle(), watch.is_none());
        }
    }
}
