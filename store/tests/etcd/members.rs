//! A feed on a real cluster whose members die, hang or are isolated, one after the other, under continuous writes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]
#![expect(
    clippy::print_stdout,
    reason = "how long things took is worth knowing, and asserted nowhere"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use contiv_store::{
    Change, Delivery, Feed, FeedEvent, Operation, Store,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, Proxy, deliveries::after_outage};
use tokio::{
    sync::mpsc::Receiver,
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

/// A generous limit; the measured time is printed.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster, a writer of the keys `/0`, `/1`, …, and a feed that must deliver each of them.
struct Scenario {
    etcd: Vec<Etcd>,
    /// The proxies between the feed and the members.
    wires: Vec<Proxy>,
    events: Receiver<Delivery>,
    /// The number of delivered keys, in order.
    delivered: u64,
    /// The number of written keys.
    written: Arc<AtomicU64>,
    writer: AbortHandle,
    outages: Vec<String>,
}

impl Scenario {
    async fn start() -> Self {
        let etcd = Etcd::start_cluster(3).await.unwrap();
        let direct: Vec<String> = etcd.iter().map(Etcd::endpoint).collect();
        let mut wires = Vec::new();
        for endpoint in &direct {
            wires.push(Proxy::start(endpoint).await.unwrap());
        }
        let endpoints: Vec<String> = wires.iter().map(Proxy::endpoint).collect();
        let store = Arc::new(EtcdStore::new(&endpoints, EtcdAccess::default()).unwrap());
        let (mut events, _handle) = Feed::start(store, "/");
        // A busy machine may elect another leader just then.
        let first = after_outage(&mut events).await;
        assert!(
            matches!(&first, FeedEvent::Snapshot(snapshot) if snapshot.entries.is_empty()),
            "{first:?}"
        );
        let written = Arc::new(AtomicU64::new(0));
        let writer = tokio::spawn(write(direct, Arc::clone(&written))).abort_handle();
        Self {
            etcd,
            wires,
            events,
            delivered: 0,
            written,
            writer,
            outages: Vec::new(),
        }
    }

    /// Receives until everything written by now and more is delivered. Nothing may be missing.
    async fn catch_up(&mut self) {
        let start = Instant::now();
        let enough = self.written.load(Ordering::Relaxed) + 2;
        while self.delivered < enough {
            let left = EVENT_TIMEOUT
                .checked_sub(start.elapsed())
                .expect("the feed does not deliver again");
            let next = timeout(left, self.events.recv())
                .await
                .expect("the feed does not deliver again");
            match next.unwrap().event {
                FeedEvent::Changed(batch) => {
                    batch.changes.iter().for_each(|change| self.deliver(change));
                }
                FeedEvent::Down { reason } => {
                    println!("noticed after {:?}: {reason}", start.elapsed());
                    self.outages.push(reason);
                }
                FeedEvent::Up => println!("watched again after {:?}", start.elapsed()),
                other => panic!(
                    "nothing was compacted, so there is nothing to list or report: {other:?}"
                ),
            }
        }
        println!("all is delivered after {:?}", start.elapsed());
    }

    fn deliver(&mut self, change: &Change) {
        let Change::Put(entry) = change else {
            panic!("nothing was deleted: {change:?}")
        };
        let number: u64 = entry.key[1..].parse().unwrap();
        // A write whose answer was lost is repeated.
        assert!(
            number <= self.delivered,
            "{} was lost before {number}",
            self.delivered
        );
        self.delivered = self.delivered.max(number + 1);
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

async fn write(endpoints: Vec<String>, written: Arc<AtomicU64>) {
    let store = EtcdStore::new(&endpoints, EtcdAccess::default()).unwrap();
    for number in 0.. {
        let put = Operation::Put {
            key: format!("/{number}"),
            value: "x".into(),
        };
        while store.commit(vec![put.clone()]).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
        written.store(number + 1, Ordering::Relaxed);
        sleep(Duration::from_millis(5)).await;
    }
}

/// Each member in turn has a fault that is then repaired; no event is lost.
async fn each_in_turn(
    trouble: impl AsyncFn(&mut Scenario, usize),
    recover: impl AsyncFn(&mut Scenario, usize),
) {
    let mut scene = Scenario::start().await;
    scene.catch_up().await;
    for victim in 0..3 {
        println!("member {victim} is in trouble");
        trouble(&mut scene, victim).await;
        scene.catch_up().await;
        recover(&mut scene, victim).await;
        scene.catch_up().await;
    }
    assert!(!scene.outages.is_empty(), "the feed was on none of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_killed_one_after_other_cost_no_event() {
    each_in_turn(
        async |scene, victim| scene.etcd[victim].kill().await.unwrap(),
        async |scene, victim| scene.etcd[victim].start_again().await.unwrap(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_hang_one_after_other_cost_no_event() {
    each_in_turn(
        async |scene, victim| scene.etcd[victim].pause().unwrap(),
        async |scene, victim| scene.etcd[victim].resume().unwrap(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_cut_off_one_after_other_cost_no_event() {
    each_in_turn(
        async |scene, victim| scene.wires[victim].stall(),
        async |scene, victim| scene.wires[victim].flow(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_watch_stays_open_and_a_dead_one_is_noticed() {
    let etcd = Etcd::start().await.unwrap();
    let wire = Proxy::start(&etcd.endpoint()).await.unwrap();
    let store = Arc::new(EtcdStore::new(&[wire.endpoint()], EtcdAccess::default()).unwrap());
    let (mut events, _handle) = Feed::start(store, "/");
    assert!(matches!(
        events.recv().await.unwrap().event,
        FeedEvent::Snapshot(_)
    ));
    // Longer than the watch's silence limit: the member is probed, and answers.
    let quiet = timeout(Duration::from_secs(16), events.recv()).await;
    assert!(quiet.is_err(), "nothing happened: {quiet:?}");
    wire.stall();
    let start = Instant::now();
    let FeedEvent::Down { reason } = timeout(EVENT_TIMEOUT, events.recv())
        .await
        .unwrap()
        .unwrap()
        .event
    else {
        panic!("expected an outage")
    };
    println!("a dead watch was noticed after {:?}", start.elapsed());
    assert!(
        reason.ends_with("the watch has sent nothing for 6s"),
        "{reason}"
    );
    etcd.ctl(&["put", "/a", "1"]).await.unwrap();
    wire.flow();
    assert_eq!(
        timeout(EVENT_TIMEOUT, events.recv())
            .await
            .unwrap()
            .unwrap()
            .event,
        FeedEvent::Up
    );
    let next = timeout(EVENT_TIMEOUT, events.recv())
        .await
        .unwrap()
        .unwrap()
        .event;
    assert!(
        matches!(&next, FeedEvent::Changed(batch) if batch.changes.len() == 1),
        "{next:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_hangs_from_start_is_passed_over() {
    let etcd = Etcd::start_cluster(3).await.unwrap();
    etcd[0].pause().unwrap();
    let endpoints: Vec<String> = etcd.iter().map(Etcd::endpoint).collect();
    // For every choice of the first member.
    for _ in 0..6 {
        let store = Arc::new(EtcdStore::new(&endpoints, EtcdAccess::default()).unwrap());
        let start = Instant::now();
        // A single list fails while there is no leader: the member that hangs may have been it, and a busy machine elects slowly.
        let (mut events, _handle) = Feed::start(store, "/");
        let first = after_outage(&mut events).await;
        assert!(matches!(first, FeedEvent::Snapshot(_)), "{first:?}");
        println!("listed after {:?}", start.elapsed());
    }
}
