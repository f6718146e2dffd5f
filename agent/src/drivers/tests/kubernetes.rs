//! A Kubernetes API server as the store, up to the history.

use std::sync::Arc;

use contiv_proto::key::ROOT;
use contiv_store::{
    Feed,
    kube::{KubeAddress, KubeStore, Scope},
};
use contiv_store_testing::ApiServer;
use serde_json::{Value, json};

use crate::test_support::Harness;

fn service(name: &str, cluster_ip: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "clusterIP": cluster_ip, "ports": [{ "name": "http", "port": 80 }] } })
}

/// The kinds of all records, once there are so many.
async fn kinds(harness: &Harness, count: usize) -> Vec<&'static str> {
    let records = harness.history(|records| records.len() >= count).await;
    records.iter().map(|record| record.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_expire_within_watches_are_one_event() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "10.96.0.1")).unwrap();
    let address = KubeAddress {
        kubeconfig: Some(server.kubeconfig().unwrap()),
        ..KubeAddress::default()
    };
    let store = KubeStore::new(address, &Scope::node("n1", "", &KubeAddress::default()));
    let (mut events, _handle) = Feed::start_paged(Arc::new(store), ROOT);
    let harness = Harness::start(vec![], vec![]);
    let to_node = harness.store.clone();
    tokio::spawn(async move {
        while let Some(delivery) = events.recv().await {
            to_node.send(delivery).await.unwrap();
        }
    });
    assert_eq!(kinds(&harness, 1).await, ["snapshot"]);
    // The watches have begun, and deliver changes.
    server.put(service("b", "10.96.0.2")).unwrap();
    assert_eq!(kinds(&harness, 2).await, ["snapshot", "change"]);

    // The watch of one type ends with the error 410; then those of all types do.
    server.expire_watch("services");
    assert_eq!(kinds(&harness, 3).await, ["snapshot", "change", "snapshot"]);
    server.put(service("c", "10.96.0.3")).unwrap();
    kinds(&harness, 4).await;
    server.expire();
    kinds(&harness, 5).await;
    server.put(service("d", "10.96.0.4")).unwrap();
    assert_eq!(
        kinds(&harness, 6).await,
        [
            "snapshot", "change", "snapshot", "change", "snapshot", "change"
        ],
        "one event for each, and no outage"
    );
}
