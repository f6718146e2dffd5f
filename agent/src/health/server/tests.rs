use std::{
    net::{Ipv6Addr, TcpListener},
    sync::Arc,
};

use contiv_model::ServiceId;
use contiv_node::health::LocalEndpoints;
use contiv_store_testing::ReservedPort;
use serde_json::json;
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinHandle,
};

use super::*;
use crate::{
    health::{self, HealthCheckQuestions, HealthOutputs},
    test_support::{Answer, get, loopback},
};

/// A server with these addresses, and the test's ends of its channels.
struct Running {
    outputs: HealthOutputs,
    questions: HealthCheckQuestions,
    task: JoinHandle<()>,
}

impl Running {
    fn start(node_ips: &[IpAddr]) -> Self {
        Self::start_with(node_ips, |_| {})
    }

    fn start_with(node_ips: &[IpAddr], change: impl FnOnce(&mut HealthCheckServer)) -> Self {
        let (outputs, mut server, questions, _) = health::channels();
        change(&mut server);
        let running = Self {
            outputs,
            questions,
            task: tokio::spawn(server.run()),
        };
        running.set_healthy(true);
        running.update(Vec::new(), Some(node_ips));
        running
    }

    fn set_healthy(&self, in_sync: bool) {
        let health = ProxyHealth {
            in_sync,
            unapplied_since: None,
            ..ProxyHealth::starting(Instant::now().into_std())
        };
        self.outputs.proxy.send_replace(health);
    }

    fn update(&self, services: Vec<(ServiceId, Option<HealthCheck>)>, node_ips: Option<&[IpAddr]>) {
        let node_ips = node_ips.map(|node_ips| node_ips.iter().copied().collect());
        self.outputs
            .updates
            .send(HealthUpdate { services, node_ips })
            .unwrap();
    }

    /// The health checks after all updates so far.
    async fn views(&self) -> Vec<HealthCheckView> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(reply).await.unwrap();
        answer.await.unwrap()
    }

    /// Why the health check of a service is not served on an address.
    async fn error(&self, service: &ServiceId, address: IpAddr) -> Option<String> {
        let views = self.views().await;
        let view = views.iter().find(|view| view.service == *service).unwrap();
        view.listeners
            .iter()
            .find(|listener| listener.address == address)
            .unwrap()
            .error
            .clone()
    }

    async fn get(&self, address: IpAddr, port: u16) -> Option<Answer> {
        self.views().await;
        get(SocketAddr::new(address, port), "/any/path?at=all").await
    }

    async fn status(&self, address: IpAddr, port: u16) -> Option<u16> {
        self.get(address, port).await.map(|answer| answer.status)
    }
}

fn web() -> ServiceId {
    ServiceId::new("shop", "web")
}

fn api() -> ServiceId {
    ServiceId::new("shop", "api")
}

fn check(port: u16, ipv4: usize) -> HealthCheck {
    HealthCheck {
        port,
        local_endpoints: LocalEndpoints { ipv4, ipv6: 0 },
    }
}

#[tokio::test]
async fn answer_has_status_headers_and_body_of_kube_proxy() {
    let address = loopback(1);
    let running = Running::start(&[address]);
    running.update(vec![(web(), Some(check(31001, 2)))], None);
    let answer = running.get(address, 31001).await.unwrap();
    assert_eq!(answer.status, 200);
    for header in [
        "content-type: application/json",
        "x-content-type-options: nosniff",
        "x-load-balancing-endpoint-weight: 2",
    ] {
        assert!(
            answer.headers.lines().any(|line| line == header),
            "{header} is not in {}",
            answer.headers
        );
    }
    let body = |local_endpoints, is_healthy| {
        json!({
            "service": {"namespace": "shop", "name": "web"},
            "localEndpoints": local_endpoints, "serviceProxyHealthy": is_healthy,
        })
    };
    assert_eq!(answer.body, body(2, true));

    running.set_healthy(false);
    let answer = running.get(address, 31001).await.unwrap();
    assert_eq!((answer.status, answer.body), (503, body(2, false)));

    running.set_healthy(true);
    running.update(vec![(web(), Some(check(31001, 0)))], None);
    let answer = running.get(address, 31001).await.unwrap();
    assert_eq!((answer.status, answer.body), (503, body(0, true)));
    assert!(
        answer
            .headers
            .contains("x-load-balancing-endpoint-weight: 0"),
        "{}",
        answer.headers
    );
}

#[tokio::test]
async fn each_address_answers_for_its_family() {
    let (v4, v6) = (loopback(2), IpAddr::from(Ipv6Addr::LOCALHOST));
    let running = Running::start(&[v4, v6]);
    // There is only one loopback address of this family.
    let reserved = ReservedPort::on(v6).unwrap();
    let port = reserved.address().port();
    running.update(vec![(web(), Some(check(port, 3)))], None);
    assert_eq!(running.status(v4, port).await, Some(200));
    let answer = running.get(v6, port).await.unwrap();
    assert_eq!(
        (answer.status, &answer.body["localEndpoints"]),
        (503, &json!(0))
    );
}

#[tokio::test]
async fn listeners_follow_ports_of_services() {
    let address = loopback(3);
    let running = Running::start(&[address]);
    running.update(
        vec![
            (web(), Some(check(31001, 1))),
            (api(), Some(check(31002, 0))),
        ],
        None,
    );
    assert_eq!(running.status(address, 31001).await, Some(200));
    assert_eq!(running.status(address, 31002).await, Some(503));
    // Each takes the port of the other at the same time.
    running.update(
        vec![
            (web(), Some(check(31002, 1))),
            (api(), Some(check(31001, 0))),
        ],
        None,
    );
    assert_eq!(running.status(address, 31002).await, Some(200));
    assert_eq!(running.status(address, 31001).await, Some(503));
    running.update(vec![(api(), None)], None);
    assert_eq!(running.status(address, 31001).await, None);
    assert_eq!(running.status(address, 31002).await, Some(200));
    assert_eq!(running.views().await.len(), 1);
}

#[tokio::test]
async fn listeners_follow_addresses_of_node() {
    let (first, second) = (loopback(4), loopback(5));
    let running = Running::start(&[]);
    running.update(vec![(web(), Some(check(31001, 1)))], None);
    assert_eq!(running.views().await[0].listeners, []);
    running.update(Vec::new(), Some(&[first]));
    assert_eq!(running.status(first, 31001).await, Some(200));
    running.update(vec![(api(), Some(check(31002, 1)))], Some(&[second]));
    assert_eq!(running.status(first, 31001).await, None);
    assert_eq!(running.status(second, 31001).await, Some(200));
    assert_eq!(running.status(second, 31002).await, Some(200));
}

#[tokio::test]
async fn port_in_use_is_reported_and_others_are_served() {
    let address = loopback(6);
    let taken = TcpListener::bind((address, 31001)).unwrap();
    let running = Running::start(&[address]);
    running.update(
        vec![
            (web(), Some(check(31001, 1))),
            (api(), Some(check(31002, 1))),
        ],
        None,
    );
    let error = running.error(&web(), address).await.unwrap();
    assert!(
        error.contains(&format!("{address}:31001")) && error.contains("in use"),
        "{error}"
    );
    assert_eq!(running.status(address, 31002).await, Some(200));
    drop(taken);
    running.update(vec![(api(), Some(check(31002, 2)))], None);
    assert_eq!(running.error(&web(), address).await, None);
    assert_eq!(running.status(address, 31001).await, Some(200));
}

#[tokio::test]
async fn deleted_address_is_not_tried_again() {
    let (first, second) = (loopback(10), loopback(11));
    let taken = TcpListener::bind((first, 31001)).unwrap();
    let running = Running::start(&[first]);
    running.update(vec![(web(), Some(check(31001, 1)))], None);
    assert!(running.error(&web(), first).await.is_some());
    drop(taken);
    running.update(Vec::new(), Some(&[second]));
    assert_eq!(running.status(second, 31001).await, Some(200));
    assert_eq!(running.status(first, 31001).await, None);
    assert_eq!(running.views().await[0].listeners.len(), 1);
}

#[tokio::test]
async fn port_that_was_in_use_is_tried_again_without_any_change() {
    let address = loopback(7);
    let taken = TcpListener::bind((address, 31001)).unwrap();
    let running = Running::start(&[address]);
    running.update(vec![(web(), Some(check(31001, 1)))], None);
    assert!(running.error(&web(), address).await.is_some());
    drop(taken);
    tokio::time::pause();
    tokio::time::sleep(RETRY_AFTER.mul_f64(0.9)).await;
    assert!(
        running.error(&web(), address).await.is_some(),
        "not all the time"
    );
    tokio::time::sleep(RETRY_AFTER.mul_f64(0.2)).await;
    assert_eq!(running.error(&web(), address).await, None);
}

#[tokio::test]
async fn two_services_with_one_port_name_each_other() {
    let address = loopback(8);
    let running = Running::start(&[address]);
    running.update(vec![(web(), Some(check(31001, 1)))], None);
    running.update(vec![(api(), Some(check(31001, 0)))], None);
    let error = running.error(&api(), address).await.unwrap();
    assert!(error.contains("shop/web"), "{error}");
    assert_eq!(
        running.get(address, 31001).await.unwrap().body["service"]["name"],
        "web"
    );
    running.update(vec![(web(), None)], None);
    assert_eq!(
        running.get(address, 31001).await.unwrap().body["service"]["name"],
        "api"
    );
}

#[tokio::test]
async fn server_ends_with_loop_and_takes_its_listeners_along() {
    let address = loopback(9);
    let running = Running::start(&[address]);
    running.update(vec![(web(), Some(check(31001, 1)))], None);
    assert_eq!(running.status(address, 31001).await, Some(200));
    drop(running.outputs);
    running.task.await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(get(SocketAddr::new(address, 31001), "/").await, None);
}

#[tokio::test]
async fn health_checks_beyond_the_open_file_limit_are_refused_by_name() {
    let address = loopback(12);
    let running = Running::start_with(&[address], |server| {
        server.shared.slots = Arc::new(Semaphore::new(1));
    });
    running.update(
        vec![
            (web(), Some(check(31001, 1))),
            (api(), Some(check(31002, 1))),
        ],
        None,
    );
    let error = running.error(&api(), address).await.unwrap();
    assert!(error.contains("too many health checks"), "{error}");
    assert_eq!(running.status(address, 31001).await, Some(200));
    running.update(vec![(web(), None)], None);
    assert_eq!(
        running.error(&api(), address).await,
        None,
        "there is room now"
    );
    assert_eq!(running.status(address, 31002).await, Some(200));
}
