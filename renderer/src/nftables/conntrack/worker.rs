//! The thread that deletes stale flows: one search per burst of changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::IpAddr,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use contiv_model::{Families, Protocol, ServiceChange};

use super::{
    netlink::FlowTable,
    observer::StaleFlowObserver,
    request::{Request, Totals},
    seqlock::ProgrammingSeqlock,
    stale::{Scope, StaleFlowFilter},
};
use crate::{
    kernel::{BackgroundTask, Kernel},
    netlink::NetlinkError,
    nftables::Family,
};

/// After a search the thread rests this many times as long as the search took, so that constant change on a node with millions
/// of flows costs at most a fifth of one core.
const REST_FACTOR: u32 = 4;
const MAX_REST: Duration = Duration::from_secs(1);
/// How long unanswered connections are collected before a search: their clients try again after a second. A search takes ten
/// milliseconds even without any flow, if the kernel's hash table has 262,144 buckets: it visits all of them.
const GATHER_DELAY: Duration = Duration::from_millis(50);
/// After a search the next one that is only about unanswered connections waits this many times as long as the search took: one
/// search costs as much as a hundred single changes, so constant change would pay for little else. So searches take 0.4 % of
/// a processor. A first change after a quiet time does not wait for it.
const GATHER_FACTOR: u32 = 250;
/// The limits of this wait.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
const MAX_INTERVAL: Duration = Duration::from_millis(2500);
/// How long requests stay in the queue. Waking up for each of them would take processor time from the programming of the next
/// one.
const WAKE_UP_DELAY: Duration = Duration::from_millis(50);
const MAX_ATTEMPTS: u32 = 3;
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Worker {
    kernel: Arc<dyn Kernel>,
    requests: Receiver<Request>,
    state: State,
    table: Option<FlowTable>,
    seqlock: Arc<ProgrammingSeqlock>,
    totals: Arc<Totals>,
    observer: Option<Arc<dyn StaleFlowObserver>>,
}

/// The flows that may be stale because of changes of the programmed backends.
#[derive(Debug, Default)]
struct State {
    node_ips: BTreeSet<IpAddr>,
    /// The criteria of the current search.
    current: StaleFlowFilter,
    /// The criteria of the next search.
    next: StaleFlowFilter,
}

impl Worker {
    /// A worker without anything to do.
    pub(super) fn new(
        kernel: Arc<dyn Kernel>,
        requests: Receiver<Request>,
        seqlock: Arc<ProgrammingSeqlock>,
        totals: Arc<Totals>,
        observer: Option<Arc<dyn StaleFlowObserver>>,
    ) -> Self {
        Self { kernel, requests, state: State::default(), table: None, seqlock, totals, observer }
    }

    /// Searches the flows of each family and protocol concerned. A flow that cannot be deleted is left to its timeout.
    fn search(&mut self) {
        self.state.current = mem::take(&mut self.state.next);
        let mut searched: BTreeMap<Family, (Duration, usize)> = BTreeMap::new();
        for ((family, protocol), scope) in self.state.current.scopes() {
            let start = Instant::now();
            let mut outcome = self.delete_stale(family, protocol, scope);
            for attempt in 1..MAX_ATTEMPTS {
                if outcome.is_ok() {
                    break;
                }
                self.table = None;
                self.kernel.sleep(RETRY_AFTER * attempt);
                outcome = self.delete_stale(family, protocol, scope);
            }
            let (took, total) = searched.entry(family).or_default();
            *took += start.elapsed();
            *total += outcome.as_ref().copied().unwrap_or_default();
            match outcome {
                Ok(0) => {}
                Ok(deleted) => {
                    self.totals.deleted.fetch_add(deleted, Ordering::Relaxed);
                    tracing::info!(%protocol, deleted, "stale flows deleted");
                }
                Err(error) => {
                    self.totals.failures.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%protocol, %error, "stale flows could not be deleted; is nf_conntrack_netlink loaded?");
                }
            }
        }
        self.state.current = StaleFlowFilter::default();
        if let Some(observer) = &self.observer {
            for (family, (took, deleted)) in searched {
                let family = Families { ipv4: family == Family::V4, ipv6: family == Family::V6 };
                observer.searched(family, took, deleted);
            }
        }
    }

    fn delete_stale(
        &mut self,
        family: Family,
        protocol: Protocol,
        scope: Scope,
    ) -> Result<usize, NetlinkError> {
        let Self { kernel, requests, state, table, totals, .. } = self;
        totals.searches.fetch_add(1, Ordering::Relaxed);
        let table = match table {
            Some(table) => table,
            None => table.insert(FlowTable::open(kernel)?),
        };
        table.delete_stale(family, protocol, scope, |flow| {
            // A flow to a backend that was added a moment ago is right.
            state.handle_pending_requests(requests);
            state.current.is_stale(flow, &state.node_ips)
        })
    }

    /// Only receives requests: until then, until the condition holds, or all senders are gone.
    fn pause(&mut self, end: Instant, is_over: impl Fn(&StaleFlowFilter) -> bool) {
        loop {
            let is_open = self.state.handle_pending_requests(&self.requests);
            let left = end.saturating_duration_since(Instant::now());
            if !is_open || left.is_zero() || is_over(&self.state.next) {
                return;
            }
            thread::sleep(left.min(WAKE_UP_DELAY));
        }
    }
}

/// When the unanswered connections that were collected since now are searched for. `last_search` is the end of the last search, and
/// how long it took.
fn gather_until(now: Instant, last_search: Option<(Instant, Duration)>) -> Instant {
    let interval = |took: Duration| (took * GATHER_FACTOR).clamp(MIN_INTERVAL, MAX_INTERVAL);
    let next = last_search.map_or(now, |(end, took)| end + interval(took));
    next.max(now + GATHER_DELAY)
}

impl BackgroundTask for Worker {
    fn run(mut self: Box<Self>) {
        let mut last_search = None;
        while let Ok(request) = self.requests.recv() {
            self.state.handle_request(request);
            self.state.handle_pending_requests(&self.requests);
            while !self.state.next.is_empty() {
                self.pause(gather_until(Instant::now(), last_search), StaleFlowFilter::are_urgent);
                let seqlock = Arc::clone(&self.seqlock);
                let took = seqlock.search(|| {
                    let start = Instant::now();
                    self.search();
                    start.elapsed()
                });
                let end = Instant::now();
                last_search = Some((end, took));
                self.pause(end + (took * REST_FACTOR).min(MAX_REST), |_| false);
            }
        }
    }

    fn step(&mut self) -> bool {
        let is_open = self.state.handle_pending_requests(&self.requests);
        if !self.state.next.is_empty() {
            let seqlock = Arc::clone(&self.seqlock);
            seqlock.search(|| self.search());
        }
        is_open
    }
}

impl State {
    /// Handles all pending requests. False when all senders are gone.
    fn handle_pending_requests(&mut self, requests: &Receiver<Request>) -> bool {
        loop {
            match requests.try_recv() {
                Ok(request) => self.handle_request(request),
                Err(error) => return error == TryRecvError::Empty,
            }
        }
    }

    fn handle_request(&mut self, request: Request) {
        match request {
            Request::Coming(services) => {
                for filter in [&mut self.current, &mut self.next] {
                    filter.allow(services.iter().map(|service| &**service));
                }
            }
            Request::Changed(changes) => {
                self.current.correct(changes.values().filter_map(|change| change.new.as_deref()));
                self.next.add(changes.values());
            }
            Request::Reconciled { before, services, node_ips, found } => {
                let changes = before.into_iter().filter_map(|(id, old)| {
                    let new = services.get(&id).cloned();
                    (new.as_ref() != Some(&old)).then_some(ServiceChange { old: Some(old), new })
                });
                let changes: Vec<ServiceChange> = changes.collect();
                self.current.correct(services.values().map(|service| &**service));
                self.next.add(changes.iter());
                self.next.add_all(services.values().map(|service| &**service));
                for (frontend, backends) in found {
                    self.next.add_found(frontend, &backends);
                }
                self.node_ips = node_ips;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use contiv_model::{Backend, ContivService, ServiceId, ServicePort};

    use super::*;
    use crate::nftables::conntrack::flow::{Flow, Identity};

    #[test]
    fn first_change_is_searched_at_once_and_later_ones_together() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let search = |ago, took| Some((now.checked_sub(ms(ago)).unwrap(), ms(took)));
        assert_eq!(gather_until(now, None), now + GATHER_DELAY);
        assert_eq!(gather_until(now, search(60_000, 10)), now + GATHER_DELAY, "after a quiet time");
        assert_eq!(gather_until(now, search(100, 5)), now + ms(1150), "during changes");
        assert_eq!(gather_until(now, search(100, 1)), now + ms(400), "a search that costs little");
        assert_eq!(gather_until(now, search(100, 1000)), now + ms(2400), "one that costs much");
    }

    #[test]
    fn services_programmed_before_are_searched_after_a_reconciliation() {
        let (queue, requests) = sync_channel(8);
        let backend = Backend::new(([10, 0, 0, 1], 8080).into());
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Udp,
            name: "".into(),
            node_port: None,
            backends: vec![backend],
        };
        let service = |name: &str, address: [u8; 4]| {
            let id = ServiceId::new("default", name);
            let service = ContivService {
                cluster_ips: [IpAddr::from(address)].into(),
                ports: vec![port.clone()],
                ..ContivService::new(id.clone())
            };
            (id, Arc::new(service))
        };
        let (gone, kept) = (service("gone", [10, 96, 0, 1]), service("kept", [10, 96, 0, 2]));
        let reconciled = |before: &[(ServiceId, Arc<ContivService>)]| Request::Reconciled {
            before: before.iter().cloned().collect(),
            services: [kept.clone()].into(),
            node_ips: BTreeSet::new(),
            found: Vec::new(),
        };
        let is_stale = |state: &State, destination: [u8; 4], backend: [u8; 4]| {
            let flow = Flow {
                protocol: Protocol::Udp,
                destination: (destination, 80).into(),
                backend: (backend, 8080).into(),
                answered: true,
                identity: Identity { tuple: &[], id: &[] },
            };
            state.next.is_stale(&flow, &state.node_ips)
        };
        for (before, expected) in [(&[gone.clone(), kept.clone()][..], true), (&[], false)] {
            let mut state = State::default();
            queue.send(reconciled(before)).unwrap();
            state.handle_pending_requests(&requests);
            assert_eq!(is_stale(&state, [10, 96, 0, 1], [10, 0, 0, 1]), expected, "of a removed service");
            assert!(is_stale(&state, [10, 96, 0, 2], [10, 0, 0, 9]), "to another backend");
            assert!(!is_stale(&state, [10, 96, 0, 2], [10, 0, 0, 1]));
        }
    }
}
