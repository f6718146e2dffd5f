use std::time::Duration;

use contiv_store::Store;
use contiv_store_testing::{ApiServer, Faults, MemoryStore};

use crate::cluster::{
    Running, cluster_ip, entries, key, put, service, until, until_cluster_ip, until_stored,
};

#[tokio::test(flavor = "multi_thread")]
async fn content_is_correct_after_repeated_failures_of_the_store() {
    for seed in 0..4 {
        let server = ApiServer::start().unwrap();
        let store = MemoryStore::with_faults(Faults::seeded(seed));
        let running = Running::start(
            &server,
            store.shared(),
            contiv_controller::Lease::always_leader(),
        )
        .await;
        for i in 0..60 {
            server
                .put(service(
                    &format!("s{}", i % 7),
                    &format!("10.96.0.{}", i + 1),
                ))
                .unwrap();
            if i % 5 == 4 {
                server.delete("services", "default", &format!("s{}", i % 7));
            }
            if i % 20 == 19 {
                server.cut();
                server.expire();
                server.reconnect();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        store.stop_faults();
        server.put(service("last", "10.96.0.200")).unwrap();
        // The last creation or deletion of each name.
        let mut wanted = std::collections::BTreeMap::new();
        for i in 0..60 {
            wanted.insert(format!("s{}", i % 7), format!("10.96.0.{}", i + 1));
            if i % 5 == 4 {
                wanted.remove(&format!("s{}", i % 7));
            }
        }
        wanted.insert("last".to_owned(), "10.96.0.200".to_owned());
        until_stored(&store, &sorted(wanted.keys().map(|name| key(name)))).await;
        for (name, ip) in wanted {
            until_cluster_ip(&store, &name, &ip).await;
        }
        running.stop().await;
    }
}

fn sorted(keys: impl Iterator<Item = String>) -> Vec<String> {
    let mut keys: Vec<String> = keys.collect();
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_during_a_store_outage_arrive_afterwards() {
    let server = ApiServer::start().unwrap();
    server.put(service("a", "10.96.0.1")).unwrap();
    let store = MemoryStore::new();
    let running = Running::synced(&server, store.shared()).await;
    store.cut();
    server.put(service("b", "10.96.0.2")).unwrap();
    server.delete("services", "default", "a");
    tokio::time::sleep(Duration::from_millis(300)).await;
    store.reconnect();
    until_stored(&store, &[key("b")]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_changes_to_reflected_objects_are_undone() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "10.96.0.1")).unwrap();
    let store = MemoryStore::new();
    let running = Running::synced(&server, store.shared()).await;
    let delete = contiv_store::Operation::Delete { key: key("web") };
    for damage in [
        put("web", r#"{"cluster_ip":"10.96.0.99"}"#),
        put("web", "{oops"),
        delete,
    ] {
        let revision = store.commit(vec![damage]).await.unwrap();
        until("it was written again", async || {
            entries(&store)
                .await
                .get(&key("web"))
                .is_some_and(|entry| entry.mod_revision > revision)
        })
        .await;
        assert_eq!(
            cluster_ip(&store, "web").await.as_deref(),
            Some("10.96.0.1")
        );
    }
    running.stop().await;
}
