//! Requests at any moment: while a renderer works, waits after a failure, or has a repair before it. Whatever comes when, all of it
//! is applied in the end, once, and what is shown meanwhile is true.

use std::collections::{BTreeMap, BTreeSet};

use contiv_model::{ContivService, ServiceChange, ServiceId};
use contiv_renderer::Report;
use proptest::{collection::vec, prelude::*};

use super::super::*;
use crate::core::history::Timestamps;

const NAME: &str = "test";
/// The longest pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A change of the store that concerns the renderer.
    Change,
    /// One that does not.
    OtherChange,
    Resync,
    ForeignChange,
    /// The current work ends well, or not.
    Done(bool),
    /// A panic outside of work has lost the renderer's state.
    Lost,
    Wait(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Change),
        1 => Just(Step::OtherChange),
        1 => Just(Step::Resync),
        2 => Just(Step::ForeignChange),
        6 => any::<bool>().prop_map(Step::Done),
        1 => Just(Step::Lost),
        2 => (0..12_000_u64).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
        2 => (0..200_u64).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
    ]
}

/// The state of the store is a number, and so is that of the dataplane.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct World {
    renderers: Renderers,
    now: Now,
    state: u32,
    revision: i64,
    events: u64,
    /// The events that are not applied, with the time of each.
    unapplied: BTreeMap<u64, Instant>,
    /// The changes of the store among them.
    unapplied_changes: BTreeSet<u64>,
    current: Option<CurrentCall>,
    /// Whether the current call was reported as slow.
    is_slow: bool,
    /// None while it is unknown.
    dataplane: Option<u32>,
    /// The revision of the store in it, at least.
    dataplane_revision: i64,
    is_damaged: bool,
    /// The renderer does not know the dataplane, which stays as it is.
    is_lost: bool,
    is_ready: bool,
    failures: u32,
}

#[derive(Debug)]
struct CurrentCall {
    work: Work,
    revision: i64,
    /// The last event before it.
    last_event: u64,
    is_damaged_since: bool,
}

impl World {
    fn new() -> Self {
        let now = Now {
            instant: Instant::now(),
            time: Timestamp::UNIX_EPOCH,
            random: 1.0,
        };
        let mut world = Self {
            renderers: Renderers::new([NAME.into()]),
            now,
            state: 0,
            revision: 1,
            events: 0,
            unapplied: BTreeMap::new(),
            unapplied_changes: BTreeSet::new(),
            current: None,
            is_slow: false,
            dataplane: None,
            dataplane_revision: 0,
            is_damaged: false,
            is_lost: false,
            is_ready: false,
            failures: 0,
        };
        world.take(Step::Resync);
        world
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Change => {
                self.note_change();
                let changes = Arc::new(change(self.state, self.state + 1));
                self.state += 1;
                let event = self.event();
                self.unapplied_changes.insert(event.first);
                self.renderers.add_changes(&changes, event);
            }
            Step::OtherChange => {
                self.note_change();
                self.renderers.advance_revision(self.revision);
                // What needs no work is in the dataplane as soon as all changes before it are.
                if let Some(current) = &mut self.current
                    && self
                        .unapplied_changes
                        .range(current.last_event + 1..)
                        .next()
                        .is_none()
                {
                    current.revision = self.revision;
                }
            }
            Step::Resync => {
                let event = self.event();
                self.renderers.need_resync(&[NAME.into()], event);
            }
            Step::ForeignChange => {
                let next = EventRange::one(self.events + 1, Timestamps::now(self.now));
                if self
                    .renderers
                    .on_foreign_change(NAME, next, self.now.instant)
                {
                    self.event();
                }
                self.is_damaged = true;
                self.current
                    .iter_mut()
                    .for_each(|current| current.is_damaged_since = true);
            }
            Step::Done(is_good) => self.end_call(is_good),
            Step::Lost if self.current.is_none() && self.is_ready => {
                self.renderers.on_lost(NAME, "lost".to_owned(), self.now);
                self.is_lost = true;
                self.failures += 1;
            }
            // Its current work fails by itself.
            Step::Lost => self.renderers.on_lost(NAME, "lost".to_owned(), self.now),
            Step::Wait(time) => {
                self.now.instant += time;
                self.take_due();
            }
        }
        self.dispatch();
        self.check();
    }

    fn note_change(&mut self) {
        self.revision += 1;
        self.renderers.note_seen(ObjectChanges {
            services: 1,
            endpoints: 0,
        });
    }

    fn event(&mut self) -> EventRange {
        self.events += 1;
        self.unapplied.insert(self.events, self.now.instant);
        EventRange::one(self.events, Timestamps::now(self.now))
    }

    fn take_due(&mut self) {
        for (_, due) in self.renderers.take_due(self.now.instant) {
            match due {
                ExpiredTimer::Slow => {
                    assert!(
                        self.current.is_some() && !std::mem::replace(&mut self.is_slow, true),
                        "once"
                    );
                }
                ExpiredTimer::Retry(_) => {
                    let event = self.event();
                    self.renderers.need_resync(&[NAME.into()], event);
                }
                ExpiredTimer::LeftOut(services) => panic!("no report has left out {services:?}"),
            }
        }
    }

    fn dispatch(&mut self) {
        let mut out = Vec::new();
        let (state, snapshot) = (self.state, || snapshot(self.state));
        self.renderers
            .dispatch(self.revision, self.now, snapshot, &mut out);
        for output in out {
            let Output::Render(_, work) = output else {
                panic!("{output:?}")
            };
            assert!(self.current.is_none(), "one at a time");
            assert!(
                !self.is_lost || matches!(work, Work::Resync(_)),
                "only a resync needs no state"
            );
            match &work {
                Work::Update(changes) => {
                    assert_eq!(
                        Some(&**changes),
                        self.dataplane.map(|old| change(old, state)).as_ref()
                    );
                }
                Work::Heal(_) => assert!(
                    self.is_damaged && self.dataplane.is_some(),
                    "nothing to repair"
                ),
                Work::Resync(_) => {}
            }
            let (revision, last_event) = (self.revision, self.events);
            self.current = Some(CurrentCall {
                work,
                revision,
                last_event,
                is_damaged_since: false,
            });
            self.is_slow = false;
        }
    }

    fn end_call(&mut self, is_good: bool) {
        let Some(CurrentCall {
            work,
            revision,
            last_event,
            is_damaged_since,
        }) = self.current.take()
        else {
            return;
        };
        let result = if is_good {
            Ok(Report::default())
        } else {
            Err("no".to_owned())
        };
        let (renderer, duration) = (NAME.into(), Duration::ZERO);
        let done = WorkDone {
            renderer,
            result,
            is_watched: true,
            duration,
        };
        let report = self
            .renderers
            .work_done(done, self.now, &mut Vec::new())
            .unwrap();
        if !is_good {
            self.dataplane = None;
            self.failures += 1;
            if self.failures == 1 && self.renderers.find(NAME).unwrap().repairs.due().is_none() {
                let pause = self.renderers.deadline().map(|at| at - self.now.instant);
                assert_eq!(
                    pause,
                    Some(FIRST_PAUSE),
                    "the first pause, whatever failed before"
                );
            }
            return;
        }
        self.failures = 0;
        (self.is_ready, self.is_lost) = (true, false);
        // A repair is of what others changed, and of nothing else.
        if !matches!(work, Work::Update(_)) {
            self.is_damaged &= is_damaged_since;
        }
        if !matches!(work, Work::Heal(_)) {
            self.dataplane_revision = revision;
            let service = match &work {
                Work::Update(changes) => changes
                    .services
                    .values()
                    .find_map(|change| change.new.as_ref()),
                Work::Resync(snapshot) | Work::Heal(snapshot) => snapshot.services.values().next(),
            };
            self.dataplane = service.map(|service| service.session_affinity_timeout);
        }
        assert!(
            report.events.last <= last_event,
            "later ones are not applied"
        );
        let applied = report.events.first..=report.events.last;
        self.unapplied.retain(|event, _| !applied.contains(event));
        self.unapplied_changes
            .retain(|event| !applied.contains(event));
    }

    /// What is shown is true.
    fn check(&mut self) {
        let view = self.renderers.views(self.now.instant, |_| None).remove(0);
        let (_, pending) = self.renderers.seen_and_pending(NAME);
        assert!(
            pending.services >= self.unapplied_changes.len() as u64,
            "{pending:?} {self:#?}"
        );
        assert_eq!((view.failures, view.ready), (self.failures, self.is_ready));
        self.dataplane_revision = self.dataplane_revision.max(self.known_revision());
        assert!(
            view.applied_revision <= self.dataplane_revision,
            "{self:#?}"
        );
        let health = self.renderers.health(NAME, self.now.instant);
        assert_eq!(health.in_sync, self.is_ready && self.failures == 0);
        if self.is_ready {
            assert_eq!(
                health.unapplied_since,
                self.unapplied.values().min().copied(),
                "{self:#?}"
            );
        }
    }

    /// The dataplane has all up to this revision if no change waits.
    fn known_revision(&self) -> i64 {
        if self.unapplied_changes.is_empty() && self.dataplane == Some(self.state) {
            self.revision
        } else {
            0
        }
    }

    /// Ends all work and lets all timers expire.
    fn settle(&mut self) {
        for _ in 0..100 {
            if self.current.is_some() {
                self.take(Step::Done(true));
            } else if let Some(at) = self.renderers.deadline() {
                self.take(Step::Wait(at.saturating_duration_since(self.now.instant)));
            } else {
                break;
            }
        }
        let view = self.renderers.views(self.now.instant, |_| None).remove(0);
        assert_eq!(
            (view.state, view.pending, view.applied_revision),
            ("idle", "nothing", self.revision)
        );
        assert_eq!((self.dataplane, self.is_damaged), (Some(self.state), false));
        assert_eq!(self.unapplied, BTreeMap::new());
        assert!(self.renderers.calls_if_settled(NAME).is_some());
    }
}

fn service(state: u32) -> Arc<ContivService> {
    let id = ServiceId::new("default", "web");
    Arc::new(ContivService {
        session_affinity_timeout: state,
        ..ContivService::new(id)
    })
}

fn snapshot(state: u32) -> Snapshot {
    Snapshot {
        services: [(ServiceId::new("default", "web"), service(state))].into(),
        ..Snapshot::default()
    }
}

fn change(old: u32, new: u32) -> ChangeSet {
    let change = ServiceChange {
        old: Some(service(old)),
        new: Some(service(new)),
    };
    ChangeSet {
        services: [(ServiceId::new("default", "web"), change)].into(),
        ..ChangeSet::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn requests_at_any_moment_are_all_done_once(steps in vec(step(), 0..40)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.settle();
    }
}
