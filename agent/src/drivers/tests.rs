mod faults;
mod flood;
mod foreign_changes;
mod health;
mod kubernetes;
mod pods;
mod rereads;
mod resumed;
mod saved;
mod verification;
mod warm_start;
mod warnings;

use std::{collections::BTreeSet, time::Duration};

use contiv_model::ServiceId;
use contiv_node::{Core, Input, Outcome, Record};
use contiv_store::{FeedEvent, Inconsistency, ListPart, Mirror, Problem};

use super::Request;
use crate::{
    metrics::Exposition,
    test_support::{
        Call, Harness, Mode, STORE, TestRenderer, bad_service, batch, delete, put, service, slice,
        snapshot,
    },
};

/// How long each part of the first list of the store may take.
const LIST_LIMIT: Duration = Duration::from_secs(10);

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("default/{name}")).collect()
}

fn web() -> FeedEvent {
    snapshot(7, vec![slice("web", 1), service("web", 1)])
}

fn last_outcome<'a>(records: &'a [Record], renderer: &str) -> Option<&'a Outcome> {
    records
        .last()
        .and_then(|record| record.renderers.get(renderer))
}

#[tokio::test]
async fn renderer_gets_nothing_before_the_first_snapshot() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![]);
    harness
        .requests
        .send(Request::Input(Input::Resync { cause: "test" }))
        .await
        .unwrap();
    harness
        .deliver(FeedEvent::Down {
            reason: "test".to_owned(),
        })
        .await;
    harness.deliver(FeedEvent::Problems(Vec::new())).await;
    let records = harness.history(|records| records.len() == 3).await;
    assert!(records.iter().all(|record| record.renderers.is_empty()));
    let status = harness.status().await;
    assert_eq!(
        (status.ready, status.synced, status.store_down.is_some()),
        (false, false, true)
    );
    assert_eq!(renderer.started_call(), None);

    // It is one outage with another cause.
    harness
        .deliver(FeedEvent::Down {
            reason: "no login".to_owned(),
        })
        .await;
    harness.history(|records| records.len() == 4).await;
    let (first, now) = (
        status.store_down.unwrap(),
        harness.status().await.store_down.unwrap(),
    );
    assert_eq!((now.since, &*now.reason), (first.since, "no login"));

    harness.deliver(web()).await;
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    for name in ["test", "dry-run"] {
        let view = harness.renderer(name, |view| view.state == "idle").await;
        assert_eq!((view.ready, view.applied_revision), (true, 7));
    }
    let status = harness.status().await;
    assert_eq!(
        (status.ready, status.synced, status.store_down),
        (true, true, None)
    );
}

#[tokio::test]
async fn contradiction_of_the_store_is_recorded_and_counted() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![]);
    harness.deliver(web()).await;
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    let (inconsistency, reason) = (Inconsistency::Version, "/a: version 3 came".to_owned());
    harness
        .deliver(FeedEvent::Inconsistent {
            inconsistency,
            reason,
        })
        .await;
    let records = harness.history(|records| records.len() == 2).await;
    assert_eq!(
        (records[1].kind, &*records[1].description),
        ("store-repair", "/a: version 3 came")
    );
    let text = harness.metrics.text(Exposition::Prometheus).unwrap();
    assert!(
        text.contains("contiv_store_repairs_total{reason=\"version\"} 1"),
        "{text}"
    );
    assert!(
        harness.status().await.synced,
        "the services stay as they are"
    );
}

#[tokio::test(start_paused = true)]
async fn slow_store_is_not_waited_for_when_a_mirror_exists() {
    let folder = tempfile::tempdir().unwrap();
    let saved = [slice("web", 1), service("web", 1)].map(Ok);
    let (mut mirror, _) = Mirror::open(folder.path(), STORE).unwrap();
    mirror.replace(7, saved, &BTreeSet::new()).unwrap();
    drop(mirror);
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start_with_mirror(vec![spec], folder.path());
    tokio::time::advance(LIST_LIMIT.mul_f64(0.9)).await;
    assert_eq!(
        (harness.status().await.synced, renderer.started_call()),
        (false, None)
    );
    tokio::time::advance(LIST_LIMIT.mul_f64(0.2)).await;
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    let status = harness.status().await;
    assert_eq!(
        (status.from_mirror, status.revision, status.store_down),
        (true, 7, None)
    );
    let kinds = harness.history(|records| records.len() == 2).await;
    assert_eq!(
        kinds.iter().map(|record| record.kind).collect::<Vec<_>>(),
        ["store-slow", "mirror"]
    );

    // The last state of the store is applied.
    harness
        .deliver(snapshot(9, vec![slice("web", 2), service("web", 1)]))
        .await;
    assert_eq!(renderer.call().await, Call::Update(names(&["web"])));
    assert!(!harness.status().await.from_mirror);
}

#[tokio::test(start_paused = true)]
async fn list_whose_parts_arrive_is_waited_for_a_minute() {
    for (parts, is_in_time) in [(6, true), (8, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (mut mirror, _) = Mirror::open(folder.path(), STORE).unwrap();
        mirror
            .replace(7, [Ok(service("saved", 1))], &BTreeSet::new())
            .unwrap();
        drop(mirror);
        let (spec, mut renderer) = TestRenderer::new("test");
        let harness = Harness::start_with_mirror(vec![spec], folder.path());
        harness
            .deliver(FeedEvent::List(ListPart::Page(vec![service("web", 1)])))
            .await;
        for _ in 0..parts {
            tokio::time::advance(LIST_LIMIT.mul_f64(0.9)).await;
            harness
                .deliver(FeedEvent::List(ListPart::Page(vec![])))
                .await;
            // The part has been handled when a question is answered.
            harness.status().await;
        }
        if is_in_time {
            harness
                .deliver(FeedEvent::List(ListPart::Complete {
                    revision: 8,
                    problems: vec![],
                }))
                .await;
        }
        let service = if is_in_time { "web" } else { "saved" };
        assert_eq!(renderer.call().await, Call::Resync(names(&[service])));
    }
}

#[tokio::test]
async fn empty_store_gives_an_empty_snapshot() {
    let harness = Harness::start(vec![], vec![snapshot(1, vec![])]);
    assert!(
        harness
            .renderer("dry-run", |view| view.state == "idle")
            .await
            .ready
    );
    assert!(harness.status().await.ready);
    let rendered = harness.ask(Core::snapshot).await.unwrap();
    assert_eq!(
        rendered.to_string(),
        "services: [], node ports at: [], frontends: [], backends: []"
    );
}

#[tokio::test]
async fn change_reaches_every_renderer_and_history_shows_outcomes() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.deliver(batch(8, vec![put(slice("web", 2))])).await;
    assert_eq!(renderer.call().await, Call::Update(names(&["web"])));
    let is_applied = |outcome: &Outcome| {
        matches!(
            outcome,
            Outcome::Applied {
                first_seq_num: 2,
                ..
            }
        )
    };
    let records = harness
        .history(|records| records.len() == 2 && records[1].renderers.values().all(is_applied))
        .await;
    let [first, change] = records.as_slice() else {
        panic!("{records:?}")
    };
    assert_eq!(
        (first.kind, first.seq_num, first.revision),
        ("snapshot", 1, 7)
    );
    assert_eq!(
        (change.kind, change.seq_num, change.revision),
        ("change", 2, 8)
    );
    assert_eq!(
        (change.changed, change.services.as_slice()),
        (1, &[ServiceId::new("default", "web")][..])
    );
    assert_eq!(change.description, "endpointslice default/web");
    let was_sent = |name| {
        matches!(
            change.renderers[name],
            Outcome::Applied {
                sent_after_ms: Some(_),
                ..
            }
        )
    };
    assert!(was_sent("test") && !was_sent("dry-run"), "{change:?}");
}

#[tokio::test]
async fn change_is_timed_from_store_message_and_from_trigger() {
    let triggered_now = |last| {
        let mut entry = slice("web", last);
        let mut value: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
        let now = jiff::Timestamp::now().to_string();
        value["annotations"] =
            serde_json::json!({"endpoints.kubernetes.io/last-change-trigger-time": now});
        entry.value = value.to_string().into();
        put(entry)
    };
    let before_the_start = triggered_now(2);
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    harness
        .deliver_late(batch(8, vec![before_the_start]), Duration::from_secs(100))
        .await;
    renderer.call().await;
    let records = harness
        .history(|records| records.len() == 2 && is_done(&records[1]))
        .await;
    assert!(
        (100_000.0..120_000.0).contains(&records[1].waited_ms),
        "{records:?}"
    );
    let Outcome::Applied {
        sent_after_ms: Some(sent),
        ..
    } = records[1].renderers["test"]
    else {
        panic!()
    };
    assert!(sent < 20_000.0, "the node took it up now: {sent}");
    let value = |name: &str| {
        let text = harness.metrics.text(Exposition::Prometheus).unwrap();
        let series = format!("contiv_network_programming_{name}{{renderer=\"test\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.map(|value| value.parse::<f64>().unwrap())
    };
    assert!((100.0..120.0).contains(&value("duration_seconds_sum").unwrap()));
    assert_eq!(
        value("since_trigger_seconds_sum"),
        None,
        "it was triggered before the agent began"
    );

    let change = triggered_now(3);
    tokio::time::sleep(Duration::from_millis(50)).await;
    harness.deliver(batch(9, vec![change])).await;
    renderer.call().await;
    harness
        .history(|records| records.len() == 3 && is_done(&records[2]))
        .await;
    assert_eq!(value("since_trigger_seconds_count"), Some(1.0));
    assert!((0.05..20.0).contains(&value("since_trigger_seconds_sum").unwrap()));
    assert_eq!(value("duration_seconds_count"), Some(2.0));

    renderer.set(Mode::Fail);
    harness.deliver(batch(10, vec![triggered_now(4)])).await;
    harness.renderer("test", |view| view.failures > 0).await;
    renderer.set(Mode::Work);
    harness
        .renderer("test", |view| view.applied_revision == 10)
        .await;
    assert_eq!(
        value("since_trigger_seconds_count"),
        Some(2.0),
        "what failed at first counts too"
    );
}

#[tokio::test]
async fn changes_of_store_are_pending_until_traffic_renderer_has_them() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    let counts = async || {
        let (seen, pending) = harness.ask(Core::seen_and_pending).await;
        [
            seen.services,
            seen.endpoints,
            pending.services,
            pending.endpoints,
        ]
    };
    assert_eq!(counts().await, [1, 1, 0, 0], "the first list");
    renderer.set(Mode::Fail);
    harness
        .deliver(batch(
            8,
            vec![
                put(slice("web", 2)),
                put(slice("db", 3)),
                put(service("db", 2)),
            ],
        ))
        .await;
    harness.renderer("test", |view| view.failures > 0).await;
    assert_eq!(counts().await, [2, 3, 1, 2]);
    harness
        .deliver(batch(9, vec![delete(service("db", 2))]))
        .await;
    harness.renderer("test", |view| view.failures > 1).await;
    assert_eq!(counts().await, [3, 3, 2, 2]);
    renderer.set(Mode::Work);
    harness
        .renderer("test", |view| view.applied_revision == 9)
        .await;
    assert_eq!(counts().await, [3, 3, 0, 0]);
}

fn is_done(record: &Record) -> bool {
    record
        .renderers
        .values()
        .all(|outcome| matches!(outcome, Outcome::Applied { .. }))
}

#[tokio::test]
async fn irrelevant_change_does_not_reach_renderers() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    harness
        .deliver(batch(8, vec![put(service("web", 1))]))
        .await;
    harness
        .deliver(snapshot(9, vec![service("web", 1), slice("web", 1)]))
        .await;
    let records = harness.history(|records| records.len() == 3).await;
    assert!(
        records[1..]
            .iter()
            .all(|record| record.renderers.is_empty() && record.changed == 0)
    );
    let view = harness.renderer("test", |_| true).await;
    assert_eq!(
        (view.state, view.applied_revision),
        ("idle", 9),
        "its dataplane has all of that revision"
    );
    harness.deliver(batch(10, vec![put(slice("web", 3))])).await;
    assert_eq!(renderer.call().await, Call::Update(names(&["web"])));
}

#[tokio::test]
async fn waiting_batches_are_one_event_and_later_inputs_keep_order() {
    let events = vec![
        web(),
        batch(8, vec![put(service("a", 2)), put(slice("a", 2))]),
        batch(9, vec![put(service("b", 3)), put(slice("b", 3))]),
        snapshot(10, vec![]),
        batch(11, vec![put(service("c", 4)), put(slice("c", 4))]),
    ];
    let harness = Harness::start(vec![], events);
    let records = harness.history(|records| records.len() == 4).await;
    let seen: Vec<_> = records
        .iter()
        .map(|record| (record.kind, record.revision, record.changed))
        .collect();
    assert_eq!(
        seen,
        [
            ("snapshot", 7, 1),
            ("change", 9, 2),
            ("snapshot", 10, 3),
            ("change", 11, 1)
        ]
    );
}

#[tokio::test]
async fn changes_for_a_busy_renderer_are_merged() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    renderer.set(Mode::Hang);
    harness.deliver(batch(8, vec![put(service("a", 2))])).await;
    assert_eq!(renderer.call().await, Call::Update(names(&["a"])));
    for (revision, changes) in [
        (9, vec![put(service("b", 3))]),
        (10, vec![put(service("c", 4))]),
        (11, vec![delete(service("b", 3))]),
    ] {
        harness.deliver(batch(revision, changes)).await;
        // One after the other, as the store sent them.
        harness
            .history(|records| {
                records
                    .last()
                    .is_some_and(|record| record.revision == revision)
            })
            .await;
    }
    let view = harness
        .renderer("dry-run", |view| view.applied_revision == 11)
        .await;
    assert_eq!(view.state, "idle", "the other one is not held up");
    let view = harness.renderer("test", |_| true).await;
    assert_eq!(
        (view.state, view.pending, view.pending_services),
        ("busy", "changes", 1)
    );

    renderer.set(Mode::Work);
    assert_eq!(renderer.call().await, Call::Update(names(&["c"])));
    harness
        .renderer("test", |view| {
            view.state == "idle" && view.applied_revision == 11
        })
        .await;
    let records = harness.history(|_| true).await;
    let with: Vec<_> = records[2..]
        .iter()
        .map(|record| &record.renderers["test"])
        .collect();
    assert!(
        with.iter().all(|outcome| matches!(
            outcome,
            Outcome::Applied {
                first_seq_num: 3,
                ..
            }
        )),
        "{with:?}"
    );
}

#[tokio::test]
async fn failed_renderer_is_resynced_while_others_continue() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    for name in ["test", "dry-run"] {
        harness.renderer(name, |view| view.ready).await;
    }
    renderer.set(Mode::Fail);
    harness.deliver(batch(8, vec![put(service("a", 2))])).await;
    assert_eq!(renderer.call().await, Call::Update(names(&["a"])));
    let view = harness.renderer("test", |view| view.failures > 0).await;
    assert!(
        view.last_error
            .unwrap()
            .error
            .contains("failure injected by the test")
    );
    assert!(harness.status().await.ready, "once ready, always ready");
    harness
        .renderer("dry-run", |view| view.applied_revision == 8)
        .await;

    assert_eq!(
        renderer.call().await,
        Call::Resync(names(&["a", "web"])),
        "tried again"
    );
    harness.renderer("test", |view| view.failures > 1).await;
    harness.deliver(batch(9, vec![put(service("b", 3))])).await;
    harness
        .history(|records| records.iter().any(|record| record.revision == 9))
        .await;
    renderer.set(Mode::Work);
    loop {
        if renderer.call().await == Call::Resync(names(&["a", "b", "web"])) {
            break;
        }
    }
    let view = harness.renderer("test", |view| view.failures == 0).await;
    assert_eq!(
        (view.state, view.pending, view.applied_revision),
        ("idle", "nothing", 9)
    );
    // The failed work is applied now, and the retries show the reason.
    let records = harness.history(|_| true).await;
    let is_applied = |record: &&Record| matches!(record.renderers["test"], Outcome::Applied { .. });
    assert!(
        records
            .iter()
            .filter(|record| record.kind == "change")
            .all(|record| is_applied(&record))
    );
    let retry = records
        .iter()
        .find(|record| record.kind == "retry")
        .unwrap();
    assert!(
        retry.description.contains("failure injected by the test"),
        "{}",
        retry.description
    );
    let text = harness.metrics.text(Exposition::Prometheus).unwrap();
    let none = "contiv_sync_failures_total{renderer=\"test\"} 0\n";
    assert!(
        text.contains("contiv_sync_failures_total{renderer=\"test\"}") && !text.contains(none),
        "{text}"
    );
}

#[tokio::test]
async fn renderer_after_panic_is_recreated_and_resynced() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    renderer.set(Mode::Panic);
    harness.deliver(batch(8, vec![put(service("a", 2))])).await;
    assert_eq!(renderer.call().await, Call::Update(names(&["a"])));
    let view = harness.renderer("test", |view| view.failures > 0).await;
    assert_eq!(
        view.last_error.unwrap().error,
        "panicked: failure injected by the test"
    );
    renderer.set(Mode::Work);
    assert_eq!(renderer.call().await, Call::Resync(names(&["a", "web"])));
    let view = harness.renderer("test", |view| view.state == "idle").await;
    assert_eq!(view.applied_revision, 8);
}

#[tokio::test]
async fn hanging_renderer_is_reported_and_others_continue() {
    let (spec, mut renderer) = TestRenderer::new("test");
    renderer.set(Mode::Hang);
    let harness = Harness::start(vec![spec], vec![web()]);
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    harness.renderer("dry-run", |view| view.ready).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    harness.renderer("test", |view| view.state == "slow").await;
    let records = harness.history(|records| records.len() == 2).await;
    assert_eq!(
        (records[1].kind, records[1].description.contains("test")),
        ("slow", true)
    );
    tokio::time::resume();
    harness.deliver(batch(8, vec![put(slice("web", 2))])).await;
    let view = harness
        .renderer("dry-run", |view| view.applied_revision == 8)
        .await;
    assert_eq!(view.state, "idle");
    assert!(!harness.status().await.ready);
}

#[tokio::test]
async fn unreadable_value_keeps_last_good_one_until_good_or_gone() {
    let harness = Harness::start(vec![], vec![web()]);
    let quarantine = async || harness.ask(move |core| core.quarantine(0)).await;
    let address = async || {
        let id = ServiceId::new("default", "web");
        let found = harness.ask(move |core| core.service(&id)).await;
        found.map(|service| service.cluster_ips.first().unwrap().to_string())
    };
    harness
        .deliver(batch(
            8,
            vec![put(bad_service("web")), put(bad_service("new"))],
        ))
        .await;
    harness.history(|records| records.len() == 2).await;
    let bad = quarantine().await;
    let active_state: Vec<_> = bad
        .iter()
        .map(|entry| (entry.object.as_deref(), entry.active_state))
        .collect();
    assert_eq!(
        active_state,
        [
            (Some("service default/new"), Some("nothing")),
            (Some("service default/web"), Some("last good"))
        ]
    );
    assert!(bad[1].reason.contains("port"), "{}", bad[1].reason);
    assert_eq!(address().await.as_deref(), Some("10.96.0.1"));

    // Everything is listed again: the value is still bad, and is not a deletion.
    harness
        .deliver(snapshot(9, vec![slice("web", 1), bad_service("web")]))
        .await;
    harness.history(|records| records.len() == 3).await;
    assert_eq!(quarantine().await.len(), 1, "the other one is gone");
    assert_eq!(address().await.as_deref(), Some("10.96.0.1"));

    harness
        .deliver(batch(10, vec![put(service("web", 5))]))
        .await;
    harness.history(|records| records.len() == 4).await;
    assert_eq!(
        (quarantine().await.len(), address().await.as_deref()),
        (0, Some("10.96.0.5"))
    );

    harness
        .deliver(batch(11, vec![put(bad_service("web"))]))
        .await;
    harness
        .deliver(batch(12, vec![delete(service("web", 5))]))
        .await;
    harness
        .history(|records| records.last().is_some_and(|record| record.revision == 12))
        .await;
    assert_eq!((quarantine().await.len(), address().await), (0, None));
}

#[tokio::test]
async fn backends_of_other_family_are_explained_by_quarantine() {
    let mut ipv6 = service("web", 1);
    ipv6.value = r#"{"cluster_ip":"fd00::1","port":[{"name":"http","port":80}]}"#.into();
    let harness = Harness::start(vec![], vec![snapshot(7, vec![slice("web", 1), ipv6])]);
    harness.history(|records| records.len() == 1).await;
    let listed = harness.ask(move |core| core.quarantine(0)).await;
    let [entry] = listed.as_slice() else {
        panic!("{listed:?}")
    };
    assert_eq!(
        (entry.object.as_deref(), entry.active_state),
        (Some("service default/web"), Some("the rest"))
    );
    assert!(
        entry
            .reason
            .contains("all backends are of the other address family"),
        "{}",
        entry.reason
    );
    harness
        .deliver(batch(9, vec![put(service("web", 1))]))
        .await;
    harness.history(|records| records.len() == 2).await;
    assert_eq!(harness.status().await.quarantined, 0);
}

#[tokio::test]
async fn problems_of_store_are_in_quarantine() {
    let harness = Harness::start(vec![], vec![web()]);
    let problem = Problem {
        source: "a.yaml".to_owned(),
        object: Some("Service default/web".to_owned()),
        field: Some("spec.ports[0].port".to_owned()),
        reason: "99999 is not a number from 1 to 65535".to_owned(),
        is_warning: false,
    };
    harness
        .deliver(FeedEvent::Problems(vec![problem.clone()]))
        .await;
    harness.history(|records| records.len() == 2).await;
    let bad = harness.ask(move |core| core.quarantine(0)).await;
    let [entry] = bad.as_slice() else {
        panic!("{bad:?}")
    };
    assert_eq!(
        (&entry.source, &entry.object, &entry.field),
        (&problem.source, &problem.object, &problem.field)
    );
    assert_eq!(entry.active_state, Some("last good"));
    harness.deliver(FeedEvent::Problems(vec![])).await;
    harness.history(|records| records.len() == 3).await;
    assert_eq!(harness.status().await.quarantined, 0);
}

#[tokio::test]
async fn resync_lists_store_again_and_resyncs_every_renderer() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let mut harness = Harness::start(vec![spec], vec![web()]);
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    harness.next_list().await;
    harness
        .requests
        .send(Request::Input(Input::Resync { cause: "SIGHUP" }))
        .await
        .unwrap();
    assert_eq!(renderer.call().await, Call::Resync(names(&["web"])));
    harness.next_list().await;
    let is_done =
        |records: &[Record]| matches!(last_outcome(records, "test"), Some(Outcome::Applied { .. }));
    let records = harness.history(is_done).await;
    assert_eq!(
        (records[1].kind, records[1].description.as_str()),
        ("resync", "SIGHUP")
    );
}

#[tokio::test]
async fn readiness_is_told_before_and_after_it_is_reached() {
    let (spec, renderer) = TestRenderer::new("test");
    renderer.set(Mode::Hang);
    let harness = Harness::start(vec![spec], vec![web()]);
    let [(first, mut before), (second, after)] = [(); 2].map(|()| tokio::sync::oneshot::channel());
    harness
        .requests
        .send(Request::AwaitReady(first))
        .await
        .unwrap();
    assert!(!harness.status().await.ready && before.try_recv().is_err());
    renderer.set(Mode::Work);
    before.await.unwrap();
    // Nothing happens any more that could be the occasion for an answer.
    harness
        .renderer("dry-run", |view| view.state == "idle")
        .await;
    harness
        .requests
        .send(Request::AwaitReady(second))
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(60), after)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn shutdown_finishes_work_in_progress() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![]);
    renderer.set(Mode::Hang);
    harness.deliver(web()).await;
    renderer.call().await;
    harness.requests.send(Request::Shutdown).await.unwrap();
    tokio::task::yield_now().await;
    assert!(!harness.task.is_finished());
    renderer.set(Mode::Work);
    harness.task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn hanging_renderer_does_not_delay_shutdown() {
    let (spec, mut renderer) = TestRenderer::new("test");
    renderer.set(Mode::Hang);
    let harness = Harness::start(vec![spec], vec![web()]);
    renderer.call().await;
    let start = tokio::time::Instant::now();
    harness.requests.send(Request::Shutdown).await.unwrap();
    while !harness.task.is_finished() {
        assert!(start.elapsed() < Duration::from_secs(2));
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    harness.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn ended_feed_ends_the_node_with_an_error() {
    let harness = Harness::start(vec![], vec![web()]);
    drop(harness.store);
    assert!(harness.task.await.unwrap().is_err());
}
