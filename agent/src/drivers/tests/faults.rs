//! Renderers with seeded faults end in the same state as those without.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::ServiceId;
use contiv_node::{
    Core, CoreConfig, Input, VerificationConfig,
    decode::Decoder,
    message::{Now, Output, Work, WorkDone},
};
use contiv_renderer::{Rejected, Renderer, Report, dry_run::DryRun};
use contiv_renderer_testing::{FaultRates, FaultSwitch, Faulty};
use contiv_store::Change;
use jiff::Timestamp;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::oneshot;

use super::{Harness, Request, batch, delete, put, service, slice, snapshot};
use crate::{drivers::RendererSpec, metrics::Exposition, test_support::core_config};

const RATES: FaultRates = FaultRates {
    error: 0.15,
    partial: 0.15,
    lost_answer: 0.1,
    panic: 0.1,
    delay: 0.2,
    longest_delay: Duration::from_millis(20),
};
const CHANGES: i64 = 150;

fn random_change(random: &mut StdRng) -> Change {
    let number = random.random_range(1..6);
    let name = format!("web{number}");
    match random.random_range(0..4) {
        0 => delete(service(&name, number)),
        1 => put(service(&name, number)),
        _ => put(slice(&name, random.random_range(1..9))),
    }
}

async fn dump(harness: &Harness, name: &str) -> String {
    let (dump, answer) = oneshot::channel();
    let (found, is_found) = oneshot::channel();
    harness
        .requests
        .send(Request::Describe(name.to_owned(), found, dump))
        .await
        .unwrap();
    assert!(is_found.await.unwrap());
    answer.await.unwrap().text
}

async fn assert_same_end(seed: u64) {
    let switch = FaultSwitch::default();
    let next_seed = Arc::new(std::sync::atomic::AtomicU64::new(seed));
    let of_loop = switch.clone();
    // Recreated after each panic, with another seed than the one that led there.
    let create = move || {
        let seed = next_seed.fetch_add(1000, std::sync::atomic::Ordering::Relaxed);
        Box::new(Faulty::new(
            DryRun::new(),
            "faulty",
            RATES,
            seed,
            of_loop.clone(),
        )) as Box<dyn Renderer>
    };
    let harness = Harness::start(
        vec![RendererSpec::new("faulty", create)],
        vec![snapshot(1, vec![])],
    );
    let mut random = StdRng::seed_from_u64(seed);
    for revision in 2..2 + CHANGES {
        harness
            .deliver(batch(revision, vec![random_change(&mut random)]))
            .await;
        if random.random_bool(0.3) {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..20))).await;
        }
    }
    // The last change always matters, so that it is known when everything is applied.
    let last = 2 + CHANGES;
    harness
        .deliver(batch(last, vec![put(service("last", 200))]))
        .await;
    switch.turn_off();
    for name in ["faulty", "dry-run"] {
        harness
            .renderer(name, |view| {
                view.state == "idle" && view.applied_revision == last
            })
            .await;
    }
    let metrics = harness.metrics.text(Exposition::Prometheus).unwrap();
    let none = "contiv_sync_failures_total{renderer=\"faulty\"} 0\n";
    assert!(!metrics.contains(none), "there were faults: {metrics}");
    assert_eq!(
        dump(&harness, "faulty").await,
        dump(&harness, "dry-run").await,
        "seed {seed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn renderer_with_faults_ends_in_state_of_one_without() {
    let runs: Vec<_> = (1..=6)
        .map(|seed| tokio::spawn(assert_same_end(seed)))
        .collect();
    for run in runs {
        run.await.unwrap();
    }
}

#[test]
fn renderer_lost_before_the_first_snapshot_gets_no_work() {
    let start = Now {
        instant: Instant::now(),
        time: Timestamp::UNIX_EPOCH,
        random: 0.5,
    };
    let config = core_config(VerificationConfig::default(), None);
    let mut core = Core::new(
        CoreConfig {
            renderers: vec!["test".into()],
            ..config
        },
        start,
    );
    let mut out = Vec::new();
    core.handle(
        Input::RendererLost("test".into(), "panicked".to_owned()),
        start,
        &mut |output| {
            out.push(output);
        },
    );
    let later = Now {
        instant: start.instant + Duration::from_secs(9),
        ..start
    };
    core.handle(Input::Timer, later, &mut |output| out.push(output));
    let is_work = |output: &Output| matches!(output, Output::Render(..));
    assert!(
        !out.iter().any(is_work),
        "an empty state would go to the kernel: {out:?}"
    );
}

#[test]
fn services_left_out_are_given_again_to_the_renderer_that_left_them_out() {
    let mut now = Now {
        instant: Instant::now(),
        time: Timestamp::UNIX_EPOCH,
        random: 1.0,
    };
    let config = core_config(VerificationConfig::default(), None);
    let mut core = Core::new(
        CoreConfig {
            renderers: vec!["test".into(), "other".into()],
            ..config
        },
        now,
    );
    let list = snapshot(1, vec![service("web", 1), service("db", 2)]);
    let list = Decoder::new(Timestamp::UNIX_EPOCH).decode(list).unwrap();
    core.handle(Input::Store(list, now.instant), now, &mut |_| ());
    let web = ServiceId::new("default", "web");
    let rejected = Rejected {
        service: web.clone(),
        reason: "no memory".to_owned(),
        active_state: "nothing",
    };
    let done = |renderer: &str, rejected: &[Rejected]| {
        let report = Report {
            rejected: rejected.to_vec(),
            ..Report::default()
        };
        let (renderer, duration) = (renderer.into(), Duration::ZERO);
        Input::WorkDone(WorkDone {
            renderer,
            result: Ok(report),
            is_watched: true,
            duration,
        })
    };
    core.handle(done("other", &[]), now, &mut |_| ());
    core.handle(
        done("test", std::slice::from_ref(&rejected)),
        now,
        &mut |_| (),
    );
    for pause in [5, 10] {
        now.instant += Duration::from_secs(pause);
        assert_eq!(core.deadline(), Some(now.instant));
        let mut work = Vec::new();
        core.handle(Input::Timer, now, &mut |output| {
            if let Output::Render(renderer, Work::Update(changes)) = output {
                work.push((renderer, changes));
            }
        });
        let [(renderer, changes)] = &*work else {
            panic!("{work:?}")
        };
        assert_eq!(
            (&**renderer, changes.services.keys().collect::<Vec<_>>()),
            ("test", vec![&web])
        );
        assert!(changes.services[&web].new.is_some());
        core.handle(
            done("test", std::slice::from_ref(&rejected)),
            now,
            &mut |_| (),
        );
    }
    now.instant += Duration::from_secs(20);
    core.handle(Input::Timer, now, &mut |_| ());
    core.handle(done("test", &[]), now, &mut |_| ());
    assert_eq!(core.deadline(), None, "nothing is left out");
    assert_eq!(
        core.history(now.instant)
            .filter(|record| record.kind == "retry")
            .count(),
        3
    );
}
