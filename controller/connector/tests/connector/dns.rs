//! SRV records, by a small DNS server.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use contiv_connector::{
    Aggregator, Catalog, HostNames, SourceService,
    registry::dns::{Dns, DnsHosts, DnsOptions},
};
use contiv_connector_testing::{DnsServer, Zone};
use tokio::time::{Instant, sleep};

use crate::harness::{EVENT_TIMEOUT, Running, ScriptedAction, Setup, instance};

const WEB: &str = "_http._tcp.web.example.org";

fn zone(ttl: u32) -> Zone {
    let mut zone = Zone::default();
    zone.srv(WEB, ttl, (10, 8080), "one.example.org");
    zone.srv(WEB, ttl, (10, 8081), "two.example.org");
    zone.srv(WEB, ttl, (20, 8082), "spare.example.org");
    zone.address("one.example.org", ttl, "10.0.0.1".parse().unwrap());
    zone.address("two.example.org", ttl, "10.0.0.2".parse().unwrap());
    zone.address("two.example.org", ttl, "fd00::2".parse().unwrap());
    zone.address("spare.example.org", ttl, "10.0.0.3".parse().unwrap());
    zone
}

async fn with_web(ttl: u32) -> (DnsServer, Running) {
    let server = DnsServer::start(zone(ttl)).unwrap();
    let services = BTreeMap::from([("web".to_owned(), WEB.to_owned())]);
    let running = Running::of(Dns::new(DnsOptions {
        services,
        servers: vec![server.address()],
    }));
    running
        .wait_until_backends("web", &["10.0.0.1 8080", "10.0.0.2 8081", "fd00::2 8081"])
        .await;
    (server, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn name_is_queried_again_when_its_ttl_has_expired() {
    let (server, running) = with_web(1).await;
    server.change(|zone| {
        *zone = Zone::default();
        zone.srv(WEB, 1, (20, 8082), "spare.example.org");
        zone.address("spare.example.org", 1, "10.0.0.3".parse().unwrap());
    });
    running.wait_until_backends("web", &["10.0.0.3 8082"]).await;
    let address = running.service("web").await.cluster_ip;
    server.change(|zone| *zone = Zone::default());
    running.wait_until_backends("web", &[]).await;
    assert_eq!(
        running.service("web").await.cluster_ip,
        address,
        "a service without instances stays"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_without_records_moves_to_new_namespace() {
    let (server, running) = with_web(1).await;
    server.change(|zone| *zone = Zone::default());
    running.wait_until_backends("web", &[]).await;
    let before = running.service("web").await;
    running.sink.set_sync_namespace("edge").unwrap();
    let start = Instant::now();
    while running.service("web").await.namespace != "edge" {
        assert!(
            start.elapsed() < EVENT_TIMEOUT,
            "it stays in {}",
            running.service("web").await.namespace
        );
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(running.service("web").await.port, before.port);
    running.wait_until_backends("web", &[]).await;
    server.change(|found| *found = zone(1));
    running
        .wait_until_backends("web", &["10.0.0.1 8080", "10.0.0.2 8081", "fd00::2 8081"])
        .await;
    assert_eq!(running.service("web").await.namespace, "edge");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_is_not_queried_before_its_ttl_has_expired() {
    let (server, running) = with_web(600).await;
    server.change(|zone| *zone = Zone::default());
    sleep(Duration::from_secs(3)).await;
    running
        .wait_until_backends("web", &["10.0.0.1 8080", "10.0.0.2 8081", "fd00::2 8081"])
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dns_that_fails_takes_nothing_away() {
    let (server, running) = with_web(1).await;
    let before = running.store.revision();
    server.change(|zone| zone.fails = true);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(running.store.revision(), before);
    assert_eq!(running.metric("connector_registry_up"), "0");
    server.change(|zone| {
        *zone = Zone::default();
        zone.srv(WEB, 1, (10, 8080), "one.example.org");
        zone.address("one.example.org", 1, "10.0.0.1".parse().unwrap());
    });
    running.wait_until_backends("web", &["10.0.0.1 8080"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_host_name_of_an_instance_is_looked_up_again() {
    let mut zone = Zone::default();
    zone.address("db.example.org", 1, "10.0.0.1".parse().unwrap());
    let server = DnsServer::start(zone).unwrap();
    let running = Running::scripted(Setup {
        aggregator: Aggregator {
            host_names: HostNames::Resolve,
            ..Aggregator::default()
        },
        host_lookup: Some(Arc::new(DnsHosts::new(vec![server.address()]))),
        ..Setup::default()
    });
    let host = instance("10.0.0.9", 5432).with_address("db.example.org".to_owned());
    let db = SourceService {
        hosts: BTreeSet::from([host]),
        ..SourceService::default()
    };
    running.act(ScriptedAction::All(Catalog::from([(
        "db".to_owned(),
        Some(Arc::new(db)),
    )])));
    running.wait_until_backends("db", &["10.0.0.1 5432"]).await;
    server.change(|zone| {
        *zone = Zone::default();
        zone.address("db.example.org", 1, "10.0.0.2".parse().unwrap());
        zone.address("db.example.org", 1, "127.0.0.1".parse().unwrap());
    });
    running.wait_until_backends("db", &["10.0.0.2 5432"]).await;
    // A failure changes nothing.
    server.change(|zone| zone.fails = true);
    sleep(Duration::from_secs(3)).await;
    running.wait_until_backends("db", &["10.0.0.2 5432"]).await;
    server.change(|zone| {
        *zone = Zone::default();
        zone.address("db.example.org", 1, "fd00::3".parse().unwrap());
    });
    running.wait_until_backends("db", &["fd00::3 5432"]).await;
    running.stop().await;
}
