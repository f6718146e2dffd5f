//! An agent with an API server as its store.

use std::{fs, path::Path, time::Duration};

use contiv_store_testing::ApiServer;
use serde_json::{Value, json};

use crate::{
    agent::Agent,
    contiv::{run, text},
};

/// An agent that watches this server, and keeps its state below the folder.
fn start(server: &ApiServer, folder: &Path) -> Agent {
    start_with(&server.url().unwrap(), folder)
}

/// An agent that watches this store.
fn start_with(store: &str, folder: &Path) -> Agent {
    let state = folder.join("state");
    fs::create_dir(&state).unwrap();
    Agent::watching(store, &state)
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
    let expected = [
        &json!("the API server"),
        &json!("Service shop/web"),
        &json!("last good"),
    ];
    assert_eq!(
        [
            &entries[0]["source"],
            &entries[0]["object"],
            &entries[0]["active_state"]
        ],
        expected
    );
    let status = run(&["status", "--agent", &agent.address]);
    assert!(
        status.code == 1 && status.out.contains("1 in quarantine"),
        "{}",
        status.out
    );
    assert!(
        status
            .out
            .contains("quarantine: Service shop/web: spec.clusterIP: "),
        "{}",
        status.out
    );
    server.put(service("10.96.0.8")).unwrap();
    agent.wait_for("/quarantine", |answer| answer == "[]");
}

/// As when someone copies a token with a line feed in it, and the old token is revoked.
#[test]
fn unusable_kubeconfig_under_a_running_agent_is_named_by_status() {
    let server = ApiServer::start().unwrap();
    server.accept_token("good-1");
    server.limit_watches(Duration::from_secs(1));
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, file) = (
        server.kubeconfig().unwrap(),
        folder.path().join("kubeconfig"),
    );
    let replace = |token: &str| {
        let (text, new) = (
            fs::read_to_string(&kubeconfig).unwrap(),
            folder.path().join("new"),
        );
        let (before, rest) = text.split_once("{tokenFile: ").unwrap();
        fs::write(
            &new,
            format!(
                "{before}{{token: {token}}}{}",
                rest.split_once('}').unwrap().1
            ),
        )
        .unwrap();
        fs::rename(&new, &file).unwrap();
    };
    replace("good-1");
    let service = |number: u8| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"clusterIP": format!("10.96.0.{number}"), "ports": [{"port": 80}]},
        })
    };
    server.put(service(1)).unwrap();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    });
    server.put(node).unwrap();
    let mut agent = start_with(&format!("kube:{}", text(&file)), folder.path());
    for (number, token) in (2..).zip([r#""a\nb""#, r#""a\x7fb""#, r#""\n""#]) {
        replace(token);
        let good = format!("good-{number}");
        server.accept_token(&good);
        agent.wait_for("/status", |status| {
            status.contains(text(&file)) && status.contains("token: it")
        });
        let status = run(&["status", "--agent", &agent.address]);
        assert_eq!(status.code, 1, "{}", status.out);
        for part in [text(&file), "token: it", "down for"] {
            assert!(
                status.out.contains(part),
                "{part} is not in: {}",
                status.out
            );
        }
        assert!(
            agent
                .get("/services/shop/web")
                .contains(&format!("10.96.0.{}", number - 1)),
            "it goes on"
        );

        replace(&good);
        server.put(service(number)).unwrap();
        agent.wait_for("/services/shop/web", |service| {
            service.contains(&format!("10.96.0.{number}"))
        });
        agent.wait_for("/status", |status| !status.contains("token: it"));
        let status = run(&["status", "--agent", &agent.address]);
        assert_eq!(status.code, 0, "{}", status.out);
    }
    assert_eq!(agent.stop(), Some(0));
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
    agent.wait_for("/renderers/dry-run/dump", |dump| {
        dump.contains("192.0.2.7 . 8080")
    });
    server.put(workload("192.0.2.8")).unwrap();
    agent.wait_for("/renderers/dry-run/dump", |dump| {
        dump.contains("192.0.2.8 . 8080") && !dump.contains("192.0.2.7")
    });
    let got = run(&[
        "get",
        "externalworkloads",
        "-n",
        "shop",
        "--store",
        &server.url().unwrap(),
    ]);
    assert!(
        got.out.contains("vm-1") && got.out.contains("192.0.2.8"),
        "{} {}",
        got.out,
        got.err
    );
}
