//! A store, the way of its changes, and a reader that does what the drivers of lists, watches and replays do, in simulated time.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use contiv_store_testing::{Liar, Lie, LieKind};
use etcd_client::proto::{PbEvent, PbWatchResponse};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{
    super::{
        super::{
            key_range::KeyRanges,
            known::KnownPrefixes,
            replay::{DELIVERY_LIMIT, REPLAY_PAUSE},
            window::{LINGER_TIME, Replay, ReplayStep},
        },
        WatchReader,
    },
    simulated_etcd::{Content, PREFIX, SimulatedEtcd, is_same},
    tally::Tally,
};
use crate::{
    Backoff, Batch, Change, Inconsistency, StoreError,
    feed::{MAX_RELIST_PAUSE, list_spread},
};

/// How soon a lie must be healed.
const HEALING_LIMIT: Duration = Duration::from_secs(60);
/// The pause between two transactions, on average. With the quiet times there are 10 changes a second.
const WRITE_PAUSE: Duration = Duration::from_millis(120);
/// One transaction in so many is followed by a quiet time of up to [`QUIET_TIME`].
const BUSY_TRANSACTIONS: u32 = 2500;
const QUIET_TIME: Duration = Duration::from_secs(200);
/// How long nobody writes after the loss of a last event.
const STILL_TIME: Duration = Duration::from_secs(150);
/// How long a message takes,
const LATENCY: Duration = Duration::from_millis(20);
/// and one in some thousand. The reader may take longer for its work.
const LONG_LATENCY: Duration = Duration::from_secs(4);
const LONG_WORK: Duration = Duration::from_secs(8);
const ONE_IN: u32 = 2000;
/// Revisions of one message to a watch that lags behind.
const MESSAGE_REVISIONS: usize = 300;

struct Watching {
    reader: WatchReader,
    opened: Duration,
    /// When its work ends; none while it waits for a message.
    works_until: Option<Duration>,
    replays: Replays,
}

enum Replays {
    Pausing {
        until: Duration,
    },
    Reading {
        replay: Replay,
        begun: Duration,
        /// The last message.
        heard: Duration,
        next_revision: i64,
        latency: Duration,
    },
    /// For the watch.
    Waiting {
        replay: Replay,
        ahead_since: Duration,
    },
}

pub(super) struct Simulation {
    rng: SmallRng,
    start: Instant,
    now: Duration,
    etcd: SimulatedEtcd,
    /// None at the end.
    next_write: Option<Duration>,
    liar: Liar,
    /// What is under way to the reader, by its arrival.
    under_way: BTreeMap<(Duration, u64), PbWatchResponse>,
    sent: u64,
    last_arrival: Duration,
    known: KnownPrefixes,
    watching: Option<Watching>,
    /// When it lists, if it does not watch.
    lists_at: Duration,
    relists: Backoff,
    content: Content,
    /// The keys that are not as in the store, and since when.
    differing: BTreeMap<String, Duration>,
    /// Lies that nothing has shown yet,
    unnoticed: VecDeque<(Duration, Lie)>,
    /// and those that a list will heal.
    reported: Vec<(Duration, Lie, Inconsistency)>,
    pub(super) tally: Tally,
}

impl Simulation {
    pub(super) fn new(seed: u64, events_per_lie: Option<u64>) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let liar = Liar::new(rng.random(), events_per_lie);
        Self {
            rng,
            start: Instant::now(),
            now: Duration::ZERO,
            etcd: SimulatedEtcd::new(),
            next_write: Some(Duration::ZERO),
            liar,
            under_way: BTreeMap::new(),
            sent: 0,
            last_arrival: Duration::ZERO,
            known: KnownPrefixes::default(),
            watching: None,
            lists_at: Duration::from_secs(1),
            relists: Backoff::new(Duration::from_millis(50), MAX_RELIST_PAUSE),
            content: Content::new(),
            differing: BTreeMap::new(),
            unnoticed: VecDeque::new(),
            reported: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Runs until the store has made so many changes, and what follows from them is over.
    pub(super) fn run(&mut self, events: u64) {
        while self.tally.events < events {
            self.step();
        }
        self.next_write = None;
        self.tally.duration = self.now;
        let end = self.now + 2 * HEALING_LIMIT;
        while self.now < end {
            self.step();
        }
        assert!(self.unnoticed.is_empty(), "{:?}", self.unnoticed);
    }

    /// Expects what a reader has that begins now.
    pub(super) fn expect_end_of_a_fresh_start(&self) {
        let (fresh, _) = self.etcd.list(&KnownPrefixes::default()).unwrap();
        assert_eq!(self.content, fresh);
        assert!(self.differing.is_empty(), "{:?}", self.differing);
    }

    fn step(&mut self) {
        let (read, replay) = (self.next_read(), self.next_replay());
        self.now = [self.next_write, read, replay]
            .into_iter()
            .flatten()
            .min()
            .expect("something follows");
        self.check_time();
        if self.next_write == Some(self.now) {
            self.write();
        } else if read == Some(self.now) {
            self.read();
        } else {
            self.replay();
        }
    }

    /// Checks that nothing is wrong for longer than allowed.
    fn check_time(&mut self) {
        let now = self.now;
        let is_late = |(at, _): &(Duration, Lie)| *at + HEALING_LIMIT < now;
        while self.unnoticed.front().is_some_and(is_late) {
            let Some((at, lie)) = self.unnoticed.pop_front() else {
                break;
            };
            let Some(why) = lie.excuse() else {
                panic!(
                    "not noticed until {now:?}: {lie:?} of {at:?}\n{}",
                    self.tally
                );
            };
            self.tally.count_harmless(&lie, why);
        }
        if let Some((key, since)) = self.differing.first_key_value() {
            // One of them, at each step: each gets its turn soon enough to be found.
            self.check_difference(key, *since);
        }
    }

    fn check_difference(&self, key: &str, since: Duration) {
        assert!(
            since + HEALING_LIMIT >= self.now,
            "{key} is not as in the store since {since:?}, now {:?}: {:?} instead of {:?}\n{}",
            self.now,
            self.content.get(key),
            self.etcd.pairs.get(key),
            self.tally
        );
    }

    fn write(&mut self) {
        let pause = WRITE_PAUSE.mul_f64(self.rng.random_range(0.0..2.0));
        let mut next_write = self.now + pause;
        if self.rng.random_ratio(1, BUSY_TRANSACTIONS) {
            next_write += QUIET_TIME.mul_f64(self.rng.random());
        }
        let events = self.etcd.write(&mut self.rng, self.now).events.clone();
        self.tally.events += events.len() as u64;
        for event in &events {
            let key = event.kv.as_ref().map(|pair| pair.key.clone());
            self.compare(&String::from_utf8(key.unwrap()).unwrap());
        }
        self.next_write = Some(next_write);
        if self.watching.is_some() {
            self.send(events, false);
        }
    }

    /// Sends changes to the watch.
    fn send(&mut self, mut events: Vec<PbEvent>, is_fragment: bool) {
        if events.len() > 1 && !is_fragment && self.rng.random_ratio(1, 50) {
            let rest = events.split_off(events.len() / 2);
            self.send(events, true);
            events = rest;
        }
        let message = PbWatchResponse {
            fragment: is_fragment,
            ..self.etcd.message(events)
        };
        let known = self
            .watching
            .as_ref()
            .map_or(0, |watching| watching.reader.start);
        let passed = self.liar.pass(message, known);
        let is_long = self.rng.random_ratio(1, ONE_IN);
        let latency = if is_long { LONG_LATENCY } else { LATENCY };
        let arrival = self.now + latency.mul_f64(self.rng.random()) + passed.delay;
        self.last_arrival = self.last_arrival.max(arrival);
        let arrivals = [
            passed.message.map(|message| (self.last_arrival, message)),
            passed
                .late
                .map(|(delay, message)| (self.last_arrival + delay, message)),
        ];
        for (arrival, message) in arrivals.into_iter().flatten() {
            self.sent += 1;
            self.under_way.insert((arrival, self.sent), message);
        }
        if let Some(lie) = passed.lie {
            self.tally.count_lie(&lie);
            let until = self.now + STILL_TIME;
            match lie.kind {
                LieKind::LostLastOfKey | LieKind::LostDeletion => {
                    let key = String::from_utf8_lossy(&lie.key);
                    self.etcd.keep_still(&key, until);
                }
                LieKind::LostLastOfAll => self.next_write = self.next_write.map(|_| until),
                _ => {}
            }
            self.unnoticed.push_back((self.now, lie));
        }
    }

    fn next_read(&self) -> Option<Duration> {
        match &self.watching {
            None => Some(self.lists_at),
            Some(Watching {
                works_until: Some(end),
                ..
            }) => Some(*end),
            Some(_) => self
                .under_way
                .keys()
                .next()
                .map(|(arrival, _)| (*arrival).max(self.now)),
        }
    }

    fn read(&mut self) {
        let now = self.start + self.now;
        let Some(watching) = &mut self.watching else {
            return self.list();
        };
        if watching.works_until.take().is_some() {
            watching.reader.start_waiting(now);
            return;
        }
        let Some((_, message)) = self.under_way.pop_first() else {
            return;
        };
        let read = watching.reader.read(message);
        let is_long = self.rng.random_ratio(1, ONE_IN);
        let work = if is_long {
            LONG_WORK.mul_f64(self.rng.random())
        } else {
            Duration::ZERO
        };
        watching.works_until = Some(self.now + work);
        match read {
            Ok(Some(batch)) => self.apply(batch),
            Ok(None) => {}
            Err(error) => self.end_watch(&error),
        }
    }

    fn apply(&mut self, batch: Batch) {
        self.tally.delivered += batch.changes.len() as u64;
        for change in batch.changes {
            let key = change.key().to_owned();
            match change {
                Change::Put(entry) => drop(self.content.insert(key.clone(), entry)),
                Change::Delete { key } => drop(self.content.remove(&key)),
            }
            self.compare(&key);
        }
    }

    /// Compares a key with the store.
    fn compare(&mut self, key: &str) {
        let is_equal = is_same(self.content.get(key), self.etcd.pairs.get(key));
        match self.differing.get(key) {
            Some(since) if is_equal => {
                self.tally.longest_difference = self
                    .tally
                    .longest_difference
                    .max(self.now.saturating_sub(*since));
                self.check_difference(key, *since);
                self.differing.remove(key);
            }
            None if !is_equal => drop(self.differing.insert(key.to_owned(), self.now)),
            _ => {}
        }
    }

    fn list(&mut self) {
        let (content, pages) = match self.etcd.list(&self.known) {
            Ok(listed) => listed,
            Err(error) => return self.fail(&error),
        };
        self.content = content;
        let differing: Vec<String> = self.differing.keys().cloned().collect();
        for key in &differing {
            self.compare(key);
        }
        for (at, lie, inconsistency) in std::mem::take(&mut self.reported) {
            let after = self.now.saturating_sub(at);
            // What was reported may have been another lie.
            if let Some(why) = lie.excuse().filter(|_| after > HEALING_LIMIT) {
                self.tally.count_harmless(&lie, why);
                continue;
            }
            assert!(
                after <= HEALING_LIMIT,
                "healed after {after:?}: {lie:?}\n{}",
                self.tally
            );
            self.tally.count_healed(&lie, inconsistency, after);
        }
        if self.tally.replays > 0 {
            self.tally.pages += pages;
            self.tally.watches += 1;
        }
        self.open_watch();
    }

    fn open_watch(&mut self) {
        let revision = self.etcd.revision;
        let reader = WatchReader::new(
            self.known.take(PREFIX, revision),
            Arc::new(KeyRanges::below(PREFIX)),
            revision,
        );
        self.under_way.clear();
        self.last_arrival = self.now;
        self.watching = Some(Watching {
            reader,
            opened: self.now,
            works_until: Some(self.now),
            replays: self.pause(),
        });
        let created = PbWatchResponse {
            created: true,
            ..self.etcd.message(Vec::new())
        };
        // Read when the watch is opened.
        drop(self.liar.pass(created, revision));
        // A watch begins early.
        let changes: Vec<PbEvent> = self
            .etcd
            .since(revision)
            .flat_map(|revision| revision.events.clone())
            .collect();
        self.send(changes, false);
    }

    fn pause(&mut self) -> Replays {
        Replays::Pausing {
            until: self.now + self.rng.random_range(REPLAY_PAUSE),
        }
    }

    fn next_replay(&self) -> Option<Duration> {
        Some(match &self.watching.as_ref()?.replays {
            Replays::Pausing { until } => *until,
            Replays::Reading {
                heard,
                next_revision,
                latency,
                ..
            } => {
                let silence = *heard + LINGER_TIME;
                if self.etcd.revision < *next_revision {
                    silence
                } else {
                    let next = self.etcd.since(*next_revision).next();
                    next.map_or(silence, |next| {
                        (next.at + *latency).max(*heard + *latency).min(silence)
                    })
                }
            }
            Replays::Waiting { ahead_since, .. } => *ahead_since + DELIVERY_LIMIT,
        })
    }

    fn replay(&mut self) {
        let (pause, latency) = (self.pause(), LATENCY.mul_f64(self.rng.random()));
        let Some(watching) = &mut self.watching else {
            return;
        };
        let window = watching.reader.window();
        let replays = std::mem::replace(&mut watching.replays, pause);
        let result = match replays {
            Replays::Pausing { .. } => {
                let replay = window.lock().begin_replay();
                self.tally.replays += 1;
                watching.replays = Replays::Reading {
                    next_revision: replay.since + 1,
                    replay,
                    begun: self.now,
                    heard: self.now,
                    latency,
                };
                Ok(())
            }
            Replays::Reading {
                mut replay,
                begun,
                heard,
                next_revision,
                ..
            } => {
                let message = (self.now < heard + LINGER_TIME).then(|| {
                    let revisions = self.etcd.since(next_revision).take(MESSAGE_REVISIONS);
                    let events = revisions.flat_map(|revision| revision.events.clone());
                    self.etcd.message(events.collect())
                });
                let newest = message.as_ref().and_then(|message| message.events.last());
                let newest = newest.and_then(|event| event.kv.as_ref());
                let next_revision = newest.map_or(next_revision, |pair| pair.mod_revision + 1);
                self.tally.replayed += message
                    .as_ref()
                    .map_or(0, |message| message.events.len() as u64);
                let elapsed = self.now.saturating_sub(begun);
                let step = window
                    .lock()
                    .read_replayed(&mut replay, message.as_ref(), elapsed);
                match step {
                    Ok(ReplayStep::Read) => {
                        watching.replays = Replays::Reading {
                            replay,
                            begun,
                            heard: self.now,
                            next_revision,
                            latency,
                        };
                        Ok(())
                    }
                    Ok(ReplayStep::Compare) if replay.is_ahead() => {
                        let ahead_since = self.now;
                        watching.replays = Replays::Waiting {
                            replay,
                            ahead_since,
                        };
                        Ok(())
                    }
                    Ok(ReplayStep::Compare) => {
                        window.lock().end_replay(replay, self.start + self.now)
                    }
                    Ok(ReplayStep::Skip) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            Replays::Waiting {
                replay,
                ahead_since,
            } => window.lock().end_replay(replay, self.start + ahead_since),
        };
        if let Err(error) = result {
            self.end_watch(&error);
        }
    }

    fn end_watch(&mut self, error: &StoreError) {
        if let Some(mut watching) = self.watching.take() {
            watching.reader.set_suspect();
            self.known.put_back(PREFIX, watching.reader.take_keys());
            if self.now.saturating_sub(watching.opened) >= MAX_RELIST_PAUSE {
                self.relists.reset();
            }
        }
        self.fail(error);
    }

    /// Reports an error, and lists soon.
    fn fail(&mut self, error: &StoreError) {
        match error {
            StoreError::Inconsistent { inconsistency, .. } => {
                self.tally.count_report(*inconsistency);
                let unnoticed = self.unnoticed.drain(..);
                let noticed = unnoticed.map(|(at, lie)| (at, lie, *inconsistency));
                self.reported.extend(noticed);
            }
            StoreError::Rewound { .. } => self.tally.replaced += 1,
            other => panic!("{other}"),
        }
        let pause = self.relists.next(self.rng.random()) + list_spread(self.rng.random());
        self.lists_at = self.now + pause;
    }
}
