//! An API server, or a proxy before it, that answers something else. Services stay as they are until it answers again.

use contiv_store::Inconsistency;

use super::*;

/// A server with a service, and a feed that has listed it.
async fn stage() -> (ApiServer, Receiver<Delivery>, contiv_store::FeedHandle) {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "10.96.0.1")).unwrap();
    let (mut events, handle) = Feed::start(open(&server).await, ROOT);
    assert_eq!(keys(&snapshot(&mut events).await), [key("web")]);
    (server, events, handle)
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_that_is_no_list_of_the_type_is_an_outage() {
    let (server, mut events, handle) = stage().await;
    let status =
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"quota"}"#;
    let endless =
        r#"{"kind":"ServiceList","metadata":{"resourceVersion":"5","continue":"a"},"items":[]}"#;
    for (media_type, answer, expected) in [
        (
            "application/json",
            r#"{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[]}"#,
            "PodList",
        ),
        ("application/json", status, "quota"),
        ("application/json", "{}", "without a kind"),
        (
            "application/json",
            r#"{"kind":"ServiceList","metadata":{},"items":[]}"#,
            "no resourceVersion",
        ),
        ("application/json", endless, "no last page"),
        (
            "text/html",
            "<html>Sign in</html>",
            "/api/v1/services was answered with text/html: <html>Sign in",
        ),
    ] {
        server.answer_lists("services", Some((media_type, answer)));
        handle.request_resync();
        let reason = down(&mut events).await;
        assert!(reason.contains(expected), "{reason}");
        server.answer_lists("services", None);
        assert_eq!(keys(&snapshot(&mut events).await), [key("web")], "{answer}");
    }
}

/// Expects that an event is not believed, and what the server really has.
async fn expect_repair(events: &mut Receiver<Delivery>, expected: Inconsistency, words: &str) {
    match next(events).await {
        FeedEvent::Inconsistent {
            inconsistency,
            reason,
        } => {
            assert_eq!(inconsistency, expected, "{reason}");
            assert!(reason.contains(words), "{reason}");
        }
        other => panic!("the event was believed: {other:?}"),
    }
    assert_eq!(keys(&snapshot(events).await), [key("web")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_older_than_one_before_it_does_not_count() {
    let (server, mut events, _handle) = stage().await;
    let version = server.put(service("web", "10.96.0.2")).unwrap();
    change(&mut events).await;
    let mut old = service("web", "10.96.0.1");
    old["metadata"]["resourceVersion"] = (version - 1).to_string().into();
    for event in ["MODIFIED", "DELETED"] {
        server.send_false_event("services", event, &old);
        expect_repair(&mut events, Inconsistency::Order, &key("web")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_cannot_be_used_leads_to_a_list() {
    let (server, mut events, _handle) = stage().await;
    let versionless = service("web", "10.96.0.9");
    let nameless = json!({ "metadata": { "resourceVersion": "99" } });
    for (event, object, words) in [
        ("MODIFIED", &versionless, "no resourceVersion"),
        ("BOOKMARK", &json!({ "metadata": {} }), "no resourceVersion"),
        ("ADDED", &nameless, "name"),
        ("RENAMED", &nameless, "unknown type"),
    ] {
        server.send_false_event("services", event, object);
        expect_repair(&mut events, Inconsistency::Unusable, words).await;
    }
    // The watches of other types go on.
    server
        .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } }))
        .unwrap();
    assert!(matches!(change(&mut events).await, Change::Put(_)));
}
