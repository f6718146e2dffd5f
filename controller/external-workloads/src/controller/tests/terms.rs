//! Terms: a lease is granted, revoked and granted again.

use std::time::Duration;

use contiv_controller::Fence;
use prometheus_client::encoding::text::encode;

use super::{Cluster, backends, service, workload};
use crate::slice::TERM_ANNOTATION;

/// A service with one workload and a written slice, and a lost lease.
async fn after_lease_loss() -> Cluster {
    let cluster = Cluster::start();
    cluster.put(service("web", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster.settle().await;
    cluster.lease.revoke();
    cluster.settle().await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn slices_of_service_deleted_without_leader_are_deleted_later() {
    let cluster = after_lease_loss().await;
    cluster.delete(service("web", "web")).await;
    cluster.settle().await;
    assert_eq!(
        cluster.slices().await.len(),
        1,
        "a controller without a lease writes nothing"
    );
    cluster.lease.grant();
    cluster.settle().await;
    assert_eq!(cluster.slices().await, []);
    cluster.end().await;
}

/// linkerd's scenario: a new term starts with an empty slice tracker.
#[tokio::test(start_paused = true)]
async fn slice_deleted_while_not_leader_is_created_again() {
    let cluster = after_lease_loss().await;
    let before = cluster.slices().await;
    cluster.delete(before[0].clone()).await;
    cluster.settle().await;
    assert_eq!(cluster.slices().await, []);
    cluster.lease.grant();
    cluster.settle().await;
    assert_eq!(
        cluster.backends().await,
        backends(&[("web", &["192.0.2.1"])])
    );
    assert_eq!(cluster.slices().await, before, "also of the same name");
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn slice_names_its_term_and_a_new_term_alone_is_not_written() {
    let cluster = Cluster::standby();
    cluster.put_raw("/election", "me").await;
    let term = cluster.store.revision();
    cluster.lease.grant_with(Fence {
        key: "/election".to_owned(),
        create_revision: term,
    });
    cluster.put(service("web", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    cluster.settle().await;
    let written = cluster.slices().await;
    assert_eq!(written[0].annotations[TERM_ANNOTATION], term.to_string());
    cluster.lease.revoke();
    cluster.lease.grant();
    cluster.settle().await;
    assert_eq!(cluster.slices().await, written);
    cluster.end().await;
}

/// linkerd still writes the keys that were queued when the lease was lost. Here the store refuses these writes (the fence does not
/// hold), and the key is dropped after 15 retries.
#[tokio::test(start_paused = true)]
async fn without_lease_key_is_dropped_after_15_retries() {
    let cluster = Cluster::standby();
    cluster.lease.grant_with(Fence {
        key: "/election".to_owned(),
        create_revision: 1,
    });
    cluster.put(service("web", "web")).await;
    cluster.put(workload("a", "web", "192.0.2.1")).await;
    // 5 ms doubled 15 times is 164 s.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(cluster.slices().await, []);
    let mut text = String::new();
    encode(&mut text, &cluster.registry).unwrap();
    for expected in [
        r#"workqueue_retries_total{name="external-workloads"} 15"#,
        r#"workqueue_drops_total{name="external-workloads"} 1"#,
        r#"workqueue_depth{name="external-workloads"} 0"#,
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    cluster.end().await;
}
