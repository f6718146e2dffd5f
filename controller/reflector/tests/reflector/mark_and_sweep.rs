use contiv_proto::{Key, Kind, key::ROOT};
use contiv_store::{Operation, Store};
use contiv_store_testing::{ApiServer, MemoryStore};
use serde_json::json;

use crate::cluster::{
    Running, cluster_ip, entries, key, object, put, service, until, until_cluster_ip, until_stored,
};

#[tokio::test(flavor = "multi_thread")]
async fn every_type_is_reflected_in_contivs_form() {
    let server = ApiServer::start().unwrap();
    for kind in ["Pod", "Service", "Endpoints", "Node", "Namespace"] {
        server.put(object("v1", kind, "a", json!({}))).unwrap();
    }
    let slice = json!({ "addressType": "IPv4", "endpoints": [], "ports": [] });
    server
        .put(object("discovery.k8s.io/v1", "EndpointSlice", "a", slice))
        .unwrap();
    server.put(workload("a", "192.0.2.7")).unwrap();
    let store = MemoryStore::new();
    let running = Running::synced(&server, store.shared()).await;
    let found = entries(&store).await;
    let kinds: Vec<Kind> = found
        .keys()
        .map(|key| Key::parse(key).unwrap().unwrap().kind())
        .collect();
    assert_eq!(kinds.len(), 7, "{kinds:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_pass_adds_updates_and_sweeps_and_counts_each_once() {
    let server = ApiServer::start().unwrap();
    for (name, ip) in [
        ("same", "10.96.0.1"),
        ("differs", "10.96.0.2"),
        ("missing", "10.96.0.3"),
    ] {
        server.put(service(name, ip)).unwrap();
    }
    let store = MemoryStore::new();
    Running::synced(&server, store.shared()).await.stop().await;
    let same = entries(&store).await[&key("same")].clone();
    let changes = vec![
        put("differs", r#"{"cluster_ip":"10.96.0.99"}"#),
        put("stale", r#"{"cluster_ip":"10.96.0.98"}"#),
        put("broken", "{oops"),
        Operation::Delete {
            key: key("missing"),
        },
    ];
    store.commit(changes).await.unwrap();

    let running = Running::synced(&server, store.shared()).await;
    until_stored(&store, &[key("differs"), key("missing"), key("same")]).await;
    assert_eq!(
        cluster_ip(&store, "differs").await.as_deref(),
        Some("10.96.0.2")
    );
    assert_eq!(
        entries(&store).await[&key("same")],
        same,
        "it was not written again"
    );
    until("what was counted is in the store", async || {
        let gauges = store
            .list(&format!("{ROOT}status/gauges"))
            .await
            .unwrap()
            .entries;
        let text = gauges
            .first()
            .map(|entry| String::from_utf8_lossy(&entry.value).into_owned());
        text.is_some_and(|text| {
            text.contains(
                r#""serviceStats":{"Adds":"1","Updates":"1","Deletes":"2","Resyncs":"2"}"#,
            )
        })
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_written_and_irrelevant_ones_are_not() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "10.96.0.1")).unwrap();
    let store = MemoryStore::new();
    let running = Running::synced(&server, store.shared()).await;
    server.put(service("new", "10.96.0.2")).unwrap();
    until_cluster_ip(&store, "new", "10.96.0.2").await;
    let before = entries(&store).await;
    for i in 0..20 {
        let mut same = service("web", "10.96.0.1");
        same["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = i.to_string().into();
        server.put(same).unwrap();
    }
    server.delete("services", "default", "new");
    until_stored(&store, &[key("web")]).await;
    assert_eq!(entries(&store).await[&key("web")], before[&key("web")]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_gone_during_a_disconnect_is_removed() {
    let server = ApiServer::start().unwrap();
    for name in ["gone", "stays"] {
        server.put(service(name, "10.96.0.1")).unwrap();
    }
    let store = MemoryStore::new();
    let running = Running::synced(&server, store.shared()).await;
    server.cut();
    server.delete("services", "default", "gone");
    server.put(service("new", "10.96.0.2")).unwrap();
    server.expire();
    // The deletion is not known yet, and nothing happens.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(entries(&store).await.len(), 2);
    server.reconnect();
    until_stored(&store, &[key("new"), key("stays")]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_are_never_touched() {
    let server = ApiServer::start().unwrap();
    server.put(service("taken", "10.96.0.1")).unwrap();
    let slice = Key::new(Kind::EndpointSlice, "default", "vm-1")
        .unwrap()
        .to_path();
    let store = MemoryStore::new();
    let of_workloads =
        r#"{"labels":{"endpointslice.kubernetes.io/managed-by":"contiv-external-workloads"}}"#;
    let foreign = vec![
        put("taken", r#"{"labels":{"contiv.io/registry":"consul"}}"#),
        put("by-hand", r#"{"labels":{"contiv.io/managed-by":"me"}}"#),
        Operation::Put {
            key: slice,
            value: of_workloads.into(),
        },
        Operation::Put {
            key: format!("{ROOT}k8s/policy/p/namespace/default"),
            value: "{}".into(),
        },
        Operation::Put {
            key: format!("{ROOT}allocatedIDs/1"),
            value: r#"{"id":1,"name":"n1"}"#.into(),
        },
        Operation::Put {
            key: "/vnf-agent/n1/config".to_owned(),
            value: "{}".into(),
        },
    ];
    store.commit(foreign).await.unwrap();
    let before = store.list("/vnf-agent/").await.unwrap().entries;
    let running = Running::synced(&server, store.shared()).await;
    server.put(service("web", "10.96.0.2")).unwrap();
    until_cluster_ip(&store, "web", "10.96.0.2").await;
    let mut after = store.list("/vnf-agent/").await.unwrap().entries;
    after.retain(|entry| entry.key != key("web") && !entry.key.ends_with("gauges"));
    assert_eq!(after, before);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_election_endpoints_are_swept_and_never_written() {
    let server = ApiServer::start().unwrap();
    let leader = json!({ "metadata": { "annotations": { "control-plane.alpha.kubernetes.io/leader": "{}" } } });
    server
        .put(object("v1", "Endpoints", "lock", leader))
        .unwrap();
    let store = MemoryStore::new();
    let old = Key::new(Kind::Endpoints, "kube-system", "kube-scheduler")
        .unwrap()
        .to_path();
    store
        .commit(vec![Operation::Put {
            key: old,
            value: "{}".into(),
        }])
        .await
        .unwrap();
    let running = Running::synced(&server, store.shared()).await;
    until_stored(&store, &[]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_object_stays_until_it_is_valid_or_deleted() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "10.96.0.1")).unwrap();
    let store = MemoryStore::new();
    let running = Running::synced(&server, store.shared()).await;
    server.put(service("web", "10.96.0.999")).unwrap();
    server.put(service("other", "10.96.0.2")).unwrap();
    until_cluster_ip(&store, "other", "10.96.0.2").await;
    assert_eq!(
        cluster_ip(&store, "web").await.as_deref(),
        Some("10.96.0.1")
    );
    server.put(service("web", "10.96.0.3")).unwrap();
    until_cluster_ip(&store, "web", "10.96.0.3").await;
    running.stop().await;
}

fn workload(name: &str, ip: &str) -> serde_json::Value {
    let spec = json!({
        "meshTLS": { "identity": "vm", "serverName": "vm.example" }, "workloadIPs": [{ "ip": ip }],
    });
    object(
        "workload.linkerd.io/v1beta1",
        "ExternalWorkload",
        name,
        json!({ "spec": spec }),
    )
}

fn workload_key(name: &str) -> String {
    Key::new(Kind::ExternalWorkload, "default", name)
        .unwrap()
        .to_path()
}

/// Without the custom resource definition no workloads are reflected, and those applied by hand stay.
#[tokio::test(flavor = "multi_thread")]
async fn external_workloads_are_reflected_and_applied_ones_are_kept() {
    let server = ApiServer::start().unwrap();
    let store = MemoryStore::new();
    let applied = Operation::Put {
        key: workload_key("applied"),
        value: r#"{"name":"applied","namespace":"default","workload_ips":["192.0.2.1"]}"#.into(),
    };
    store.commit(vec![applied]).await.unwrap();
    let running = Running::synced(&server, store.shared()).await;
    until_stored(&store, &[workload_key("applied")]).await;
    running.stop().await;

    server.put(workload("vm", "192.0.2.7")).unwrap();
    server.put(workload("applied", "192.0.2.8")).unwrap();
    let running = Running::synced(&server, store.shared()).await;
    let value = async |name: &str| {
        let entry = entries(&store).await.remove(&workload_key(name));
        entry
            .map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
            .unwrap_or_default()
    };
    until("it is reflected", async || {
        value("vm").await.contains("192.0.2.7")
    })
    .await;
    assert!(
        value("applied").await.contains("192.0.2.1"),
        "what was applied by hand is not overwritten"
    );
    server.put(workload("vm", "192.0.2.9")).unwrap();
    until("the change is reflected", async || {
        value("vm").await.contains("192.0.2.9")
    })
    .await;
    server.delete("externalworkloads", "default", "vm");
    until_stored(&store, &[workload_key("applied")]).await;
    running.stop().await;
}

/// A role of an earlier version has no permission for them.
#[tokio::test(flavor = "multi_thread")]
async fn forbidden_type_blocks_no_other_and_is_not_swept() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "10.96.0.1")).unwrap();
    server.put(workload("vm", "192.0.2.7")).unwrap();
    let store = MemoryStore::new();
    let both = [workload_key("vm"), key("web")];
    let running = Running::synced(&server, store.shared()).await;
    until_stored(&store, &both).await;
    running.stop().await;
    server.deny("externalworkloads", Some(403));
    let running = Running::synced(&server, store.shared()).await;
    server.put(service("web", "10.96.0.2")).unwrap();
    until_cluster_ip(&store, "web", "10.96.0.2").await;
    until_stored(&store, &both).await;
    running.stop().await;
}
