use contiv_model::{InterfaceName, LocalInterface};
use contiv_node::Input;
use contiv_renderer::InterfaceKind;
use serde_json::json;

use super::*;
use crate::drivers::Request;

#[tokio::test]
async fn pod_is_attached_seen_and_detached() {
    let harness = ready(vec![]).await;
    let (status, body) = request(&harness, LOOPBACK, "POST", "/pods?wait=5s").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(
        ok(&harness, "/pods").await,
        json!([{ "pod": "default/pod", "interface": "veth1" }])
    );
    let (status, body) = request(&harness, LOOPBACK, "DELETE", "/pods/default/pod").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(ok(&harness, "/pods").await, json!([]));
    let (status, _) = request(&harness, LOOPBACK, "DELETE", "/pods/default/pod").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = request(&harness, LOOPBACK, "POST", "/pods").await;
    assert_eq!(status, StatusCode::ACCEPTED, "nobody waits");
}

#[tokio::test]
async fn failed_attachment_names_the_renderer_and_the_reason() {
    let (spec, renderer) = TestRenderer::new("test");
    let harness = Harness::start(vec![spec], vec![web()]);
    harness.renderer("test", |view| view.ready).await;
    renderer.set(Mode::Fail);
    let (status, body) = request(&harness, LOOPBACK, "POST", "/pods?wait=20s").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        body.contains("renderer test failed") && body.contains("failure injected by the test"),
        "{body}"
    );
    assert_eq!(ok(&harness, "/pods").await, json!([]), "it was taken back");
}

#[tokio::test]
async fn pod_changes_need_loopback_and_a_valid_wait() {
    let harness = ready(vec![]).await;
    for (method, path) in [("POST", "/pods"), ("DELETE", "/pods/default/pod")] {
        let (status, _) = request(&harness, "10.0.0.9:4000", method, path).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}");
    }
    for path in ["/pods?wait=1h", "/pods?wait=soon", "/pods?later=5s"] {
        let (status, body) = request(&harness, LOOPBACK, "POST", path).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {body}");
    }
    assert_eq!(ok(&harness, "/pods").await, json!([]));
}

#[tokio::test]
async fn interface_that_cannot_be_a_pods_is_refused() {
    let harness = ready(vec![]).await;
    let uplink = LocalInterface {
        is_physical: true,
        ..LocalInterface::default()
    };
    let interfaces = [(InterfaceName::new("veth1"), uplink)].into();
    harness
        .requests
        .send(Request::Input(Input::LocalInterfaces(interfaces)))
        .await
        .unwrap();
    for (kind, reason) in [
        (InterfaceKind::Missing, "this node has no interface veth1"),
        (InterfaceKind::Loopback, "veth1 is the loopback interface"),
        (
            InterfaceKind::Other,
            "veth1 leads to the external network (external-interfaces)",
        ),
    ] {
        let api = harness.api().with_interfaces(match kind {
            InterfaceKind::Missing => |_| InterfaceKind::Missing,
            InterfaceKind::Loopback => |_| InterfaceKind::Loopback,
            InterfaceKind::Other => |_| InterfaceKind::Other,
        });
        for path in ["/pods", "/pods?wait=5s"] {
            let (status, body) = request_of(api.clone(), LOOPBACK, "POST", path).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
            assert!(
                body.contains(reason) && body.contains("such as a veth"),
                "{body}"
            );
        }
    }
    assert_eq!(ok(&harness, "/pods").await, json!([]));
}
