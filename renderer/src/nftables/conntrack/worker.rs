//! The thread that deletes stale flows: one search per burst of changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::IpAddr,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use contiv_model::{ContivService, Families, Protocol, ServiceChange};
use nix::time::{ClockId, clock_gettime};

use super::{
    attempts::AttemptTable,
    drained::DrainedBackends,
    flow::Flow,
    netlink::FlowTable,
    observer::StaleFlowObserver,
    request::{Request, Totals},
    seqlock::ProgrammingSeqlock,
    stale::{FlowVerdict, Scope, StaleFlowFilter},
};
use crate::{
    kernel::{BackgroundTask, Kernel},
    netlink::NetlinkError,
    nftables::Family,
};

/// After a search the thread rests this many times the processor time of the search, so that constant change on a node with
/// millions of flows costs at most a fifth of one core.
const REST_FACTOR: u32 = 4;
const MAX_REST: Duration = Duration::from_secs(1);
/// How long unanswered connections are collected before a search: their clients try again after a second. A search takes ten
/// milliseconds even without any flow, if the kernel's hash table has 262,144 buckets: it visits all of them.
const GATHER_DELAY: Duration = Duration::from_millis(50);
/// After a search the next one that is only about unanswered connections waits this many times its processor time: one search
/// costs as much as a hundred single changes, so constant change would pay for little else. So searches take 0.4 % of
/// a processor. A first change after a quiet time does not wait for it.
const GATHER_FACTOR: u32 = 250;
/// The limits of this wait.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
const MAX_INTERVAL: Duration = Duration::from_millis(2500);
/// A survey is a search that visits connections in use too, to find drained ones. The next one waits this many times its processor
/// time, so that surveys take at most 1 % of a processor.
const SURVEY_FACTOR: u32 = 100;
/// The longest wait after backends were removed. So surveys cost more only where one takes more than 100 ms, for some 300,000
/// flows, and backends are removed all the time.
const MAX_SURVEY_INTERVAL: Duration = Duration::from_secs(10);
/// How soon at most it is noticed that drained connections have ended, if nothing else happens.
const DRAINED_INTERVAL: Duration = Duration::from_secs(10);
/// How often new attempts on drained connections are read, while there are some. Clients repeat after a second.
const ATTEMPTS_INTERVAL: Duration = Duration::from_millis(500);
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
    attempts: AttemptTable,
    /// The table of attempts failed: that was logged.
    has_failed: bool,
}

/// The flows that may be stale because of changes of the programmed backends.
#[derive(Debug, Default)]
struct State {
    node_ips: BTreeSet<IpAddr>,
    /// The criteria of the current search.
    current: StaleFlowFilter,
    /// The criteria of the next search.
    next: StaleFlowFilter,
    /// The criteria of searches that did not visit connections in use.
    unsurveyed: StaleFlowFilter,
    drained: DrainedBackends,
    /// Those that the current survey has found.
    found: DrainedBackends,
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
        let attempts = AttemptTable::new(Arc::clone(&kernel));
        let state = State::default();
        Self {
            kernel,
            requests,
            state,
            table: None,
            seqlock,
            totals,
            observer,
            attempts,
            has_failed: false,
        }
    }

    /// Searches while programming knows of it. Returns the processor time of the search: while others have the processor, it takes
    /// longer, but it costs no more, and the next one is due as soon.
    fn search_beside_programming(&mut self, is_survey: bool) -> Duration {
        let seqlock = Arc::clone(&self.seqlock);
        seqlock.search(|| {
            let start = processor_time();
            self.search(is_survey);
            processor_time().saturating_sub(start)
        })
    }

    /// Searches the flows of each family and protocol concerned. A flow that cannot be deleted is left to its timeout.
    fn search(&mut self, is_survey: bool) {
        let scopes = self.state.begin_search(is_survey);
        let mut searched: BTreeMap<Family, (Duration, usize)> = BTreeMap::new();
        for ((family, protocol), scope) in scopes {
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
            if is_survey && outcome.is_ok() {
                let found = mem::take(&mut self.state.found);
                self.state.drained.replace(family, protocol, found);
            }
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
        self.state.end_search(is_survey);
        if let Some(observer) = &self.observer {
            for (family, (took, deleted)) in searched {
                let family = Families {
                    ipv4: family == Family::V4,
                    ipv6: family == Family::V6,
                };
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
        let Self {
            kernel,
            requests,
            state,
            table,
            totals,
            ..
        } = self;
        totals.searches.fetch_add(1, Ordering::Relaxed);
        let table = match table {
            Some(table) => table,
            None => table.insert(FlowTable::open(kernel)?),
        };
        state.found = DrainedBackends::default();
        table.delete_stale(family, protocol, scope, |flow| {
            // A flow to a backend that was added a moment ago is right.
            state.handle_pending_requests(requests);
            state.is_stale(flow)
        })
    }

    /// Ends the drained flows on which clients begin anew, so that the next repetition chooses among the present backends; and
    /// has new attempts recorded exactly while there are drained flows.
    fn end_drained_flows(&mut self) {
        let result = self.try_end_drained_flows();
        if let Err(error) = &result
            && !self.has_failed
        {
            self.totals.failures.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "new attempts on connections to removed backends cannot be recorded: they wait until these end");
        }
        self.has_failed = result.is_err();
    }

    fn try_end_drained_flows(&mut self) -> Result<(), NetlinkError> {
        if self.state.drained.is_empty() {
            return self.attempts.remove();
        }
        self.attempts.make()?;
        for attempt in self.attempts.read()? {
            let seqlock = Arc::clone(&self.seqlock);
            let start = Instant::now();
            let deleted = seqlock.search(|| {
                self.state.handle_pending_requests(&self.requests);
                let table = match &mut self.table {
                    Some(table) => table,
                    None => self.table.insert(FlowTable::open(&self.kernel)?),
                };
                let deleted =
                    table.delete_flow_of(&attempt, |flow| self.state.drained.contains(flow));
                deleted.inspect_err(|_| self.table = None)
            })?;
            if deleted > 0 {
                self.totals.deleted.fetch_add(deleted, Ordering::Relaxed);
                let (client, destination) = (attempt.client, attempt.destination);
                tracing::debug!(%client, %destination, "a new attempt ended a connection to a removed backend");
                if let Some(observer) = &self.observer {
                    let is_v4 = destination.is_ipv4();
                    let family = Families {
                        ipv4: is_v4,
                        ipv6: !is_v4,
                    };
                    observer.searched(family, start.elapsed(), deleted);
                }
            }
        }
        Ok(())
    }

    /// Waits for requests, at most until then, and handles them. False when the work is over.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
        let request = match wait {
            Some(wait) => self.requests.recv_timeout(wait),
            None => self
                .requests
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
        };
        match request {
            Ok(request) => self.state.handle_request(request),
            Err(RecvTimeoutError::Timeout) => {}
            // What was requested before is still searched.
            Err(RecvTimeoutError::Disconnected) => return !self.state.next.is_empty(),
        }
        self.state.handle_pending_requests(&self.requests);
        true
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

/// The processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// When the unanswered connections that were collected since now are searched for. `last_search` is the end of the last search, and
/// its processor time.
fn gather_until(now: Instant, last_search: Option<(Instant, Duration)>) -> Instant {
    let interval = |cost: Duration| (cost * GATHER_FACTOR).clamp(MIN_INTERVAL, MAX_INTERVAL);
    let next = last_search.map_or(now, |(end, cost)| end + interval(cost));
    next.max(now + GATHER_DELAY)
}

/// When connections in use may be visited again. `last_survey` is the end of the last time, and its processor time.
fn survey_after(last_survey: Option<(Instant, Duration)>) -> Option<Instant> {
    let interval = |cost: Duration| (cost * SURVEY_FACTOR).clamp(MIN_INTERVAL, MAX_SURVEY_INTERVAL);
    last_survey.map(|(end, cost)| end + interval(cost))
}

impl BackgroundTask for Worker {
    fn run(mut self: Box<Self>) {
        let (mut last_search, mut last_survey) = (None, None);
        let mut wake_up = None;
        while self.wait(wake_up) {
            if !self.state.next.is_empty() {
                self.pause(
                    gather_until(Instant::now(), last_search),
                    StaleFlowFilter::are_urgent,
                );
            }
            let now = Instant::now();
            let is_survey = survey_after(last_survey).is_none_or(|after| now >= after);
            if !self.state.next.is_empty() || is_survey && self.state.needs_survey(now, last_survey)
            {
                let cost = self.search_beside_programming(is_survey);
                let end = Instant::now();
                last_search = Some((end, cost));
                if is_survey {
                    last_survey = last_search;
                }
                self.end_drained_flows();
                self.pause(end + (cost * REST_FACTOR).min(MAX_REST), |_| false);
            } else {
                self.end_drained_flows();
            }
            wake_up = self.state.wake_up(Instant::now(), last_survey);
        }
        // Kernels before 5.12 do not remove it with its socket.
        if let Err(error) = self.attempts.remove() {
            tracing::warn!(%error, "the table contiv-attempts was not removed; contiv cleanup does it");
        }
    }

    fn step(&mut self) -> bool {
        let is_open = self.state.handle_pending_requests(&self.requests);
        if !self.state.next.is_empty() {
            self.search_beside_programming(true);
        }
        self.end_drained_flows();
        is_open
    }
}

impl State {
    /// Takes over the criteria of the next search, and returns the flows that must be examined.
    fn begin_search(&mut self, is_survey: bool) -> BTreeMap<(Family, Protocol), Scope> {
        let next = mem::take(&mut self.next);
        let mut scopes = next.scopes();
        self.current = next;
        if is_survey {
            let mut all = mem::take(&mut self.unsurveyed);
            let more = all.scopes().into_keys().chain(self.drained.scopes());
            scopes.extend(more.map(|of| (of, Scope::All)));
            for scope in scopes.values_mut() {
                *scope = Scope::All;
            }
            all.extend(mem::take(&mut self.current));
            self.current = all;
        }
        scopes
    }

    /// Keeps the criteria of a search that did not visit connections in use for the next survey.
    fn end_search(&mut self, is_survey: bool) {
        let current = mem::take(&mut self.current);
        if !is_survey {
            self.unsurveyed.extend(current);
            self.unsurveyed.retain_draining();
        }
    }

    /// True for a flow to delete. A survey collects the drained ones.
    fn is_stale(&mut self, flow: &Flow<'_>) -> bool {
        let judgement = self.current.judge(flow, &self.node_ips);
        if judgement == FlowVerdict::Drained
            || judgement == FlowVerdict::Right && self.drained.contains(flow)
        {
            self.found.insert(flow);
        }
        judgement == FlowVerdict::Stale
    }

    /// True if there may be drained connections that are not known, or if it is time to see whether the known ones go on.
    fn needs_survey(&self, now: Instant, last_survey: Option<(Instant, Duration)>) -> bool {
        let interval = |cost: Duration| (cost * SURVEY_FACTOR).max(DRAINED_INTERVAL);
        let is_over = last_survey.is_none_or(|(end, cost)| now >= end + interval(cost));
        !self.unsurveyed.is_empty() || !self.drained.is_empty() && is_over
    }

    /// When there is something to do without a request.
    fn wake_up(&self, now: Instant, last_survey: Option<(Instant, Duration)>) -> Option<Instant> {
        if !self.next.is_empty() {
            return Some(now);
        }
        let survey =
            (!self.unsurveyed.is_empty()).then(|| survey_after(last_survey).unwrap_or(now));
        let attempts = (!self.drained.is_empty()).then(|| now + ATTEMPTS_INTERVAL);
        survey.into_iter().chain(attempts).min()
    }

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
                let services = || services.iter().map(|service| &**service);
                for filter in [&mut self.current, &mut self.next, &mut self.unsurveyed] {
                    filter.allow(services());
                }
                self.serve(services);
            }
            Request::Changed(changes) => {
                let services = || changes.values().filter_map(|change| change.new.as_deref());
                for filter in [&mut self.current, &mut self.unsurveyed] {
                    filter.correct(services());
                }
                self.serve(services);
                self.next.add(changes.values());
            }
            Request::Reconciled {
                before,
                services,
                node_ips,
                found,
            } => {
                let changes = before.into_iter().filter_map(|(id, old)| {
                    let new = services.get(&id).cloned();
                    (new.as_ref() != Some(&old)).then_some(ServiceChange {
                        old: Some(old),
                        new,
                    })
                });
                let changes: Vec<ServiceChange> = changes.collect();
                let all = || services.values().map(|service| &**service);
                for filter in [&mut self.current, &mut self.unsurveyed] {
                    filter.correct(all());
                }
                self.serve(all);
                self.next.add(changes.iter());
                self.next.add_all(all());
                for (frontend, backends) in found {
                    self.next.add_found(frontend, &backends);
                }
                self.node_ips = node_ips;
            }
        }
    }

    /// The backends of these services are not drained.
    fn serve<'a, S: Iterator<Item = &'a ContivService>>(&mut self, services: impl Fn() -> S) {
        for drained in [&mut self.drained, &mut self.found] {
            drained.remove_serving(services());
        }
    }
}

#[cfg(test)]
mod tests;
