//! How clients behave when the API server restarts, closes connections, or answers with `Retry-After`.

use std::{
    ops::Range,
    time::{Duration, Instant as StdInstant},
};

use contiv_store::{Backoff, StoreError, Transaction, WatchStream};
use contiv_store_testing::{Authority, Exchange};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;

/// The scope of an agent.
fn agent_scope() -> Scope {
    Scope::node("n1", "", &KubeAddress::default())
}

/// The store of one of many clients: a server that is unavailable during the outage. Clients back off as with [`KubeStore`].
struct RestartingStore {
    kube: KubeStore,
    outage: Range<Instant>,
    /// The `Retry-After` of its answers during the outage.
    pause: Option<Duration>,
    requests: Arc<Mutex<Requests>>,
}

/// The requests of all clients.
#[derive(Default)]
struct Requests {
    lists: usize,
    /// When watches were requested.
    watches: Vec<Instant>,
}

impl RestartingStore {
    fn error(&self) -> StoreError {
        let (endpoint, reason) = ("server".to_owned(), "it restarts".to_owned());
        match self.pause {
            Some(pause) => StoreError::Busy {
                endpoint,
                reason,
                pause,
            },
            None => StoreError::Unavailable { endpoint, reason },
        }
    }
}

impl Store for RestartingStore {
    fn list<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.requests.lock().lists += 1;
        std::future::ready(Ok(Snapshot {
            revision: 1,
            ..Snapshot::default()
        }))
        .boxed()
    }

    fn watch<'a>(&'a self, _: &'a str, _: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        let now = Instant::now();
        self.requests.lock().watches.push(now);
        let answer = if self.outage.contains(&now) {
            Err(self.error())
        } else if now < self.outage.start {
            let error = self.error();
            let end = tokio::time::sleep_until(self.outage.start).map(|()| Err(error));
            Ok(stream::once(end).boxed())
        } else {
            Ok(stream::pending().boxed())
        };
        std::future::ready(answer).boxed()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<i64, StoreError>> {
        self.kube.transact(transaction)
    }

    fn backoff(&self) -> Backoff {
        self.kube.backoff()
    }
}

const CLIENTS: usize = 200;

/// Takes the server away from many clients for `duration`. Returns how long after the server's return each client opened its
/// watch again, shortest first.
async fn restart(duration: Duration, pause: Option<Duration>) -> Vec<Duration> {
    let start = Instant::now() + Duration::from_secs(60);
    let end = start + duration;
    let requests = Arc::new(Mutex::new(Requests::default()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let kube = KubeStore::new(KubeAddress::default(), &agent_scope());
            let (outage, requests) = (start..end, Arc::clone(&requests));
            Feed::start(
                Arc::new(RestartingStore {
                    kube,
                    outage,
                    pause,
                    requests,
                }),
                ROOT,
            )
        })
        .collect();
    tokio::time::sleep_until(end + Duration::from_secs(60)).await;
    drop(clients);
    let requests = requests.lock();
    assert_eq!(
        requests.lists, CLIENTS,
        "each client lists once, at its start, and resumes its watch"
    );
    let after = requests.watches.iter().filter(|at| **at >= end);
    let mut delays: Vec<Duration> = after.map(|at| *at - end).collect();
    delays.sort_unstable();
    assert_eq!(delays.len(), CLIENTS, "each client opens its watch once");
    delays
}

/// The most clients that return within 100 ms.
fn peak(delays: &[Duration]) -> usize {
    let window = Duration::from_millis(100);
    let from = |first: &Duration| {
        delays
            .iter()
            .filter(|at| (*first..*first + window).contains(*at))
            .count()
    };
    delays.iter().map(from).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_restarted_server_return_spread_out() {
    // Seconds: a load balancer that has another server at once; a restart; an upgrade.
    for (outage, largest_peak, latest) in [(0, 90, 1), (5, 30, 8), (90, 12, 30)] {
        let delays = restart(Duration::from_secs(outage), None).await;
        let (peak, last) = (peak(&delays), delays[CLIENTS - 1]);
        println!("after {outage} s: within {last:?}, {peak} of {CLIENTS} in 100 ms");
        assert!(
            peak <= largest_peak,
            "{peak} within 100 ms, after {outage} s"
        );
        assert!(
            last <= Duration::from_secs(latest),
            "{last:?} after {outage} s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn clients_with_same_retry_after_return_spread_out() {
    let pause = Duration::from_secs(5);
    let delays = restart(Duration::ZERO, Some(pause)).await;
    assert!(delays[0] > pause, "{delays:?}");
    assert!(peak(&delays) <= 90, "{delays:?}");
}

/// Waits until three watches are open, and returns the requests until then.
async fn until_watched(server: &ApiServer) -> Vec<Arc<Exchange>> {
    let mut exchanges: Vec<Arc<Exchange>> = Vec::new();
    let is_watch = |one: &&Arc<Exchange>| one.path.contains("watch=true");
    while exchanges.iter().filter(is_watch).count() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        exchanges.extend(server.take_exchanges());
    }
    // Requests that follow the watches.
    tokio::time::sleep(Duration::from_millis(300)).await;
    exchanges.extend(server.take_exchanges());
    exchanges
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_resume_without_lists_after_server_restart() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    server.put(node("n1")).unwrap();
    let version = server.put(service("a", "10.96.0.1")).unwrap();
    let mut events = start_feed(Arc::new(with_scope(&server, &agent_scope())));
    snapshot(&mut events).await;
    until_watched(&server).await;
    let connections = server.connections();
    server.cut();
    down(&mut events).await;
    server.reconnect();
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    let exchanges = until_watched(&server).await;
    let requests: Vec<&str> = exchanges
        .iter()
        .map(|exchange| exchange.path.as_str())
        .collect();
    let (watches, others): (Vec<&str>, Vec<&str>) =
        requests.iter().partition(|one| one.contains("watch=true"));
    assert_eq!(watches.len(), 3, "{requests:?}");
    for watch in watches {
        assert!(
            watch.ends_with(&format!("resourceVersion={version}")),
            "{watch}"
        );
    }
    // A list of one object of each type tells the newest version. The last object that was written tells whether the history is
    // still the same.
    let services = "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name";
    let slices = "labelSelector=%21service.kubernetes.io%2Fheadless";
    let mut expected = [
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&limit=1".to_owned(),
        format!("/api/v1/services?{services}&limit=1"),
        format!("/apis/discovery.k8s.io/v1/endpointslices?{slices}&limit=1"),
        format!("/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Da&{services}"),
    ];
    let mut others: Vec<&str> = others;
    others.sort_unstable();
    expected.sort_unstable();
    assert_eq!(others, expected);
    assert_eq!(
        server.connections(),
        connections + 1,
        "all requests share one new connection"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_respected_and_connection_is_kept() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    server.ask_for_pause(Some(2));
    server.fail_next(1, 429);
    let mut events = start_feed(Arc::new(with_scope(&server, &agent_scope())));
    let reason = down(&mut events).await;
    assert!(
        reason.contains("asks for a pause of 2s") && reason.contains("429"),
        "{reason}"
    );
    snapshot(&mut events).await;
    let exchanges = until_watched(&server).await;
    let pause = exchanges[1].received - exchanges[0].received;
    assert!(
        pause >= Duration::from_millis(2400),
        "{pause:?}: Retry-After and a random addition"
    );
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_without_retry_after_gets_a_new_connection() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    let before = StdInstant::now();
    server.fail_next(1, 503);
    let mut events = start_feed(Arc::new(with_scope(&server, &agent_scope())));
    assert!(down(&mut events).await.contains("503"));
    snapshot(&mut events).await;
    assert!(
        before.elapsed() >= Duration::from_millis(400),
        "the usual backoff"
    );
    assert_eq!(
        server.connections(),
        2,
        "a load balancer may lead the new one to another server"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_with_goaway_is_replaced_without_outage() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    server.limit_watches(Duration::from_millis(1500));
    let mut events = start_feed(Arc::new(with_scope(&server, &agent_scope())));
    snapshot(&mut events).await;
    until_watched(&server).await;
    server.retire_connections();
    server.put(service("a", "10.96.0.1")).unwrap();
    assert_eq!(change(&mut events).await.key(), key("a"));
    assert_eq!(server.connections(), 1, "running watches go on");
    until_watched(&server).await;
    assert_eq!(
        server.connections(),
        2,
        "the next ones share a new connection"
    );
    server.put(service("b", "10.96.0.2")).unwrap();
    assert_eq!(
        change(&mut events).await.key(),
        key("b"),
        "no outage was reported before"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_end_together_are_reopened_spread_out() {
    let server = ApiServer::start().unwrap();
    // Shorter than the timeout that the clients request.
    server.limit_watches(Duration::from_millis(1500));
    // Without a scope there are six types, each with a watch.
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    until_watched(&server).await;
    let mut opened: Vec<StdInstant> = Vec::new();
    while opened.len() < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let exchanges = server.take_exchanges();
        opened.extend(
            exchanges
                .iter()
                .filter(|one| one.path.contains("watch=true"))
                .map(|one| one.received),
        );
    }
    let spread = opened[5] - opened[0];
    assert!(spread >= Duration::from_millis(100), "{spread:?}");
    server.put(service("a", "10.96.0.1")).unwrap();
    assert_eq!(
        change(&mut events).await.key(),
        key("a"),
        "no outage was reported before"
    );
}
