//! Changes and the resulting writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contiv_controller::{Event, Object as Stored};

use super::{Cluster, backends, service, workload};
use crate::{watches::changes_endpoints, workload::Workload};

#[tokio::test(start_paused = true)]
async fn service_gets_workloads_that_it_selects_in_its_namespace() {
    let cluster = Cluster::start();
    cluster.put(service("web", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster
        .put(workload("other-label", "db", "192.0.2.2"))
        .await;
    let mut elsewhere = workload("other-namespace", "web", "192.0.2.3");
    "prod".clone_into(&mut elsewhere.namespace);
    cluster.put(elsewhere).await;
    cluster.settle().await;
    assert_eq!(
        cluster.backends().await,
        backends(&[("web", &["192.0.2.1"])])
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn slices_of_deleted_service_are_deleted() {
    let cluster = Cluster::start();
    cluster.put(service("web", "web")).await;
    cluster.put(service("also", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster.settle().await;
    cluster.delete(service("web", "web")).await;
    cluster.settle().await;
    assert_eq!(
        cluster.backends().await,
        backends(&[("also", &["192.0.2.1"])])
    );
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn new_labels_move_workload_from_one_service_to_another() {
    let cluster = Cluster::start();
    for name in ["web", "db"] {
        cluster.put(service(name, name)).await;
    }
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster.settle().await;
    cluster.put(workload("a", "db", "192.0.2.1")).await;
    cluster.settle().await;
    assert_eq!(
        cluster.backends().await,
        backends(&[("db", &["192.0.2.1"])])
    );
    cluster.put(service("db", "nobody")).await;
    cluster.settle().await;
    assert_eq!(cluster.backends().await, backends(&[]));
    cluster.end().await;
}

/// linkerd's table of the services to update: none, of both labels, of the same, of one label only.
#[tokio::test(start_paused = true)]
async fn only_services_whose_endpoints_change_are_written() {
    let cluster = Cluster::start();
    let with = |app: &str, env: &str, port: i32| {
        let mut vm = workload("a", app, "192.0.2.1");
        vm.labels.insert("env".to_owned(), env.to_owned());
        vm.ports[0].port = port;
        vm
    };
    for (name, label, value) in [
        ("test-1", "app", "test-1"),
        ("test-2", "app", "test-2"),
        ("staging", "env", "staging"),
        ("prod", "env", "prod"),
    ] {
        let mut service = service(name, "");
        service.selector = [(label.to_owned(), value.to_owned())].into();
        cluster.put(service).await;
    }
    let mut before = BTreeMap::new();
    for (change, vm, expected) in [
        (
            "a new one",
            with("test-1", "staging", 8080),
            &["staging", "test-1"][..],
        ),
        ("nothing", with("test-1", "staging", 8080), &[]),
        (
            "its port",
            with("test-1", "staging", 8081),
            &["staging", "test-1"],
        ),
        (
            "one label",
            with("test-1", "prod", 8081),
            &["prod", "staging"],
        ),
        (
            "a label and its port",
            with("test-2", "prod", 8080),
            &["prod", "test-1", "test-2"],
        ),
    ] {
        cluster.put(vm).await;
        cluster.settle().await;
        let after = cluster.revisions().await;
        let services: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let written: Vec<&String> = services
            .into_iter()
            .filter(|&service| before.get(service) != after.get(service))
            .collect();
        assert_eq!(written, expected, "{change}");
        before = after;
    }
    cluster.end().await;
}

/// linkerd treats a changed zone as a change of labels only, which has no effect until the resync.
#[tokio::test(start_paused = true)]
async fn changed_zone_alone_is_written_at_once() {
    let cluster = Cluster::start();
    cluster.put(service("web", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster.settle().await;
    let mut moved = workload("a", "web", "192.0.2.1");
    moved
        .labels
        .insert("topology.kubernetes.io/zone".to_owned(), "z2".to_owned());
    cluster.put(moved).await;
    cluster.settle().await;
    assert_eq!(cluster.slices().await[0].endpoints[0].zone, "z2");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn foreign_changes_to_slices_are_undone_and_foreign_slices_kept() {
    let cluster = Cluster::start();
    cluster.put(service("web", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster.settle().await;
    let ours = cluster.slices().await.remove(0);
    cluster.delete(ours.clone()).await;
    cluster.settle().await;
    assert_eq!(
        cluster.backends().await,
        backends(&[("web", &["192.0.2.1"])])
    );
    let mut damaged = ours.clone();
    damaged.endpoints.clear();
    cluster.put(damaged).await;
    let mut foreign = ours.clone();
    "foreign".clone_into(&mut foreign.name);
    foreign.labels.insert(
        crate::slice::MANAGED_BY_LABEL.to_owned(),
        "somebody".to_owned(),
    );
    foreign.endpoints[0].addresses = vec!["192.0.2.9".to_owned()];
    cluster.put(foreign).await;
    cluster.settle().await;
    assert_eq!(
        cluster.backends().await,
        backends(&[("web", &["192.0.2.1", "192.0.2.9"])])
    );
    // With another owner the slice is left alone, and the controller creates a new one.
    let mut taken = ours;
    taken.labels.insert(
        crate::slice::MANAGED_BY_LABEL.to_owned(),
        "somebody".to_owned(),
    );
    cluster.put(taken).await;
    cluster.settle().await;
    assert_eq!(cluster.slices().await.len(), 3);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn unreadable_value_changes_nothing_and_blocks_nothing() {
    let cluster = Cluster::start();
    cluster.put(service("web", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster.settle().await;
    let key = contiv_proto::Object::from(workload("a", "web", "192.0.2.1"))
        .key()
        .unwrap()
        .to_path();
    cluster
        .put_raw(&key, r#"{"workload_ips":["not an address"]}"#)
        .await;
    cluster.put(workload("b", "web", "192.0.2.2")).await;
    cluster.settle().await;
    let both = backends(&[("web", &["192.0.2.1", "192.0.2.2"])]);
    assert_eq!(cluster.backends().await, both);
    // In the next term the leader has never seen a valid state of the workload.
    cluster.lease.revoke();
    cluster.lease.grant();
    cluster.settle().await;
    assert_eq!(cluster.backends().await, both);
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_when_nothing_has_to_change() {
    let cluster = Cluster::start();
    cluster.put(service("web", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster.settle().await;
    let mut probed = workload("a", "web", "192.0.2.1");
    probed.conditions[0].last_probe_time = 99;
    cluster.put(probed).await;
    cluster.put(service("web", "web")).await;
    let revision = cluster.store.revision();
    // Longer than the resync interval.
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert_eq!(cluster.store.revision(), revision);
    cluster.end().await;
}

/// A change of a workload.
type Change = fn(&mut contiv_proto::message::externalworkload::ExternalWorkload);

/// linkerd's table of endpoint changes, with one more for the zone.
#[test]
fn change_concerns_services_when_it_changes_endpoints_or_labels() {
    let mut base = workload("a", "web", "192.0.2.1");
    base.ports[0].name = "web".to_owned();
    let stored = |message: &contiv_proto::message::externalworkload::ExternalWorkload| {
        let value = Workload::from_message(message.clone(), 1).unwrap();
        Arc::new(Stored {
            key: "a".into(),
            value,
            create_revision: 1,
            mod_revision: 2,
        })
    };
    let cases: [(&str, Change, bool); 14] = [
        ("nothing", |_| {}, false),
        ("a probe", |w| w.conditions[0].last_probe_time = 9, false),
        (
            "an annotation",
            |w| drop(w.annotations.insert("a".into(), "b".into())),
            false,
        ),
        (
            "one more address",
            |w| w.workload_ips.push("192.0.2.2".into()),
            true,
        ),
        ("one address less", |w| w.workload_ips.clear(), true),
        (
            "another address",
            |w| w.workload_ips[0] = "192.0.2.2".into(),
            true,
        ),
        (
            "one more port",
            |w| {
                w.ports.push(
                    contiv_proto::message::externalworkload::external_workload::Port::default(),
                );
            },
            true,
        ),
        ("one port less", |w| w.ports.clear(), true),
        ("another number", |w| w.ports[0].port = 81, true),
        ("another name", |w| w.ports[0].name = "http".into(), true),
        ("no name", |w| w.ports[0].name.clear(), true),
        (
            "another protocol",
            |w| w.ports[0].protocol = "UDP".into(),
            true,
        ),
        (
            "readiness",
            |w| w.conditions[0].status = "Unknown".into(),
            true,
        ),
        (
            "labels",
            |w| {
                drop(
                    w.labels
                        .insert("topology.kubernetes.io/zone".into(), "z".into()),
                );
            },
            true,
        ),
    ];
    for (name, change, expected) in cases {
        let mut new = base.clone();
        change(&mut new);
        let event = Event::Modified {
            old: stored(&base),
            new: stored(&new),
        };
        assert_eq!(changes_endpoints(&event), expected, "{name}");
    }
    assert!(
        changes_endpoints(&Event::Added(stored(&base)))
            && changes_endpoints(&Event::Deleted(stored(&base)))
    );
}
