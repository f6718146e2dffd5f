//! The attempts to connect to each service in the last hour, by minute: what the kernel's counters grow by, and the connections that
//! conntrack keeps without an answer.
//!
//! One task reads the counters, each minute and when somebody looks, and owns the history; others see what it has published. Another
//! task looks for unanswered connections, and sends those that it finds again to the first one.
//!
//! The memory is bounded: [`MAX_SERVICES`] services by minute take less than 4 MiB, and the last reading of the counters, with which the
//! next one is compared, about 50 bytes for each of at most [`MAX_COUNTERS`] counters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{ContivService, Frontend, Protocol, ServiceId};
use contiv_node::Core;
use contiv_renderer::{nftables::counters::Connections, packet_path::UnansweredFlow};
use jiff::Timestamp;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{
    counters::{ConnectionCounters, ServiceConnections, held_frontends},
    drivers::{Question, Request},
};

/// How many minutes are remembered.
pub(super) const MINUTES: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);
/// How many services are remembered by name. The attempts of further ones are only counted together.
pub(super) const MAX_SERVICES: usize = 2000;
/// How many counters are compared: one for each frontend with attempts, and one for each reason for which it refused some.
const MAX_COUNTERS: usize = 500_000;
const READ_INTERVAL: Duration = Duration::from_secs(60);
/// After a failure, and each time twice as long: at the start there is no table yet, and what is not read then is not counted.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A reading of this age is read again when somebody looks.
const FRESH: Duration = Duration::from_secs(2);
/// How long somebody waits for a new reading. Where there are many services the last one is shown instead.
const FRESH_TIMEOUT: Duration = Duration::from_millis(50);
/// Reading may take this part of the time.
const PAUSE_FACTOR: u32 = 20;
/// How often conntrack is searched for unanswered connections. The kernel keeps them for two minutes, so two searches see each.
const SILENCE_INTERVAL: Duration = Duration::from_secs(20);
/// A search may take this part of the time: it passes over all connections of the node.
const SILENCE_PAUSE_FACTOR: u32 = 100;
/// How many searches may wait for the task that counts.
const SILENCE_QUEUE: usize = 8;

/// Attempts by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    /// Those that were sent to a backend.
    pub(super) served: u64,
    /// Those of them that the backend left unanswered for [`SILENCE_INTERVAL`]; not of UDP, which needs no answer.
    pub(super) silent: u64,
    pub(super) refused: u64,
}

impl Attempts {
    const NONE: Self = Self {
        served: 0,
        silent: 0,
        refused: 0,
    };

    const fn add(&mut self, other: Self) {
        self.served = self.served.saturating_add(other.served);
        self.silent = self.silent.saturating_add(other.silent);
        self.refused = self.refused.saturating_add(other.refused);
    }
}

/// Attempts by minute, the newest last.
pub(super) type Minutes = [Attempts; MINUTES];

static NO_ATTEMPTS: Minutes = [Attempts::NONE; MINUTES];

/// The sum of all minutes.
pub(super) fn sum(minutes: &Minutes) -> Attempts {
    let mut sum = Attempts::NONE;
    for minute in minutes {
        sum.add(*minute);
    }
    sum
}

/// What was read so far. Clones are cheap.
#[derive(Debug, Clone)]
pub(super) struct AttemptHistory {
    /// When the counters were read last; or why they are not.
    pub(super) read: Result<Timestamp, String>,
    /// Why unanswered connections are not known, if they are not.
    pub(super) silence: Result<(), String>,
    /// When reading was tried last.
    tried: Option<Instant>,
    /// The last reading: the next one is compared with it.
    pub(super) counts: Arc<Connections>,
    /// The attempts of the last hour, of services that had some.
    services: Arc<BTreeMap<ServiceId, Box<Minutes>>>,
    /// Those of all services.
    pub(super) all: Box<Minutes>,
    /// Those of the services for which there was no room.
    others: Box<Minutes>,
    /// There were such services in the last hour.
    pub(super) leaves_services_out: bool,
    /// When counting began, and the newest minute.
    times: Option<(Instant, Instant)>,
}

impl AttemptHistory {
    fn new(reason: &str) -> Self {
        Self {
            read: Err(reason.to_owned()),
            silence: Ok(()),
            tried: None,
            counts: Arc::default(),
            services: Arc::default(),
            all: Box::new(NO_ATTEMPTS),
            others: Box::new(NO_ATTEMPTS),
            leaves_services_out: false,
            times: None,
        }
    }

    /// The attempts of a service by minute; none if they are not known.
    pub(super) fn of(&self, service: &ServiceId) -> Option<&Minutes> {
        let known = self.services.get(service).map(|minutes| &**minutes);
        known
            .or((!self.leaves_services_out).then_some(&NO_ATTEMPTS))
            .filter(|_| self.read.is_ok())
    }

    /// The attempts of a service in the last hour; none if they are not known.
    pub(super) fn hour(&self, service: &ServiceId) -> Option<Attempts> {
        // Most of very many services have none.
        let sum = |minutes: &Minutes| {
            if std::ptr::eq(minutes, &raw const NO_ATTEMPTS) {
                Attempts::NONE
            } else {
                sum(minutes)
            }
        };
        self.of(service).map(sum)
    }

    /// The attempts of a service since the kernel counts them.
    pub(super) fn totals(&self, service: &ContivService) -> ServiceConnections {
        ServiceConnections::of(service, &self.counts)
    }

    /// How many minutes were counted, the newest one included.
    pub(super) fn minutes_known(&self) -> usize {
        let Some((start, newest)) = self.times else {
            return 0;
        };
        (minutes(start, newest) + 1).min(MINUTES)
    }

    /// Adds a reading, and connections that were not answered. The first reading is only a beginning: it counts what happened before.
    fn add(&mut self, reading: &Reading, silent: &[UnansweredFlow], now: Instant) {
        let Reading {
            counts,
            services,
            at,
        } = reading;
        let is_first = self.times.is_none();
        self.move_to(now);
        if counts.served.len() + counts.refused.len() > MAX_COUNTERS {
            self.counts = Arc::default();
            self.times = None;
            self.read = Err(format!("there are more than {MAX_COUNTERS} counters"));
            return;
        }
        if !is_first {
            let new = new_attempts(&self.counts, reading, silent);
            for service in services.iter().filter(|_| !new.is_empty()) {
                let mut of_service = Attempts::NONE;
                for frontend in held_frontends(service) {
                    of_service.add(new.get(&frontend).copied().unwrap_or_default());
                }
                if of_service != Attempts::NONE {
                    self.count(&service.id, of_service);
                }
            }
        }
        self.leaves_services_out = sum(&self.others) != Attempts::NONE;
        self.counts = Arc::clone(counts);
        self.read = Ok(*at);
    }

    fn count(&mut self, service: &ServiceId, new: Attempts) {
        self.all[MINUTES - 1].add(new);
        let services = Arc::make_mut(&mut self.services);
        if let Some(minutes) = services.get_mut(service) {
            minutes[MINUTES - 1].add(new);
        } else if services.len() < MAX_SERVICES {
            let mut minutes = Box::new(NO_ATTEMPTS);
            minutes[MINUTES - 1] = new;
            services.insert(service.clone(), minutes);
        } else {
            self.others[MINUTES - 1].add(new);
        }
    }

    /// Makes the minute of this moment the newest one.
    fn move_to(&mut self, now: Instant) {
        let (start, newest) = self.times.unwrap_or((now, now));
        let steps = minutes(newest, now);
        let moved = u32::try_from(steps).unwrap_or(u32::MAX);
        self.times = Some((start, newest + MINUTE.saturating_mul(moved)));
        let steps = steps.min(MINUTES);
        if steps == 0 {
            return;
        }
        let shift = |minutes: &mut Minutes| {
            minutes.rotate_left(steps);
            minutes[MINUTES - steps..].fill(Attempts::NONE);
        };
        shift(&mut self.all);
        shift(&mut self.others);
        Arc::make_mut(&mut self.services).retain(|_, minutes| {
            shift(minutes);
            sum(minutes) != Attempts::NONE
        });
    }
}

/// How many whole minutes are between two moments.
fn minutes(start: Instant, end: Instant) -> usize {
    let passed = end.saturating_duration_since(start).as_secs() / MINUTE.as_secs();
    usize::try_from(passed).unwrap_or(usize::MAX)
}

/// The counters of a moment, and the services that it was read for.
#[derive(Debug)]
struct Reading {
    counts: Arc<Connections>,
    services: Vec<Arc<ContivService>>,
    at: Timestamp,
}

/// The frontends with new attempts since the reading before. Each counter is compared alone: some end while others go on.
fn new_attempts(
    before: &Connections,
    reading: &Reading,
    silent: &[UnansweredFlow],
) -> BTreeMap<Frontend, Attempts> {
    let mut new: BTreeMap<Frontend, Attempts> = BTreeMap::new();
    for (frontend, now) in &reading.counts.served {
        let grown = increase(before.served.get(frontend), *now);
        if grown > 0 {
            new.entry(*frontend).or_default().served = grown;
        }
    }
    for (counter, now) in &reading.counts.refused {
        let grown = increase(before.refused.get(counter), *now);
        if grown > 0 {
            new.entry(counter.0).or_default().refused += grown;
        }
    }
    let address_of = |flow: &UnansweredFlow| Frontend::Address {
        address: flow.destination.ip(),
        protocol: flow.protocol,
        port: flow.destination.port(),
    };
    let mut addresses: BTreeSet<Frontend> = silent.iter().map(address_of).collect();
    if !addresses.is_empty() {
        let held: BTreeSet<Frontend> = reading
            .services
            .iter()
            .flat_map(|service| held_frontends(service))
            .filter(|frontend| addresses.contains(frontend))
            .collect();
        addresses = held;
    }
    for flow in silent {
        let (protocol, port) = (flow.protocol, flow.destination.port());
        // Any other address is that of node ports.
        let frontend = Some(address_of(flow)).filter(|it| addresses.contains(it));
        let frontend = frontend.unwrap_or(Frontend::NodePort { protocol, port });
        new.entry(frontend).or_default().silent += 1;
    }
    new
}

/// By how much a counter has grown. One that is lower than before has begun again.
fn increase(before: Option<&u64>, now: u64) -> u64 {
    match before {
        Some(before) if *before <= now => now - before,
        _ => now,
    }
}

/// The unanswered connections that the last search found, and whether they were counted.
#[derive(Debug, Default)]
struct Silence(BTreeMap<UnansweredFlow, bool>);

impl Silence {
    /// Those of a search that the one before found too, each once.
    fn add(&mut self, found: Vec<UnansweredFlow>) -> Vec<UnansweredFlow> {
        let mut counted = Vec::new();
        let found = found.into_iter().filter(|it| it.protocol != Protocol::Udp);
        let found = found.map(|flow| {
            let before = self.0.get(&flow);
            if before == Some(&false) {
                counted.push(flow);
            }
            (flow, before.is_some())
        });
        self.0 = found.collect();
        counted
    }
}

/// The history as it was last published, and how to have it read again.
#[derive(Debug, Clone)]
pub(super) struct AttemptsView {
    latest: watch::Receiver<Arc<AttemptHistory>>,
    refresh: Arc<Notify>,
}

impl AttemptsView {
    /// Nothing is counted.
    pub(super) fn none() -> Self {
        let reason = "no renderer that counts connections runs; nftables does";
        let (_, latest) = watch::channel(Arc::new(AttemptHistory::new(reason)));
        Self {
            latest,
            refresh: Arc::default(),
        }
    }

    /// The history, read again if that is quick.
    pub(super) async fn recent(&self) -> Arc<AttemptHistory> {
        let mut latest = self.latest.clone();
        let known = Arc::clone(&latest.borrow_and_update());
        if known.tried.is_some_and(|at| at.elapsed() < FRESH) {
            return known;
        }
        self.refresh.notify_one();
        // Without an answer in time the known one remains. Without a reader there is an error at once.
        let _ = timeout(FRESH_TIMEOUT, latest.changed()).await;
        Arc::clone(&latest.borrow())
    }
}

/// Begins to read the counters of all services. It ends with the node, or with the last view.
pub(super) fn start(requests: mpsc::Sender<Request>, counters: ConnectionCounters) -> AttemptsView {
    let beginning = AttemptHistory::new("the counters have not been read yet");
    let (published, latest) = watch::channel(Arc::new(beginning));
    let refresh = Arc::new(Notify::new());
    let (found, silence) = mpsc::channel(SILENCE_QUEUE);
    tokio::spawn(search_again_and_again(counters.clone(), found));
    let reader = Reader {
        requests,
        counters,
        silence,
        published,
    };
    tokio::spawn(reader.read_again_and_again(Arc::clone(&refresh)));
    AttemptsView { latest, refresh }
}

/// Searches for connections that stay unanswered. It ends with the task that counts them.
async fn search_again_and_again(
    counters: ConnectionCounters,
    found: mpsc::Sender<Result<Vec<UnansweredFlow>, String>>,
) {
    let mut silence = Silence::default();
    loop {
        let start = Instant::now();
        let search = counters.unanswered().await.map(|flows| silence.add(flows));
        if found.send(search).await.is_err() {
            return;
        }
        let pause = (start.elapsed() * SILENCE_PAUSE_FACTOR).max(SILENCE_INTERVAL);
        tokio::select! {
            () = sleep(pause) => {}
            () = found.closed() => return,
        }
    }
}

/// Owns the history.
struct Reader {
    requests: mpsc::Sender<Request>,
    counters: ConnectionCounters,
    silence: mpsc::Receiver<Result<Vec<UnansweredFlow>, String>>,
    published: watch::Sender<Arc<AttemptHistory>>,
}

impl Reader {
    async fn read_again_and_again(mut self, refresh: Arc<Notify>) {
        let mut retry_interval = FIRST_RETRY_INTERVAL;
        while !self.published.is_closed() {
            // Before the store is read there are no services, and what the kernel has counted for them would look new.
            let ask = |core: &Core| core.status().synced.then(|| core.services());
            let (question, services) = Question::new(ask);
            let is_sent = self.requests.send(Request::Ask(question)).await.is_ok();
            let Some(services) = services.await.ok().filter(|_| is_sent) else {
                return;
            };
            let Some(services) = services else {
                sleep(FIRST_RETRY_INTERVAL).await;
                continue;
            };
            let start = Instant::now();
            let counts = self.counters.all().await;
            let interval = if counts.is_ok() {
                READ_INTERVAL
            } else {
                retry_interval
            };
            retry_interval = (retry_interval * 2).min(READ_INTERVAL);
            let reading = counts.map(|counts| Reading {
                counts: Arc::new(counts),
                services,
                at: Timestamp::now(),
            });
            if self.publish(reading).await.is_none() {
                return;
            }
            sleep(start.elapsed() * PAUSE_FACTOR).await;
            // Whoever looks ends the pause early.
            let _ = timeout(interval, refresh.notified()).await;
        }
    }

    /// Adds a reading, and what was found to be unanswered meanwhile. None if the process ends.
    async fn publish(&mut self, reading: Result<Reading, String>) -> Option<()> {
        let mut history = AttemptHistory::clone(&self.published.borrow());
        let mut silent = Vec::new();
        while let Ok(search) = self.silence.try_recv() {
            history.silence = search.map(|flows| silent.extend(flows));
        }
        let added = spawn_blocking(move || {
            let now = Instant::now();
            history.tried = Some(now);
            match reading {
                Ok(reading) => history.add(&reading, &silent, now),
                Err(reason) => history.read = Err(reason),
            }
            history
        });
        self.published.send_replace(Arc::new(added.await.ok()?));
        Some(())
    }
}

#[cfg(test)]
impl AttemptHistory {
    /// In the last hour 7 served attempts of `shop/cart`, at node port 2, and 2 refused ones of `shop/web`, at node port 3.
    pub(super) fn example() -> Self {
        let mut history = Self::new("");
        let now = Instant::now();
        history.add(&tests::reading(&[], &[]), &[], now);
        let reading = tests::reading(&[("cart", 2, 7)], &[("web", 3, 2)]);
        history.add(&reading, &[], now);
        history
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use contiv_model::ServicePort;
    use contiv_renderer::nftables::counters::RefusalReason;

    use super::*;

    const REASON: RefusalReason = RefusalReason::NoEndpoints;

    fn frontend(port: u16) -> Frontend {
        let protocol = Protocol::Tcp;
        Frontend::NodePort { protocol, port }
    }

    /// A service at a node port, and at an address of the same number.
    fn service(name: &str, number: u16) -> Arc<ContivService> {
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: Some(number),
            backends: Vec::new(),
        };
        let [high, low] = number.to_be_bytes();
        Arc::new(ContivService {
            cluster_ips: [[10, 96, high, low].into()].into(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("shop", name))
        })
    }

    /// Served and refused attempts at node ports of services.
    pub(super) fn reading(served: &[(&str, u16, u64)], refused: &[(&str, u16, u64)]) -> Reading {
        let names: BTreeMap<&str, u16> = served
            .iter()
            .chain(refused)
            .map(|(name, port, _)| (*name, *port))
            .collect();
        let served = served
            .iter()
            .map(|(_, port, count)| (frontend(*port), *count));
        let refused = refused.iter();
        let refused = refused.map(|(_, port, count)| ((frontend(*port), REASON), *count));
        let counts = Connections {
            served: served.collect(),
            refused: refused.collect(),
        };
        Reading {
            counts: Arc::new(counts),
            services: names
                .into_iter()
                .map(|(name, port)| service(name, port))
                .collect(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    /// The minutes with attempts, counted back from now, of a service: served, silent and refused ones.
    fn shown(history: &AttemptHistory, name: &str) -> Vec<(usize, u64, u64, u64)> {
        let minutes = history.of(&ServiceId::new("shop", name));
        let counted = minutes.into_iter().flatten().rev().enumerate();
        counted
            .filter(|(_, it)| **it != Attempts::NONE)
            .map(|(ago, it)| (ago, it.served, it.silent, it.refused))
            .collect()
    }

    #[test]
    fn differences_are_counted_by_minute_for_an_hour() {
        let mut history = AttemptHistory::new("");
        let start = Instant::now();
        let add = |history: &mut AttemptHistory, reading: Reading, minute: u32| {
            history.add(&reading, &[], start + MINUTE * minute);
        };
        let web = |served, refused| reading(&[("web", 1, served)], &[("web", 1, refused)]);
        add(&mut history, web(1000, 7), 0);
        assert_eq!(shown(&history, "web"), [], "what was before is not new");
        assert_eq!(history.minutes_known(), 1);
        add(&mut history, web(1003, 7), 1);
        let both = reading(&[("web", 1, 1004)], &[("web", 1, 9), ("db", 2, 2)]);
        add(&mut history, both, 1);
        assert_eq!(shown(&history, "web"), [(0, 4, 0, 2)]);
        assert_eq!(shown(&history, "db"), [(0, 0, 0, 2)], "a new service");
        assert_eq!(history.minutes_known(), 2);
        add(&mut history, web(1005, 9), 60);
        assert_eq!(shown(&history, "web"), [(0, 1, 0, 0), (59, 4, 0, 2)]);
        let all = sum(&history.all);
        assert_eq!((all.served, all.refused), (5, 4));
        assert_eq!(history.minutes_known(), MINUTES);
        add(&mut history, web(1005, 9), 61);
        assert_eq!(shown(&history, "web"), [(1, 1, 0, 0)]);
        assert_eq!(history.services.len(), 1, "db is forgotten");
        add(&mut history, web(1005, 9), 500);
        assert_eq!(sum(&history.all), Attempts::NONE);
    }

    #[test]
    fn counters_begin_again_and_end_each_alone() {
        let mut history = AttemptHistory::new("");
        let now = Instant::now();
        let mut first = reading(&[("web", 1, 1000)], &[("web", 1, 1000)]);
        let counts = Arc::make_mut(&mut first.counts);
        counts
            .refused
            .insert((frontend(1), RefusalReason::Policy), 5);
        history.add(&first, &[], now);
        // One reason's counter ends after a day without any, and the served ones begin again.
        let mut second = reading(&[("web", 1, 3)], &[]);
        let counts = Arc::make_mut(&mut second.counts);
        counts
            .refused
            .insert((frontend(1), RefusalReason::Policy), 6);
        history.add(&second, &[], now);
        assert_eq!(shown(&history, "web"), [(0, 3, 0, 1)]);
        let totals = history.totals(&service("web", 1));
        assert_eq!((totals.connections, totals.refused), (3, 6));
    }

    #[test]
    fn service_that_wins_a_frontend_does_not_get_what_was_counted_before() {
        let mut history = AttemptHistory::new("");
        let now = Instant::now();
        history.add(&reading(&[("old", 1, 50)], &[("old", 1, 7)]), &[], now);
        history.add(&reading(&[("new", 1, 51)], &[("new", 1, 7)]), &[], now);
        assert_eq!(shown(&history, "new"), [(0, 1, 0, 0)]);
    }

    #[test]
    fn services_beyond_the_bound_are_counted_together_and_not_known() {
        let mut history = AttemptHistory::new("");
        let now = Instant::now();
        let reading_of = |count: u64| {
            let names: Vec<String> = (0..MAX_SERVICES + 5)
                .map(|it| format!("s{it:05}"))
                .collect();
            let numbers = names.iter().zip(1..);
            let refused: Vec<_> = numbers.map(|(name, port)| (&**name, port, count)).collect();
            reading(&[], &refused)
        };
        let id = |number: usize| ServiceId::new("shop", format!("s{number:05}"));
        history.add(&reading_of(0), &[], now);
        assert_eq!(history.hour(&id(MAX_SERVICES)), Some(Attempts::NONE));
        history.add(&reading_of(1), &[], now);
        assert_eq!(history.services.len(), MAX_SERVICES);
        assert_eq!(sum(&history.all).refused, MAX_SERVICES as u64 + 5);
        assert_eq!(history.hour(&id(0)).map(|it| it.refused), Some(1));
        assert_eq!(history.hour(&id(MAX_SERVICES)), None, "not zero");
        history.add(&reading_of(1), &[], now + MINUTE * 60);
        assert_eq!(history.hour(&id(MAX_SERVICES)), Some(Attempts::NONE));
    }

    #[test]
    fn attempts_are_not_known_while_counters_are_not_read() {
        let history = AttemptHistory::new("no table");
        assert_eq!(history.hour(&ServiceId::new("shop", "web")), None);
        assert_eq!(history.minutes_known(), 0);
    }

    fn flow(protocol: Protocol, client: u16, destination: &str) -> UnansweredFlow {
        UnansweredFlow {
            protocol,
            client: SocketAddr::from(([10, 0, 0, 9], client)),
            destination: destination.parse().unwrap(),
        }
    }

    #[test]
    fn unanswered_connection_is_counted_once_when_it_is_found_again() {
        let (one, other) = (
            flow(Protocol::Tcp, 1, "10.96.0.1:80"),
            flow(Protocol::Tcp, 2, "10.96.0.1:80"),
        );
        let udp = flow(Protocol::Udp, 3, "10.96.0.1:80");
        let mut silence = Silence::default();
        assert_eq!(silence.add(vec![one, udp]), []);
        assert_eq!(silence.add(vec![one, other, udp]), [one]);
        assert_eq!(silence.add(vec![one, other, udp]), [other]);
        assert_eq!(silence.add(vec![one]), []);
        assert_eq!(silence.add(vec![]), []);
        assert_eq!(silence.add(vec![one]), [], "a new connection");
        assert_eq!(silence.add(vec![one]), [one]);
    }

    #[test]
    fn unanswered_connections_belong_to_the_service_of_their_destination() {
        let mut history = AttemptHistory::new("");
        let now = Instant::now();
        let both = || reading(&[("db", 2, 9), ("web", 1, 9)], &[]);
        history.add(&both(), &[], now);
        let silent = [
            flow(Protocol::Tcp, 1, "10.96.0.1:80"),
            flow(Protocol::Tcp, 2, "192.0.2.1:1"),
            flow(Protocol::Tcp, 3, "192.0.2.1:2"),
            flow(Protocol::Tcp, 4, "192.0.2.1:80"),
            flow(Protocol::Sctp, 5, "10.96.0.1:80"),
        ];
        history.add(&both(), &silent, now);
        assert_eq!(shown(&history, "web"), [(0, 0, 2, 0)]);
        assert_eq!(shown(&history, "db"), [(0, 0, 1, 0)]);
        assert_eq!(sum(&history.all).silent, 3, "others are of no service");
    }
}
