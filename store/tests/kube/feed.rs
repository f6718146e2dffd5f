use std::time::Duration;

use super::*;

fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" } })
}

fn put_key(change: &Change) -> &str {
    match change {
        Change::Put(entry) => &entry.key,
        Change::Delete { .. } => panic!("expected a put: {change:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_delivered_in_order() {
    let server = ApiServer::start().unwrap();
    server.put(service("old", "10.96.0.1")).unwrap();
    let mut events = start_feed(open(&server).await);
    assert_eq!(keys(&snapshot(&mut events).await), [key("old")]);
    server.put(service("web", "10.96.0.2")).unwrap();
    let Change::Put(created) = change(&mut events).await else {
        panic!("expected a put")
    };
    server.put(service("web", "10.96.0.3")).unwrap();
    let Change::Put(updated) = change(&mut events).await else {
        panic!("expected a put")
    };
    assert_eq!(
        (created.key.as_str(), updated.key.as_str()),
        (&*key("web"), &*key("web"))
    );
    assert!(created.mod_revision < updated.mod_revision && created.value != updated.value);
    server.delete("services", "default", "old");
    assert_eq!(
        change(&mut events).await,
        Change::Delete { key: key("old") }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_connection_loses_no_change_and_needs_no_list() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    server.cut();
    let reason = down(&mut events).await;
    assert!(reason.contains(&server.endpoint()), "{reason}");
    server.put(service("b", "None")).unwrap();
    server.delete("services", "default", "a");
    server.reconnect();
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    let mut changes = Vec::new();
    while changes.len() < 2 {
        let FeedEvent::Changed(batch) = next(&mut events).await else {
            panic!("expected a change")
        };
        changes.extend(batch.changes);
    }
    assert_eq!(put_key(&changes[0]), key("b"));
    assert_eq!(changes[1], Change::Delete { key: key("a") });
}

#[tokio::test(flavor = "multi_thread")]
async fn object_deleted_before_compaction_is_missing_in_next_list() {
    let server = ApiServer::start().unwrap();
    for name in ["a", "b"] {
        server.put(service(name, "None")).unwrap();
    }
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    server.cut();
    down(&mut events).await;
    server.delete("services", "default", "a");
    server.put(service("c", "None")).unwrap();
    server.expire();
    server.reconnect();
    let event = after_outage(&mut events).await;
    let FeedEvent::Snapshot(listed) = event else {
        panic!("expected a snapshot: {event:?}")
    };
    assert_eq!(keys(&listed), [key("b"), key("c")]);
    server.put(service("d", "None")).unwrap();
    assert_eq!(put_key(&change(&mut events).await), key("d"));
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_ended_by_its_timeout_resumes_without_outage() {
    let server = ApiServer::start().unwrap();
    server.limit_watches(Duration::from_millis(1100));
    server.put(service("a", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    server.take_requests();
    let mut requests = Vec::new();
    // On average, each of the six types has opened its watch twice.
    while requests.len() < 12 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        requests.extend(
            server
                .take_requests()
                .into_iter()
                .filter(|request| request.contains("watch=true")),
        );
    }
    server.put(service("b", "None")).unwrap();
    assert_eq!(
        put_key(&change(&mut events).await),
        key("b"),
        "no outage was reported before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_renewed_while_lists_fail_reports_no_outage() {
    let server = ApiServer::start().unwrap();
    server.limit_watches(Duration::from_millis(1100));
    server.put(service("a", "None")).unwrap();
    let (mut events, _handle) = Feed::start(open(&server).await, Key::prefix(Kind::Service));
    snapshot(&mut events).await;
    // The watch begins while lists still succeed.
    server.put(service("b", "None")).unwrap();
    assert_eq!(put_key(&change(&mut events).await), key("b"));
    server.fail_lists(Some(500));
    server.take_requests();
    let mut requests = Vec::new();
    while requests.len() < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        requests.extend(
            server
                .take_requests()
                .into_iter()
                .filter(|request| request.contains("watch=true")),
        );
    }
    server.put(service("c", "None")).unwrap();
    assert_eq!(
        put_key(&change(&mut events).await),
        key("c"),
        "no outage was reported before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn backlog_of_many_batches_is_resumed_from_listed_revision() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "None")).unwrap();
    let store = open(&server).await;
    let prefix = Key::prefix(Kind::Service);
    let listed = store.list(&prefix).await.unwrap();
    // The first watch after a list returns at once. Later ones wait for their first events.
    let _first = store.watch(&prefix, listed.revision).await.unwrap();
    for _ in 0..17 * 256 {
        server.put(service("b", "None")).unwrap();
    }
    for _ in 0..2 {
        drop(
            store
                .watch(&prefix, listed.revision)
                .await
                .expect("no event of the backlog was delivered"),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bookmarks_advance_the_version_of_a_quiet_type() {
    let server = ApiServer::start().unwrap();
    server.set_bookmark_interval(Duration::from_millis(10));
    server.put(service("a", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    // Only pods change. All other types learn the newest version by bookmarks.
    let newest = server.put(pod("p")).unwrap();
    assert!(put_key(&change(&mut events).await).contains("/pod/p/"));
    let mut requests = Vec::new();
    let is_newest = |request: &String| request.ends_with(&format!("resourceVersion={newest}"));
    // When bookmarks come is not specified: this is repeated until each type has had one.
    while requests.len() != 6 || !requests.iter().all(is_newest) {
        server.cut();
        down(&mut events).await;
        server.take_requests();
        server.reconnect();
        assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
        requests = server.take_requests();
        requests.retain(|request| request.contains("watch=true"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_watch_is_renewed_from_its_last_bookmark() {
    let server = ApiServer::start().unwrap();
    server.set_bookmark_interval(Duration::from_millis(10));
    server.limit_watches(Duration::from_millis(1100));
    server.put(service("a", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    // Only pods change. A server that has forgotten the versions before this one would want a list from all other watches.
    let newest = server.put(pod("p")).unwrap();
    assert!(put_key(&change(&mut events).await).contains("/pod/p/"));
    server.take_requests();
    let of_services =
        |request: &String| request.contains("/services?") && request.contains("watch=true");
    let mut renewed = Vec::new();
    // The first one after the change may still begin before a bookmark has come.
    while renewed.len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        renewed.extend(server.take_requests().into_iter().filter(of_services));
    }
    assert!(
        renewed[1].ends_with(&format!("resourceVersion={newest}")),
        "{newest}: {renewed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn object_becoming_unusable_is_a_problem_and_never_a_deletion() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "10.96.0.1")).unwrap();
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    server.put(service("web", "10.96.0.999")).unwrap();
    let Change::Put(entry) = change(&mut events).await else {
        panic!("expected a put")
    };
    assert!(entry.value.is_empty());
    let FeedEvent::Problems(problems) = next(&mut events).await else {
        panic!("expected the problem")
    };
    assert_eq!(problems[0].source, key("web"));
    server.put(service("web", "10.96.0.2")).unwrap();
    assert!(matches!(change(&mut events).await, Change::Put(entry) if !entry.value.is_empty()));
    assert_eq!(next(&mut events).await, FeedEvent::Problems(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_become_a_leader_lock_are_deleted() {
    let server = ApiServer::start().unwrap();
    let endpoints = |annotations: Value| {
        json!({ "apiVersion": "v1", "kind": "Endpoints",
            "metadata": { "name": "lock", "namespace": "default", "annotations": annotations } })
    };
    server.put(endpoints(json!({}))).unwrap();
    let mut events = start_feed(open(&server).await);
    assert_eq!(snapshot(&mut events).await.entries.len(), 1);
    server
        .put(endpoints(
            json!({ "control-plane.alpha.kubernetes.io/leader": "{}" }),
        ))
        .unwrap();
    assert!(matches!(change(&mut events).await, Change::Delete { key } if key.contains("/lock/")));
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_of_one_type_watches_no_other() {
    let server = ApiServer::start().unwrap();
    let (mut events, _handle) = Feed::start(open(&server).await, Key::prefix(Kind::Service));
    snapshot(&mut events).await;
    server.put(pod("p")).unwrap();
    server.put(service("web", "None")).unwrap();
    assert_eq!(put_key(&change(&mut events).await), key("web"));
    assert!(
        server
            .take_requests()
            .iter()
            .all(|request| request.contains("/services?"))
    );
}
