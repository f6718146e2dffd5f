//! A whole node in simulated time: the real core and the real nftables renderer with models of the store, the kernel and the
//! disk. One seed determines everything: the writes of clients, the faults, and the order of events.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    net::IpAddr,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use contiv_model::{ContivService, Frontend, NodeName, ServiceId};
use contiv_node::{
    Core, Status,
    decode::{Decoder, StoreEvent},
    message::{
        Answer, Input, MirrorReport, Now, Output, RequestId, VerifierReport, Work, WorkDone,
    },
    own_node_key,
};
use contiv_renderer::{
    Renderer, Report, Watch, nftables::Nftables, poison_isolator::PoisonIsolator,
};
use contiv_store::Change;
use jiff::Timestamp;
use rand::{RngExt as _, SeedableRng, rngs::SmallRng};

use crate::{
    cluster::{
        Cluster, NODE, NODE_ADDRESS, NodeFacts, SERVICES, ServedService, Write, service_name,
    },
    config::{self, RENDERER},
    confirmation::Confirmation,
    disk::ModelDisk,
    expected::{self, Client, ServedFrontends},
    failover::FailingBackends,
    faults::{self, Fault},
    history::ExpectedHistory,
    invariants::{self, ObservedState, Tried},
    kernel::{Errno, Fault as KernelFault, ModelKernel},
    local_addresses::LocalAddresses,
    long_flows::LongFlows,
    metrics::Scrape,
    outputs::{self, Receivers},
    own_node::OwnNode,
    pods::PodCallers,
    store::{Backup, ModelFeed, ModelStore},
    used_endpoints::UsedEndpoints,
};

/// How many steps the trace of a failure shows.
const MAX_TRACE_STEPS: usize = 60;
/// The interval of rests: checks of the state when all work is finished.
const REST_INTERVAL: Duration = Duration::from_secs(3600);
/// The limit of steps at one time: more mean an endless loop.
const MAX_STEPS_AT_ONE_TIME: u32 = 10_000;
/// The maximum interval of faults.
const MAX_FAULT_INTERVAL: Duration = Duration::from_secs(240);
/// The number of foreign changes in a storm, and their maximum interval: so many that repairs are delayed.
const STORM_CHANGES: u32 = 30;
const MAX_STORM_INTERVAL: Duration = Duration::from_millis(500);
/// The limit for finishing all work.
const REST_TIMEOUT: Duration = Duration::from_secs(600);

/// The requests of an operator.
const OPERATOR: RequestId = RequestId(0);

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The seed that reproduces it.
    pub seed: u64,
    /// When it happened, in simulated time.
    pub at: Duration,
    /// The description of the violation.
    pub what: String,
    /// The last steps before it.
    pub trace: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "violation with seed {} after {:?}: {}",
            self.seed, self.at, self.what
        )?;
        write!(f, "{}", self.trace)
    }
}

impl std::error::Error for Violation {}

/// Totals of a simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// In simulated time.
    pub time: Duration,
    /// Inputs that the core has handled.
    pub inputs: u64,
    /// Injected faults.
    pub faults: u64,
    /// Starts of the agent after the first.
    pub restarts: u64,
    /// How often the state at rest was compared with a fresh start.
    pub rests: u64,
    /// Flows that were evaluated.
    pub flows: u64,
}

impl Stats {
    /// Adds the totals of another world.
    pub fn add(&mut self, other: Self) {
        self.time += other.time;
        self.inputs += other.inputs;
        self.faults += other.faults;
        self.restarts += other.restarts;
        self.rests += other.rests;
        self.flows += other.flows;
    }
}

/// The agent while it runs.
struct Agent {
    core: Core,
    /// What the core reports after the last input.
    status: Status,
    services: Vec<Arc<ContivService>>,
    decoder: Decoder,
    renderer: PoisonIsolator<Nftables>,
    /// The renderer has lost its state, or had none yet.
    is_renderer_new: bool,
    watch: Option<Box<dyn Watch>>,
    /// The current work of the renderer, and the time when it ends.
    work: Option<(Duration, Work)>,
    /// Inputs that arrive later, by their time.
    arriving: VecDeque<(Duration, Input)>,
    /// When the feed delivers next.
    next_delivery: Duration,
    receivers: Receivers,
    /// The expected history.
    history: ExpectedHistory,
    /// Events of the store before the first list was applied. They wait for the mirror, and are then handled one after the other.
    waiting: usize,
    out: Vec<Output>,
}

impl Agent {
    fn render(&mut self, work: &Work) -> Result<Report, String> {
        outputs::render(&mut self.renderer, work).map_err(|error| error.to_string())
    }

    /// Replaces the renderer by a new one, without state.
    fn lose_renderer(&mut self, kernel: &ModelKernel, is_table_owned: bool) {
        self.renderer = new_renderer(kernel, is_table_owned);
        self.is_renderer_new = true;
        self.watch = None;
    }
}

/// A node with models of its environment.
pub struct World {
    seed: u64,
    rng: SmallRng,
    base: Instant,
    clock: Duration,
    cluster: Cluster,
    store: ModelStore,
    feed: ModelFeed,
    kernel: ModelKernel,
    disk: ModelDisk,
    /// The copies of this node's Node object.
    own_node: OwnNode,
    addresses: LocalAddresses,
    pods: PodCallers,
    used_endpoints: UsedEndpoints,
    long_flows: LongFlows,
    failing: FailingBackends,
    confirmation: Confirmation,
    /// The agent owns its table, so other programs cannot change it.
    is_table_owned: bool,
    agent: Option<Agent>,
    /// When a stopped agent starts again.
    start_at: Duration,
    backup: Option<(Backup, Cluster)>,
    next_write: Duration,
    next_fault: Duration,
    /// The foreign changes that follow in a storm.
    storm: u32,
    next_sync: Duration,
    next_rest: Duration,
    /// When a short outage ends.
    recover_at: Option<Duration>,
    /// Steps since the clock last advanced.
    steps_at_once: u32,
    /// The renderer is slow until then.
    slow_until: Duration,
    /// Whether the next work of the renderer panics.
    will_panic: bool,
    /// The time of the last fault after which flows may fail for a while.
    last_disturbance: Duration,
    /// The services whose current state the agent knows, and since when.
    stable: BTreeMap<u16, (Duration, ServedService)>,
    /// The services of which the agent then had another state than the store: it keeps the last good one of an invalid value, and
    /// deleted services while it holds deletions.
    kept: BTreeSet<ServiceId>,
    /// Since when deletions are held. An agent that starts with the mirror holds them too, without knowing it.
    held_since: Option<Duration>,
    /// The facts of the node that the agent knows, and since when.
    stable_node: Option<(Duration, NodeFacts)>,
    is_resting: bool,
    /// Set to end the run early.
    is_stopped: Arc<AtomicBool>,
    /// Faults that are skipped when they are drawn.
    skipped_faults: Vec<Fault>,
    /// The invariant violated in this step.
    broken_invariant: Option<String>,
    stats: Stats,
    trace: VecDeque<String>,
}

impl World {
    /// A world determined by this seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (cluster, writes) = Cluster::new();
        let mut store = ModelStore::default();
        store.commit(writes);
        let next_fault = Duration::from_secs(rng.random_range(1..60));
        let is_table_owned = rng.random();
        Self {
            seed,
            rng,
            base: Instant::now(),
            clock: Duration::from_secs(1),
            cluster,
            store,
            feed: ModelFeed::default(),
            kernel: new_kernel(&LocalAddresses::default()),
            disk: ModelDisk::default(),
            own_node: OwnNode::default(),
            addresses: LocalAddresses::default(),
            pods: PodCallers::default(),
            used_endpoints: UsedEndpoints::default(),
            long_flows: LongFlows::default(),
            failing: FailingBackends::default(),
            confirmation: Confirmation::default(),
            is_table_owned,
            agent: None,
            start_at: Duration::from_secs(1),
            backup: None,
            next_write: Duration::from_secs(2),
            next_fault,
            storm: 0,
            next_sync: Duration::from_secs(1),
            next_rest: REST_INTERVAL,
            recover_at: None,
            steps_at_once: 0,
            slow_until: Duration::ZERO,
            will_panic: false,
            last_disturbance: Duration::ZERO,
            stable: BTreeMap::new(),
            kept: BTreeSet::new(),
            held_since: None,
            stable_node: None,
            is_resting: false,
            is_stopped: Arc::default(),
            skipped_faults: Vec::new(),
            broken_invariant: None,
            stats: Stats::default(),
            trace: VecDeque::new(),
        }
    }

    /// Repeats the run of a violation without each kind of fault that it does not need. Returns a violation with a shorter
    /// trace, and the kinds of faults that it needs.
    pub fn shrink(violation: Violation) -> (Violation, Vec<Fault>) {
        let (mut left, mut skipped_faults) = (violation, Vec::new());
        for fault in faults::ALL {
            skipped_faults.push(fault);
            let mut world = Self {
                skipped_faults: skipped_faults.clone(),
                ..Self::new(left.seed)
            };
            match world.run(left.at) {
                Err(violation) => left = violation,
                Ok(()) => drop(skipped_faults.pop()),
            }
        }
        let needed = faults::ALL
            .into_iter()
            .filter(|fault| !skipped_faults.contains(fault))
            .collect();
        (left, needed)
    }

    /// The totals so far.
    pub fn stats(&self) -> Stats {
        Stats {
            time: self.clock,
            ..self.stats
        }
    }

    /// Ends [`Self::run`] early, without a violation, once this is true.
    pub fn stop_when(&mut self, is_stopped: Arc<AtomicBool>) {
        self.is_stopped = is_stopped;
    }

    /// Runs for this simulated time.
    ///
    /// # Errors
    /// When an invariant is violated or the agent panics.
    pub fn run(&mut self, duration: Duration) -> Result<(), Violation> {
        self.catch_panics(|world| world.run_until(world.clock + duration))
    }

    fn catch_panics(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), Violation> {
        // After a panic only the trace of the world is used.
        let result = panic::catch_unwind(AssertUnwindSafe(|| run(self)));
        result
            .unwrap_or_else(|payload| Err(describe_panic(&*payload)))
            .map_err(|what| self.violation(what))
    }

    fn run_until(&mut self, end: Duration) -> Result<(), String> {
        let mut is_at_rest = false;
        while self.clock < end {
            if self.is_stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.step()?;
            is_at_rest = self.clock >= self.next_rest;
            if is_at_rest {
                self.rest()?;
                // The times of rests do not depend on the duration of runs.
                self.next_rest += REST_INTERVAL;
            }
        }
        if is_at_rest { Ok(()) } else { self.rest() }
    }

    /// The last steps, a line each.
    pub fn trace(&self) -> String {
        let mut trace = String::new();
        for line in &self.trace {
            trace.extend(["  ", line, "\n"]);
        }
        trace
    }

    fn violation(&self, what: String) -> Violation {
        Violation {
            seed: self.seed,
            at: self.clock,
            what,
            trace: self.trace(),
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace.len() == MAX_TRACE_STEPS {
            self.trace.pop_front();
        }
        self.trace
            .push_back(format!("{:>12.6} s  {}", self.clock.as_secs_f64(), what()));
    }

    fn now(&mut self) -> Now {
        let nanoseconds = self.clock.as_nanos().try_into().unwrap_or(i128::MAX);
        let time = Timestamp::from_nanosecond(nanoseconds).unwrap_or(Timestamp::MAX);
        Now {
            instant: self.base + self.clock,
            time,
            random: self.rng.random(),
        }
    }

    /// A random duration up to `most`, usually much shorter.
    fn random_delay(&mut self, most: Duration) -> Duration {
        let share: f64 = self.rng.random();
        most.mul_f64(share.powi(4))
    }

    /// Performs the next step.
    fn step(&mut self) -> Result<(), String> {
        let mut next = vec![(self.next_sync, Step::Sync)];
        next.extend(self.recover_at.map(|at| (at, Step::Recover)));
        next.extend(self.pods.next_repeat().map(|at| (at, Step::Repeat)));
        if !self.is_resting {
            next.push((self.next_write, Step::Write));
            next.push((self.next_fault, Step::Fault));
        }
        match &self.agent {
            None => next.push((self.start_at, Step::Start)),
            Some(agent) => {
                next.push((agent.next_delivery, Step::Deliver));
                next.extend(agent.work.as_ref().map(|(at, _)| (*at, Step::Work)));
                next.extend(agent.arriving.front().map(|(at, _)| (*at, Step::Arrive)));
                let deadline = agent.core.deadline();
                next.extend(
                    deadline.map(|at| (at.saturating_duration_since(self.base), Step::Timer)),
                );
            }
        }
        // Several steps at one time are performed in the order of `Step`.
        let Some((at, step)) = next.into_iter().min_by_key(|(at, step)| (*at, *step)) else {
            return Ok(());
        };
        self.steps_at_once = if at > self.clock {
            0
        } else {
            self.steps_at_once + 1
        };
        if self.steps_at_once > MAX_STEPS_AT_ONE_TIME {
            return Err(format!(
                "the step {step:?} is repeated without end, and time does not advance"
            ));
        }
        self.clock = self.clock.max(at);
        self.kernel.set_time(self.clock);
        self.perform(step);
        self.deliver_foreign_changes();
        if let Some(what) = self.broken_invariant.take() {
            return Err(what);
        }
        invariants::check_stalls(&self.kernel)?;
        if self.stats.inputs.is_multiple_of(8) {
            self.check_flows()?;
        }
        Ok(())
    }

    fn commit(&mut self, writes: Vec<Write>) {
        self.store.commit(writes);
        self.used_endpoints
            .was_written(&self.cluster, self.store.revision());
        self.note_served();
    }

    fn note_served(&mut self) {
        if !self.long_flows.has_served() {
            return;
        }
        let served = self.served_frontends();
        self.long_flows.note_served(&served);
    }

    /// The frontends of the stored services. Without the Node object those at addresses that it had are unknown.
    fn served_frontends(&self) -> ServedFrontends {
        let node = self.cluster.node();
        let node_addresses = node.map(|node| {
            self.addresses
                .with_node_ports()
                .into_iter()
                .chain(node.ipv6())
        });
        ServedFrontends::of(
            &self.cluster,
            &node_addresses.into_iter().flatten().collect(),
        )
    }

    /// Opens a flow to one of the addresses of a service that goes on.
    fn open_long_flow(
        &mut self,
        service: &ServedService,
        node: &NodeFacts,
        node_addresses: &BTreeSet<IpAddr>,
    ) {
        if !self.long_flows.has_space() {
            return;
        }
        let client = Client::ALL[self.rng.random_range(0..Client::ALL.len())];
        let port = self.long_flows.next_port();
        let mut connections = expected::connections(service, client, port, node, node_addresses);
        if !connections.is_empty() {
            let chosen = connections.swap_remove(self.rng.random_range(0..connections.len()));
            self.long_flows.open(&self.kernel, &chosen, &mut self.rng);
            // The agent may not know yet that the service has changed.
            self.note_served();
        }
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Sync => {
                self.disk.sync();
                self.own_node.was_synced();
                self.kernel.run_background();
                self.next_sync = self.clock + Duration::from_secs(1);
            }
            Step::Write => {
                let writes = self.cluster.next_write(&mut self.rng);
                self.note(|| format!("clients write {}", brief_writes(&writes)));
                self.commit(writes);
                self.next_write = self.clock + self.random_delay(Duration::from_secs(60));
            }
            Step::Fault => {
                self.stats.faults += 1;
                let (fault, max_interval) = self.draw_fault();
                if !self.skipped_faults.contains(&fault) {
                    self.note(|| format!("{fault:?}"));
                    self.inject(fault);
                }
                self.next_fault = self.clock + self.random_delay(max_interval);
            }
            Step::Recover => {
                self.recover_at = None;
                self.feed.set_down(false);
                if let Some(agent) = &mut self.agent {
                    agent.next_delivery = self.clock;
                }
            }
            Step::Start => self.start(),
            Step::Deliver => self.deliver(),
            Step::Work => self.work(),
            Step::Arrive => {
                let input = self
                    .agent
                    .as_mut()
                    .and_then(|agent| agent.arriving.pop_front());
                if let Some((_, input)) = input {
                    self.handle(input);
                }
            }
            Step::Timer => self.handle(Input::Timer),
            Step::Repeat => {
                if let Some(input) = self.pods.repeat(self.clock) {
                    self.handle(input);
                }
            }
        }
    }

    /// Draws a fault, and the maximum time until the next one. Another program sometimes changes the table again and again.
    fn draw_fault(&mut self) -> (Fault, Duration) {
        if self.storm > 0 {
            self.storm -= 1;
            return (Fault::ForeignChange, MAX_STORM_INTERVAL);
        }
        let fault = faults::draw(&mut self.rng);
        if fault == Fault::ForeignChange && self.rng.random_bool(0.2) {
            self.storm = STORM_CHANGES;
        }
        (fault, MAX_FAULT_INTERVAL)
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.stop(false),
            Fault::PowerFailure => {
                self.stop(true);
                self.kernel = new_kernel(&self.addresses);
                self.kernel.set_time(self.clock);
                self.last_disturbance = self.clock;
                // Unsynced writes are lost until the store is read again.
                self.stable.clear();
                self.stable_node = None;
            }
            Fault::Resync => self.handle(Input::Resync { cause: "simulated" }),
            Fault::ConfirmDeletions => self.handle(Input::ConfirmDeletions(OPERATOR)),
            Fault::AddPod if self.agent.is_some() => {
                // Callers wait, and additions fail, where the renderer is in trouble.
                let trouble =
                    [Fault::SlowRenderer, Fault::RendererPanic][self.rng.random_range(0..2)];
                if self.rng.random() && !self.skipped_faults.contains(&trouble) {
                    self.inject(trouble);
                }
                let input = self.pods.add(&mut self.rng, self.clock);
                self.handle(input);
            }
            Fault::DeletePod if self.agent.is_some() => {
                let input = self.pods.delete(&mut self.rng, self.clock);
                self.handle(input);
            }
            Fault::AddPod | Fault::DeletePod => {}
            Fault::BackendsFail => {
                let Some(agent) = &self.agent else { return };
                let watched = &agent.receivers.watched;
                let report = self.failing.fail(watched, &mut self.rng, self.clock);
                self.arrive_soon(report);
            }
            Fault::BackendsRecover => {
                let report = self.failing.recover();
                self.arrive_soon(report);
            }
            Fault::FailoverBreaks => {
                let report = self.failing.break_or_mend();
                self.handle(report);
            }
            Fault::AddressChange => {
                self.addresses.change(&mut self.rng);
                self.kernel.set_addresses(self.addresses.all());
                self.note_served();
                let delay = self.random_delay(Duration::from_secs(1));
                self.arrive(delay, Input::LocalAddresses(self.addresses.all()));
            }
            Fault::RendererPanic => self.panic(),
            Fault::Outage => {
                let is_down = !self.feed.is_down();
                self.feed.set_down(is_down);
                self.end_short_outage();
            }
            Fault::ShortOutage => self.begin_short_outage(),
            Fault::Compaction => self.store.compact(),
            Fault::Backup => self.backup = Some((self.store.backup(), self.cluster.clone())),
            Fault::Restore => {
                if let Some((backup, cluster)) = self.backup.take() {
                    self.store.restore(backup);
                    self.cluster = self.cluster.restored(cluster);
                    self.used_endpoints.was_restored(&self.cluster);
                    self.long_flows.note_uncertain();
                    self.last_disturbance = self.clock;
                }
            }
            Fault::RefuseBatch => self.kernel.inject(KernelFault::RefuseBatch(Errno::ENOMEM)),
            Fault::RefuseMessage => {
                let message = self.rng.random_range(0..20);
                self.kernel.inject(KernelFault::RefuseMessage {
                    message,
                    errno: Errno::ENOMEM,
                });
            }
            Fault::LoseAnswer => self.kernel.inject(KernelFault::LoseAnswer),
            Fault::InterruptDump => self.kernel.inject(KernelFault::InterruptDump),
            Fault::RefuseSending => self
                .kernel
                .inject(KernelFault::RefuseSending(Errno::ENOBUFS)),
            Fault::LoseNotifications => {
                self.kernel.overflow_notifications();
            }
            Fault::ForeignChange => {
                let change = faults::draw_foreign_change(&mut self.rng);
                self.note(|| format!("{change:?}"));
                // Objects that do not exist, or are owned by the agent, cannot be changed.
                if self.kernel.apply_foreign_change("contiv", &change).is_ok() {
                    self.last_disturbance = self.clock;
                }
            }
            Fault::SlowRenderer => {
                self.slow_until = self.clock + self.random_delay(Duration::from_secs(20));
                self.last_disturbance = self.slow_until;
            }
        }
    }

    /// Kills the agent; with a power failure the machine too.
    fn stop(&mut self, with_power: bool) {
        self.agent = None;
        self.used_endpoints.agent_stopped();
        self.failing.agent_stopped();
        self.long_flows.note_stop();
        self.confirmation = Confirmation::default();
        self.kernel.forget_background();
        if with_power {
            self.disk.fail_power();
            self.own_node.lost_power();
            self.used_endpoints.forget();
            self.long_flows.forget();
            self.pods.lose_pods();
        } else {
            self.pods.lose_agent();
        }
        self.will_panic = false;
        self.start_at = self.clock + self.random_delay(Duration::from_secs(30));
    }

    /// Makes the current outage last until another fault ends it.
    const fn end_short_outage(&mut self) {
        self.recover_at = None;
    }

    /// Makes the store unreachable for a few seconds.
    fn begin_short_outage(&mut self) {
        if !self.feed.is_down() {
            self.feed.set_down(true);
            self.recover_at = Some(self.clock + self.random_delay(Duration::from_secs(10)));
        }
        if let Some(agent) = &mut self.agent {
            agent.next_delivery = self.clock;
        }
    }

    /// Lets the feed go on from the saved state, in most starts that can.
    fn resume(&mut self) {
        let Some(agent) = &mut self.agent else { return };
        if let Some((entries, start)) = self.disk.saved_start()
            && self.rng.random_bool(0.8)
        {
            agent.decoder.add_saved(entries);
            self.feed.resume(start);
        }
    }

    fn start(&mut self) {
        if self.rng.random_bool(0.2) {
            self.begin_short_outage();
        }
        self.note(|| "the agent starts".to_owned());
        self.stats.restarts += u64::from(self.stats.inputs > 0);
        self.feed.restart();
        self.own_node.agent_starts(self.clock);
        let now = self.now();
        let core = Core::new(config::core(&self.addresses, self.disk.pods()), now);
        let own_node = own_node_key(&NodeName::new(NODE));
        let summary = Input::Mirror(MirrorReport::Summary(self.disk.summary(&own_node)));
        let first = self.clock + self.random_delay(Duration::from_secs(3));
        self.agent = Some(Agent {
            status: core.status(),
            services: core.services(),
            core,
            decoder: Decoder::new(now.time),
            renderer: new_renderer(&self.kernel, self.is_table_owned),
            is_renderer_new: true,
            watch: None,
            work: None,
            arriving: VecDeque::from([(self.clock, summary)]),
            next_delivery: first,
            receivers: Receivers::default(),
            history: ExpectedHistory::default(),
            waiting: 0,
            out: Vec::new(),
        });
        self.resume();
        self.handle(Input::Timer);
        let state = self.failing.state();
        self.arrive_soon(state);
        // A request for the renderer's state panics before the first snapshot.
        if self.rng.random_bool(0.1)
            && !self.is_resting
            && !self.skipped_faults.contains(&Fault::RendererPanic)
        {
            self.panic();
        }
    }

    fn deliver(&mut self) {
        let pause = self.random_delay(Duration::from_secs(2)) + Duration::from_millis(1);
        let Some(agent) = &mut self.agent else { return };
        agent.next_delivery = self.clock + pause;
        let Some(event) = self.feed.next(&self.store, &mut self.rng) else {
            // Nothing changes before a client writes, or something fails.
            let wake = self.next_write.min(self.next_fault).max(self.clock);
            let idle = if self.is_resting {
                self.clock + Duration::from_secs(1)
            } else {
                wake
            };
            agent.next_delivery = agent.next_delivery.max(idle);
            return;
        };
        let Some(event) = agent.decoder.decode(event) else {
            return;
        };
        let received = self.base + self.clock;
        if has_own_node(&event) {
            self.own_node.was_delivered(self.clock);
        }
        let is_news = matches!(event, StoreEvent::Listed(_) | StoreEvent::Changed(..));
        self.note(|| brief(&event));
        self.handle(Input::Store(event, received));
        if self.feed.is_idle(&self.store) {
            self.record_expectations();
        } else if is_news {
            // There are no expectations for an intermediate state.
            self.stable.clear();
            self.stable_node = None;
        }
    }

    /// Performs the renderer's work, and reports the result to the core after a short delay.
    fn work(&mut self) {
        let delay = self.random_delay(Duration::from_millis(50));
        let panics = std::mem::take(&mut self.will_panic).then(|| self.rng.random());
        let Some(agent) = &mut self.agent else { return };
        let Some((_, work)) = agent.work.take() else {
            return;
        };
        let name = work.name();
        if agent.watch.is_none() && matches!(work, Work::Resync(_) | Work::Heal(_)) {
            agent.watch = agent.renderer.watch().ok().flatten();
        }
        // As `agent/src/drivers/renderer_thread.rs` does.
        let mut result = match work {
            _ if panics == Some(false) => Err(String::new()),
            Work::Update(_) if agent.is_renderer_new => Err("it knows nothing".to_owned()),
            Work::Heal(snapshot) if agent.is_renderer_new => agent.render(&Work::Resync(snapshot)),
            work => agent.render(&work),
        };
        agent.is_renderer_new &= result.is_err();
        if panics.is_some() {
            agent.lose_renderer(&self.kernel, self.is_table_owned);
            result = Err("panicked: simulated".to_owned());
        }
        let failure = result
            .as_ref()
            .err()
            .map_or_else(String::new, |error| format!(": {error}"));
        let is_watched = agent.watch.is_some();
        let done = WorkDone {
            renderer: RENDERER.into(),
            result,
            is_watched,
            duration: Duration::from_millis(1),
        };
        self.note(|| format!("the renderer finished {name}{failure}"));
        self.arrive(delay, Input::WorkDone(done));
    }

    /// Makes the renderer panic: in its work or, if it has none, at a request for its state.
    fn panic(&mut self) {
        let Some(agent) = &mut self.agent else { return };
        if agent.work.is_some() || self.rng.random() {
            self.will_panic = true;
            return;
        }
        agent.lose_renderer(&self.kernel, self.is_table_owned);
        let delay = self.random_delay(Duration::from_millis(50));
        self.arrive(
            delay,
            Input::RendererLost(RENDERER.into(), "panicked: simulated".to_owned()),
        );
    }

    /// Delivers foreign changes from the watch, as its thread does.
    fn deliver_foreign_changes(&mut self) {
        loop {
            let Some(agent) = &mut self.agent else { return };
            let Some(watch) = &mut agent.watch else {
                return;
            };
            let change = match watch.try_next() {
                Ok(Poll::Ready(Some(change))) => Ok(change),
                Ok(Poll::Ready(None) | Poll::Pending) => return,
                Err(error) => {
                    agent.watch = None;
                    Err(error.to_string())
                }
            };
            self.note(|| format!("foreign change: {change:?}"));
            let delay = self.random_delay(Duration::from_millis(50));
            self.arrive(delay, Input::ForeignChange(RENDERER.into(), change));
        }
    }

    /// Schedules an input; inputs arrive in the order in which they were sent.
    fn arrive(&mut self, delay: Duration, input: Input) {
        let Some(agent) = &mut self.agent else { return };
        let last = agent.arriving.back().map_or(Duration::ZERO, |(at, _)| *at);
        agent
            .arriving
            .push_back(((self.clock + delay).max(last), input));
    }

    /// Schedules an input that arrives within a second.
    fn arrive_soon(&mut self, input: Input) {
        let delay = self.random_delay(Duration::from_secs(1));
        self.arrive(delay, input);
    }

    /// Passes an input to the core, and executes its outputs.
    fn handle(&mut self, input: Input) {
        let now = self.now();
        let Some(agent) = &mut self.agent else { return };
        self.stats.inputs += 1;
        let mut out = std::mem::take(&mut agent.out);
        // A timer ends the wait of a first list for the mirror.
        let can_delete = matches!(input, Input::Store(..) | Input::Mirror(_) | Input::Timer);
        let is_list = matches!(input, Input::Store(StoreEvent::Listed(_), _));
        agent.waiting += usize::from(matches!(input, Input::Store(..)));
        let was_synced = agent.status.synced;
        let handled = if was_synced { 1 } else { agent.waiting.max(1) };
        // A first list replaces the saved state.
        let before = if was_synced {
            agent.services.len()
        } else {
            self.disk.services()
        };
        let held_before = agent.status.held_deletions.take();
        self.confirmation
            .on_input(&input, held_before.as_ref(), now.time);
        let pod_request = match &input {
            Input::AddPod {
                wait: Some((_, request)),
                ..
            } => Some(("pod-added", *request)),
            Input::DeletePod(_, request) => Some(("pod-deleted", *request)),
            _ => None,
        };
        agent.history.on_input(&input, now);
        agent
            .core
            .handle(input, now, &mut |output| out.push(output));
        if let Some((kind, request)) = pod_request {
            agent
                .history
                .on_pod_request(kind, answer_to(request, &out), now);
        }
        agent.status = agent.core.status();
        agent.services = agent.core.services();
        let status = &agent.status;
        let gone = before.saturating_sub(agent.services.len());
        let is_mass = gone >= invariants::MIN_MASS_DELETION * handled && gone * 2 > before;
        let held = (held_before.as_ref(), status.held_deletions.as_ref());
        if can_delete
            && status.synced
            && let Err(what) = self
                .confirmation
                .check(is_list, held, was_synced, gone, is_mass)
        {
            self.broken_invariant = Some(format!(
                "{gone} of {before} services were removed at once: {what}"
            ));
        }
        for output in out.drain(..) {
            self.execute(output);
        }
        if let Some(agent) = &mut self.agent {
            agent.out = out;
        }
        self.note_held_deletions();
        if let Err(what) = self.check_state() {
            self.broken_invariant = Some(what);
        }
    }

    /// Notes whether the agent holds deletions: until it has applied a list of the store that ends that, also one that has started
    /// with the mirror.
    fn note_held_deletions(&mut self) {
        let Some(agent) = &self.agent else { return };
        let is_from_store = agent.status.synced && !agent.status.from_mirror;
        let is_held =
            agent.status.held_deletions.is_some() || self.held_since.is_some() && !is_from_store;
        if !is_held && self.held_since.take().is_some() {
            self.last_disturbance = self.clock;
        } else if is_held {
            self.held_since.get_or_insert(self.clock);
        }
    }

    /// Checks the invariants after each input.
    fn check_state(&mut self) -> Result<(), String> {
        let Some(agent) = &self.agent else {
            return Ok(());
        };
        let status = &agent.status;
        let is_current =
            status.synced && !status.from_mirror && status.revision == self.store.revision();
        let has_all = is_current && self.feed.is_idle(&self.store);
        self.used_endpoints
            .check(&agent.services, status, has_all)?;
        self.failing.check(&agent.services, self.clock)?;
        self.pods.check(agent.core.pods(), self.clock)
    }

    fn execute(&mut self, output: Output) {
        if let Some(agent) = &mut self.agent {
            agent.history.on_output(&output);
        }
        match output {
            Output::Render(_, work) => {
                let takes = self.random_delay(Duration::from_millis(200));
                let at = (self.clock + takes).max(self.slow_until);
                if let Some(agent) = &mut self.agent {
                    agent.work = Some((at, work));
                }
            }
            Output::Verify(renderer, snapshot) => {
                let Some(agent) = &mut self.agent else { return };
                let verifier = agent.renderer.verifier();
                let result = verifier.map_or_else(
                    || Err("there is no verifier".to_owned()),
                    |mut verifier| {
                        verifier
                            .verify(&snapshot)
                            .map_err(|error| error.to_string())
                    },
                );
                let report = VerifierReport {
                    renderer,
                    result,
                    duration: Duration::from_millis(1),
                };
                let delay = self.random_delay(Duration::from_millis(300));
                self.arrive(delay, Input::Verified(report));
            }
            Output::Save(saving) => {
                if let Some(revision) = self.disk.save(saving, self.feed.epoch()) {
                    self.own_node.was_saved();
                    let delay = self.random_delay(Duration::from_secs(1));
                    let written = MirrorReport::Written {
                        revision,
                        is_behind: false,
                    };
                    self.arrive(delay, Input::Mirror(written));
                }
            }
            Output::LoadSaved => {
                let saved = self.disk.load();
                // A first list does not wait longer.
                let delay = self.random_delay(Duration::from_millis(1900));
                self.arrive(delay, Input::Mirror(MirrorReport::Loaded(saved)));
            }
            Output::Relist => self.feed.relist(),
            Output::Reread(keys) => self.feed.reread(keys),
            Output::HealthChecks(update) => {
                let Some(agent) = &mut self.agent else { return };
                agent.receivers.health_checks.update(update);
            }
            Output::Count(metric) => {
                let Some(agent) = &mut self.agent else { return };
                agent.receivers.metrics.node.count(&metric);
            }
            Output::SavePods(attached) => self.disk.save_pods(attached),
            Output::WatchBackends(changes) => {
                let Some(agent) = &mut self.agent else { return };
                if let Err(what) = agent.receivers.watch(changes) {
                    self.broken_invariant = Some(what);
                }
            }
            Output::Probe(backend) => {
                let answer = self.failing.probe(backend, self.clock);
                self.arrive_soon(answer);
            }
            // Answers to the operator are not checked.
            Output::Answer(OPERATOR, _) => {}
            Output::Answer(request, answer) => {
                if let Err(what) = self.pods.on_answer(request, &answer) {
                    self.broken_invariant = Some(what);
                }
            }
        }
    }

    /// Records since when the agent knows the current state of each service. For a service with an invalid value its earlier
    /// state is expected, if it is that of the last valid value.
    fn record_expectations(&mut self) {
        let clock = self.clock;
        let mut served: BTreeMap<u16, (ServedService, bool)> = BTreeMap::new();
        for (number, service, is_valid) in self.cluster.served() {
            served.insert(number, (service, is_valid));
        }
        let deleted = (0..SERVICES).filter(|number| !served.contains_key(number));
        let deleted = deleted.filter(|_| self.held_since.is_some());
        let kept = self.cluster.invalid_services().chain(deleted);
        self.kept = kept.map(service_id).collect();
        self.stable.retain(|number, (_, known)| {
            served
                .get(number)
                .is_some_and(|(service, is_valid)| *is_valid || service == known)
        });
        for (number, (service, is_valid)) in served {
            if is_valid
                && self
                    .stable
                    .get(&number)
                    .is_none_or(|(_, known)| *known != service)
            {
                self.stable.insert(number, (clock, service));
            }
        }
        // Without the object the agent keeps the last facts, if it has a copy.
        if let Some(node) = self.cluster.node()
            && self.stable_node.is_none_or(|(_, known)| known != node)
        {
            self.stable_node = Some((clock, node));
        }
    }

    /// The facts of the node that the agent must have applied by now.
    fn known_node(&self) -> Option<NodeFacts> {
        let is_due = |since: Duration| since + invariants::CONVERGENCE_LIMIT < self.clock;
        let is_known =
            self.own_node.known_since().is_some_and(is_due) && self.cluster.node().is_some();
        self.stable_node
            .filter(|(since, _)| is_known && is_due(*since))
            .map(|(_, node)| node)
    }

    /// The frontends that a service has lost to others of which the agent keeps a state that the store has replaced or, after a
    /// restore, never had: with a frontend that is free in the store.
    fn contested_frontends(&self, number: u16) -> BTreeSet<Frontend> {
        let service = self
            .agent
            .as_ref()
            .and_then(|agent| agent.core.service(&service_id(number)));
        let lost = service.iter().flat_map(|service| &service.lost);
        lost.filter(|(_, holder)| self.kept.contains(*holder))
            .map(|(frontend, _)| *frontend)
            .collect()
    }

    /// Connections to a service that has not changed for long must have the expected result, despite all faults.
    fn check_flows(&mut self) -> Result<(), String> {
        let is_due = |since: Duration| since + invariants::CONVERGENCE_LIMIT < self.clock;
        if !is_due(self.last_disturbance) {
            return Ok(());
        }
        if let Some(agent) = &self.agent {
            self.failing.check(&agent.services, self.clock)?;
        }
        let node = self.known_node();
        let node_addresses = node
            .map(|_| NODE_ADDRESS)
            .into_iter()
            .collect::<BTreeSet<_>>();
        let mut candidates = Vec::new();
        for (number, (since, service)) in &self.stable {
            let client = Client::ALL[self.rng.random_range(0..Client::ALL.len())];
            // Deletions of its slices may be held.
            let may_have_kept = self.held_since.is_some_and(|held| held <= *since);
            // Others take over from backends that do not answer.
            let is_failing = self
                .failing
                .last(&service_id(*number))
                .is_some_and(|at| !is_due(at));
            if may_have_kept || is_failing {
                continue;
            }
            if is_due(*since) && (node.is_some() || !expected::needs_node_facts(service, client)) {
                let node = node.unwrap_or_default();
                let contested = self.contested_frontends(*number);
                let flows = invariants::check_flows(
                    &self.kernel,
                    service,
                    client,
                    &node,
                    &node_addresses,
                    Tried::OneExcept(&contested),
                    &mut self.rng,
                )?;
                self.stats.flows += flows;
                if contested.is_empty() {
                    candidates.push((service.clone(), node));
                }
            }
        }
        if self.rng.random_bool(0.1) && !candidates.is_empty() {
            let (service, node) =
                candidates.swap_remove(self.rng.random_range(0..candidates.len()));
            self.open_long_flow(&service, &node, &node_addresses);
        }
        Ok(())
    }

    /// Runs without faults until all work is finished, and compares the state with a fresh start with the same store.
    fn rest(&mut self) -> Result<(), String> {
        self.note(|| "all faults end".to_owned());
        self.is_resting = true;
        self.recover_at = None;
        self.feed.set_down(false);
        self.kernel.forget_faults();
        self.slow_until = Duration::ZERO;
        self.will_panic = false;
        for report in [self.failing.mend(), self.failing.recover()] {
            self.arrive(Duration::ZERO, report);
        }
        let writes = self.cluster.repair();
        self.commit(writes);
        if let Some(agent) = &mut self.agent {
            agent.next_delivery = self.clock;
        }
        let limit = self.clock + REST_TIMEOUT;
        let calm = self.clock + Duration::from_secs(90);
        while self.clock < calm || !self.is_at_rest() {
            if self.clock > limit {
                return Err("the work is not finished in time".to_owned());
            }
            self.step()?;
        }
        self.stats.rests += 1;
        self.compare()?;
        let node = self.cluster.node().unwrap_or_default();
        let node_addresses = self
            .addresses
            .with_node_ports()
            .into_iter()
            .chain(node.ipv6())
            .collect();
        self.kernel.run_background();
        self.long_flows
            .check(&self.kernel, &self.served_frontends())?;
        let served: Vec<ServedService> = self
            .cluster
            .served()
            .map(|(_, service, _)| service)
            .collect();
        for service in served {
            for client in Client::ALL {
                let flows = invariants::check_flows(
                    &self.kernel,
                    &service,
                    client,
                    &node,
                    &node_addresses,
                    Tried::All,
                    &mut self.rng,
                )?;
                self.stats.flows += flows;
            }
            self.open_long_flow(&service, &node, &node_addresses);
        }
        invariants::check_stalls(&self.kernel)?;
        self.is_resting = false;
        self.next_write = self.clock + Duration::from_secs(1);
        self.next_fault = self.clock + Duration::from_secs(1);
        Ok(())
    }

    fn is_at_rest(&self) -> bool {
        let Some(agent) = &self.agent else {
            return false;
        };
        let is_idle =
            agent.work.is_none() && agent.arriving.is_empty() && agent.core.working() == 0;
        let renderers = agent.core.renderers(self.base + self.clock);
        let is_applied = renderers
            .iter()
            .all(|view| view.state == "idle" && view.pending == "nothing");
        is_idle
            && is_applied
            && agent.status.held_deletions.is_none()
            && self.feed.is_idle(&self.store)
    }

    /// Compares all reports of the agent with a fresh start, and its history with the expected one.
    fn compare(&mut self) -> Result<(), String> {
        let now = self.base + self.clock;
        let agent = self.agent.as_mut().ok_or("the agent does not run")?;
        let saved = self.disk.entries();
        let observed = ObservedState::of(
            &agent.core,
            &agent.receivers,
            saved,
            &mut agent.renderer,
            now,
        );
        observed.compare(&invariants::observe_fresh_start(
            &self.store,
            &self.addresses,
            agent.core.pods(),
        )?)?;
        if self.disk.pods() != agent.core.pods() {
            return Err(format!(
                "the saved pods differ from the attached ones: {:?}",
                self.disk.pods()
            ));
        }
        let scrape = Scrape::of(&agent.receivers.metrics, &agent.core, now);
        agent.history.check(&agent.core, &scrape, now)
    }
}

/// The possible next steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Sync,
    Recover,
    Start,
    Arrive,
    Work,
    Timer,
    Repeat,
    Deliver,
    Write,
    Fault,
}

fn service_id(number: u16) -> ServiceId {
    ServiceId::new("default", service_name(number))
}

fn new_kernel(addresses: &LocalAddresses) -> ModelKernel {
    let kernel = ModelKernel::new();
    kernel.set_addresses(addresses.all());
    kernel
}

fn new_renderer(kernel: &ModelKernel, is_table_owned: bool) -> PoisonIsolator<Nftables> {
    let new = if is_table_owned {
        Nftables::owning_on
    } else {
        Nftables::on
    };
    PoisonIsolator::new(new(kernel.shared()))
}

/// The first answer to this request.
fn answer_to(request: RequestId, out: &[Output]) -> Option<&Answer> {
    out.iter().find_map(|output| match output {
        Output::Answer(of, answer) if *of == request => Some(answer),
        _ => None,
    })
}

/// The message of a panic.
fn describe_panic(payload: &(dyn Any + Send)) -> String {
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panic: {}", message.unwrap_or("without a message"))
}

fn brief_writes(writes: &[Write]) -> String {
    let name = |key: &str| {
        key.rsplit("k8s/")
            .next()
            .unwrap_or_default()
            .replace("/namespace/default", "")
    };
    let brief = |write: &Write| match write {
        Write::Put(key, value) if value.len() < 16 => format!("{} (bad)", name(key)),
        Write::Put(key, _) => name(key),
        Write::Delete(key) => format!("{} (deleted)", name(key)),
    };
    writes.iter().map(brief).collect::<Vec<_>>().join(", ")
}

fn brief(event: &StoreEvent) -> String {
    match event {
        StoreEvent::Listed(list) => format!(
            "a list of {} entries at {}",
            list.entries.len(),
            list.revision
        ),
        StoreEvent::Changed(batch, _) => {
            format!("{} changes until {}", batch.changes.len(), batch.revision)
        }
        other => format!("{other:?}"),
    }
}

/// Whether the agent knows its Node object after this event.
fn has_own_node(event: &StoreEvent) -> bool {
    let key = own_node_key(&NodeName::new(NODE));
    match event {
        StoreEvent::Listed(list) => list.has(&key),
        StoreEvent::Changed(batch, _) => {
            let last = batch.changes.iter().rfind(|change| change.key() == key);
            matches!(last, Some(Change::Put(_)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_is_a_violation_with_its_seed() {
        let mut world = World::new(7);
        world.note(|| "before it".to_owned());
        let number = 3;
        let violation = world
            .catch_panics(|_| panic!("test panic, {number}"))
            .unwrap_err();
        assert_eq!(
            (violation.seed, violation.what.as_str()),
            (7, "panic: test panic, 3")
        );
        assert!(violation.trace.contains("before it"), "{violation}");
        assert_eq!(
            world.catch_panics(|_| panic!("plain")).unwrap_err().what,
            "panic: plain"
        );
    }

    #[test]
    fn stopped_world_runs_no_further() {
        let mut world = World::new(7);
        world.stop_when(Arc::new(AtomicBool::new(true)));
        world.run(REST_INTERVAL).unwrap();
        assert_eq!(world.stats().rests, 0);
    }

    #[test]
    fn rests_are_an_hour_apart_however_long_it_runs() {
        let mut world = World::new(7);
        world.run(2 * REST_INTERVAL).unwrap();
        assert_eq!(
            (world.next_rest, world.stats().rests),
            (3 * REST_INTERVAL, 2)
        );
    }
}
