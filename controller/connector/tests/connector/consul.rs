//! Consul, by a simulated server.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use contiv_connector::{
    Publisher, Sink,
    registry::{
        Registry,
        consul::{Certificates, Consul, ConsulOptions},
    },
};
use contiv_connector_testing::{ConsulInstance, ConsulServer, Fault};
use contiv_proto::message::service::Service;
use contiv_store_testing::Authority;
use tokio::time::{Instant, sleep};

use crate::harness::{EVENT_TIMEOUT, Running, Warnings};

fn options(server: &ConsulServer) -> ConsulOptions {
    ConsulOptions {
        wait: Duration::from_secs(20),
        ..ConsulOptions::new(&server.url())
    }
}

fn web(number: u8, tags: &[&str]) -> ConsulInstance {
    ConsulInstance::new(&format!("10.0.0.{number}"), 80, tags)
}

/// A server with `web`, and a connector that has stored it.
async fn with_web() -> (ConsulServer, Running) {
    with_web_and_wait(Duration::from_secs(20)).await
}

/// The same, where a query without news is answered after `wait`.
async fn with_web_and_wait(wait: Duration) -> (ConsulServer, Running) {
    let server = ConsulServer::start().unwrap();
    server.register("web", web(1, &[]));
    let running = Running::of(Consul::new(ConsulOptions {
        wait,
        ..options(&server)
    }));
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    (server, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_changes_are_published() {
    let (server, running) = with_web().await;
    server.register("web", web(2, &[]));
    server.register("odd name/x", web(9, &[]));
    server.register(
        "db",
        ConsulInstance {
            address: String::new(),
            ..ConsulInstance::new("", 5432, &[])
        },
    );
    running
        .wait_until_backends("web", &["10.0.0.1 80", "10.0.0.2 80"])
        .await;
    running.wait_until_backends("db", &["192.0.2.1 5432"]).await;
    let address = running.service("web").await.cluster_ip;
    server.set_status("web", "10.0.0.1-80", "warning");
    running.wait_until_backends("web", &["10.0.0.2 80"]).await;
    server.set_status("web", "10.0.0.2-80", "critical");
    running.wait_until_backends("web", &[]).await;
    server.set_status("web", "10.0.0.1-80", "passing");
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    assert_eq!(running.service("web").await.cluster_ip, address);
    server.deregister("web", "10.0.0.2-80");
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    assert_eq!(
        running.service("web").await.cluster_ip,
        address,
        "one instance less is no other service"
    );
    server.deregister("web", "10.0.0.1-80");
    running.wait_until_gone("web").await;
    let left: Vec<String> = running.all::<Service>().await.into_keys().collect();
    assert_eq!(
        left,
        ["db"],
        "a name that no service can have is left out, and Consul's own"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_instance_is_reported_once_and_counted() {
    let count = Arc::new(AtomicUsize::new(0));
    let warnings = Warnings {
        text: "10.0.0.9-0",
        count: Arc::clone(&count),
    };
    tracing::subscriber::set_global_default(warnings).unwrap();
    let (server, running) = with_web().await;
    server.register("web", ConsulInstance::new("10.0.0.9", 0, &[]));
    let mut behind = vec!["10.0.0.1 80".to_owned()];
    for number in 2..5 {
        server.register("web", web(number, &[]));
        behind.push(format!("10.0.0.{number} 80"));
        let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
        running.wait_until_backends("web", &behind).await;
    }
    assert_eq!(
        (
            count.load(Ordering::Relaxed),
            running.metric("connector_problems").as_str()
        ),
        (1, "1")
    );
    server.deregister("web", "10.0.0.9-0");
    server.register("web", web(5, &[]));
    behind.push("10.0.0.5 80".to_owned());
    let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
    running.wait_until_backends("web", &behind).await;
    assert_eq!(
        (
            count.load(Ordering::Relaxed),
            running.metric("connector_problems").as_str()
        ),
        (1, "0")
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_synced_from_kubernetes_is_not_queried() {
    let server = ConsulServer::start().unwrap();
    server.register("web", web(1, &[]));
    server.register("synced", web(2, &["k8s"]));
    let options = ConsulOptions {
        exclude_tag: "k8s".to_owned(),
        ..options(&server)
    };
    let running = Running::of(Consul::new(options));
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    let start = Instant::now();
    while server.requests().1 != 2 {
        assert!(
            start.elapsed() < EVENT_TIMEOUT,
            "one for the services, one for the instances of web"
        );
        sleep(Duration::from_millis(50)).await;
    }
    assert!(!running.all::<Service>().await.contains_key("synced"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_wait_for_changes_and_do_not_ask_again_and_again() {
    let (server, running) = with_web().await;
    sleep(Duration::from_secs(1)).await;
    let (before, waiting) = server.requests();
    assert_eq!(
        waiting, 2,
        "one for the services, one for the instances of web"
    );
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.requests().0, before);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_restarted_with_lower_index_is_queried_again() {
    let (server, running) = with_web().await;
    for number in 2..30 {
        server.register("other", web(number, &[]));
    }
    sleep(Duration::from_secs(1)).await;
    server.restart_at(3);
    server.deregister("web", "10.0.0.1-80");
    server.register("web", web(2, &[]));
    running.wait_until_backends("web", &["10.0.0.2 80"]).await;
    server.register("web", web(3, &[]));
    running
        .wait_until_backends("web", &["10.0.0.2 80", "10.0.0.3 80"])
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_that_goes_backwards_behind_proxy_is_noticed() {
    let server = ConsulServer::start().unwrap();
    for number in 1..9 {
        server.register("web", web(number, &[]));
    }
    // Without a disconnect, a query with a future index waits until its timeout.
    let running = Running::of(Consul::new(ConsulOptions {
        wait: Duration::from_secs(1),
        ..options(&server)
    }));
    sleep(Duration::from_secs(1)).await;
    server.rewind_to(2);
    for number in 2..9 {
        server.deregister("web", &format!("10.0.0.{number}-80"));
        server.rewind_to(2);
    }
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_failures_delete_nothing() {
    // Short, since some faults show only when the query for the list of services ends.
    let (server, running) = with_web_and_wait(Duration::from_secs(1)).await;
    let failures = || {
        running
            .metric("connector_registry_failures_total")
            .parse::<u64>()
            .unwrap_or_default()
    };
    let faults = [
        Fault::Down,
        Fault::NoLeader,
        Fault::NoHealth,
        Fault::Truncated,
        Fault::NoIndex,
    ];
    for (number, fault) in (2..).zip(faults) {
        let (revision, before) = (running.store.revision(), failures());
        server.set_fault(Some(fault));
        // Wakes the waiting queries.
        server.set_status("web", "10.0.0.1-80", "passing");
        let start = Instant::now();
        while failures() == before {
            assert!(start.elapsed() < EVENT_TIMEOUT, "{fault:?} went unnoticed");
            sleep(Duration::from_millis(50)).await;
        }
        // Longer than a sync takes.
        sleep(Duration::from_millis(1500)).await;
        assert_eq!(running.store.revision(), revision, "{fault:?}");
        server.set_fault(None);
        server.register("web", web(number, &[]));
        server.deregister("web", &format!("10.0.0.{}-80", number - 1));
        server.register("web", web(1, &[]));
        let newest = format!("10.0.0.{number} 80");
        running
            .wait_until_backends("web", &["10.0.0.1 80", &newest])
            .await;
    }
    server.set_fault(Some(Fault::Slow(Duration::from_millis(500))));
    server.deregister("web", "10.0.0.6-80");
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_services_with_the_tag_are_queried() {
    let server = ConsulServer::start().unwrap();
    server.register("web", web(1, &["contiv"]));
    server.register("db", web(2, &[]));
    let running = Running::of(Consul::new(ConsulOptions {
        tag: "contiv".to_owned(),
        ..options(&server)
    }));
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    assert_eq!(running.all::<Service>().await.len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_services_than_connections_take_turns() {
    let server = ConsulServer::start().unwrap();
    for name in ["a", "b", "c", "d"] {
        server.register(name, web(1, &[]));
    }
    let options = ConsulOptions {
        connections: 1,
        wait: Duration::from_millis(800),
        ..options(&server)
    };
    let running = Running::of(Consul::new(options));
    for name in ["a", "b", "c", "d"] {
        running.wait_until_backends(name, &["10.0.0.1 80"]).await;
        server.register(name, web(2, &[]));
    }
    for name in ["a", "b", "c", "d"] {
        running
            .wait_until_backends(name, &["10.0.0.1 80", "10.0.0.2 80"])
            .await;
        assert!(server.requests().1 <= 2, "more queries wait than may");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_read_again_and_tls_is_verified() {
    let authority = Authority::new().unwrap();
    let server = ConsulServer::start_tls(
        &authority.file("server.pem"),
        &authority.file("server-key.pem"),
    )
    .unwrap();
    server.set_token("right");
    server.register("web", web(1, &[]));
    let token = authority.file("token");
    fs::write(&token, "wrong\n").unwrap();
    let trusting = ConsulOptions {
        token_file: Some(token.clone()),
        certificates: Certificates {
            ca_file: Some(authority.file("ca.pem")),
            client: None,
        },
        ..options(&server)
    };
    // A client that does not trust the authority gets no answer.
    let distrusting = ConsulOptions {
        certificates: Certificates::default(),
        ..trusting.clone()
    };
    let reason = first_error(distrusting).await;
    assert!(reason.to_lowercase().contains("certificate"), "{reason}");
    let reason = first_error(trusting.clone()).await;
    assert!(
        reason.contains("403") && reason.contains("Permission denied"),
        "{reason}"
    );

    let running = Running::of(Consul::new(trusting));
    sleep(Duration::from_millis(300)).await;
    assert!(running.all::<Service>().await.is_empty());
    fs::write(&token, "right\n").unwrap();
    running.wait_until_backends("web", &["10.0.0.1 80"]).await;
    running.stop().await;
}

async fn first_error(options: ConsulOptions) -> String {
    let (sink, _requests) = Sink::new();
    let publisher = Publisher::new("r", sink, contiv_connector::ConnectorMetrics::default());
    Consul::new(options).watch(&publisher).await.to_string()
}
