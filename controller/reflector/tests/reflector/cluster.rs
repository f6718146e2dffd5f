//! A running reflector.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use contiv_controller::{Lease, Manager};
use contiv_proto::{Key, Kind, Object, key::ROOT};
use contiv_reflector::{GAUGES, Stats, controller, gauges};
use contiv_store::{Entry, Operation, Store, etcd::EtcdAccess};
use contiv_store_testing::ApiServer;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// A reflector under a manager, until it is stopped.
pub(crate) struct Running {
    pub(crate) stats: Stats,
    stop: CancellationToken,
    manager: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(server: &ApiServer, store: Arc<dyn Store>, lease: Lease) -> Self {
        Self::start_at(&server.url().unwrap(), store, lease).await
    }

    pub(crate) async fn start_at(url: &str, store: Arc<dyn Store>, lease: Lease) -> Self {
        let source = contiv_store::open(&url.parse().unwrap(), EtcdAccess::default())
            .await
            .unwrap();
        let stats = Stats::default();
        let mut manager = Manager::new(store, lease);
        manager.register(controller(source, &stats)).unwrap();
        manager.register(gauges(&stats).unwrap()).unwrap();
        let stop = CancellationToken::new();
        let manager = tokio::spawn(manager.run(stop.clone()));
        Self {
            stats,
            stop,
            manager,
        }
    }

    pub(crate) async fn synced(server: &ApiServer, store: Arc<dyn Store>) -> Self {
        let running = Self::start(server, store, Lease::always_leader()).await;
        until("it has synced", async || running.stats.has_synced()).await;
        running
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        timeout(EVENT_TIMEOUT, self.manager)
            .await
            .expect("it does not stop")
            .unwrap();
    }
}

pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(EVENT_TIMEOUT, wait).await.is_ok(), "never: {what}");
}

pub(crate) async fn entries(store: &dyn Store) -> BTreeMap<String, Entry> {
    let entries = store.list(ROOT).await.unwrap().entries.into_iter();
    entries
        .map(|entry| (entry.key.clone(), entry))
        .filter(|(key, _)| !key.ends_with(GAUGES))
        .collect()
}

pub(crate) async fn until_stored(store: &dyn Store, keys: &[String]) {
    let expected: Vec<&String> = keys.iter().collect();
    until(&format!("{keys:?} are stored"), async || {
        entries(store).await.keys().collect::<Vec<_>>() == expected
    })
    .await;
}

pub(crate) async fn until_cluster_ip(store: &dyn Store, name: &str, ip: &str) {
    until(&format!("{name} has {ip}"), async || {
        cluster_ip(store, name).await.as_deref() == Some(ip)
    })
    .await;
}

pub(crate) async fn cluster_ip(store: &dyn Store, name: &str) -> Option<String> {
    let of = Key::parse(&key(name)).unwrap().unwrap();
    let entry = entries(store).await.remove(&key(name))?;
    match Object::decode(&of, &entry.value).ok()? {
        Object::Service(service) => Some(service.cluster_ip),
        _ => None,
    }
}

pub(crate) fn key(name: &str) -> String {
    Key::new(Kind::Service, "default", name).unwrap().to_path()
}

pub(crate) fn put(name: &str, value: &str) -> Operation {
    Operation::Put {
        key: key(name),
        value: value.to_owned().into(),
    }
}

pub(crate) fn service(name: &str, cluster_ip: &str) -> Value {
    object(
        "v1",
        "Service",
        name,
        json!({ "spec": { "clusterIP": cluster_ip } }),
    )
}

pub(crate) fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    let is_namespaced = !matches!(kind, "Node" | "Namespace");
    object["metadata"]["name"] = name.into();
    if is_namespaced {
        object["metadata"]["namespace"] = "default".into();
    }
    object
}
