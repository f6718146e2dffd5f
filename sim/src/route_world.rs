//! The route renderer on the modelled kernel, without a core: random services and addresses of the node, refused changes, other
//! programs that delete routes, links that go down, restarts. When everything is applied, the kernel must have the routes
//! that services need and nothing else of ours, as a fresh start judges.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    task::Poll,
};

use contiv_model::{
    Backend, BackendState, Carrier, ChangeSet, ContivService, Protocol, ServiceChange, ServiceId,
    ServicePort, Snapshot, TrafficPolicy,
};
use contiv_renderer::{
    RenderError, Renderer, Report, Verifier as _, Watch,
    route::{DirectOptions, Grouping, RouteOptions, RouteVerifier, Routes},
};
use rand::{RngExt as _, SeedableRng, rngs::SmallRng, seq::IndexedRandom as _};

use crate::{
    cluster::NODE_ADDRESS,
    expected::NODE_IPV6,
    kernel::{Errno, Forwarding, ModelKernel, RoutingChange, router},
};

const SERVICES: u32 = 4;
/// Addresses of services in each family, which move between them.
const ADDRESSES: u16 = 6;
/// Endpoints in each family; every third is a pod of the node.
const ENDPOINTS: u8 = 8;
/// How often the renderer is called until it has applied everything.
const MAX_CALLS: usize = 20;

/// A renderer and its kernel.
pub struct RouteWorld {
    seed: u64,
    rng: SmallRng,
    kernel: ModelKernel,
    options: RouteOptions,
    renderer: Routes,
    watch: Option<Box<dyn Watch>>,
    /// The last call failed, or there was none.
    needs_resync: bool,
    /// Another program has changed something.
    needs_heal: bool,
    are_pods_up: bool,
    state: Snapshot,
    last_report: Report,
    steps: Vec<String>,
    checks: u64,
}

impl RouteWorld {
    /// A world determined by this seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let grouping = if rng.random() {
            Grouping::Plain
        } else {
            Grouping::Resilient { idle: 120 }
        };
        let options = RouteOptions {
            reach_from_node: rng.random(),
            direct: DirectOptions {
                grouping,
                ..RouteOptions::default().direct
            },
            ..RouteOptions::default()
        };
        let kernel = ModelKernel::new();
        let renderer = Routes::on(kernel.shared(), options);
        let mut world = Self {
            seed,
            rng,
            kernel,
            options,
            renderer,
            watch: None,
            needs_resync: true,
            needs_heal: false,
            are_pods_up: true,
            state: Snapshot::default(),
            last_report: Report::default(),
            steps: Vec::new(),
            checks: 0,
        };
        world.set_addresses(true);
        world
    }

    /// How often the kernel was compared.
    pub const fn checks(&self) -> u64 {
        self.checks
    }

    /// Makes so many steps.
    ///
    /// # Errors
    /// When the kernel has something else than it should, with the seed and the last steps.
    pub fn run(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            self.step().map_err(|what| {
                let last = self.steps.len().saturating_sub(30);
                format!(
                    "seed {} of routes: {what}\n{}",
                    self.seed,
                    self.steps[last..].join("\n")
                )
            })?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.random_range(0..100) {
            0..62 => self.change_service(),
            62..68 => {
                let has_ipv6 = self.rng.random();
                self.set_addresses(has_ipv6);
            }
            68..76 => {
                let errno =
                    [Errno::ENOMEM, Errno::ENOBUFS, Errno::EINTR][self.rng.random_range(0..3)];
                self.note(|| format!("the kernel refuses the next change: {errno}"));
                self.kernel.refuse_routing(errno);
            }
            76..79 => self.kernel.interrupt_routing_dump(),
            79..90 => self.change_as_other(),
            90..95 => {
                self.note(|| "restart".to_owned());
                self.renderer = Routes::on(self.kernel.shared(), self.options);
                (self.watch, self.needs_resync) = (None, true);
            }
            _ => self.needs_resync = true,
        }
        self.read_watch()?;
        if self.rng.random_bool(0.6) {
            self.settle()?;
            self.check()?;
        }
        Ok(())
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        self.steps.push(what());
    }

    /// The node has both addresses, or only that of IPv4.
    fn set_addresses(&mut self, has_ipv6: bool) {
        self.note(|| format!("the node has an address of IPv6: {has_ipv6}"));
        let own: BTreeSet<IpAddr> = [NODE_ADDRESS]
            .into_iter()
            .chain(has_ipv6.then_some(NODE_IPV6.into()))
            .collect();
        self.kernel.set_addresses(own.clone());
        let mut next = self.state.clone();
        (
            next.node.local_ips,
            next.node.primary_ips,
            next.node.node_ips,
        ) = (own.clone(), own.clone(), own);
        self.apply(next);
    }

    fn change_as_other(&mut self) {
        let at = self.rng.random_range(0..32);
        let change = match self.rng.random_range(0..8) {
            0..3 => RoutingChange::TogglePods,
            3 | 4 => RoutingChange::DeleteRoute(at),
            5 => RoutingChange::DeleteNextHop(at),
            6 => RoutingChange::DeleteRule(at),
            _ => {
                // A change whose notification is lost.
                self.kernel
                    .lose_routing_notifications(RoutingChange::DeleteRoute(at));
                self.note(|| "notifications are lost".to_owned());
                return;
            }
        };
        self.are_pods_up ^= change == RoutingChange::TogglePods;
        self.note(|| format!("{change:?}"));
        self.kernel.change_routing(change);
    }

    /// Replaces or removes one service. Its addresses may be those that others have now, which lose them by the same change.
    fn change_service(&mut self) {
        let mut next = self.state.clone();
        let name = format!("s{}", self.rng.random_range(0..SERVICES));
        let id = ServiceId::new("default", &*name);
        if self.rng.random_bool(0.2) {
            next.services.remove(&id);
        } else {
            let count = self.rng.random_range(0..5);
            let addresses: BTreeSet<IpAddr> =
                (0..count).map(|_| random_address(&mut self.rng)).collect();
            for other in next.services.values_mut().filter(|other| other.id != id) {
                if other
                    .external_ips
                    .iter()
                    .any(|address| addresses.contains(address))
                {
                    let kept = other
                        .external_ips
                        .iter()
                        .filter(|address| !addresses.contains(address));
                    let kept = kept.copied().collect();
                    Arc::make_mut(other).external_ips = kept;
                }
            }
            let service = random_service(id.clone(), addresses, &mut self.rng);
            next.services.insert(id, Arc::new(service));
        }
        self.apply(next);
    }

    /// Gives the renderer the changes to this state, unless it needs a resync in any case.
    fn apply(&mut self, next: Snapshot) {
        let changes = ChangeSet::between(&self.state, &next);
        self.state = next;
        if !self.needs_resync && !changes.is_empty() {
            let result = self.renderer.update(&changes);
            self.steps.push(format!("update: {}", brief(&changes)));
            self.finish(result);
        }
    }

    fn finish(&mut self, result: Result<Report, RenderError>) {
        match result {
            Ok(report) => self.last_report = report,
            Err(error) => {
                self.note(|| format!("failed: {error}"));
                self.needs_resync = true;
            }
        }
    }

    fn read_watch(&mut self) -> Result<(), String> {
        while let Some(watch) = &mut self.watch {
            match watch.try_next().map_err(|error| error.to_string())? {
                Poll::Ready(Some(change)) => {
                    self.needs_heal = true;
                    self.note(|| format!("watched: {change}"));
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Lets the renderer finish: resyncs after failures, repairs after foreign changes.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..MAX_CALLS {
            self.read_watch()?;
            if self.needs_resync {
                (self.needs_resync, self.needs_heal) = (false, false);
                if self.watch.is_none() {
                    self.watch = self.renderer.watch().map_err(|error| error.to_string())?;
                }
                let result = self.renderer.resync(&self.state);
                self.note(|| "resync".to_owned());
                self.finish(result);
            } else if std::mem::take(&mut self.needs_heal) {
                let result = self.renderer.heal(&self.state);
                self.note(|| "heal".to_owned());
                self.finish(result);
            } else {
                return Ok(());
            }
        }
        Err("the renderer never finishes".to_owned())
    }

    fn check(&mut self) -> Result<(), String> {
        self.checks += 1;
        self.kernel.forget_routing_faults();
        let mut verifier = RouteVerifier::on(self.kernel.shared(), self.options);
        let verification = verifier
            .verify(&self.state)
            .map_err(|error| error.to_string())?;
        let rejected: BTreeSet<&ServiceId> = self
            .last_report
            .rejected
            .iter()
            .map(|rejected| &rejected.service)
            .collect();
        let is_unexpected = |service: &Option<ServiceId>| {
            service
                .as_ref()
                .is_none_or(|service| !rejected.contains(service))
        };
        if let Some(drift) = verification
            .drift
            .iter()
            .find(|drift| is_unexpected(&drift.service))
        {
            return Err(format!("the verifier finds a difference: {drift:?}"));
        }
        if self.are_pods_up {
            self.check_forwarding()?;
        }
        let before = self.kernel.routing();
        let mut fresh = Routes::on(self.kernel.shared(), self.options);
        let report = fresh
            .resync(&self.state)
            .map_err(|error| error.to_string())?;
        if (report.added, report.removed) != (0, 0) {
            let after = self.kernel.routing();
            let gone: Vec<&String> = before.difference(&after).collect();
            let new: Vec<&String> = after.difference(&before).collect();
            return Err(format!("a fresh start removes {gone:#?} and adds {new:#?}"));
        }
        Ok(())
    }

    /// Compares where packets to each address go with where they should.
    fn check_forwarding(&self) -> Result<(), String> {
        let routed = self
            .state
            .services
            .values()
            .filter(|service| service.assignment.addresses == Carrier::Route);
        for service in routed {
            for address in service.addresses() {
                let expected = expected(service, address);
                let found = self.kernel.forwarding(address, self.options.direct.table);
                if found != expected {
                    return Err(format!(
                        "packets to {address} go to {found:?}, expected {expected:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The changed services, with their addresses and backends.
fn brief(changes: &ChangeSet) -> String {
    let service = |change: &ServiceChange| {
        change.new.as_ref().map_or_else(
            || "deleted".to_owned(),
            |service| {
                let backend = |backend: &Backend| {
                    let state = if backend.state == BackendState::Ready {
                        ""
                    } else {
                        " terminating"
                    };
                    format!("{}*{}{state}", backend.address, backend.weight)
                };
                let backends: Vec<String> = service
                    .ports
                    .iter()
                    .flat_map(|port| &port.backends)
                    .map(backend)
                    .collect();
                let (carrier, policy) = (service.assignment.addresses, service.external_policy);
                let addresses: Vec<IpAddr> = service.addresses().collect();
                format!("{addresses:?} by {carrier:?}, {policy:?}: {backends:?}")
            },
        )
    };
    let services = changes
        .services
        .iter()
        .map(|(id, change)| format!("{id} {}", service(change)));
    let node = changes
        .node
        .iter()
        .map(|node| format!("node {:?}", node.local_ips));
    services.chain(node).collect::<Vec<_>>().join("; ")
}

fn random_address(rng: &mut SmallRng) -> IpAddr {
    let last = rng.random_range(1..=ADDRESSES);
    if rng.random() {
        Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, last).into()
    } else {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(203, 0, 113, 0)) + u32::from(last)).into()
    }
}

/// The address of an endpoint: that of a pod of the node, or of another host's.
fn endpoint(is_ipv4: bool, is_local: bool, number: u8) -> IpAddr {
    if is_ipv4 {
        Ipv4Addr::new(10, 244, if is_local { 1 } else { 2 }, number).into()
    } else {
        Ipv6Addr::new(
            0xfd44,
            if is_local { 1 } else { 2 },
            0,
            0,
            0,
            0,
            0,
            number.into(),
        )
        .into()
    }
}

fn random_service(id: ServiceId, addresses: BTreeSet<IpAddr>, rng: &mut SmallRng) -> ContivService {
    let mut backends = Vec::new();
    for is_ipv4 in [true, false] {
        let numbers: Vec<u8> = (1..=ENDPOINTS).collect();
        let count = rng.random_range(0..=4);
        for number in numbers.sample(rng, count) {
            let state = if rng.random_bool(0.2) {
                BackendState::Terminating
            } else {
                BackendState::Ready
            };
            let local = number.is_multiple_of(3);
            let address = endpoint(is_ipv4, local, *number);
            let weight = rng.random_range(1..4);
            backends.push(Backend {
                state,
                weight,
                local,
                ..Backend::new((address, 8080).into())
            });
        }
    }
    if rng.random_bool(0.1) {
        let own = Backend::new((NODE_ADDRESS, 8080).into());
        backends.push(Backend {
            local: true,
            host_network: true,
            ..own
        });
    }
    let port = ServicePort {
        port: 80,
        protocol: Protocol::Tcp,
        name: "".into(),
        node_port: None,
        backends,
    };
    let mut service = ContivService {
        external_ips: addresses.into_iter().collect(),
        ports: vec![port],
        ..ContivService::new(id)
    };
    if rng.random_bool(0.3) {
        service.external_policy = TrafficPolicy::Local;
    }
    service.assignment.addresses = match rng.random_range(0..10) {
        0 | 1 => Carrier::Nftables,
        _ => Carrier::Route,
    };
    service
}

/// Where packets to an address of a service go: to ready backends here, else to ready ones elsewhere, else to terminating ones
/// here, else elsewhere. With policy Local only those here count.
fn expected(service: &ContivService, address: IpAddr) -> Forwarding {
    let all = || service.ports.iter().flat_map(|port| &port.backends);
    let is_allowed =
        |backend: &&Backend| backend.local || service.external_policy == TrafficPolicy::Cluster;
    let of_family: Vec<&Backend> = all()
        .filter(|backend| backend.address.is_ipv4() == address.is_ipv4())
        .filter(is_allowed)
        .collect();
    let order = [
        (BackendState::Ready, true),
        (BackendState::Ready, false),
        (BackendState::Terminating, true),
        (BackendState::Terminating, false),
    ];
    let matching = |(state, local)| -> Vec<&Backend> {
        let found = of_family
            .iter()
            .filter(|backend| (backend.state, backend.local) == (state, local));
        found.copied().collect()
    };
    let Some(chosen) = order
        .into_iter()
        .map(matching)
        .find(|found| !found.is_empty())
    else {
        return Forwarding::Dropped;
    };
    if chosen.iter().any(|backend| backend.host_network) {
        return Forwarding::Local;
    }
    let next_hop = |backend: &&Backend| {
        if backend.local {
            backend.address
        } else {
            router(backend.address)
        }
    };
    Forwarding::NextHops(chosen.iter().map(next_hop).collect())
}
