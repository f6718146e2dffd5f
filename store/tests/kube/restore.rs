//! An API server whose etcd was restored from a backup.

use std::time::Duration;

use contiv_store::StoreError;

use super::*;

/// The events until the next list, and that list.
async fn until_listed(events: &mut Receiver<Delivery>) -> (Vec<FeedEvent>, Snapshot) {
    let mut before = Vec::new();
    loop {
        match next(events).await {
            FeedEvent::Snapshot(listed) => return (before, listed),
            // Only the first cause of an outage matters here.
            FeedEvent::Down { .. } => {}
            event => before.push(event),
        }
    }
}

fn is_replaced(events: &[FeedEvent]) -> bool {
    matches!(events, [FeedEvent::Replaced { .. }])
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_server_at_lower_version_is_listed_again() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "None")).unwrap();
    let backup = server.back_up();
    for name in ["b", "c", "d"] {
        server.put(service(name, "None")).unwrap();
    }
    let mut events = start_feed(open(&server).await);
    assert_eq!(keys(&snapshot(&mut events).await).len(), 4);
    server.cut();
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    server.restore(backup);
    server.put(service("e", "None")).unwrap();
    server.reconnect();
    let (before, listed) = until_listed(&mut events).await;
    assert!(is_replaced(&before), "{before:?}");
    assert_eq!(keys(&listed), [key("a"), key("e")]);
    server.put(service("f", "None")).unwrap();
    assert_eq!(change(&mut events).await.key(), key("f"));
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_server_written_past_version_is_listed_again() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "None")).unwrap();
    let backup = server.back_up();
    server.put(service("b", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    assert_eq!(keys(&snapshot(&mut events).await), [key("a"), key("b")]);
    server.cut();
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    server.restore(backup);
    for name in ["c", "d", "e"] {
        server.put(service(name, "None")).unwrap();
    }
    server.reconnect();
    let (before, listed) = until_listed(&mut events).await;
    assert!(is_replaced(&before), "{before:?}");
    assert_eq!(keys(&listed), ["a", "c", "d", "e"].map(key));
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_server_with_deleted_object_back_is_listed_again() {
    let server = ApiServer::start().unwrap();
    for name in ["a", "b"] {
        server.put(service(name, "None")).unwrap();
    }
    let backup = server.back_up();
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    server.delete("services", "default", "a");
    assert_eq!(change(&mut events).await, Change::Delete { key: key("a") });
    server.cut();
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    server.restore(backup);
    // Another object now has the version of the deletion.
    server.put(node("n1")).unwrap();
    server.put(node("n1")).unwrap();
    server.reconnect();
    let (before, listed) = until_listed(&mut events).await;
    assert!(is_replaced(&before), "{before:?}");
    assert!(keys(&listed).contains(&&*key("a")), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_server_is_noticed_when_the_watch_is_renewed() {
    let server = ApiServer::start().unwrap();
    server.limit_watches(Duration::from_millis(1100));
    server.put(service("a", "None")).unwrap();
    let backup = server.back_up();
    server.put(service("b", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    assert_eq!(keys(&snapshot(&mut events).await), [key("a"), key("b")]);
    server.restore(backup);
    let (before, listed) = until_listed(&mut events).await;
    assert!(is_replaced(&before), "{before:?}");
    assert_eq!(keys(&listed), [key("a")]);
}

/// Only a server with another history may be older than what was seen.
#[tokio::test(flavor = "multi_thread")]
async fn list_older_than_seen_is_refused_after_other_failures_too() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "None")).unwrap();
    let backup = server.back_up();
    server.put(service("b", "None")).unwrap();
    let store = open(&server).await;
    store.list(ROOT).await.unwrap();
    let unknown = store.watch(ROOT, 99).await.err();
    assert!(
        matches!(unknown, Some(StoreError::Compacted { .. })),
        "{unknown:?}"
    );
    server.ask_for_pause(Some(1));
    server.fail_next(1, 429);
    let busy = store.list(ROOT).await.unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    server.restore(backup);
    let error = store.list(ROOT).await.unwrap_err();
    assert!(matches!(error, StoreError::Rewound { .. }), "{error}");
    assert_eq!(keys(&store.list(ROOT).await.unwrap()), [key("a")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_with_same_history_is_not_listed_again() {
    let server = ApiServer::start().unwrap();
    for name in ["a", "b"] {
        server.put(service(name, "None")).unwrap();
    }
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    server.delete("services", "default", "a");
    change(&mut events).await;
    server.cut();
    assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
    // The known state is outdated, but was right at the version of the reader.
    server.put(service("a", "None")).unwrap();
    server.delete("services", "default", "b");
    server.reconnect();
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    assert!(matches!(next(&mut events).await, FeedEvent::Changed(_)));
}
