//! What a restart of the API server, or its wish to be left alone, makes clients do.

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

fn agents() -> Scope {
    Scope::node("n1", "", &KubeAddress::default())
}

/// A store that is away for a while, as one of many clients sees it: with the pauses of [`KubeStore`].
struct Restarting {
    kube: KubeStore,
    away: Range<Instant>,
    /// The pause that it asks for meanwhile.
    pause: Option<Duration>,
    requests: Arc<Mutex<Requests>>,
}

#[derive(Default)]
struct Requests {
    lists: usize,
    /// When watches were requested.
    watches: Vec<Instant>,
}

impl Restarting {
    fn error(&self) -> StoreError {
        let (endpoint, reason) = ("there".to_owned(), "it starts again".to_owned());
        match self.pause {
            Some(pause) => StoreError::Busy { endpoint, reason, pause },
            None => StoreError::Unavailable { endpoint, reason },
        }
    }
}

impl Store for Restarting {
    fn list<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.requests.lock().lists += 1;
        std::future::ready(Ok(Snapshot { revision: 1, ..Snapshot::default() })).boxed()
    }

    fn watch<'a>(&'a self, _: &'a str, _: i64) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        let now = Instant::now();
        self.requests.lock().watches.push(now);
        let answer = if self.away.contains(&now) {
            Err(self.error())
        } else if now < self.away.start {
            let error = self.error();
            let end = tokio::time::sleep_until(self.away.start).map(|()| Err(error));
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

/// Lets many clients lose a server at one moment, for `outage`. Returns when each was there again, counted from the moment when the
/// server was, in order.
async fn restart(outage: Duration, pause: Option<Duration>) -> Vec<Duration> {
    let gone = Instant::now() + Duration::from_secs(60);
    let back = gone + outage;
    let requests = Arc::new(Mutex::new(Requests::default()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let kube = KubeStore::new(KubeAddress::default(), &agents());
            let (away, requests) = (gone..back, Arc::clone(&requests));
            Feed::start(Arc::new(Restarting { kube, away, pause, requests }), ROOT)
        })
        .collect();
    tokio::time::sleep_until(back + Duration::from_secs(60)).await;
    drop(clients);
    let requests = requests.lock();
    assert_eq!(requests.lists, CLIENTS, "each client lists once, at its start, and goes on where it was");
    let after = requests.watches.iter().filter(|at| **at >= back);
    let mut returns: Vec<Duration> = after.map(|at| *at - back).collect();
    returns.sort_unstable();
    assert_eq!(returns.len(), CLIENTS, "each comes back once, and stays");
    returns
}

/// The largest number of clients within 100 ms.
fn peak(returns: &[Duration]) -> usize {
    let window = Duration::from_millis(100);
    let from = |first: &Duration| returns.iter().filter(|at| (*first..*first + window).contains(*at)).count();
    returns.iter().map(from).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_restarted_server_come_back_one_by_one() {
    // A load balancer that has another server; a restart; an upgrade.
    for (outage, largest_peak, latest) in [(0, 90, 1), (5, 30, 8), (90, 12, 30)] {
        let returns = restart(Duration::from_secs(outage), None).await;
        let (peak, last) = (peak(&returns), returns[CLIENTS - 1]);
        println!("after {outage} s: within {last:?}, {peak} of {CLIENTS} in 100 ms");
        assert!(peak <= largest_peak, "{peak} within 100 ms, after {outage} s");
        assert!(last <= Duration::from_secs(latest), "{last:?} after {outage} s");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_are_asked_for_one_pause_come_back_one_by_one() {
    let pause = Duration::from_secs(5);
    let returns = restart(Duration::ZERO, Some(pause)).await;
    assert!(returns[0] > pause, "{returns:?}");
    assert!(peak(&returns) <= 90, "{returns:?}");
}

/// The requests until three watches were opened.
async fn until_watched(server: &ApiServer) -> Vec<Arc<Exchange>> {
    let mut exchanges: Vec<Arc<Exchange>> = Vec::new();
    let is_watch = |one: &&Arc<Exchange>| one.path.contains("watch=true");
    while exchanges.iter().filter(is_watch).count() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        exchanges.extend(server.take_exchanges());
    }
    // What comes after the watches.
    tokio::time::sleep(Duration::from_millis(300)).await;
    exchanges.extend(server.take_exchanges());
    exchanges
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_server_is_asked_for_changes_and_for_no_list() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    server.put(node("n1")).unwrap();
    let version = server.put(service("a", "10.96.0.1")).unwrap();
    let mut events = start_feed(Arc::new(with_scope(&server, &agents())));
    snapshot(&mut events).await;
    until_watched(&server).await;
    let connections = server.connections();
    server.cut();
    down(&mut events).await;
    server.mend();
    assert_eq!(after_outage(&mut events).await, FeedEvent::Up);
    let exchanges = until_watched(&server).await;
    let requests: Vec<&str> = exchanges.iter().map(|exchange| exchange.path.as_str()).collect();
    let (watches, others): (Vec<&str>, Vec<&str>) =
        requests.iter().partition(|one| one.contains("watch=true"));
    assert_eq!(watches.len(), 3, "{requests:?}");
    for watch in watches {
        assert!(watch.ends_with(&format!("resourceVersion={version}")), "{watch}");
    }
    // One object of each type tells the newest version; the last one that was written, whether the history is the same.
    let selected =
        "labelSelector=%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";
    let mut expected = [
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&limit=1".to_owned(),
        format!("/api/v1/services?{selected}&limit=1"),
        format!("/apis/discovery.k8s.io/v1/endpointslices?{selected}&limit=1"),
        format!("/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Da&{selected}"),
    ];
    let mut others: Vec<&str> = others;
    others.sort_unstable();
    expected.sort_unstable();
    assert_eq!(others, expected);
    assert_eq!(server.connections(), connections + 1, "they share a connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_waited_for_and_the_connection_is_kept() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    server.ask_for_pause(Some(2));
    server.fail_next(1, 429);
    let mut events = start_feed(Arc::new(with_scope(&server, &agents())));
    let reason = down(&mut events).await;
    assert!(reason.contains("asks for a pause of 2s") && reason.contains("429"), "{reason}");
    snapshot(&mut events).await;
    let exchanges = until_watched(&server).await;
    let pause = exchanges[1].received - exchanges[0].received;
    assert!(pause >= Duration::from_millis(2400), "{pause:?}: the pause, and a random one that comes to it");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_without_retry_after_gets_a_new_connection() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    let before = StdInstant::now();
    server.fail_next(1, 503);
    let mut events = start_feed(Arc::new(with_scope(&server, &agents())));
    assert!(down(&mut events).await.contains("503"));
    snapshot(&mut events).await;
    assert!(before.elapsed() >= Duration::from_millis(400), "a pause as after any failure");
    assert_eq!(server.connections(), 2, "behind a load balancer it may lead to another server");
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_connection_is_replaced_without_an_outage() {
    let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
    server.limit_watches(Duration::from_millis(1500));
    let mut events = start_feed(Arc::new(with_scope(&server, &agents())));
    snapshot(&mut events).await;
    until_watched(&server).await;
    server.retire_connections();
    server.put(service("a", "10.96.0.1")).unwrap();
    assert_eq!(change(&mut events).await.key(), key("a"));
    assert_eq!(server.connections(), 1, "running watches go on");
    until_watched(&server).await;
    assert_eq!(server.connections(), 2, "the next ones share a new connection");
    server.put(service("b", "10.96.0.2")).unwrap();
    assert_eq!(change(&mut events).await.key(), key("b"), "no outage was reported before");
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_a_server_ends_at_one_moment_are_opened_at_others() {
    let server = ApiServer::start().unwrap();
    // Less than the clients ask for.
    server.limit_watches(Duration::from_millis(1500));
    // Six types.
    let mut events = start_feed(open(&server).await);
    snapshot(&mut events).await;
    until_watched(&server).await;
    let mut opened: Vec<StdInstant> = Vec::new();
    while opened.len() < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let exchanges = server.take_exchanges();
        opened.extend(exchanges.iter().filter(|one| one.path.contains("watch=true")).map(|one| one.received));
    }
    let spread = opened[5] - opened[0];
    assert!(spread >= Duration::from_millis(100), "{spread:?}");
    server.put(service("a", "10.96.0.1")).unwrap();
    assert_eq!(change(&mut events).await.key(), key("a"), "no outage was reported before");
}
