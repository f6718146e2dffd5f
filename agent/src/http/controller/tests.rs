use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Request, StatusCode},
};
use contiv_controller::lease::election::Election;
use contiv_store_testing::MemoryStore;
use tower::ServiceExt;

use super::*;
use crate::{config::ControllerName, connections::Peer};

/// One instance in an election. Its controller is synced when `has_synced` is true.
struct Instance {
    store: MemoryStore,
    api: ControllerApi,
    _election: Election,
}

impl Instance {
    fn start(cluster: &MemoryStore, identity: &str, has_synced: bool) -> Self {
        let store = cluster.another_client();
        let config = ControllerConfig {
            identity: identity.to_owned(),
            ..ControllerConfig::default()
        };
        let (election, lease) = Election::enter(store.shared(), config.election()).unwrap();
        let observer = Observer::start(store.shared(), lease);
        let mut reports = Reports::new();
        let report = move || Report {
            has_synced,
            details: json!({ "services": 3 }),
        };
        reports.insert(ControllerName::ExternalWorkloads, Arc::new(report));
        let mut metrics = ControllerMetrics::new();
        drop(metrics.register_queues());
        let api = ControllerApi::new(
            &config,
            observer,
            reports,
            metrics,
            LogLevel::new("info", |_| Ok(())),
        );
        Self {
            store,
            api,
            _election: election,
        }
    }

    async fn request(&self, peer: &str, method: &str, path: &str) -> (StatusCode, String) {
        let body = if method == "PUT" {
            Body::from("debug")
        } else {
            Body::empty()
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .body(body)
            .unwrap();
        request
            .extensions_mut()
            .insert(ConnectInfo(Peer(peer.parse().unwrap())));
        let response = router(self.api.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        let (status, body) = self.request("127.0.0.1:4000", "GET", path).await;
        (
            status,
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}")),
        )
    }

    /// Repeats the request until the answer is as wanted; time is paused, so this takes none.
    async fn until(&self, path: &str, is_wanted: impl Fn(StatusCode, &Value) -> bool) -> Value {
        for _ in 0..1000 {
            let (status, body) = self.get(path).await;
            if is_wanted(status, &body) {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("in vain: {:?}", self.get(path).await);
    }
}

#[tokio::test(start_paused = true)]
async fn standby_is_ready_and_names_the_active_instance() {
    let cluster = MemoryStore::new();
    let first = Instance::start(&cluster, "first", true);
    first
        .until("/readiness", |status, body| {
            status == StatusCode::OK && body["leads"] == true
        })
        .await;
    let second = Instance::start(&cluster, "second", false);
    let ready = second
        .until("/readiness", |status, _| status == StatusCode::OK)
        .await;
    assert_eq!(
        ready["leads"], false,
        "what it would do is of no matter while another one is active"
    );
    let status = second.get("/status").await.1;
    assert_eq!(status["leadership"]["holder"], "first", "{status}");
    assert_eq!(
        status["controllers"]["external-workloads"]["details"]["services"], 3,
        "{status}"
    );
}

#[tokio::test(start_paused = true)]
async fn active_instance_is_ready_when_all_controllers_have_synced() {
    let instance = Instance::start(&MemoryStore::new(), "only", false);
    instance
        .until("/status", |_, body| body["leadership"]["leads"] == true)
        .await;
    let (status, body) = instance.get("/readiness").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        body["error"]
            .as_str()
            .unwrap()
            .contains("not every controller"),
        "{body}"
    );
}

#[tokio::test(start_paused = true)]
async fn controller_without_store_is_alive_but_not_ready() {
    let instance = Instance::start(&MemoryStore::new(), "only", true);
    instance
        .until("/readiness", |status, _| status == StatusCode::OK)
        .await;
    instance.store.cut();
    let status = instance
        .until("/status", |_, body| {
            body["leadership"]["store_down"].is_string()
        })
        .await;
    assert_eq!(status["identity"], "only");
    assert_eq!(
        instance.get("/readiness").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(instance.get("/liveness").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn endpoints_answer_and_only_loopback_may_change_anything() {
    let instance = Instance::start(&MemoryStore::new(), "only", true);
    instance
        .until("/readiness", |_, body| body["leads"] == true)
        .await;
    for (method, path, _) in CONTROLLER_ENDPOINTS {
        let (status, body) = instance.request("127.0.0.1:4000", method, path).await;
        assert_eq!(status, StatusCode::OK, "{method} {path}: {body}");
    }
    assert_eq!(instance.get("/log/level").await.1["level"], "debug");
    let (status, _) = instance.request("10.0.0.1:4000", "PUT", "/log/level").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (_, text) = instance.request("127.0.0.1:4000", "GET", "/metrics").await;
    for expected in [
        "contiv_controller_leader 1",
        "contiv_build_info",
        "# TYPE workqueue_unfinished_work_seconds gauge",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    assert!(
        instance.get("/nowhere").await.1["error"]
            .as_str()
            .unwrap()
            .contains("GET / lists")
    );
}
