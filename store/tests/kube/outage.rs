//! The reported causes of an outage, and its end.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn outage_with_a_new_cause_is_reported_again() {
    let server = ApiServer::start().unwrap();
    server.require_token("first").unwrap();
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    server.cut();
    let mut reason = down(&mut events).await;
    server.accept_token("second");
    server.reconnect();
    // A refused connection may be reported first, in other words than the broken one.
    while !reason.contains("401") {
        reason = down(&mut events).await;
    }
    server.accept_token("first");
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_version_after_an_outage_is_answered_by_a_list() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    server.cut();
    down(&mut events).await;
    server.put(service("b", "None")).unwrap();
    server.expire();
    server.reconnect();
    let event = after_outage(&mut events).await;
    let FeedEvent::Snapshot(listed) = event else {
        panic!("expected the list: {event:?}")
    };
    assert_eq!(keys(&listed), [key("a"), key("b")]);
}
