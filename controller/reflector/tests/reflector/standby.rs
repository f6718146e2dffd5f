//! A standby that waits for the lease, and its work after it has won.

use std::{fs, time::Duration};

use contiv_controller::Lease;
use contiv_store_testing::{ApiServer, MemoryStore, Proxy};

use crate::cluster::{Running, entries, key, service, until, until_cluster_ip, until_stored};

/// Waits until this many watches were opened since the last call, after the lists.
async fn until_watched(server: &ApiServer, watches: usize) {
    let mut seen = 0;
    until("every type is watched", async || {
        seen += server
            .take_requests()
            .iter()
            .filter(|request| request.contains("watch=true"))
            .count();
        seen >= watches
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_takes_over_without_listing_anything_again() {
    let server = ApiServer::start().unwrap();
    for (name, ip) in [("changed", "10.96.0.1"), ("gone", "10.96.0.2")] {
        server.put(service(name, ip)).unwrap();
    }
    let store = MemoryStore::new();
    let (holder, lease) = Lease::manual();
    let standby = Running::start(&server, store.shared(), lease).await;
    until_watched(&server, 6).await;
    server.put(service("changed", "10.96.0.9")).unwrap();
    server.put(service("new", "10.96.0.3")).unwrap();
    server.delete("services", "default", "gone");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        entries(&store).await.len(),
        0,
        "it writes nothing without the lease"
    );
    assert!(!standby.stats.has_synced());

    holder.grant();
    until_stored(&store, &[key("changed"), key("new")]).await;
    until_cluster_ip(&store, "changed", "10.96.0.9").await;
    until("has_synced changes", async || standby.stats.has_synced()).await;
    let requests = server.take_requests();
    // A watch reads each object of the history by itself.
    let is_one_object = |request: &str| {
        request.contains("limit=1") || request.contains("fieldSelector=metadata.name")
    };
    let is_no_list = |request: &String| request.contains("watch=true") || is_one_object(request);
    assert!(requests.iter().all(is_no_list), "{requests:?}");

    // It lost the lease and waits again.
    holder.revoke();
    until("has_synced changes", async || !standby.stats.has_synced()).await;
    until_watched(&server, 6).await;
    server.put(service("later", "10.96.0.4")).unwrap();
    holder.grant();
    until_stored(&store, &[key("changed"), key("later"), key("new")]).await;
    standby.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_that_was_cut_off_without_word_takes_nothing_back() {
    let server = ApiServer::start().unwrap();
    server.put(service("old", "10.96.0.1")).unwrap();
    let store = MemoryStore::new();
    let (first, lease) = Lease::manual();
    first.grant();
    let active = Running::start(&server, store.shared(), lease).await;
    until_stored(&store, &[key("old")]).await;

    let proxy = Proxy::start(&server.endpoint()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::copy(
        server.kubeconfig_for(&proxy.endpoint()).unwrap(),
        &kubeconfig,
    )
    .unwrap();
    server.kubeconfig().unwrap();
    server.take_requests();
    let (second, lease) = Lease::manual();
    let url = format!("kube:{}", kubeconfig.display());
    let standby = Running::start_at(&url, store.shared(), lease).await;
    until_watched(&server, 6).await;
    proxy.stall();
    server.put(service("new", "10.96.0.2")).unwrap();
    server.delete("services", "default", "old");
    until_stored(&store, &[key("new")]).await;
    let written = entries(&store).await;
    active.stop().await;
    second.grant();
    // Much longer than a write takes.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(entries(&store).await, written, "what it knows is old");
    assert!(!standby.stats.has_synced());

    proxy.flow();
    until("it has caught up", async || standby.stats.has_synced()).await;
    assert_eq!(entries(&store).await, written);
    server.put(service("later", "10.96.0.3")).unwrap();
    until_stored(&store, &[key("later"), key("new")]).await;
    standby.stop().await;
}
