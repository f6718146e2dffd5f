use std::{net::SocketAddr, time::Duration};

use serde_json::json;

use super::*;
use crate::test_support::{
    Answer, Harness, Mode, TestRenderer, batch, delete, get, loopback, node, put, service, slice,
    snapshot,
};

/// Serves the load balancer's endpoints of this agent.
async fn serve(harness: &Harness) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = harness.proxy_health.clone();
    tokio::spawn(serve_load_balancers(
        listener,
        harness.api(),
        proxy,
        CancellationToken::new(),
    ));
    address
}

fn time(answer: &Answer, key: &str) -> Option<Timestamp> {
    answer.body[key].as_str().map(|text| text.parse().unwrap())
}

#[tokio::test]
async fn agent_that_keeps_up_is_healthy_as_of_now() {
    let harness = Harness::start(vec![], vec![snapshot(7, vec![])]);
    harness.renderer("dry-run", |view| view.ready).await;
    let address = serve(&harness).await;
    let before = Timestamp::now();
    for (path, node_eligible) in [("/healthz", Some(true)), ("/livez", None)] {
        let answer = get(address, path).await.unwrap();
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.body["healthy"], true, "{path}");
        assert_eq!(
            answer
                .body
                .get("nodeEligible")
                .and_then(serde_json::Value::as_bool),
            node_eligible,
            "{path}"
        );
        assert!(time(&answer, "currentTime") >= Some(before), "{path}");
        assert_eq!(
            time(&answer, "lastUpdated"),
            time(&answer, "currentTime"),
            "{path}"
        );
        for header in [
            "content-type: application/json",
            "x-content-type-options: nosniff",
        ] {
            assert!(
                answer.headers.contains(header),
                "{path}: {}",
                answer.headers
            );
        }
    }
    assert_eq!(
        get(address, "/services").await.unwrap().status,
        404,
        "the debug HTTP is not for everyone"
    );
}

#[tokio::test]
async fn change_that_waits_for_more_than_60_s_makes_it_unhealthy() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![snapshot(7, vec![service("web", 1)])]);
    harness.renderer("test", |view| view.ready).await;
    renderer.call().await;
    let address = serve(&harness).await;
    let since = Timestamp::now();
    renderer.set(Mode::Hang);
    harness.deliver(batch(8, vec![put(slice("web", 1))])).await;
    renderer.call().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(get(address, "/healthz").await.unwrap().status, 200);
    tokio::time::advance(Duration::from_secs(2)).await;
    for path in ["/healthz", "/livez"] {
        let answer = get(address, path).await.unwrap();
        assert_eq!(
            (answer.status, &answer.body["healthy"]),
            (503, &false.into()),
            "{path}"
        );
        assert!(
            time(&answer, "lastUpdated").is_some_and(|updated| updated <= since),
            "{answer:?}"
        );
    }
    tokio::time::resume();
    renderer.set(Mode::Work);
    harness
        .renderer("test", |view| view.applied_revision == 8)
        .await;
    assert_eq!(get(address, "/healthz").await.unwrap().status, 200);
}

#[tokio::test]
async fn store_unread_60_s_after_start_is_unhealthy() {
    let harness = Harness::start(vec![], vec![]);
    harness.status().await;
    let address = serve(&harness).await;
    assert_eq!(get(address, "/healthz").await.unwrap().status, 200);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    let answer = get(address, "/healthz").await.unwrap();
    assert_eq!(
        (answer.status, &answer.body["lastUpdated"]),
        (503, &serde_json::Value::Null)
    );
}

#[tokio::test]
async fn deleted_node_takes_no_traffic_but_the_agent_stays_alive() {
    let mut harness = Harness::start(vec![], vec![snapshot(7, vec![node(loopback(30))])]);
    harness.renderer("dry-run", |view| view.ready).await;
    let address = serve(&harness).await;
    harness
        .deliver(batch(8, vec![delete(node(loopback(30)))]))
        .await;
    harness
        .proxy_health
        .wait_for(|health| !health.node_eligible)
        .await
        .unwrap();
    let answer = get(address, "/healthz").await.unwrap();
    assert_eq!(
        (answer.status, &answer.body["nodeEligible"]),
        (503, &false.into())
    );
    assert_eq!(get(address, "/livez").await.unwrap().status, 200);
}

#[tokio::test]
async fn node_that_is_about_to_go_takes_no_traffic_until_it_stays() {
    let harness = Harness::start(vec![], vec![snapshot(7, vec![node(loopback(31))])]);
    harness.renderer("dry-run", |view| view.ready).await;
    let address = serve(&harness).await;
    let states = [
        ("taint", false),
        ("other taint", true),
        ("deletion", false),
        ("none", true),
    ];
    for (revision, (kind, wanted)) in (8..).zip(states) {
        let mut entry = node(loopback(31));
        let mut value: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
        match kind {
            "taint" => {
                value["taints"] =
                    json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
            }
            "other taint" => {
                value["taints"] =
                    json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]);
            }
            "deletion" => value["deletion_timestamp"] = json!("1700000000"),
            _ => {}
        }
        entry.value = value.to_string().into();
        harness.deliver(batch(revision, vec![put(entry)])).await;
        while harness
            .history(|_| true)
            .await
            .last()
            .map(|record| record.revision)
            != Some(revision)
        {
            tokio::task::yield_now().await;
        }
        let answer = get(address, "/healthz").await.unwrap();
        let expected = if wanted { 200 } else { 503 };
        assert_eq!(
            (answer.status, &answer.body["nodeEligible"]),
            (expected, &wanted.into()),
            "{kind}"
        );
        assert_eq!(get(address, "/livez").await.unwrap().status, 200, "{kind}");
    }
}

#[tokio::test]
async fn node_that_has_ended_is_unhealthy() {
    let harness = Harness::start(vec![], vec![snapshot(7, vec![])]);
    harness.renderer("dry-run", |view| view.ready).await;
    let address = serve(&harness).await;
    harness.task.abort();
    while !harness.task.is_finished() {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(address, "/livez").await.unwrap().status, 503);
}
