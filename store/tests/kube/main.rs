//! The Kubernetes backend, against an API server in memory over real HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod cluster;
mod credentials;
mod feed;
mod lies;
mod list;
mod optional;
mod outage;
mod restart;
mod restore;
mod review;
mod start_costs;

use std::sync::Arc;

use contiv_proto::{Key, Kind, key::ROOT};
use contiv_store::{
    Change, Delivery, Feed, FeedEvent, Snapshot, Store,
    etcd::EtcdAccess,
    kube::{KubeAddress, KubeStore, Scope},
};
use contiv_store_testing::{
    ApiServer,
    deliveries::{after_outage, down, next},
};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

async fn open(server: &ApiServer) -> Arc<dyn Store> {
    contiv_store::open(
        &server.url().unwrap().parse().unwrap(),
        EtcdAccess::default(),
    )
    .await
    .unwrap()
}

fn with_scope(server: &ApiServer, scope: &Scope) -> KubeStore {
    let address = KubeAddress {
        kubeconfig: Some(server.kubeconfig().unwrap()),
        ..KubeAddress::default()
    };
    KubeStore::new(address, scope)
}

fn service(name: &str, cluster_ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "clusterIP": cluster_ip, "ports": [{ "name": "http", "port": 80 }] },
    })
}

fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

fn key(name: &str) -> String {
    Key::new(Kind::Service, "default", name).unwrap().to_path()
}

async fn snapshot(events: &mut Receiver<Delivery>) -> Snapshot {
    match next(events).await {
        FeedEvent::Snapshot(snapshot) => snapshot,
        other => panic!("expected a snapshot: {other:?}"),
    }
}

async fn change(events: &mut Receiver<Delivery>) -> Change {
    match next(events).await {
        FeedEvent::Changed(mut batch) => {
            assert_eq!(batch.changes.len(), 1, "{batch:?}");
            batch.changes.remove(0)
        }
        other => panic!("expected a change: {other:?}"),
    }
}

fn keys(snapshot: &Snapshot) -> Vec<&str> {
    snapshot
        .entries
        .iter()
        .map(|entry| entry.key.as_str())
        .collect()
}

fn start_feed(store: Arc<dyn Store>) -> Receiver<Delivery> {
    Feed::start(store, ROOT).0
}
