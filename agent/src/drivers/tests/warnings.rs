//! Warnings about objects that are used all the same, and about the name of this node.

use std::time::Duration;

use contiv_node::{
    Input,
    decode::{DecodedChanges, StoreEvent},
};
use contiv_proto::{Key, Kind};
use contiv_store::{Batch, Entry, FeedEvent, Problem, Snapshot};

use crate::{
    drivers::Request,
    test_support::{Harness, bad_service, batch, delete, put, service, slice, snapshot},
};

/// Waits until the node has handled this revision.
async fn wait_for_revision(harness: &Harness, revision: i64) {
    while harness.status().await.revision != revision {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn warnings_of_store_and_values_end_when_they_are_mended() {
    let node_port = |service_type: &str| {
        let value = format!(
            r#"{{"cluster_ip":"10.96.0.1","service_type":"{service_type}","port":[{{"name":"http","port":80,"node_port":30080}}]}}"#
        );
        Entry {
            value: value.into(),
            ..service("web", 1)
        }
    };
    let warning = Problem {
        source: "a.yaml".to_owned(),
        object: Some("Service default/db".to_owned()),
        field: Some("spec.colour".to_owned()),
        reason: "there is no such field, and it has no effect".to_owned(),
        is_warning: true,
    };
    let problems = vec![warning];
    let list = FeedEvent::Snapshot(Snapshot {
        revision: 7,
        entries: vec![node_port("ClusterIP")],
        problems,
    });
    let harness = Harness::start(vec![], vec![list]);
    let fields = async || -> Vec<Option<String>> {
        harness
            .ask(|core| {
                core.warnings(0)
                    .into_iter()
                    .map(|warning| warning.field)
                    .collect()
            })
            .await
    };
    let (port, colour) = (
        Some("spec.ports[0].nodePort".to_owned()),
        Some("spec.colour".to_owned()),
    );
    wait_for_revision(&harness, 7).await;
    assert_eq!(fields().await, [port.clone(), colour]);
    let status = harness.status().await;
    assert_eq!((status.warnings, status.quarantined), (2, 0));

    harness.deliver(FeedEvent::Problems(vec![])).await;
    // The last good state stays active.
    harness
        .deliver(batch(8, vec![put(bad_service("web"))]))
        .await;
    wait_for_revision(&harness, 8).await;
    assert_eq!(fields().await, std::slice::from_ref(&port));
    harness.deliver(snapshot(9, vec![bad_service("web")])).await;
    wait_for_revision(&harness, 9).await;
    assert_eq!(fields().await, std::slice::from_ref(&port));
    harness
        .deliver(batch(10, vec![put(node_port("NodePort"))]))
        .await;
    wait_for_revision(&harness, 10).await;
    assert_eq!(fields().await, []);
    harness.deliver(batch(11, vec![put(node_port(""))])).await;
    wait_for_revision(&harness, 11).await;
    assert_eq!(fields().await, [port]);
    harness
        .deliver(batch(12, vec![delete(service("web", 1))]))
        .await;
    wait_for_revision(&harness, 12).await;
    assert_eq!(
        (fields().await, harness.status().await.warnings),
        (vec![], 0)
    );
    let kinds: Vec<_> = harness
        .history(|_| true)
        .await
        .iter()
        .map(|record| record.kind)
        .collect();
    assert!(
        !kinds.contains(&"problems"),
        "warnings are no problems: {kinds:?}"
    );
}

#[tokio::test]
async fn store_without_node_of_this_name_is_a_problem_with_the_near_name() {
    let named = |name: &str| {
        let key = Key::new(Kind::Node, "", name).unwrap().to_path();
        let value = r#"{"addresses":[{"type":"NodeInternalIP","address":"192.0.2.1"}]}"#;
        Entry {
            key,
            value: value.into(),
            create_revision: 1,
            mod_revision: 1,
        }
    };
    for (name, advice) in [
        ("n1.example.com", "did you mean n1.example.com?"),
        ("N1", "did you mean N1?"),
        ("worker-7", "it has worker-7"),
    ] {
        let harness = Harness::start(vec![], vec![snapshot(7, vec![named(name)])]);
        let problem = async |revision| {
            wait_for_revision(&harness, revision).await;
            harness.status().await.node_problem
        };
        let found = problem(7).await;
        for part in [advice, "or its Node is not registered yet"] {
            assert!(
                found.as_ref().is_some_and(|found| found.contains(part)),
                "{name}: {found:?}"
            );
        }
        harness.deliver(batch(8, vec![put(named("n1"))])).await;
        assert_eq!(problem(8).await, None);
        // It stays active.
        harness.deliver(batch(9, vec![delete(named("n1"))])).await;
        assert!(
            problem(9)
                .await
                .is_some_and(|found| found.contains("gone from the store"))
        );
    }
    let plain = Harness::start(
        vec![],
        vec![snapshot(7, vec![slice("web", 1), service("web", 1)])],
    );
    wait_for_revision(&plain, 7).await;
    assert_eq!(
        plain.status().await.node_problem,
        None,
        "a folder needs no Node objects"
    );
    plain.deliver(batch(8, vec![put(named("n1.lan"))])).await;
    wait_for_revision(&plain, 8).await;
    assert!(
        plain
            .status()
            .await
            .node_problem
            .is_some_and(|found| found.contains("did you mean n1.lan?"))
    );
}

#[tokio::test(start_paused = true)]
async fn unserved_workload_is_a_warning_after_a_while() {
    let harness = Harness::start(vec![], vec![]);
    let warning = Problem {
        source: "/vm".to_owned(),
        object: Some("externalworkload default/vm".to_owned()),
        field: None,
        reason: "no controller".to_owned(),
        is_warning: true,
    };
    let changes = |unserved| {
        let decoded = DecodedChanges {
            unserved: Some(unserved),
            ..DecodedChanges::default()
        };
        Input::Store(
            StoreEvent::Changed(
                Batch {
                    revision: 1,
                    changes: vec![],
                },
                decoded,
            ),
            tokio::time::Instant::now().into_std(),
        )
    };
    let send = async |unserved| {
        harness
            .requests
            .send(Request::Input(changes(unserved)))
            .await
            .unwrap();
    };
    let count = async || harness.status().await.warnings;
    send(vec![warning.clone()]).await;
    assert_eq!(count().await, 0, "a controller needs a moment");
    tokio::time::sleep(Duration::from_secs(5)).await;
    send(vec![warning.clone()]).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(count().await, 1);
    send(vec![]).await;
    assert_eq!(count().await, 0);
    // Served in time.
    send(vec![warning]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    send(vec![]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(count().await, 0);
}
