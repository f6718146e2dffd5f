mod changes;
mod terms;

use std::{collections::BTreeMap, time::Duration};

use contiv_controller::{Lease, Manager, lease::LeaseHolder, queue::WorkQueueMetrics};
use contiv_proto::{
    Object,
    message::{endpointslice::EndpointSlice, externalworkload::ExternalWorkload, service::Service},
    value,
};
use contiv_store::{Operation, Store};
use contiv_store_testing::MemoryStore;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::slice::slices;

/// A store with the running controller, which works while it holds the lease.
struct Cluster {
    store: MemoryStore,
    lease: LeaseHolder,
    registry: Registry,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Cluster {
    /// The controller waits for its lease.
    fn standby() -> Self {
        let (store, stop) = (MemoryStore::new(), CancellationToken::new());
        let (holder, lease) = Lease::manual();
        let mut registry = Registry::default();
        let metrics = WorkQueueMetrics::register(&mut registry);
        let mut manager = Manager::new(store.shared(), lease).with_metrics(&metrics);
        manager.register(super::controller().unwrap()).unwrap();
        let running = tokio::spawn(manager.run(stop.clone()));
        Self {
            store,
            lease: holder,
            registry,
            stop,
            running,
        }
    }

    fn start() -> Self {
        let cluster = Self::standby();
        cluster.lease.grant();
        cluster
    }

    async fn put(&self, object: impl Into<Object>) {
        let object = object.into();
        self.put_raw(&object.key().unwrap().to_path(), object.encode().unwrap())
            .await;
    }

    async fn put_raw(&self, key: &str, value: impl Into<bytes::Bytes>) {
        let operation = Operation::Put {
            key: key.to_owned(),
            value: value.into(),
        };
        self.store.commit(vec![operation]).await.unwrap();
    }

    async fn delete(&self, object: impl Into<Object>) {
        let key = object.into().key().unwrap().to_path();
        self.store
            .commit(vec![Operation::Delete { key }])
            .await
            .unwrap();
    }

    /// All slices.
    async fn slices(&self) -> Vec<EndpointSlice> {
        let entries = self.store.list(slices().prefix()).await.unwrap().entries;
        entries
            .iter()
            .map(|entry| value::decode(&entry.value).unwrap())
            .collect()
    }

    /// The addresses behind each service, in order.
    async fn backends(&self) -> BTreeMap<String, Vec<String>> {
        let mut backends: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for slice in self.slices().await {
            let addresses = slice
                .endpoints
                .iter()
                .flat_map(|endpoint| endpoint.addresses.clone());
            backends
                .entry(slice.service_name.clone())
                .or_default()
                .extend(addresses);
        }
        for addresses in backends.values_mut() {
            addresses.sort_unstable();
        }
        backends
    }

    /// When the slices of each service were last written.
    async fn revisions(&self) -> BTreeMap<String, Vec<i64>> {
        let mut revisions: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for entry in self.store.list(slices().prefix()).await.unwrap().entries {
            let slice: EndpointSlice = value::decode(&entry.value).unwrap();
            revisions
                .entry(slice.service_name)
                .or_default()
                .push(entry.mod_revision);
        }
        revisions
    }

    /// Runs all pending work; the clock is paused, so this takes no time.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

fn service(name: &str, selector: &str) -> Service {
    value::decode(
        format!(
            r#"{{"name":"{name}","namespace":"shop","selector":{{"app":"{selector}"}},"cluster_ip":"10.96.0.1",
            "port":[{{"port":80,"target_port":{{"int_val":8080}}}}]}}"#
        )
        .as_bytes(),
    )
    .unwrap()
}

fn workload(name: &str, app: &str, ip: &str) -> ExternalWorkload {
    value::decode(
        format!(
            r#"{{"name":"{name}","namespace":"shop","labels":{{"app":"{app}"}},"workload_ips":["{ip}"],
            "ports":[{{"port":8080}}],"conditions":[{{"type":"Ready","status":"True"}}]}}"#
        )
        .as_bytes(),
    )
    .unwrap()
}

fn backends(expected: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let owned = |addresses: &[&str]| {
        addresses
            .iter()
            .map(|address| (*address).to_owned())
            .collect()
    };
    expected
        .iter()
        .map(|(name, addresses)| ((*name).to_owned(), owned(addresses)))
        .collect()
}
