use axum::{
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Request, StatusCode, header::CONTENT_TYPE},
};
use contiv_store::FeedEvent;
use serde_json::Value;
use tower::ServiceExt;

use super::{Api, ENDPOINTS, router};
use crate::{
    connections::Peer,
    test_support::{
        Call, Harness, Mode, TestRenderer, bad_service, batch, put, service, slice, snapshot,
    },
};

mod pods;
mod trace;
mod why;

pub(super) const LOOPBACK: &str = "127.0.0.1:4000";
/// A pod as it is attached.
const POD: &str = r#"{"namespace": "default", "name": "pod", "interface": "veth1"}"#;

fn web() -> FeedEvent {
    snapshot(7, vec![slice("web", 1), service("web", 1)])
}

/// A request from a peer, and the answer.
pub(super) async fn request(
    harness: &Harness,
    peer: &str,
    method: &str,
    path: &str,
) -> (StatusCode, String) {
    request_of(harness.api(), peer, method, path).await
}

pub(super) async fn request_of(
    api: Api,
    peer: &str,
    method: &str,
    path: &str,
) -> (StatusCode, String) {
    let body = match (method, path) {
        ("PUT", _) => Body::from("debug"),
        ("POST", path) if path.starts_with("/pods") => Body::from(POD),
        _ => Body::empty(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, "application/json");
    let mut request = request.body(body).unwrap();
    request
        .extensions_mut()
        .insert(ConnectInfo(Peer(peer.parse().unwrap())));
    let response = router(api).oneshot(request).await.unwrap();
    let status = response.status();
    // A stream of events does not end.
    if path == "/page/events" {
        return (status, String::new());
    }
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn get(harness: &Harness, path: &str) -> (StatusCode, Value) {
    let (status, body) = request(harness, LOOPBACK, "GET", path).await;
    (
        status,
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}")),
    )
}

async fn ok(harness: &Harness, path: &str) -> Value {
    let (status, body) = get(harness, path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    body
}

/// The error of a request that fails.
async fn error(harness: &Harness, path: &str) -> (StatusCode, String) {
    let (status, body) = get(harness, path).await;
    (
        status,
        body["error"]
            .as_str()
            .unwrap_or_else(|| panic!("{path}: {body}"))
            .to_owned(),
    )
}

pub(super) async fn ready(renderers: Vec<crate::drivers::RendererSpec>) -> Harness {
    let harness = Harness::start(renderers, vec![web()]);
    harness
        .renderer("dry-run", |view| view.state == "idle")
        .await;
    harness
}

#[tokio::test]
async fn readiness_waits_for_store_and_for_every_renderer() {
    let (spec, renderer) = TestRenderer::new("test");
    renderer.set(Mode::Hang);
    let harness = Harness::start(vec![spec], vec![]);
    assert_eq!(ok(&harness, "/liveness").await["status"], "ok");
    let (status, reason) = error(&harness, "/readiness").await;
    assert_eq!(
        (status, reason.contains("store")),
        (StatusCode::SERVICE_UNAVAILABLE, true),
        "{reason}"
    );
    harness.deliver(web()).await;
    harness.renderer("dry-run", |view| view.ready).await;
    let (status, reason) = error(&harness, "/readiness").await;
    assert_eq!(
        (status, reason.contains("renderer")),
        (StatusCode::SERVICE_UNAVAILABLE, true),
        "{reason}"
    );
    renderer.set(Mode::Fail);
    harness.renderer("test", |view| view.failures > 0).await;
    let (status, reason) = error(&harness, "/readiness").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        reason.contains("test: the kernel refused to do anything: failure injected by the test"),
        "{reason}"
    );
    renderer.set(Mode::Work);
    harness.renderer("test", |view| view.ready).await;
    assert_eq!(ok(&harness, "/readiness").await["status"], "ready");
}

#[tokio::test]
async fn everything_there_is_can_be_seen() {
    let harness = ready(vec![]).await;
    harness
        .deliver(batch(8, vec![put(bad_service("db"))]))
        .await;
    harness.history(|records| records.len() == 2).await;

    let services = ok(&harness, "/services").await;
    assert_eq!(services[0]["id"], "default/web");
    let web = ok(&harness, "/services/default/web").await;
    assert_eq!(web, services[0]);
    assert_eq!(web["ports"][0]["backends"][0]["address"], "10.1.0.1");
    assert_eq!(ok(&harness, "/objects/eps").await[0]["id"], "default/web");
    assert_eq!(
        ok(&harness, "/objects/services").await[0]["id"],
        "default/web"
    );
    assert!(ok(&harness, "/nodes").await.as_array().unwrap().is_empty());
    let renderers = ok(&harness, "/renderers").await;
    assert_eq!(
        (&renderers[0]["name"], &renderers[0]["ready"]),
        (&"dry-run".into(), &true.into())
    );
    assert_eq!(
        ok(&harness, "/quarantine").await[0]["object"],
        "service default/db"
    );

    let (_, text) = request(&harness, LOOPBACK, "GET", "/renderers/dry-run/dump").await;
    let description = ok(&harness, "/renderers/dry-run/dump?format=json").await;
    assert_eq!(description["text"], text);
    assert_eq!(description["services"], 1);
    assert!(text.contains("10.96.0.1"), "{text}");

    let (_, metrics) = request(&harness, LOOPBACK, "GET", "/metrics").await;
    for expected in [
        "contiv_services 1",
        "contiv_backends 1",
        "contiv_quarantined_objects 1",
        "contiv_store_revision 8",
    ] {
        assert!(
            metrics.contains(expected),
            "{expected} is not in:\n{metrics}"
        );
    }
}

#[tokio::test]
async fn page_lists_every_endpoint_and_main_numbers() {
    let harness = ready(vec![]).await;
    let (status, page) = request(&harness, LOOPBACK, "GET", "/").await;
    assert_eq!(status, StatusCode::OK);
    for (_, path, _) in ENDPOINTS {
        assert!(page.contains(path), "{path} is not in:\n{page}");
    }
    assert!(
        page.contains("1 service, 1 port, 1 backend<") && page.contains("contiv on n1"),
        "{page}"
    );
}

#[tokio::test]
async fn endpoints_listed_are_those_that_are_served() {
    let harness = ready(vec![]).await;
    for (method, path, _) in ENDPOINTS {
        let path = path.replace(
            "/trace",
            "/trace?from=10.1.0.9&to=10.96.0.1&port=80&protocol=tcp",
        );
        let path = path.replace(
            "/why",
            "/why?from=10.1.0.9&to=10.96.0.1&port=80&protocol=tcp",
        );
        let path = path
            .replace("{namespace}", "default")
            .replace("{kind}", "svc");
        let path = path.replace("/pods/default/{name}", "/pods/default/pod");
        let path = path
            .replace("/services/default/{name}", "/services/default/web")
            .replace("{name}", "dry-run");
        let (status, body) = request(&harness, LOOPBACK, method, &path).await;
        assert!(status.is_success(), "{method} {path}: {status} {body}");
    }
}

#[tokio::test]
async fn log_level_is_shown_and_changed_and_wrong_one_is_refused() {
    let harness = ready(vec![]).await;
    let api = harness.api();
    let ask = async |method: &str, body: &'static str| {
        let mut request = Request::builder()
            .method(method)
            .uri("/log/level")
            .body(Body::from(body))
            .unwrap();
        request
            .extensions_mut()
            .insert(ConnectInfo(Peer(LOOPBACK.parse().unwrap())));
        let response = router(api.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let level = |level: &str| (StatusCode::OK, format!("{{\"level\":\"{level}\"}}"));
    assert_eq!(ask("GET", "").await, level("info"));
    assert_eq!(
        ask("PUT", "warn,contiv_store=trace\n").await,
        level("warn,contiv_store=trace")
    );
    let (status, error) = ask("PUT", "loud").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        error.contains("loud") && error.contains("send a level"),
        "{error}"
    );
    let (status, error) = ask("PUT", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "an empty body: {error}");
    assert!(
        error.contains("the level is missing; send a level"),
        "{error}"
    );
    assert_eq!(
        ask("GET", "").await,
        level("warn,contiv_store=trace"),
        "it stays"
    );
}

#[tokio::test]
async fn history_is_selected_by_its_arguments() {
    let harness = ready(vec![]).await;
    harness.deliver(batch(8, vec![put(slice("web", 2))])).await;
    harness.history(|records| records.len() == 2).await;
    let numbers = async |arguments: &str| {
        let records = ok(&harness, &format!("/controller/event-history{arguments}")).await;
        let records = records
            .as_array()
            .unwrap()
            .iter()
            .map(|record| record["seq_num"].as_u64().unwrap());
        records.collect::<Vec<_>>()
    };
    assert_eq!(numbers("").await, [1, 2]);
    assert_eq!(numbers("?last=1").await, [2]);
    assert_eq!(numbers("?first=1").await, [1]);
    assert_eq!(numbers("?from=2&to=9&last=2").await, [2]);
    assert_eq!(numbers("?until=1").await, [0_u64; 0]);
    assert_eq!(numbers("?since=1").await, [1, 2]);
    assert_eq!(
        ok(&harness, "/controller/event-history?seq-num=2").await["kind"],
        "change"
    );
    let (status, reason) = error(&harness, "/controller/event-history?seq-num=3").await;
    assert_eq!(
        (status, reason.contains("no event 3")),
        (StatusCode::NOT_FOUND, true),
        "{reason}"
    );
    for wrong in ["?last=x", "?seqnum=1"] {
        let (status, _) = error(&harness, &format!("/controller/event-history{wrong}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn unknown_path_answers_with_where_to_look() {
    let harness = ready(vec![]).await;
    for (path, expected) in [
        ("/services/default/none", "/quarantine"),
        ("/objects/deployment", "valid types:"),
        ("/objects/ns", "namespace"),
        ("/renderers/none/dump", "/renderers"),
        ("/nothing", "GET /"),
    ] {
        let (status, reason) = error(&harness, path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert!(reason.contains(expected), "{path}: {reason}");
    }
    let (status, body) = request(&harness, LOOPBACK, "POST", "/services").await;
    assert_eq!(
        (status, body.contains("does not support POST")),
        (StatusCode::METHOD_NOT_ALLOWED, true),
        "{body}"
    );
}

#[tokio::test]
async fn resync_is_only_for_callers_on_this_machine() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = ready(vec![spec]).await;
    renderer.call().await;
    for peer in ["10.0.0.1:4000", "[fd00::1]:4000"] {
        let (status, body) = request(&harness, peer, "POST", "/controller/resync").await;
        assert_eq!(
            (status, body.contains("\"error\"")),
            (StatusCode::FORBIDDEN, true),
            "{body}"
        );
    }
    assert_eq!(harness.status().await.events, 1);
    assert_eq!(renderer.started_call(), None);
    let (status, body) = request(&harness, "[::1]:4000", "POST", "/controller/resync").await;
    assert_eq!(
        (status, body.as_str()),
        (StatusCode::ACCEPTED, r#"{"after":1,"resync":"requested"}"#)
    );
    assert!(matches!(renderer.call().await, Call::Resync(_)));
}

#[tokio::test]
async fn dump_of_renderer_that_hangs_is_error_and_not_wait() {
    let (spec, mut renderer) = TestRenderer::new("test");
    renderer.set(Mode::Hang);
    let harness = ready(vec![spec]).await;
    renderer.call().await;
    tokio::time::pause();
    let (status, reason) = tokio::select! {
        answer = error(&harness, "/renderers/test/dump") => answer,
        () = async { loop { tokio::time::advance(std::time::Duration::from_secs(1)).await } } => unreachable!(),
    };
    tokio::time::resume();
    assert_eq!(
        (status, reason.contains("renderer test")),
        (StatusCode::SERVICE_UNAVAILABLE, true),
        "{reason}"
    );
    let (status, _) = request(&harness, LOOPBACK, "GET", "/renderers/dry-run/dump").await;
    assert_eq!(status, StatusCode::OK, "the other one is not held up");
}

#[tokio::test]
async fn dump_waits_for_a_busy_renderer_and_shows_its_state() {
    let (spec, mut renderer) = TestRenderer::new("test");
    renderer.set(Mode::Hang);
    let harness = ready(vec![spec]).await;
    renderer.call().await;
    let dump = async { request(&harness, LOOPBACK, "GET", "/renderers/test/dump").await };
    let release = async {
        harness
            .deliver(batch(8, vec![put(service("other", 2))]))
            .await;
        harness.history(|records| records.len() == 2).await;
        renderer.set(Mode::Work);
    };
    let ((status, text), ()) = tokio::join!(dump, release);
    assert_eq!(
        (status, text.contains("10.96.0.1 ")),
        (StatusCode::OK, true),
        "{text}"
    );
    harness
        .renderer("test", |view| view.applied_revision == 8)
        .await;
}

#[tokio::test]
async fn renderer_that_panics_in_a_dump_is_recreated() {
    let (spec, mut renderer) = TestRenderer::new("test");
    let harness = ready(vec![spec]).await;
    renderer.call().await;
    harness.renderer("test", |view| view.ready).await;
    renderer.set(Mode::Panic);
    let (status, _) = error(&harness, "/renderers/test/dump").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    renderer.set(Mode::Work);
    assert!(matches!(renderer.call().await, Call::Resync(_)));
    harness.renderer("test", |view| view.state == "idle").await;
}

#[tokio::test]
async fn stopping_agent_answers_that_it_stops() {
    let harness = ready(vec![]).await;
    harness
        .requests
        .send(crate::drivers::Request::Shutdown)
        .await
        .unwrap();
    let (status, reason) = error(&harness, "/liveness").await;
    assert_eq!(
        (status, reason.contains("stopping")),
        (StatusCode::SERVICE_UNAVAILABLE, true),
        "{reason}"
    );
}
