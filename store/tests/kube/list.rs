use std::time::Duration;

use contiv_proto::{Object, key::ROOT};
use contiv_store::{Operation, StoreError};
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_type_is_listed_in_contivs_form_sorted_by_key() {
    let server = ApiServer::start().unwrap();
    let metadata = json!({ "name": "a", "namespace": "default" });
    for (api_version, kind) in [("v1", "Pod"), ("v1", "Endpoints"), ("v1", "Service")] {
        server
            .put(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }))
            .unwrap();
    }
    for kind in ["Node", "Namespace"] {
        server
            .put(json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "a" } }))
            .unwrap();
    }
    let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": "IPv4", "endpoints": [], "ports": [] });
    server.put(slice).unwrap();

    let listed = open(&server).await.list(ROOT).await.unwrap();
    assert_eq!(listed.problems, []);
    let found = keys(&listed);
    assert!(found.is_sorted());
    let kinds: Vec<Kind> = found
        .iter()
        .map(|key| Key::parse(key).unwrap().unwrap().kind())
        .collect();
    assert_eq!(
        kinds,
        [
            Kind::Endpoints,
            Kind::EndpointSlice,
            Kind::Namespace,
            Kind::Node,
            Kind::Pod,
            Kind::Service
        ]
    );
    for entry in &listed.entries {
        let key = Key::parse(&entry.key).unwrap().unwrap();
        Object::decode(&key, &entry.value).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_list_comes_in_pages_of_one_version() {
    let server = ApiServer::start().unwrap();
    for i in 0..1201 {
        server.put(service(&format!("s{i:04}"), "None")).unwrap();
    }
    let store = open(&server).await;
    server.delay_answers(Duration::from_millis(20));
    let list = tokio::spawn(async move { store.list(&Key::prefix(Kind::Service)).await.unwrap() });
    // While the first page is in transit, the other pages are unknown.
    let mut requests = Vec::new();
    while requests.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        requests.extend(server.take_requests());
    }
    tokio::time::sleep(Duration::from_millis(25)).await;
    server.delete("services", "default", "s1200");
    let listed = list.await.unwrap();
    // The deletion happened before the first answer or after it, never in between.
    assert!(
        matches!(listed.entries.len(), 1200 | 1201),
        "{}",
        listed.entries.len()
    );
    requests.extend(server.take_requests());
    assert_eq!(
        requests
            .iter()
            .filter(|request| request.contains("continue="))
            .count(),
        2,
        "{requests:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn list_expired_between_pages_restarts_without_pages() {
    let server = ApiServer::start().unwrap();
    for i in 0..600 {
        server.put(service(&format!("s{i:04}"), "None")).unwrap();
    }
    let store = open(&server).await;
    let prefix = Key::prefix(Kind::Service);
    server.fail_next(1, 410);
    assert_eq!(store.list(&prefix).await.unwrap().entries.len(), 600);
    server.take_requests();
    server.fail_next(3, 410);
    assert_eq!(store.list(&prefix).await.unwrap().entries.len(), 600);
    let requests = server.take_requests();
    assert!(!requests.last().unwrap().contains("limit"), "{requests:?}");

    server.fail_next(4, 410);
    let error = store.list(&prefix).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_list_is_from_the_cache_but_never_older_than_seen() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "None")).unwrap();
    server.freeze_cache();
    let newest = server.put(service("b", "None")).unwrap();
    let agent = Scope::node("n1", "", &KubeAddress::default());
    let first = with_scope(&server, &agent).list(ROOT).await.unwrap();
    assert_eq!(keys(&first), [key("a")], "the first list may be older");
    let address = KubeAddress {
        kubeconfig: Some(server.kubeconfig().unwrap()),
        ..KubeAddress::default()
    };
    let later = KubeStore::after(address.clone(), &agent, [(Kind::Service, newest)].into());
    assert_eq!(keys(&later.list(ROOT).await.unwrap()), [key("a"), key("b")]);
    let requests = server.take_requests();
    let of_services = |end: &str| {
        requests
            .iter()
            .any(|one| one.contains("/services?") && one.ends_with(end))
    };
    assert!(
        of_services(&format!(
            "&resourceVersion={newest}&resourceVersionMatch=NotOlderThan"
        )),
        "{requests:?}"
    );
    assert!(
        of_services("&limit=500"),
        "what was written last, for the cache is behind: {requests:?}"
    );

    let replaced = KubeStore::after(address, &agent, [(Kind::Service, newest + 100)].into());
    let error = replaced.list(ROOT).await.unwrap_err();
    assert!(matches!(error, StoreError::Rewound { .. }), "{error}");
    assert_eq!(
        keys(&replaced.list(ROOT).await.unwrap()),
        [key("a")],
        "the history that there is now"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_a_cache_answers_agents_in_pages() {
    let server = ApiServer::start().unwrap();
    server.without_cache();
    for i in 0..600 {
        server.put(service(&format!("s{i:04}"), "None")).unwrap();
    }
    let store = with_scope(&server, &Scope::node("n1", "", &KubeAddress::default()));
    assert_eq!(store.list(ROOT).await.unwrap().entries.len(), 600);
    let requests = server.take_requests();
    assert_eq!(
        requests
            .iter()
            .filter(|request| request.contains("continue="))
            .count(),
        1,
        "{requests:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_ignores_services_of_another_proxy_and_keeps_labelled_headless() {
    let server = ApiServer::start().unwrap();
    let labelled = |name: &str, labels: Value| {
        let mut service = service(name, "10.96.0.1");
        service["metadata"]["labels"] = labels;
        service
    };
    server.put(service("web", "10.96.0.2")).unwrap();
    server
        .put(labelled(
            "ours",
            json!({ "service.kubernetes.io/service-proxy-name": "contiv" }),
        ))
        .unwrap();
    server
        .put(labelled(
            "other",
            json!({ "service.kubernetes.io/service-proxy-name": "x" }),
        ))
        .unwrap();
    for (proxy_name, expected) in [("", "web"), ("contiv", "ours")] {
        let scope = Scope::node("n1", proxy_name, &KubeAddress::default());
        let mut events = start_feed(Arc::new(with_scope(&server, &scope)));
        assert_eq!(
            keys(&snapshot(&mut events).await),
            [key(expected)],
            "{proxy_name}"
        );
        // kube-proxy looks for this label in endpoint slices alone.
        let mut labels = json!({ "service.kubernetes.io/headless": "" });
        if !proxy_name.is_empty() {
            labels["service.kubernetes.io/service-proxy-name"] = proxy_name.into();
        }
        server.put(labelled(expected, labels)).unwrap();
        assert!(
            matches!(change(&mut events).await, Change::Put(entry) if entry.key == key(expected))
        );
        // One that is given to another proxy is gone for this one, and that is no other history.
        server
            .put(labelled(
                expected,
                json!({ "service.kubernetes.io/service-proxy-name": "y" }),
            ))
            .unwrap();
        assert_eq!(
            change(&mut events).await,
            Change::Delete { key: key(expected) }
        );
        server.cut();
        assert!(matches!(next(&mut events).await, FeedEvent::Down { .. }));
        server.reconnect();
        assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    }
}

/// As kube-proxy 1.36: slices are selected by the label of headless services alone.
#[tokio::test(flavor = "multi_thread")]
async fn agent_reads_slices_that_name_a_proxy_but_no_headless_ones() {
    let server = ApiServer::start().unwrap();
    for (name, label) in [
        ("named", Some("service.kubernetes.io/service-proxy-name")),
        ("headless", Some("service.kubernetes.io/headless")),
        ("plain", None),
    ] {
        let mut labels = json!({ "kubernetes.io/service-name": "web" });
        if let Some(label) = label {
            labels[label] = "".into();
        }
        let metadata = json!({ "name": name, "namespace": "default", "labels": labels });
        let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": "IPv4", "endpoints": [], "ports": [] });
        server.put(slice).unwrap();
    }
    let slice = |name| {
        Key::new(Kind::EndpointSlice, "default", name)
            .unwrap()
            .to_path()
    };
    let store = with_scope(&server, &Scope::node("n1", "", &KubeAddress::default()));
    assert_eq!(
        keys(&store.list(ROOT).await.unwrap()),
        [slice("named"), slice("plain")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_cannot_be_used_is_problem_and_others_are_listed() {
    let server = ApiServer::start().unwrap();
    server.put(service("bad", "10.96.0.999")).unwrap();
    server.put(service("good", "10.96.0.1")).unwrap();
    let listed = open(&server).await.list(ROOT).await.unwrap();
    assert_eq!(keys(&listed), [key("bad"), key("good")]);
    assert!(
        listed.entries[0].value.is_empty(),
        "it is there, and not to be read"
    );
    assert_eq!(listed.problems.len(), 1);
    assert_eq!(listed.problems[0].source, key("bad"));
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_by_which_leaders_are_elected_are_not_listed() {
    let server = ApiServer::start().unwrap();
    for name in ["kube-scheduler", "web"] {
        let metadata = json!({ "name": name, "namespace": "kube-system" });
        server
            .put(json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata }))
            .unwrap();
    }
    let listed = open(&server).await.list(ROOT).await.unwrap();
    assert_eq!(
        keys(&listed),
        [Key::new(Kind::Endpoints, "kube-system", "web")
            .unwrap()
            .to_path()]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_asks_for_its_own_node_and_not_for_pods() {
    let server = ApiServer::start().unwrap();
    for name in ["n1", "n2"] {
        server.put(node(name)).unwrap();
    }
    let store = with_scope(&server, &Scope::node("n1", "", &KubeAddress::default()));
    let listed = store.list(ROOT).await.unwrap();
    assert_eq!(
        keys(&listed),
        [Key::new(Kind::Node, "", "n1").unwrap().to_path()]
    );
    let _watch = store.watch(ROOT, listed.revision).await.unwrap();
    let requests = server.take_requests();
    // Three lists and three watches, and a list of external workloads, which this server does not have.
    assert_eq!(requests.len(), 7, "{requests:?}");
    assert!(
        requests
            .iter()
            .all(|request| !request.contains("pods") && !request.contains("/endpoints?"))
    );
    let of_nodes: Vec<_> = requests
        .iter()
        .filter(|request| request.contains("/nodes?"))
        .collect();
    assert!(
        of_nodes
            .iter()
            .all(|request| request.contains("fieldSelector=metadata.name%3Dn1")),
        "{of_nodes:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn write_to_kubernetes_is_refused_with_a_hint() {
    let server = ApiServer::start().unwrap();
    let delete = Operation::Delete { key: key("web") };
    let error = open(&server)
        .await
        .commit(vec![delete])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("read only") && error.contains("kubectl"),
        "{error}"
    );
}
