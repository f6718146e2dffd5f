//! `contiv status` and the page ask differently, and must find the same problems.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::Request,
};
use contiv_model::ServiceId;
use contiv_renderer::{
    ForwardingOff,
    shared_tables::{SharedTable, TableProblem},
};
use contiv_store::FeedEvent;
use jiff::Timestamp;
use tokio::sync::watch;
use tower::ServiceExt;

use super::answers::Answers;
use crate::{
    connections::Peer,
    http::{Api, router},
    shared_tables::SharedTables,
    test_support::{
        Harness, Mode, TestRenderer, bad_service, batch, put, service, slice, snapshot,
    },
};

async fn get(api: &Api, path: &str) -> String {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    let peer = ConnectInfo(Peer("127.0.0.1:4000".parse().unwrap()));
    request.extensions_mut().insert(peer);
    let response = router(api.clone()).oneshot(request).await.unwrap();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

async fn problems_of_status(api: &Api) -> Vec<String> {
    let answers = Answers::ask(async |path| Ok(serde_json::from_str(&get(api, path).await)?));
    let overview = answers.await.unwrap().read().unwrap();
    let problems = overview.health_facts().problems(Timestamp::now());
    problems.into_iter().map(|problem| problem.text).collect()
}

/// Each is an item of the list, and ends with a link.
async fn problems_of_page(api: &Api) -> Vec<String> {
    let page = get(api, "/").await;
    let section = page.split("id=\"problems\"").nth(1).unwrap();
    let items = section.split("</section>").next().unwrap().split("<li>");
    let texts = items.skip(1).map(|item| item.split(" → ").next().unwrap());
    texts
        .map(|text| {
            text.replace("&quot;", "\"")
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&")
        })
        .collect()
}

/// The problems, of which there is one with each of these texts. A second may begin between the two answers.
async fn assert_same(api: &Api, expected: &[&str]) {
    let mut found = (problems_of_status(api).await, problems_of_page(api).await);
    for _ in 0..3 {
        if found.0 == found.1 {
            break;
        }
        found = (problems_of_status(api).await, problems_of_page(api).await);
    }
    assert_eq!(found.0, found.1);
    assert_eq!(found.0.len(), expected.len(), "{:?}", found.0);
    for (text, expected) in found.0.iter().zip(expected) {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

#[tokio::test]
async fn page_and_status_have_the_same_problems() {
    let (spec, renderer) = TestRenderer::new("test");
    let stored = vec![slice("web", 1), service("web", 1)];
    let harness = Harness::start(vec![spec], vec![snapshot(7, stored)]);
    harness.renderer("test", |view| view.ready).await;
    harness.renderer("dry-run", |view| view.ready).await;
    assert_same(&harness.api(), &[]).await;

    renderer.set(Mode::Fail);
    let changes = vec![
        put(bad_service("db")),
        put(bad_service("db2")),
        put(service("thief", 1)),
    ];
    harness.deliver(batch(8, changes)).await;
    harness.renderer("test", |view| view.failures > 0).await;
    let reason = "no \"login\" & <nothing>".to_owned();
    harness.deliver(FeedEvent::Down { reason }).await;
    harness
        .history(|records| records.iter().any(|record| record.kind == "store-down"))
        .await;
    let problem = TableProblem {
        table: SharedTable::Conntrack,
        entries: 99,
        limit: 100,
        lost: Vec::new(),
    };
    let tables = SharedTables {
        problems: vec![problem],
        ..SharedTables::default()
    };
    let api = harness
        .api()
        .with_forwarding(|_| {
            vec![ForwardingOff {
                ip_family: "IPv4".to_owned(),
                interface: None,
                setting: "net.ipv4.ip_forward".to_owned(),
                service: ServiceId::new("default", "web"),
            }]
        })
        .with_shared_tables(watch::channel(Arc::new(tables)).1);
    let expected = [
        "store down for ",
        "test fails",
        "net.ipv4.ip_forward",
        "conntrack",
        "quarantine: ",
        "conflict: default/web does not get 10.96.0.1:80/tcp, which default/thief holds",
    ];
    tokio::time::timeout(Duration::from_secs(20), assert_same(&api, &expected))
        .await
        .unwrap();
}
