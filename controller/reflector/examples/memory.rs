//! Measures the memory and time of the reflector with a large cluster: `cargo run --release --example memory [SERVICES PODS]`.
//!
//! This process holds an API server in memory and starts an etcd; the reflector runs in a separate process, whose memory is
//! measured. Three measurements are printed: the first pass, the time from one change in Kubernetes to etcd, and a new list
//! after everything was forgotten. It fails if the reflector ever had more than 500 MiB. With `CONTIV_BIN` it is the reflector
//! of that `contiv`, however this program was built.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for people"
)]

use std::{
    env, fs,
    process::{Child, Command},
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_allocator as _;
use contiv_controller::{Lease, Manager};
use contiv_proto::{Key, Kind};
use contiv_reflector::{Stats, controller, gauges};
use contiv_store::{Store, StoreUrl, etcd::EtcdAccess};
use contiv_store_testing::{ApiServer, Etcd};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Says to a process that it is the reflector: where to read, and where to write.
const ROLE: &str = "CONTIV_REFLECTOR_EXAMPLE";
const LIMIT_KIB: u64 = 500 << 10;
const CHANGES: usize = 200;

#[tokio::main]
async fn main() {
    if let Ok(role) = env::var(ROLE) {
        let (from, to) = role.split_once(' ').unwrap();
        return reflect(&from.parse().unwrap(), &to.parse().unwrap()).await;
    }
    let mut numbers = env::args()
        .skip(1)
        .map(|text| text.parse::<usize>().unwrap());
    let (services, pods) = (
        numbers.next().unwrap_or(10_000),
        numbers.next().unwrap_or(150_000),
    );
    let server = ApiServer::start().unwrap();
    fill(&server, services, pods);
    let etcd = Etcd::start().await.unwrap();
    let store = open(&etcd.url().parse().unwrap()).await;
    let mut child = start(&server, &etcd);
    let start = Instant::now();
    until_count(&*store, Kind::Pod, pods).await;
    until_count(&*store, Kind::EndpointSlice, services).await;
    println!(
        "{services} services with slices, {pods} pods: first pass {:.1?}; {}",
        start.elapsed(),
        memory(&child)
    );

    let mut times = Vec::new();
    for i in 0..CHANGES {
        let start = Instant::now();
        let ip = format!("10.97.{}.{}", i / 256, i % 256);
        server.put(service(0, &ip)).unwrap();
        let key = Key::new(Kind::Service, "default", "s0").unwrap().to_path();
        while !String::from_utf8_lossy(&store.list(&key).await.unwrap().entries[0].value)
            .contains(&ip)
        {}
        times.push(start.elapsed());
    }
    times.sort();
    println!(
        "one change, from the API server to etcd: p50 {:.1?}, p99 {:.1?}",
        times[CHANGES / 2],
        times[CHANGES * 99 / 100]
    );

    server.cut();
    server.delete("pods", "default", "p0");
    server.expire();
    server.reconnect();
    let start = Instant::now();
    until_count(&*store, Kind::Pod, pods - 1).await;
    println!(
        "everything listed anew after an outage: {:.1?}; {}",
        start.elapsed(),
        memory(&child)
    );
    let peak = status(&child, "VmHWM");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        peak < LIMIT_KIB,
        "the peak is {peak} KiB; the limit is {LIMIT_KIB}"
    );
}

/// Starts the reflector in a separate process.
fn start(server: &ApiServer, etcd: &Etcd) -> Child {
    let Ok(contiv) = env::var("CONTIV_BIN") else {
        let role = format!("{} {}", server.url().unwrap(), etcd.url());
        return Command::new(env::current_exe().unwrap())
            .env(ROLE, role)
            .spawn()
            .unwrap();
    };
    let mut command = Command::new(contiv);
    command.args([
        "controller",
        "--enable",
        "reflector",
        "--store",
        &etcd.url(),
        "--listen",
        "127.0.0.1:0",
    ]);
    command
        .arg("--reflector-kubeconfig")
        .arg(server.kubeconfig().unwrap())
        .spawn()
        .unwrap()
}

async fn reflect(from: &StoreUrl, to: &StoreUrl) {
    let mut manager = Manager::new(open(to).await, Lease::always_leader());
    let stats = Stats::default();
    manager
        .register(controller(open(from).await, &stats))
        .unwrap();
    manager.register(gauges(&stats).unwrap()).unwrap();
    manager.run(CancellationToken::new()).await;
}

async fn open(url: &StoreUrl) -> Arc<dyn Store> {
    contiv_store::open(url, EtcdAccess::default())
        .await
        .unwrap()
}

async fn until_count(store: &dyn Store, kind: Kind, count: usize) {
    // With many objects each list costs etcd and this process much.
    while store.list(&Key::prefix(kind)).await.unwrap().entries.len() != count {
        sleep(Duration::from_millis(200)).await;
    }
}

fn memory(child: &Child) -> String {
    let mib = |field| status(child, field) >> 10;
    format!("memory {} MiB, at most {} MiB", mib("VmRSS"), mib("VmHWM"))
}

/// A line of `/proc/PID/status`, in KiB.
fn status(child: &Child, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Objects as large as those of a real cluster: half of each is managed fields.
fn fill(server: &ApiServer, services: usize, pods: usize) {
    let per_service = pods.div_ceil(services.max(1));
    for i in 0..services {
        server
            .put(service(i, &format!("10.96.{}.{}", i / 256 % 256, i % 256)))
            .unwrap();
        server
            .put(slice(i, i * per_service..pods.min((i + 1) * per_service)))
            .unwrap();
    }
    for i in 0..pods {
        server.put(pod(i)).unwrap();
    }
    server.expire();
}

fn metadata(name: &str, labels: &Value) -> Value {
    let fields: Vec<Value> = (0..12)
        .map(|i| {
            json!({ "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": { format!("f:field-number-{i}"): { "f:of": {}, "f:this": {}, "f:object": {} } } })
        })
        .collect();
    json!({ "name": name, "namespace": "default", "labels": labels, "managedFields": fields,
        "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(500) } })
}

fn service(i: usize, ip: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": metadata(&format!("s{i}"), &json!({ "app": format!("app-{i}") })),
        "spec": { "clusterIP": ip, "clusterIPs": [ip], "selector": { "app": format!("app-{i}") },
            "ports": [{ "name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080 }] } })
}

fn address(i: usize) -> String {
    format!("10.{}.{}.{}", 128 + i / 65_536, i / 256 % 256, i % 256)
}

fn slice(i: usize, pods: std::ops::Range<usize>) -> Value {
    let endpoint = |pod: usize| {
        json!({ "addresses": [address(pod)], "nodeName": format!("node-{}", pod % 5000),
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "targetRef": { "kind": "Pod", "namespace": "default", "name": format!("p{pod}"),
                "uid": "00000000-0000-4000-8000-000000000000" } })
    };
    json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": metadata(&format!("s{i}-x7k2p"), &json!({ "kubernetes.io/service-name": format!("s{i}") })),
        "addressType": "IPv4", "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }],
        "endpoints": pods.map(endpoint).collect::<Vec<_>>() })
}

fn pod(i: usize) -> Value {
    let labels = json!({ "app": format!("app-{}", i / 15), "pod-template-hash": "7d4b9c6f5d", "team": "one" });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata(&format!("p{i}"), &labels),
        "spec": { "nodeName": format!("node-{}", i % 5000), "containers": [{ "name": "app", "image": "an/image:1.0",
            "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
            "env": [{ "name": "PADDING", "value": "x".repeat(1000) }] }] },
        "status": { "phase": "Running", "podIP": address(i), "podIPs": [{ "ip": address(i) }],
            "hostIP": format!("192.168.{}.{}", i % 5000 / 256, i % 256),
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "containerStatuses": [{ "name": "app", "ready": true, "imageID": "sha256:0123456789abcdef" }] } })
}
