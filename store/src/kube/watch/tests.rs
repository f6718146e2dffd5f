use serde_json::json;

use super::*;
use crate::{
    Feed, FeedEvent, Store,
    kube::{KubeAddress, KubeStore, Scope},
};
use contiv_store_testing::ApiServer;

#[tokio::test(flavor = "multi_thread")]
async fn watch_without_bookmarks_is_renewed_without_outage() {
    let server = ApiServer::start().unwrap();
    server.withhold_bookmarks("nodes");
    let address = KubeAddress {
        kubeconfig: Some(server.kubeconfig().unwrap()),
        ..KubeAddress::default()
    };
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(KubeStore::new(
        address,
        &Scope::node("n1", "", &KubeAddress::default()),
    ));
    let (mut events, _handle) = Feed::start(store, "/");
    assert!(matches!(
        events.recv().await.unwrap().event,
        FeedEvent::Snapshot(_)
    ));
    server.take_requests();
    let mut watches = 0;
    while watches < 3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let requests = server.take_requests();
        let is_node_watch =
            |request: &&String| request.contains("/nodes?") && request.contains("watch=true");
        watches += requests.iter().filter(is_node_watch).count();
    }
    server
        .put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } }))
        .unwrap();
    let event = events.recv().await.unwrap().event;
    assert!(
        matches!(event, FeedEvent::Changed(_)),
        "no event comes before the change: {event:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn crd_created_later_is_listed() {
    let server = ApiServer::start().unwrap();
    let address = KubeAddress {
        kubeconfig: Some(server.kubeconfig().unwrap()),
        ..KubeAddress::default()
    };
    let store: std::sync::Arc<dyn Store> =
        std::sync::Arc::new(KubeStore::new(address, &Scope::cluster()));
    let (mut events, _handle) = Feed::start(store, "/");
    let FeedEvent::Snapshot(first) = events.recv().await.unwrap().event else {
        panic!("a list comes first")
    };
    assert_eq!(first.entries.len(), 0);
    let workload = json!({
        "apiVersion": "workload.linkerd.io/v1beta1", "kind": "ExternalWorkload",
        "metadata": { "name": "vm-1", "namespace": "default" },
        "spec": { "meshTLS": { "identity": "vm", "serverName": "vm.example" } },
    });
    server.put(workload).unwrap();
    let event = events.recv().await.unwrap().event;
    let FeedEvent::Snapshot(second) = event else {
        panic!("no list: {event:?}")
    };
    assert_eq!(second.entries.len(), 1);
}
