//! Services and endpoint slices of Kubernetes that change continuously, each with a number that only grows.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use contiv_store_testing::ApiServer;
use contiv_tests::{
    cluster::{Etcd, EtcdClient, NAMESPACE, ROOT},
    fleet::EVENT_TIMEOUT,
    lab::{Family, LabError, Result, isolated, wait_until},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::interrupted::{interrupt_while, is_written_once};

const NAMES: usize = 12;
/// The pause between two changes: short enough for many within a phase, long enough for the reflector and etcd to keep up.
const CHANGE_INTERVAL: Duration = Duration::from_millis(20);

/// The label that holds the number.
const NUMBER: &str = "number";

/// The number of each object, by the last part of its key.
type Objects = BTreeMap<String, i64>;

#[test]
fn interrupted_reflector_converges_and_writes_nothing_twice() -> Result<()> {
    let test = "interrupted::reflector::interrupted_reflector_converges_and_writes_nothing_twice";
    isolated(test, |lab| {
        let etcd = Etcd::start(lab)?;
        // An address that all instances reach.
        let server = lab.node.run(|| {
            let listener =
                TcpListener::bind(lab.node.host.socket(Family::V4, 0)).map_err(failed)?;
            ApiServer::listen(listener).map_err(failed)
        })?;
        let kubeconfig = server.kubeconfig().map_err(failed)?.display().to_string();
        let arguments = [
            "--enable",
            "reflector",
            "--reflector-kubeconfig",
            &kubeconfig,
        ];
        let prefixes = prefixes();
        let (_fleet, expected) = interrupt_while(lab, &etcd, &arguments, &prefixes, |done| {
            churn(&server, done)
        })?;
        let mut found = Objects::new();
        wait_until("etcd has what Kubernetes has", EVENT_TIMEOUT, || {
            found = stored(&etcd).unwrap_or_default();
            found == expected
        })
        .map_err(|error| {
            LabError::Unexpected(format!("{error}: {found:?} rather than {expected:?}"))
        })?;
        println!(
            "{}",
            is_written_once(lab, &etcd, &prefixes, number, (4, 100))?
        );
        Ok(())
    })
}

fn failed(error: std::io::Error) -> LabError {
    LabError::system("use the API server".to_owned(), error)
}

fn prefixes() -> [String; 2] {
    ["service", "endpointslice"].map(|keyword| format!("{ROOT}/{keyword}/"))
}

/// Changes objects at random until `done`. Returns the final objects.
fn churn(server: &ApiServer, done: &AtomicBool) -> Result<Objects> {
    let mut random = StdRng::seed_from_u64(11);
    let mut objects = Objects::new();
    let mut number = 0;
    while !done.load(Ordering::Relaxed) {
        number += 1;
        let name = format!("s{}", random.random_range(0..NAMES));
        let (resource, path, object) = if random.random() {
            (
                "services",
                format!("service/{name}"),
                service(&name, number),
            )
        } else {
            (
                "endpointslices",
                format!("endpointslice/{name}"),
                slice(&name, number),
            )
        };
        let path = format!("{path}/namespace/{NAMESPACE}");
        if random.random_range(0..4) == 0 {
            server.delete(resource, NAMESPACE, &name);
            objects.remove(&path);
        } else {
            server.put(object).map_err(failed)?;
            objects.insert(path, number);
        }
        if random.random_range(0..50) == 0 {
            // Watchers that were disconnected must list again.
            server.expire();
        }
        thread::sleep(CHANGE_INTERVAL);
    }
    Ok(objects)
}

fn metadata(name: &str, number: i64) -> Value {
    json!({ "name": name, "namespace": NAMESPACE,
        "labels": { NUMBER: number.to_string(), "kubernetes.io/service-name": name } })
}

fn service(name: &str, number: i64) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata(name, number),
        "spec": { "clusterIP": "None" } })
}

fn slice(name: &str, number: i64) -> Value {
    json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata(name, number),
        "addressType": "IPv4", "endpoints": [], "ports": [] })
}

/// The number in a stored value.
fn number(value: &str) -> Option<i64> {
    let value: Value = serde_json::from_str(value).ok()?;
    value["labels"][NUMBER].as_str()?.parse().ok()
}

fn stored(etcd: &EtcdClient<'_>) -> Result<Objects> {
    let mut objects = Objects::new();
    for prefix in prefixes() {
        let lines = etcd.etcdctl(&["get", "--prefix", &prefix])?;
        let mut lines = lines.lines().filter(|line| !line.is_empty());
        while let (Some(key), Some(value)) = (lines.next(), lines.next()) {
            let path = key.trim_start_matches(ROOT).trim_start_matches('/');
            objects.insert(path.to_owned(), number(value).unwrap_or_default());
        }
    }
    Ok(objects)
}
