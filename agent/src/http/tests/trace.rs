//! `/trace`

use super::*;

const WEB: &str = "/trace?from=10.1.0.9&to=10.96.0.1&port=80&protocol=TCP";

#[tokio::test]
async fn trace_explains_flow_as_json_and_as_text() {
    let harness = ready(vec![]).await;
    let json = ok(&harness, WEB).await;
    assert_eq!(json["hit"]["service"], "default/web");
    assert_eq!(
        json["verdict"]["backends"]["candidates"][0]["address"],
        "10.1.0.1"
    );
    let (status, text) = request(&harness, LOOPBACK, "GET", &format!("{WEB}&format=text")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        text.starts_with("flow ") && text.contains("service   default/web, port 80/tcp"),
        "{text}"
    );
    let by_interface = ok(&harness, &format!("{WEB}&interface=veth1")).await;
    assert_eq!(by_interface["flow"]["interface"], "veth1");
    let udp = ok(
        &harness,
        "/trace?from=10.1.0.9&to=10.96.0.1&port=80&protocol=udp",
    )
    .await;
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
        (
            "?from=10.1.0.9&to=10.96.0.1&port=70000&protocol=tcp",
            "port",
        ),
        (
            "?from=10.1.0.9&to=10.96.0.1&port=80&protocol=tcp&why=1",
            "why",
        ),
        (
            "?from=10.1.0.9&interface=veth*&to=10.96.0.1&port=80&protocol=tcp",
            "veth*",
        ),
        (
            "?from=10.1.0.9&interface=&to=10.96.0.1&port=80&protocol=tcp",
            "is not the name of one interface",
        ),
        ("?from=fd00::1&to=10.96.0.1&port=80&protocol=tcp", "fd00::1"),
    ] {
        let (status, reason) = error(&harness, &format!("/trace{arguments}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{arguments}");
        assert!(
            reason.contains(expected) && reason.contains("as in /trace?"),
            "{arguments}: {reason}"
        );
    }
}

#[tokio::test]
async fn trace_says_that_its_state_may_be_outdated() {
    let (spec, renderer) = TestRenderer::new("test");
    let harness = ready(vec![spec]).await;
    harness.renderer("test", |view| view.ready).await;
    assert!(ok(&harness, WEB).await.get("caveats").is_none());
    // A service that cannot be used does not concern another one.
    harness
        .deliver(batch(
            8,
            vec![put(bad_service("db")), put(bad_service("web"))],
        ))
        .await;
    harness
        .deliver(FeedEvent::Down {
            reason: "no login".to_owned(),
        })
        .await;
    harness
        .history(|records| records.iter().any(|record| record.kind == "store-down"))
        .await;
    let caveats = ok(&harness, WEB).await["caveats"].clone();
    let (down, quarantined) = (&caveats[0]["store-down"], &caveats[1]["quarantined"]);
    assert_eq!(
        (&down["reason"], &down["revision"]),
        (&"no login".into(), &8.into()),
        "{caveats}"
    );
    assert_eq!(
        (&quarantined["object"], &quarantined["active_state"]),
        (&"service default/web".into(), &"last good".into()),
        "{caveats}"
    );
    assert_eq!(caveats.as_array().map(Vec::len), Some(2), "{caveats}");
    let (_, text) = request(&harness, LOOPBACK, "GET", &format!("{WEB}&format=text")).await;
    assert!(
        text.contains("\nstate     the store is down since ")
            && text.contains(": no login; this is its state at revision 8\n"),
        "{text}"
    );

    renderer.set(Mode::Fail);
    harness.deliver(batch(9, vec![put(slice("web", 2))])).await;
    harness.renderer("test", |view| view.failures > 0).await;
    let caveats = ok(&harness, WEB).await["caveats"].to_string();
    assert!(
        caveats.contains("{\"renderer-failing\":{\"error\":")
            && caveats.contains("\"renderer\":\"test\""),
        "{caveats}"
    );
}

#[tokio::test]
async fn trace_of_former_address_names_service() {
    let harness = ready(vec![]).await;
    harness
        .deliver(batch(8, vec![put(service("web", 2))]))
        .await;
    harness.history(|records| records.len() == 2).await;
    let json = ok(&harness, WEB).await;
    let former = &json["former"];
    assert_eq!(
        (&former["service"], &former["frontend"]),
        (&"default/web".into(), &"10.96.0.1:80/tcp".into()),
        "{json}"
    );
    assert_eq!(former["now"], serde_json::json!(["10.96.0.2"]), "{json}");
    // It has it again.
    harness
        .deliver(batch(9, vec![put(service("web", 1))]))
        .await;
    harness.history(|records| records.len() == 3).await;
    assert!(ok(&harness, WEB).await.get("former").is_none());
}
