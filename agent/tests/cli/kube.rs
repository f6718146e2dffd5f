//! An agent with an API server as its store.

use std::{fs, path::Path};

use contiv_store_testing::ApiServer;
use serde_json::{Value, json};

use crate::{
    agent::Agent,
    contiv::{run, text},
};

/// An agent that watches this server, and keeps its state below the folder.
fn start(server: &ApiServer, folder: &Path) -> Agent {
    let (store, state) = (server.url().unwrap(), folder.join("state"));
    fs::create_dir(&state).unwrap();
    let flags = ["agent", "--renderers", "dry-run", "--node-name", "n1", "--listen", "127.0.0.1:0"];
    let stores = ["--store", store.as_str(), "--state-dir", text(&state)];
    Agent::start_waiting_for(&[&flags[..], &stores[..]].concat(), "ready: ")
}

#[test]
fn bad_service_of_api_server_is_one_entry_of_quarantine() {
    let server = ApiServer::start().unwrap();
    let service = |cluster_ip: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"clusterIP": cluster_ip, "ports": [{"port": 80}]},
        })
    };
    server.put(service("10.96.0.7")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&server, folder.path());
    server.put(service("10.96.0.777")).unwrap();
    let quarantine = agent.wait_for("/quarantine", |answer| answer.contains("spec.clusterIP"));
    let entries: Vec<Value> = serde_json::from_str(&quarantine).unwrap();
    assert_eq!(entries.len(), 1, "{quarantine}");
    let expected = [&json!("the API server"), &json!("Service shop/web"), &json!("last good")];
    assert_eq!([&entries[0]["source"], &entries[0]["object"], &entries[0]["active_state"]], expected);
    let status = run(&["status", "--agent", &agent.address]);
    assert!(status.code == 1 && status.out.contains("1 in quarantine"), "{}", status.out);
    assert!(status.out.contains("quarantine: Service shop/web: spec.clusterIP: "), "{}", status.out);
    server.put(service("10.96.0.8")).unwrap();
    agent.wait_for("/quarantine", |answer| answer == "[]");
}

#[test]
fn external_workload_of_api_server_is_a_backend() {
    let server = ApiServer::start().unwrap();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"clusterIP": "10.96.0.7", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    server.put(service).unwrap();
    let workload = |ip: &str| {
        json!({
            "apiVersion": "workload.linkerd.io/v1beta1", "kind": "ExternalWorkload",
            "metadata": {"name": "vm-1", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {
                "meshTLS": {"identity": "vm-1", "serverName": "vm-1.example"},
                "workloadIPs": [{"ip": ip}], "ports": [{"port": 8080}],
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    server.put(workload("192.0.2.7")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&server, folder.path());
    agent.wait_for("/renderers/dry-run/dump", |dump| dump.contains("192.0.2.7 . 8080"));
    server.put(workload("192.0.2.8")).unwrap();
    agent.wait_for("/renderers/dry-run/dump", |dump| {
        dump.contains("192.0.2.8 . 8080") && !dump.contains("192.0.2.7")
    });
    let got = run(&["get", "externalworkloads", "-n", "shop", "--store", &server.url().unwrap()]);
    assert!(got.out.contains("vm-1") && got.out.contains("192.0.2.8"), "{} {}", got.out, got.err);
}
