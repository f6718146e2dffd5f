//! The search for services that make a renderer fail, before renderers that fail.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use contiv_model::{ChangeSet, ContivService, ServiceId, Snapshot};
use contiv_renderer::{
    Description, RenderError, Renderer, Report, dry_run::DryRun, poison_isolator::PoisonIsolator,
};
use contiv_renderer_testing::{FaultRates, FaultSwitch, Faulty};

/// So often a first resync fails before services are looked for.
const FAILED_RESYNCS_BEFORE_ISOLATION: u32 = 5;
const NONE: FaultRates = FaultRates::NONE;

fn is_poison(service: &ContivService) -> bool {
    service.session_affinity_timeout == 666
}

fn isolator(rates: FaultRates, seed: u64) -> PoisonIsolator<Faulty<DryRun>> {
    switchable(rates, seed, FaultSwitch::default())
}

fn switchable(rates: FaultRates, seed: u64, switch: FaultSwitch) -> PoisonIsolator<Faulty<DryRun>> {
    let faulty = Faulty::new(DryRun::new(), "faulty", rates, seed, switch);
    PoisonIsolator::new(faulty.poisoned_by(is_poison))
}

/// A service in some version; one that is poisonous.
fn service(number: usize, version: u32) -> (ServiceId, Arc<ContivService>) {
    let id = ServiceId::new("default", format!("s{number:03}"));
    let service = ContivService {
        session_affinity_timeout: version,
        ..ContivService::new(id.clone())
    };
    (id, Arc::new(service))
}

const POISON: u32 = 666;

/// This many services, of which some are poisonous.
fn snapshot(count: usize, version: u32, poison: &[usize]) -> Snapshot {
    let of_version = |number| {
        service(
            number,
            if poison.contains(&number) {
                POISON
            } else {
                version
            },
        )
    };
    Snapshot {
        services: (0..count).map(of_version).collect(),
        ..Snapshot::default()
    }
}

fn refused(report: &Report) -> Vec<(String, &'static str)> {
    report
        .rejected
        .iter()
        .map(|rejected| (rejected.service.name.to_string(), rejected.active_state))
        .collect()
}

/// The output of a renderer without faults.
fn text(snapshot: &Snapshot) -> String {
    let mut renderer = DryRun::new();
    renderer.resync(snapshot).unwrap();
    renderer.describe().text
}

#[test]
fn poison_among_many_changes_is_found_and_rest_is_applied() {
    let mut renderer = isolator(NONE, 1);
    let before = snapshot(100, 1, &[]);
    renderer.resync(&before).unwrap();
    let desired = snapshot(130, 2, &[7, 8, 120]);
    let report = renderer
        .update(&ChangeSet::between(&before, &desired))
        .unwrap();
    let names =
        |numbers: [(&str, &'static str); 3]| numbers.map(|(name, what)| (name.to_owned(), what));
    assert_eq!(
        refused(&report),
        names([
            ("s007", "last good"),
            ("s008", "last good"),
            ("s120", "nothing")
        ])
    );
    assert!(
        report.rejected[0].reason.contains("poison"),
        "{}",
        report.rejected[0].reason
    );
    let mut expected = desired.clone();
    expected.services.extend([service(7, 1), service(8, 1)]);
    expected.services.remove(&service(120, 1).0);
    assert_eq!(renderer.describe().text, text(&expected));

    // Repairs and resyncs leave them out; a changed one is tried again.
    assert_eq!(refused(&renderer.heal(&desired).unwrap()).len(), 3);
    assert_eq!(renderer.describe().text, text(&expected));
    assert_eq!(refused(&renderer.resync(&desired).unwrap()).len(), 3);
    assert_eq!(renderer.describe().text, text(&expected));
    let good = snapshot(130, 2, &[8, 120]);
    let report = renderer
        .update(&ChangeSet::between(&desired, &good))
        .unwrap();
    assert_eq!(refused(&report).len(), 2);
    let report = renderer
        .update(&ChangeSet::between(&good, &snapshot(120, 3, &[])))
        .unwrap();
    assert_eq!(refused(&report), []);
    assert_eq!(renderer.describe().text, text(&snapshot(120, 3, &[])));
}

#[test]
fn first_resync_failing_repeatedly_isolates_poison() {
    let mut renderer = isolator(NONE, 1);
    let desired = snapshot(64, 1, &[63]);
    for _ in 1..FAILED_RESYNCS_BEFORE_ISOLATION {
        assert!(renderer.resync(&desired).is_err());
    }
    assert_eq!(
        refused(&renderer.resync(&desired).unwrap()),
        [("s063".to_owned(), "nothing")]
    );
    assert_eq!(renderer.describe().text, text(&snapshot(63, 1, &[])));
}

/// The kernel lacks a module that services with backends need.
#[derive(Debug)]
struct LackingModule(DryRun);

impl LackingModule {
    fn need(is_needed: bool) -> Result<(), RenderError> {
        if is_needed {
            Err(RenderError::MissingModules {
                modules: vec!["nft_numgen"],
            })
        } else {
            Ok(())
        }
    }
}

impl Renderer for LackingModule {
    fn name(&self) -> &'static str {
        "lacking"
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        Self::need(!snapshot.services.is_empty())?;
        self.0.resync(snapshot)
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        Self::need(changes.services.values().any(|change| change.new.is_some()))?;
        self.0.update(changes)
    }

    fn describe(&self) -> Description {
        self.0.describe()
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.0.cleanup()
    }
}

#[test]
fn missing_module_blames_no_service() {
    let is_missing = |result: Result<Report, RenderError>| matches!(result, Err(RenderError::MissingModules { modules }) if modules == ["nft_numgen"]);
    let mut renderer = PoisonIsolator::new(LackingModule(DryRun::new()));
    let desired = snapshot(10, 1, &[]);
    for _ in 0..2 * FAILED_RESYNCS_BEFORE_ISOLATION {
        assert!(is_missing(renderer.resync(&desired)), "nothing is applied");
    }
    let empty = snapshot(0, 1, &[]);
    assert_eq!(renderer.resync(&empty).unwrap().rejected, []);
    for _ in 0..2 * FAILED_RESYNCS_BEFORE_ISOLATION {
        assert!(
            is_missing(renderer.update(&ChangeSet::between(&empty, &desired))),
            "something is applied"
        );
        assert!(
            is_missing(renderer.resync(&desired)),
            "something is applied"
        );
    }
}

#[test]
fn failure_of_another_kind_blames_no_service() {
    let switch = FaultSwitch::default();
    let mut renderer = switchable(FaultRates { error: 1.0, ..NONE }, 1, switch.clone());
    let before = snapshot(10, 1, &[]);
    for _ in 0..2 * FAILED_RESYNCS_BEFORE_ISOLATION {
        assert!(renderer.resync(&before).is_err());
    }
    switch.turn_off();
    // One that was blamed is left out, and tried again, only when it changes.
    let report = renderer
        .update(&ChangeSet::between(&before, &snapshot(11, 1, &[])))
        .unwrap();
    assert_eq!(refused(&report), []);
}

#[test]
fn random_faults_lead_to_poison_only() {
    let rates = FaultRates {
        error: 0.1,
        partial: 0.1,
        lost_answer: 0.1,
        ..NONE
    };
    for seed in 1..20 {
        let mut renderer = isolator(rates, seed);
        let mut before = snapshot(40, 0, &[]);
        for version in 1..20 {
            let desired = snapshot(40, version, &[usize::try_from(version).unwrap(), 30]);
            let mut result = renderer.update(&ChangeSet::between(&before, &desired));
            while result.is_err() {
                result = renderer.resync(&desired);
            }
            before = desired;
        }
        // One more may be left out by chance, until all are tried again.
        let mut result = renderer.resync(&before);
        while result
            .as_ref()
            .map_or(true, |report| report.rejected.len() != 2)
        {
            result = renderer.resync(&before);
        }
        let found = refused(&result.unwrap()).into_iter().map(|(name, _)| name);
        assert_eq!(found.collect::<Vec<_>>(), ["s019", "s030"], "seed {seed}");
    }
}

/// Names the services that are poison, before it does anything.
#[derive(Debug, Default)]
struct Naming {
    inner: DryRun,
    resyncs: Arc<AtomicUsize>,
    /// After a refused change its applied state is unknown.
    loses_state: bool,
}

impl Naming {
    fn refuse<'a>(
        &mut self,
        services: impl Iterator<Item = &'a Arc<ContivService>>,
    ) -> Result<(), RenderError> {
        let poison = services.filter(|service| is_poison(service));
        let services: BTreeMap<_, _> = poison
            .map(|service| (service.id.clone(), "it is poison".to_owned()))
            .collect();
        if services.is_empty() {
            return Ok(());
        }
        if self.loses_state {
            self.inner = DryRun::new();
        }
        Err(RenderError::Refused { services })
    }
}

impl Renderer for Naming {
    fn name(&self) -> &'static str {
        "naming"
    }

    fn resync(&mut self, snapshot: &Snapshot) -> Result<Report, RenderError> {
        self.refuse(snapshot.services.values())?;
        self.resyncs.fetch_add(1, Ordering::Relaxed);
        self.inner.resync(snapshot)
    }

    fn update(&mut self, changes: &ChangeSet) -> Result<Report, RenderError> {
        self.refuse(
            changes
                .services
                .values()
                .filter_map(|change| change.new.as_ref()),
        )?;
        self.inner.update(changes)
    }

    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn cleanup(&mut self) -> Result<Report, RenderError> {
        self.inner.cleanup()
    }
}

#[test]
fn named_services_are_left_out_and_the_rest_is_applied() {
    for (loses_state, resyncs) in [(false, [1, 1, 1, 1]), (true, [1, 2, 2, 2])] {
        let naming = Naming {
            loses_state,
            ..Naming::default()
        };
        let counter = Arc::clone(&naming.resyncs);
        let done = || counter.load(Ordering::Relaxed);
        let mut renderer = PoisonIsolator::new(naming);
        let first = snapshot(100, 1, &[3]);
        let mut expected = first.clone();
        expected.services.remove(&service(3, 1).0);
        let report = renderer.resync(&first).unwrap();
        assert_eq!(refused(&report), [("s003".to_owned(), "nothing")]);
        assert_eq!(report.rejected[0].reason, "it is poison");
        assert_eq!(
            (renderer.describe().text, done()),
            (text(&expected), resyncs[0])
        );

        let second = snapshot(101, 2, &[3, 4]);
        let report = renderer
            .update(&ChangeSet::between(&first, &second))
            .unwrap();
        let both = [
            ("s003".to_owned(), "nothing"),
            ("s004".to_owned(), "last good"),
        ];
        assert_eq!(refused(&report), both);
        expected = second.clone();
        expected.services.remove(&service(3, 1).0);
        expected.services.extend([service(4, 1)]);
        assert_eq!(
            (renderer.describe().text, done()),
            (text(&expected), resyncs[1])
        );

        // Other services change: the report still has those that are left out.
        let third = snapshot(102, 2, &[3, 4]);
        let report = renderer
            .update(&ChangeSet::between(&second, &third))
            .unwrap();
        assert_eq!((refused(&report).len(), done()), (2, resyncs[2]));

        let good = snapshot(102, 3, &[]);
        let report = renderer.update(&ChangeSet::between(&third, &good)).unwrap();
        assert_eq!((refused(&report), done()), (vec![], resyncs[3]));
        assert_eq!(renderer.describe().text, text(&good));
    }
}

#[test]
fn named_service_stays_as_it_was_until_that_is_refused_too() {
    let mut renderer = PoisonIsolator::new(Naming::default());
    let first = snapshot(10, 1, &[]);
    renderer.resync(&first).unwrap();
    let second = snapshot(10, 2, &[5]);
    assert_eq!(
        refused(&renderer.resync(&second).unwrap()),
        [("s005".to_owned(), "last good")]
    );
    let mut expected = second.clone();
    expected.services.extend([service(5, 1)]);
    assert_eq!(renderer.describe().text, text(&expected));
    // A repair tries it again, with the same end.
    assert_eq!(
        refused(&renderer.heal(&second).unwrap()),
        [("s005".to_owned(), "last good")]
    );
    assert_eq!(renderer.describe().text, text(&expected));
}
