//! External workloads, whose custom resource definition an API server may not have.

use std::time::Duration;

use contiv_store::StoreError;

use super::*;

fn workload(name: &str) -> Value {
    json!({
        "apiVersion": "workload.linkerd.io/v1beta1", "kind": "ExternalWorkload",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" },
            "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}" } },
        "spec": {
            "meshTLS": { "identity": "vm", "serverName": "vm.example" },
            "workloadIPs": [{ "ip": "192.0.2.7" }], "ports": [{ "name": "web", "port": 8080 }],
        },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "lastProbeTime": "2026-01-02T03:04:05Z" }] },
    })
}

fn workload_key(name: &str) -> String {
    Key::new(Kind::ExternalWorkload, "default", name)
        .unwrap()
        .to_path()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_the_crd_is_watched_without_outage() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "None")).unwrap();
    let mut events = start_feed(open(&server).await);
    assert_eq!(keys(&snapshot(&mut events).await), [key("web")]);
    server.put(service("db", "None")).unwrap();
    assert!(matches!(change(&mut events).await, Change::Put(entry) if entry.key == key("db")));
}

#[tokio::test(flavor = "multi_thread")]
async fn external_workloads_are_listed_and_watched() {
    let server = ApiServer::start().unwrap();
    server.put(workload("vm-1")).unwrap();
    for store in [
        open(&server).await,
        Arc::new(with_scope(
            &server,
            &Scope::node("n1", "", &KubeAddress::default()),
        )),
    ] {
        let mut events = start_feed(store);
        let listed = snapshot(&mut events).await;
        assert_eq!(
            (keys(&listed), &listed.problems[..]),
            (vec![workload_key("vm-1").as_str()], &[][..])
        );
        let text = String::from_utf8(listed.entries[0].value.to_vec()).unwrap();
        assert!(
            text.contains("192.0.2.7") && !text.contains("kubectl") && !text.contains("probe"),
            "{text}"
        );
        server.put(workload("vm-2")).unwrap();
        assert!(
            matches!(change(&mut events).await, Change::Put(entry) if entry.key == workload_key("vm-2"))
        );
        server.delete("externalworkloads", "default", "vm-2");
        assert_eq!(
            change(&mut events).await,
            Change::Delete {
                key: workload_key("vm-2")
            }
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_crd_removes_its_objects() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "None")).unwrap();
    server.put(workload("vm-1")).unwrap();
    server.limit_watches(Duration::from_millis(1500));
    let mut events = start_feed(open(&server).await);
    assert_eq!(snapshot(&mut events).await.entries.len(), 2);
    server.deny("externalworkloads", Some(404));
    assert_eq!(keys(&snapshot(&mut events).await), [key("web")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_type_is_left_out_and_not_taken_for_deleted() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "None")).unwrap();
    server.put(workload("vm-1")).unwrap();
    server.deny("externalworkloads", Some(403));
    let store = open(&server).await;
    assert_eq!(
        keys(&store.list(ROOT).await.unwrap()),
        [key("web")],
        "other types are listed"
    );
    let denied = store
        .list(&Key::prefix(Kind::ExternalWorkload))
        .await
        .unwrap_err();
    assert!(
        matches!(&denied, StoreError::Refused { reason, .. } if reason.contains("list and watch")),
        "{denied}"
    );
    server.deny("externalworkloads", None);
    assert_eq!(store.list(ROOT).await.unwrap().entries.len(), 2);
    server.deny("externalworkloads", Some(403));
    let later = store.list(ROOT).await.unwrap_err();
    assert!(
        matches!(later, StoreError::Refused { .. }),
        "a type that was readable is not taken for deleted: {later}"
    );
}
