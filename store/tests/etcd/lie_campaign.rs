//! An etcd whose watch lies about one event in many: each lie is reported and healed within a minute.
//!
//! `CONTIV_LIE_EVENTS` sets the number of events, of which one in 10,000 is a lie if there are at least so many; `CONTIV_FAULT_SEED`
//! the seed.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]
#![expect(clippy::print_stdout, reason = "what a campaign has found")]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use contiv_store::{
    Change, Delivery, Entry, Feed, FeedEvent, Inconsistency, Operation, Store, Transaction,
    etcd::{EtcdAccess, EtcdStore},
};
use contiv_store_testing::{Etcd, Liar, Lie, LieKind, LyingEtcd};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::{
    sync::mpsc::Receiver,
    time::{Instant, interval, sleep, timeout},
};

/// Without `CONTIV_LIE_EVENTS`: two lies.
const EVENTS: u64 = 2000;
const EVENTS_PER_LIE: u64 = 10_000;
const EVENTS_PER_LIE_IN_SHORT_RUNS: u64 = 1000;
/// One shows in the next change of its key, the other only in the history.
const LIES_IN_SHORT_RUNS: [LieKind; 2] = [LieKind::LostLastOfKey, LieKind::Lost];
/// How soon a lie must be healed.
const HEALING_LIMIT: Duration = Duration::from_secs(60);
/// So a watch lasts for a minute between two of ten thousand events: lists that follow each other sooner have growing pauses.
const TRANSACTION_PAUSE: Duration = Duration::from_millis(10);
const KEYS: u32 = 300;

fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().expect(name))
}

/// What the proxy has done, and what the writer must not do.
struct Course {
    liar: Liar,
    /// The events that have passed.
    events: u64,
    /// Lies that nothing has shown yet. There is one at a time.
    unnoticed: VecDeque<(Instant, Lie)>,
    /// Keys that are not to be written.
    still: BTreeSet<String>,
    is_quiet: bool,
}

impl Course {
    /// The lie is over.
    fn go_on(&mut self) {
        self.still.clear();
        self.is_quiet = false;
        self.liar.set_paused(false);
    }
}

/// Writes some keys at once, again and again, until it is stopped.
async fn write(store: EtcdStore, course: Arc<Mutex<Course>>, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut interval = interval(TRANSACTION_PAUSE);
    loop {
        interval.tick().await;
        let count = if rng.random_bool(0.7) {
            1
        } else {
            rng.random_range(2..5)
        };
        let mut operations = BTreeMap::new();
        for _ in 0..count {
            let key = format!("/{:03}", rng.random_range(0..KEYS));
            let value = rng.random::<u64>().to_le_bytes().to_vec().into();
            let operation = if rng.random_bool(0.2) {
                Operation::Delete { key: key.clone() }
            } else {
                let key = key.clone();
                Operation::Put { key, value }
            };
            operations.insert(key, operation);
        }
        {
            let course = course.lock();
            operations.retain(|key, _| !course.is_quiet && !course.still.contains(key));
        }
        if operations.is_empty() {
            continue;
        }
        let transaction = Transaction {
            conditions: Vec::new(),
            operations: operations.into_values().collect(),
        };
        store.transact(transaction).await.unwrap();
    }
}

/// Follows what a feed delivers.
struct Reader {
    events: Receiver<Delivery>,
    content: BTreeMap<String, Entry>,
    /// A lie that a list will heal.
    reported: Option<(Instant, Lie, Inconsistency)>,
    delivered: u64,
    lists: u64,
    healed: u64,
    harmless: u64,
    longest: Duration,
}

impl Reader {
    /// Handles the next event, if there is one within a second.
    async fn follow(&mut self, course: &Mutex<Course>) {
        let delivery = timeout(Duration::from_secs(1), self.events.recv()).await;
        match delivery.map(|delivery| delivery.unwrap().event) {
            Ok(FeedEvent::Snapshot(list)) => {
                let entries = list.entries.into_iter();
                self.content = entries.map(|entry| (entry.key.clone(), entry)).collect();
                self.lists += 1;
                if let Some((at, lie, inconsistency)) = self.reported.take() {
                    self.on_healed(at.elapsed(), &lie, inconsistency);
                    course.lock().go_on();
                }
            }
            Ok(FeedEvent::Changed(batch)) => {
                self.delivered += batch.changes.len() as u64;
                for change in batch.changes {
                    match change {
                        Change::Put(entry) => drop(self.content.insert(entry.key.clone(), entry)),
                        Change::Delete { key } => drop(self.content.remove(&key)),
                    }
                }
            }
            Ok(FeedEvent::Inconsistent {
                inconsistency,
                reason,
            }) => {
                let lie = course.lock().unnoticed.pop_front();
                let Some((at, lie)) = lie else {
                    panic!("nothing was untrue, but {reason}")
                };
                self.reported = Some((at, lie, inconsistency));
            }
            Ok(other) => panic!("expected changes or a report: {other:?}"),
            Err(_) => {}
        }
        self.expect_notice(&mut course.lock());
    }

    fn on_healed(&mut self, after: Duration, lie: &Lie, inconsistency: Inconsistency) {
        println!(
            "{:?}: reported as {}, healed after {after:.1?}",
            lie.kind,
            inconsistency.name()
        );
        assert!(after <= HEALING_LIMIT, "healed after {after:?}: {lie:?}");
        self.healed += 1;
        self.longest = self.longest.max(after);
    }

    /// Expects that a lie which nothing shows is harmless.
    fn expect_notice(&mut self, course: &mut Course) {
        let Some((at, _)) = course.unnoticed.front() else {
            return;
        };
        if at.elapsed() < HEALING_LIMIT {
            return;
        }
        let Some((_, lie)) = course.unnoticed.pop_front() else {
            return;
        };
        let why = lie.excuse();
        println!("{:?}: not reported: {why:?}", lie.kind);
        assert!(why.is_some(), "not noticed: {lie:?}");
        self.harmless += 1;
        course.go_on();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lies_of_etcd_are_reported_and_healed_within_a_minute() {
    let (events, seed) = (
        number_from_env("CONTIV_LIE_EVENTS", EVENTS),
        number_from_env("CONTIV_FAULT_SEED", 1),
    );
    println!("CONTIV_FAULT_SEED={seed}");
    let liar = if events < EVENTS_PER_LIE {
        Liar::new(seed, Some(EVENTS_PER_LIE_IN_SHORT_RUNS)).with_kinds(&LIES_IN_SHORT_RUNS)
    } else {
        Liar::new(seed, Some(EVENTS_PER_LIE))
    };
    let course = Arc::new(Mutex::new(Course {
        liar,
        events: 0,
        unnoticed: VecDeque::new(),
        still: BTreeSet::new(),
        is_quiet: false,
    }));
    let etcd = Etcd::start().await.unwrap();
    let proxy = LyingEtcd::start(&etcd.endpoint()).await.unwrap();
    let passing = Arc::clone(&course);
    proxy.pass_new_changes(move |message, start| {
        let mut course = passing.lock();
        course.events += message.events.len() as u64;
        let mut passed = course.liar.pass(message, start);
        if let Some(lie) = passed.lie.take() {
            let key = String::from_utf8_lossy(&lie.key).into_owned();
            match lie.kind {
                LieKind::LostLastOfKey | LieKind::LostDeletion => drop(course.still.insert(key)),
                LieKind::LostLastOfAll => course.is_quiet = true,
                _ => {}
            }
            course.unnoticed.push_back((Instant::now(), lie));
            course.liar.set_paused(true);
        }
        passed
    });
    let truth = EtcdStore::new(&[etcd.endpoint()], EtcdAccess::default()).unwrap();
    let store = EtcdStore::new(&[proxy.endpoint()], EtcdAccess::default()).unwrap();
    let (events_of_feed, _handle) = Feed::start(Arc::new(store), "/");
    let mut reader = Reader {
        events: events_of_feed,
        content: BTreeMap::new(),
        reported: None,
        delivered: 0,
        lists: 0,
        healed: 0,
        harmless: 0,
        longest: Duration::ZERO,
    };
    let start = Instant::now();
    let writer = tokio::spawn(write(truth.clone(), Arc::clone(&course), seed));
    while course.lock().events < events {
        reader.follow(&course).await;
        assert!(!writer.is_finished(), "the writer has stopped");
    }
    writer.abort();
    let is_open =
        |reader: &Reader| reader.reported.is_some() || !course.lock().unnoticed.is_empty();
    while is_open(&reader) {
        reader.follow(&course).await;
    }
    let fresh = truth.list("/").await.unwrap();
    let fresh: BTreeMap<String, Entry> = fresh
        .entries
        .into_iter()
        .map(|entry| (entry.key.clone(), entry))
        .collect();
    let deadline = Instant::now() + HEALING_LIMIT;
    while reader.content != fresh && Instant::now() < deadline {
        reader.follow(&course).await;
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(reader.content, fresh, "a fresh list has other keys");
    println!(
        "{events} events in {:.0?}, {} delivered: {} lies healed, {:.1?} at most, {} harmless; {} lists",
        start.elapsed(),
        reader.delivered,
        reader.healed,
        reader.longest,
        reader.harmless,
        reader.lists
    );
    let events_per_lie = if events < EVENTS_PER_LIE {
        EVENTS_PER_LIE_IN_SHORT_RUNS
    } else {
        EVENTS_PER_LIE
    };
    let lies = events / events_per_lie;
    assert!(reader.healed + reader.harmless >= lies / 2, "{lies} lies");
}
