//! Each verification begins anew, whatever the earlier ones found, and whatever happened while they read.

use std::slice;

use super::*;

const NAME: &str = "test";
const INTERVAL: Duration = Duration::from_secs(60);

struct Verifying {
    verifications: Verifications,
    now: Now,
    calls: u64,
}

impl Verifying {
    fn new() -> Self {
        let now = Now {
            instant: Instant::now(),
            time: Timestamp::UNIX_EPOCH,
            random: 0.0,
        };
        let verifications = Verifications::new(vec![NAME.into()], Some(INTERVAL), now.instant);
        Self {
            verifications,
            now,
            calls: 7,
        }
    }

    /// Waits for the next reading, which takes place during so many calls of the renderer.
    fn read(
        &mut self,
        result: Result<&[&str], &str>,
        calls: u64,
    ) -> Option<Result<VerificationResult, String>> {
        self.now.instant = self.verifications.deadline().unwrap();
        let begun = self
            .verifications
            .take_due(self.now.instant, |_| Some(self.calls));
        assert_eq!(begun, [NAME.into()]);
        assert_eq!(self.verifications.deadline(), None, "one reading at a time");
        self.calls += calls;
        let result = match result {
            Ok(elements) => Ok(Verification {
                checked: 9,
                drift: drift(elements),
            }),
            Err(error) => Err(error.to_owned()),
        };
        let report = VerifierReport {
            renderer: NAME.into(),
            result,
            duration: Duration::ZERO,
        };
        self.verifications
            .on_report(report, Some(self.calls), &[], self.now)
    }

    /// Reads until there is a result. Returns the number of readings, and the drift that was found.
    fn verify(&mut self, elements: &[&str], calls: u64) -> (usize, BTreeSet<Drift>) {
        for readings in 1..100 {
            if let Some(result) = self.read(Ok(elements), calls) {
                assert_eq!(
                    self.verifications.deadline(),
                    Some(self.now.instant + INTERVAL)
                );
                return (readings, result.unwrap().drift);
            }
            assert_eq!(
                self.verifications.deadline(),
                Some(self.now.instant + REREAD_DELAY)
            );
        }
        panic!("no result")
    }

    fn view(&self) -> VerificationView {
        self.verifications.view(NAME).unwrap()
    }
}

fn drift(elements: &[&str]) -> BTreeSet<Drift> {
    let missing = |element: &&str| Drift {
        service: None,
        place: "map backends4".to_owned(),
        element: (*element).to_owned(),
        deviation: Deviation::Missing,
    };
    elements.iter().map(missing).collect()
}

#[test]
fn verification_after_another_needs_as_many_readings() {
    let mut verifying = Verifying::new();
    assert_eq!(
        verifying.verify(&[], 0),
        (1, drift(&[])),
        "nothing to confirm"
    );
    let first = verifying.verify(&["a"], 0);
    assert_eq!(first, (Confirmation::REQUIRED_COMPARISONS, drift(&["a"])));
    for elements in [["b"], ["a"]] {
        assert_eq!(verifying.verify(&elements, 0), (first.0, drift(&elements)));
    }
}

#[test]
fn readings_during_changes_confirm_less() {
    let mut verifying = Verifying::new();
    let quiet = verifying.verify(&["a"], 0).0;
    for _ in 0..2 {
        assert!(verifying.verify(&["a"], 1).0 > 2 * quiet);
        assert_eq!(
            verifying.verify(&["a"], 0).0,
            quiet,
            "nothing is programmed meanwhile"
        );
    }
}

#[test]
fn view_shows_the_last_verification_only() {
    let mut verifying = Verifying::new();
    verifying.verify(&["a", "b"], 0);
    let view = verifying.view();
    assert_eq!((view.verifications, view.drift, view.error), (1, 2, None));
    assert_eq!(
        view.examples,
        drift(&["a", "b"]).into_iter().collect::<Vec<_>>()
    );
    assert_eq!(verifying.read(Err("no"), 0), Some(Err("no".to_owned())));
    let view = verifying.view();
    assert_eq!(
        (view.verifications, view.drift, view.error.as_deref()),
        (2, 2, Some("no")),
        "nothing else is known"
    );
    assert_eq!(verifying.verify(&[], 0).0, 1);
    let view = verifying.view();
    assert_eq!(
        (
            view.verifications,
            view.drift,
            view.examples.len(),
            view.error
        ),
        (3, 0, 0, None)
    );
}

#[test]
fn error_ends_a_verification_and_its_readings() {
    let mut verifying = Verifying::new();
    assert_eq!(verifying.read(Ok(&["a"]), 0), None);
    assert_eq!(verifying.read(Err("no"), 0), Some(Err("no".to_owned())));
    assert_eq!(
        verifying.verify(&["b"], 0),
        (Confirmation::REQUIRED_COMPARISONS, drift(&["b"]))
    );
}

#[test]
fn reading_of_a_renderer_that_works_is_discarded() {
    let mut verifying = Verifying::new();
    let now = verifying.verifications.deadline().unwrap();
    assert_eq!(
        verifying.verifications.take_due(now, |_| None),
        Vec::<Arc<str>>::new(),
        "it works already"
    );
    let again = verifying.verifications.deadline().unwrap();
    assert_eq!(again, now + REREAD_DELAY);
    assert_eq!(
        verifying.verifications.take_due(again, |_| Some(7)),
        slice::from_ref(&NAME.into())
    );
    let verification = Verification {
        checked: 9,
        drift: drift(&["a"]),
    };
    let report = VerifierReport {
        renderer: NAME.into(),
        result: Ok(verification),
        duration: Duration::ZERO,
    };
    assert_eq!(
        verifying
            .verifications
            .on_report(report, None, &[], verifying.now),
        None
    );
    assert_eq!(verifying.view(), VerificationView::default());
}
