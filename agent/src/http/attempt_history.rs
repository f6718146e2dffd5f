//! The attempts to connect to each service in the last hour, by minute: what the kernel's counters grow by.
//!
//! One task reads the counters, each minute and when somebody looks, and owns the history; others see what it has published.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use contiv_model::{Frontend, ServiceId};
use contiv_node::Core;
use contiv_renderer::nftables::counters::RefusalReason;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{
    counters::{ConnectionCounters, ServiceConnections},
    drivers::{Question, Request},
};

/// How many minutes are remembered.
pub(super) const MINUTES: usize = 60;
/// How many services are remembered by name. The attempts of further ones are only counted together.
const MAX_SERVICES: usize = 2000;
const READ_INTERVAL: Duration = Duration::from_secs(60);
/// After a failure, and each time twice as long: at the start there is no table yet, and what is not read then is not counted.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A reading of this age is read again when somebody looks.
const FRESH: Duration = Duration::from_secs(2);
/// How long somebody waits for a new reading. Where there are many services the last one is shown instead.
const FRESH_TIMEOUT: Duration = Duration::from_millis(100);
/// Reading may take this part of the time.
const PAUSE_FACTOR: u32 = 20;

/// Served and refused attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    pub(super) served: u64,
    pub(super) refused: u64,
}

impl Attempts {
    const fn add(&mut self, other: Self) {
        self.served = self.served.saturating_add(other.served);
        self.refused = self.refused.saturating_add(other.refused);
    }
}

/// Attempts by minute, the newest last.
pub(super) type Minutes = [Attempts; MINUTES];

/// The sum of all minutes.
pub(super) fn sum(minutes: &Minutes) -> Attempts {
    let mut sum = Attempts::default();
    for minute in minutes {
        sum.add(*minute);
    }
    sum
}

/// The attempts of a service since the kernel counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) attempts: Attempts,
    pub(super) refused_by: BTreeMap<RefusalReason, u64>,
}

/// What was read so far. Clones are cheap.
#[derive(Debug, Clone)]
pub(super) struct AttemptHistory {
    /// When the counters were read last; or why they are not.
    pub(super) read: Result<Timestamp, String>,
    /// When reading was tried last.
    tried: Option<Instant>,
    /// The services with attempts.
    pub(super) totals: Arc<BTreeMap<ServiceId, Totals>>,
    /// The attempts of the last hour, of services that had some.
    services: Arc<BTreeMap<ServiceId, Box<Minutes>>>,
    /// Those of all services.
    pub(super) all: Box<Minutes>,
    /// The last reading by frontend, of served attempts: the kernel counts by these.
    frontends: Arc<BTreeMap<Frontend, u64>>,
    /// The minute of the newest attempts, since 1970.
    minute: Option<i64>,
}

impl AttemptHistory {
    fn new(reason: &str) -> Self {
        Self {
            read: Err(reason.to_owned()),
            tried: None,
            totals: Arc::default(),
            services: Arc::default(),
            all: Box::new([Attempts::default(); MINUTES]),
            frontends: Arc::default(),
            minute: None,
        }
    }

    /// The attempts of a service in the last hour; none if it had none, or if there were too many services.
    pub(super) fn of(&self, service: &ServiceId) -> Option<&Minutes> {
        self.services.get(service).map(|minutes| &**minutes)
    }

    /// Adds a reading. The first one is only a beginning: it counts what happened before.
    fn add(&mut self, reading: Vec<ServiceConnections>, at: Timestamp) {
        let minute = at.as_second().div_euclid(60);
        let is_first = self.minute.is_none();
        self.move_to(minute);
        let (mut frontends, mut totals) = (BTreeMap::new(), BTreeMap::new());
        for of in reading {
            let before = |frontend| self.frontends.get(frontend).copied();
            let served = of.frontends.iter();
            let served = served.map(|(frontend, now)| increase(before(frontend), *now));
            let refused_before = self.totals.get(&of.service).map(|it| it.attempts.refused);
            let new = Attempts {
                served: served.sum(),
                refused: increase(refused_before, of.refused),
            };
            if !is_first && new != Attempts::default() {
                self.count(&of.service, new);
            }
            frontends.extend(of.frontends);
            let total = Totals {
                attempts: Attempts {
                    served: of.connections,
                    refused: of.refused,
                },
                refused_by: of.refused_by,
            };
            totals.insert(of.service, total);
        }
        (self.frontends, self.totals) = (Arc::new(frontends), Arc::new(totals));
        self.read = Ok(at);
    }

    fn count(&mut self, service: &ServiceId, new: Attempts) {
        self.all[MINUTES - 1].add(new);
        let services = Arc::make_mut(&mut self.services);
        if let Some(minutes) = services.get_mut(service) {
            minutes[MINUTES - 1].add(new);
        } else if services.len() < MAX_SERVICES {
            let mut minutes = Box::new([Attempts::default(); MINUTES]);
            minutes[MINUTES - 1] = new;
            services.insert(service.clone(), minutes);
        }
    }

    /// Makes a minute the newest one. A clock that was set back stays in the minute that it was in.
    fn move_to(&mut self, minute: i64) {
        let before = self.minute.unwrap_or(minute);
        self.minute = Some(minute.max(before));
        let steps = usize::try_from(minute - before).unwrap_or(0).min(MINUTES);
        if steps == 0 {
            return;
        }
        let shift = |minutes: &mut Minutes| {
            minutes.rotate_left(steps);
            minutes[MINUTES - steps..].fill(Attempts::default());
        };
        shift(&mut self.all);
        Arc::make_mut(&mut self.services).retain(|_, minutes| {
            shift(minutes);
            sum(minutes) != Attempts::default()
        });
    }
}

/// By how much a counter has grown. One that is lower than before has begun again.
fn increase(before: Option<u64>, now: u64) -> u64 {
    match before {
        Some(before) if before <= now => now - before,
        _ => now,
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
    tokio::spawn(read_again_and_again(
        requests,
        counters,
        published,
        Arc::clone(&refresh),
    ));
    AttemptsView { latest, refresh }
}

async fn read_again_and_again(
    requests: mpsc::Sender<Request>,
    counters: ConnectionCounters,
    published: watch::Sender<Arc<AttemptHistory>>,
    refresh: Arc<Notify>,
) {
    let mut retry_interval = FIRST_RETRY_INTERVAL;
    while !published.is_closed() {
        // Before the store is read there are no services, and what the kernel has counted for them would look new.
        let ask = |core: &Core| core.status().synced.then(|| core.services());
        let (question, services) = Question::new(ask);
        let is_sent = requests.send(Request::Ask(question)).await.is_ok();
        let Some(services) = services.await.ok().filter(|_| is_sent) else {
            return;
        };
        let Some(services) = services else {
            sleep(FIRST_RETRY_INTERVAL).await;
            continue;
        };
        let start = Instant::now();
        let reading = counters.by_service(services).await;
        let interval = if reading.is_ok() {
            READ_INTERVAL
        } else {
            retry_interval
        };
        retry_interval = (retry_interval * 2).min(READ_INTERVAL);
        let mut history = AttemptHistory::clone(&published.borrow());
        let added = spawn_blocking(move || {
            history.tried = Some(Instant::now());
            match reading {
                Ok(reading) => history.add(reading, Timestamp::now()),
                Err(reason) => history.read = Err(reason),
            }
            history
        });
        let Ok(history) = added.await else {
            return;
        };
        published.send_replace(Arc::new(history));
        sleep(start.elapsed() * PAUSE_FACTOR).await;
        // Whoever looks ends the pause early.
        let _ = timeout(interval, refresh.notified()).await;
    }
}

#[cfg(test)]
impl AttemptHistory {
    /// Of `shop/cart` 7 served attempts before the hour, and of `shop/web` 2 refused ones in it.
    pub(super) fn example() -> Self {
        let mut history = Self::new("");
        let at = Timestamp::UNIX_EPOCH;
        let mut cart = ServiceConnections::none(ServiceId::new("shop", "cart"));
        (cart.attempts, cart.connections) = (7, 7);
        history.add(vec![cart.clone()], at);
        let mut web = ServiceConnections::none(ServiceId::new("shop", "web"));
        (web.attempts, web.refused) = (2, 2);
        history.add(vec![cart, web], at);
        history
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::Protocol;

    use super::*;

    fn frontend(port: u16) -> Frontend {
        let protocol = Protocol::Tcp;
        Frontend::NodePort { protocol, port }
    }

    fn reading(name: &str, frontends: &[(u16, u64)], refused: u64) -> ServiceConnections {
        let frontends: BTreeMap<Frontend, u64> = frontends
            .iter()
            .map(|(port, count)| (frontend(*port), *count))
            .collect();
        let connections = frontends.values().sum();
        ServiceConnections {
            attempts: connections + refused,
            connections,
            refused,
            frontends,
            ..ServiceConnections::none(ServiceId::new("shop", name))
        }
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    /// The minutes with attempts, counted back from now, of a service.
    fn shown(history: &AttemptHistory, name: &str) -> Vec<(usize, u64, u64)> {
        let minutes = history.of(&ServiceId::new("shop", name));
        let counted = minutes.into_iter().flatten().rev().enumerate();
        counted
            .filter(|(_, it)| **it != Attempts::default())
            .map(|(ago, it)| (ago, it.served, it.refused))
            .collect()
    }

    #[test]
    fn differences_are_counted_by_minute_for_an_hour() {
        let mut history = AttemptHistory::new("");
        history.add(vec![reading("web", &[(1, 1000)], 7)], at(100));
        assert_eq!(shown(&history, "web"), [], "what was before is not new");
        history.add(vec![reading("web", &[(1, 1003)], 7)], at(101));
        history.add(
            vec![reading("db", &[], 2), reading("web", &[(1, 1004)], 9)],
            at(101),
        );
        assert_eq!(shown(&history, "web"), [(0, 4, 2)]);
        assert_eq!(shown(&history, "db"), [(0, 0, 2)], "a new service");
        history.add(vec![reading("web", &[(1, 1005)], 9)], at(160));
        assert_eq!(shown(&history, "web"), [(0, 1, 0), (59, 4, 2)]);
        let all = Attempts {
            served: 5,
            refused: 4,
        };
        assert_eq!(sum(&history.all), all);
        history.add(vec![reading("web", &[(1, 1005)], 9)], at(161));
        assert_eq!(shown(&history, "web"), [(1, 1, 0)]);
        assert_eq!(history.services.len(), 1, "db is forgotten");
    }

    #[test]
    fn counter_that_begins_again_counts_from_zero_by_frontend() {
        let mut history = AttemptHistory::new("");
        history.add(vec![reading("web", &[(1, 1000), (2, 10)], 5)], at(100));
        history.add(vec![reading("web", &[(1, 3), (2, 10)], 1)], at(100));
        assert_eq!(shown(&history, "web"), [(0, 3, 1)]);
        assert_eq!(
            history.totals[&ServiceId::new("shop", "web")].attempts,
            Attempts {
                served: 13,
                refused: 1
            }
        );
    }

    #[test]
    fn more_services_than_the_bound_are_counted_together() {
        let mut history = AttemptHistory::new("");
        history.add(Vec::new(), at(100));
        let readings = |count: u64| {
            (0..MAX_SERVICES + 5)
                .map(|number| reading(&format!("s{number}"), &[], count))
                .collect()
        };
        history.add(readings(1), at(100));
        assert_eq!(history.services.len(), MAX_SERVICES);
        assert_eq!(sum(&history.all).refused, MAX_SERVICES as u64 + 5);
        // A clock that is set back changes no minute.
        history.add(readings(2), at(90));
        assert_eq!(sum(&history.all).refused, 2 * (MAX_SERVICES as u64 + 5));
        assert_eq!(history.minute, Some(100));
    }
}
