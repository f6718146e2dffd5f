//! `/trace`

use super::*;

const WEB: &str = "/trace?from=10.1.0.9&to=10.96.0.1&port=80&protocol=TCP";

#[tokio::test]
async fn trace_explains_flow_as_json_and_as_text() {
    let harness = ready(vec![]).await;
    let json = ok(&harness, WEB).await;
    assert_eq!(json["hit"]["service"], "default/web");
    assert_eq!(json["verdict"]["backends"]["candidates"][0]["address"], "10.1.0.1");
    let (status, text) = request(&harness, LOOPBACK, "GET", &format!("{WEB}&format=text")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.starts_with("flow ") && text.contains("service   default/web, port 80/tcp"), "{text}");
    let by_interface = ok(&harness, &format!("{WEB}&interface=veth1")).await;
    assert_eq!(by_interface["flow"]["interface"], "veth1");
    let udp = ok(&harness, "/trace?from=10.1.0.9&to=10.96.0.1&port=80&protocol=udp").await;
    assert_eq!(udp["verdict"]["rejected"]["unknown-port"], "default/web");
}

#[tokio::test]
async fn trace_before_store_is_read_is_error_and_not_wrong_answer() {
    let harness = Harness::start(vec![], vec![]);
    let (status, reason) = error(&harness, WEB).await;
    assert_eq!(
        (status, reason.contains("not been read")),
        (StatusCode::SERVICE_UNAVAILABLE, true),
        "{reason}"
    );
}

#[tokio::test]
async fn wrong_arguments_of_trace_are_named() {
    let harness = ready(vec![]).await;
    for (arguments, expected) in [
        ("", "from"),
        ("?from=web&to=10.96.0.1&port=80&protocol=tcp", "from"),
        ("?from=10.1.0.9&to=10.96.0.1&port=80&protocol=icmp", "icmp"),
        ("?from=10.1.0.9&to=10.96.0.1&port=70000&protocol=tcp", "port"),
        ("?from=10.1.0.9&to=10.96.0.1&port=80&protocol=tcp&why=1", "why"),
        ("?from=10.1.0.9&interface=veth*&to=10.96.0.1&port=80&protocol=tcp", "veth*"),
        ("?from=10.1.0.9&interface=&to=10.96.0.1&port=80&protocol=tcp", "is not the name of one interface"),
        ("?from=fd00::1&to=10.96.0.1&port=80&protocol=tcp", "fd00::1"),
    ] {
        let (status, reason) = error(&harness, &format!("/trace{arguments}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{arguments}");
        assert!(reason.contains(expected) && reason.contains("as in /trace?"), "{arguments}: {reason}");
    }
}
