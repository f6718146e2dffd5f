use std::{sync::Arc, time::Duration};

use contiv_controller::lease::election::{Election, ElectionConfig};
use contiv_store::{
    Store,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{ApiServer, Etcd};

use crate::cluster::{Running, entries, key, service, until, until_cluster_ip, until_stored};

fn store(etcd: &Etcd) -> Arc<dyn Store> {
    Arc::new(EtcdStore::new(&[etcd.endpoint()], EtcdAccess::default()).unwrap())
}

fn election(identity: &str) -> ElectionConfig {
    ElectionConfig {
        ttl: Duration::from_secs(3),
        keep_alive_every: Duration::from_millis(200),
        step_down_after: Duration::from_secs(2),
        ..ElectionConfig::new("/contiv/controller/election", identity)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_that_lost_its_data_is_filled_again() {
    let server = ApiServer::start().unwrap();
    for i in 0..300 {
        server.put(service(&format!("s{i:03}"), "None")).unwrap();
    }
    let mut etcd = Etcd::start().await.unwrap();
    let store = store(&etcd);
    let (election, lease) = Election::enter(Arc::clone(&store), election("one")).unwrap();
    let running = Running::start(&server, Arc::clone(&store), lease).await;
    until("all are stored", async || {
        entries(&*store).await.len() == 300
    })
    .await;
    // By a manual deletion, and by a new disk.
    etcd.ctl(&["del", "--prefix", "/vnf-agent/"]).await.unwrap();
    until("all are stored again", async || {
        entries(&*store).await.len() == 300
    })
    .await;
    etcd.kill().await.unwrap();
    etcd.start_empty().await.unwrap();
    until("all are stored in the new one", async || {
        store
            .list("/vnf-agent/contiv-ksr/k8s/")
            .await
            .is_ok_and(|listed| listed.entries.len() == 300)
    })
    .await;
    running.stop().await;
    election.resign().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_one_writes_and_the_other_takes_over() {
    let server = ApiServer::start().unwrap();
    server.put(service("web", "10.96.0.1")).unwrap();
    let etcd = Etcd::start().await.unwrap();
    let store = store(&etcd);
    let (first, lease) = Election::enter(Arc::clone(&store), election("first")).unwrap();
    let active = Running::start(&server, Arc::clone(&store), lease).await;
    until_cluster_ip(&*store, "web", "10.96.0.1").await;
    let (second, lease) = Election::enter(Arc::clone(&store), election("second")).unwrap();
    let standby = Running::start(&server, Arc::clone(&store), lease).await;
    server.put(service("web", "10.96.0.2")).unwrap();
    until_cluster_ip(&*store, "web", "10.96.0.2").await;
    let revision = entries(&*store).await[&key("web")].mod_revision;
    assert!(!standby.stats.has_synced());

    active.stop().await;
    first.resign().await;
    until("the other has taken over", async || {
        standby.stats.has_synced()
    })
    .await;
    assert_eq!(
        entries(&*store).await[&key("web")].mod_revision,
        revision,
        "what is right is not written"
    );
    server.delete("services", "default", "web");
    until_stored(&*store, &[]).await;
    standby.stop().await;
    second.resign().await;
}
