//! Invariants: for flows at every step, and for all reports of the agent at rest.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    time::{Duration, Instant},
};

use contiv_model::{Frontend, InterfaceName, PodId, Protocol};
use contiv_node::{
    Core, RendererView,
    decode::Decoder,
    message::{Input, MirrorReport, Now, Output, WorkDone},
    metrics::ServiceSizes,
};
use contiv_renderer::{Renderer, nftables::Nftables, poison_isolator::PoisonIsolator};
use contiv_store::{Entry, FeedEvent, Snapshot};
use jiff::Timestamp;
use rand::{RngExt as _, rngs::SmallRng};

use crate::{
    cluster::{NodeFacts, ServedService, Transport},
    config,
    disk::ModelDisk,
    expected::{self, Client},
    kernel::{ModelKernel, NewConnection},
    local_addresses::LocalAddresses,
    long_flows::FIRST_PORT,
    metrics::Scrape,
    outputs::{self, Receivers},
    store::ModelStore,
};

/// After this time without changes and faults, connections to a service must reach its endpoints.
pub const CONVERGENCE_LIMIT: Duration = Duration::from_secs(120);

/// The minimum number of services whose deletion at once must be held, if it is more than half of them.
pub const MIN_MASS_DELETION: usize = 10;

/// Everything that the agent reports, except times.
#[derive(Debug, PartialEq)]
pub struct ObservedState {
    /// By name, for the description of a difference.
    parts: BTreeMap<&'static str, String>,
    /// The saved entries.
    saved: BTreeMap<String, Entry>,
    /// The differences of the kernel's table from the desired one.
    drift: BTreeSet<String>,
}

impl ObservedState {
    /// Collects the reports of an agent at rest.
    pub(crate) fn of(
        core: &Core,
        receivers: &Receivers,
        saved: BTreeMap<String, Entry>,
        renderer: &mut dyn Renderer,
        now: Instant,
    ) -> Self {
        let snapshot = core.snapshot().unwrap_or_default();
        let quarantine: Vec<_> = core
            .quarantine(0)
            .into_iter()
            .map(|entry| (entry.source, entry.reason, entry.active_state))
            .collect();
        let (status, health) = (core.status(), core.proxy_health());
        let mirror = status.mirror.map(|mirror| (mirror.revision, mirror.error));
        let renderers: Vec<_> = core.renderers(now).into_iter().map(without_times).collect();
        let Receivers {
            health_checks,
            metrics,
            watched,
        } = receivers;
        let parts = BTreeMap::from([
            ("services", format!("{:?}", core.services())),
            ("facts about the node", format!("{:?}", snapshot.node)),
            ("sizes", format!("{:?}", ServiceSizes::of(core))),
            ("quarantine", format!("{quarantine:?}")),
            ("health checks", format!("{:?}", health_checks.services)),
            (
                "addresses of health checks",
                format!("{:?}", health_checks.node_ips),
            ),
            ("watched backends", format!("{watched:?}")),
            ("attached pods", format!("{:?}", core.pods())),
            (
                "interfaces",
                format!(
                    "{:?}",
                    (&snapshot.frontend_interfaces, &snapshot.backend_interfaces)
                ),
            ),
            ("renderers", format!("{renderers:?}")),
            ("metrics", Scrape::of(metrics, core, now).gauges()),
            ("mirror", format!("{mirror:?}")),
            (
                "health of the node",
                format!(
                    "{:?}",
                    (health.in_sync, health.unapplied_since, health.node_eligible)
                ),
            ),
            (
                "readiness",
                format!("{:?}", (status.ready, status.synced, status.from_mirror)),
            ),
            ("revision", status.revision.to_string()),
            (
                "outage",
                format!("{:?}", (status.store_down, status.held_deletions)),
            ),
            (
                "number of entries in quarantine",
                status.quarantined.to_string(),
            ),
        ]);
        let verified = renderer
            .verifier()
            .map(|mut verifier| verifier.verify(&snapshot));
        let drift = match verified {
            Some(Ok(verification)) => verification.drift.iter().map(ToString::to_string).collect(),
            Some(Err(error)) => BTreeSet::from([error.to_string()]),
            None => BTreeSet::new(),
        };
        Self {
            parts,
            saved,
            drift,
        }
    }

    /// Compares with the reports after a fresh start.
    pub fn compare(&self, fresh: &Self) -> Result<(), String> {
        if !self.drift.is_empty() {
            return Err(format!(
                "at rest the kernel differs from the core: {:#?}",
                self.drift
            ));
        }
        if !fresh.drift.is_empty() {
            return Err(format!(
                "after a fresh start the kernel differs from the core: {:#?}",
                fresh.drift
            ));
        }
        for (name, part) in &self.parts {
            let expected = &fresh.parts[name];
            if part != expected {
                return Err(format!(
                    "at rest {name} differ from a fresh start's:\n{}",
                    difference(part, expected)
                ));
            }
        }
        if self.saved != fresh.saved {
            let keys: Vec<&String> = self
                .saved
                .keys()
                .chain(fresh.saved.keys())
                .filter(|key| self.saved.get(*key) != fresh.saved.get(*key))
                .collect();
            return Err(format!(
                "at rest the mirror differs from the store in {keys:?}"
            ));
        }
        Ok(())
    }
}

/// The fields that depend only on the state.
fn without_times(renderer: RendererView) -> impl std::fmt::Debug {
    let RendererView {
        name,
        state,
        ready,
        applied_revision,
        pending,
        pending_services,
        ..
    } = renderer;
    let RendererView {
        failures,
        watched,
        damped,
        ..
    } = renderer;
    (
        name,
        state,
        ready,
        applied_revision,
        pending,
        pending_services,
        failures,
        watched,
        damped,
    )
}

/// The first fields in which two texts differ, a line each.
fn difference(one: &str, other: &str) -> String {
    let fields = |text| str::split(text, [',', '\n']).collect::<Vec<_>>();
    let (one, other) = (fields(one), fields(other));
    let start = one
        .iter()
        .zip(&other)
        .take_while(|(one, other)| one == other)
        .count();
    let part = |lines: &[&str]| {
        lines
            .iter()
            .skip(start.saturating_sub(3))
            .take(12)
            .copied()
            .collect::<Vec<_>>()
            .join("\n")
    };
    format!("it is:\n{}\nexpected:\n{}", part(&one), part(&other))
}

/// The reports of an agent that starts now with this store, on a node with these addresses and attached pods, with an empty
/// mirror and an empty kernel.
pub(crate) fn observe_fresh_start(
    store: &ModelStore,
    addresses: &LocalAddresses,
    attached: &BTreeMap<PodId, InterfaceName>,
) -> Result<ObservedState, String> {
    let base = Instant::now();
    let now = Now {
        instant: base,
        time: Timestamp::UNIX_EPOCH,
        random: 0.5,
    };
    let mut core = Core::new(config::core(addresses, attached), now);
    let mut decoder = Decoder::new(now.time);
    let kernel = ModelKernel::new();
    let mut renderer = PoisonIsolator::new(Nftables::owning_on(kernel.shared()));
    let (mut receivers, mut disk) = (Receivers::default(), ModelDisk::default());
    let entries: Vec<Entry> = store.entries().values().cloned().collect();
    let list = FeedEvent::Snapshot(Snapshot {
        revision: store.revision(),
        entries,
        problems: Vec::new(),
    });
    let Some(event) = decoder.decode(list) else {
        return Err("a snapshot is no list".to_owned());
    };
    let mut inputs = VecDeque::from([Input::Store(event, base)]);
    let mut out = Vec::new();
    while let Some(input) = inputs.pop_front() {
        core.handle(input, now, &mut |output| out.push(output));
        for output in out.drain(..) {
            match output {
                Output::Render(name, work) => {
                    let result =
                        outputs::render(&mut renderer, &work).map_err(|error| error.to_string());
                    let done = WorkDone {
                        renderer: name,
                        result,
                        is_watched: true,
                        duration: Duration::ZERO,
                    };
                    inputs.push_back(Input::WorkDone(done));
                }
                Output::HealthChecks(update) => receivers.health_checks.update(update),
                Output::WatchBackends(changes) => receivers.watch(changes)?,
                Output::Count(metric) => receivers.metrics.node.count(&metric),
                Output::LoadSaved => {
                    inputs.push_back(Input::Mirror(MirrorReport::Loaded(disk.load())));
                }
                Output::Save(saving) => {
                    let written = disk
                        .save(saving, None)
                        .map(|revision| MirrorReport::Written {
                            revision,
                            is_behind: false,
                        });
                    inputs.extend(written.map(Input::Mirror));
                }
                _ => {}
            }
        }
    }
    check_stalls(&kernel)?;
    if disk.entries() != *store.entries() {
        return Err("a fresh start does not save the stored entries".to_owned());
    }
    Ok(ObservedState::of(
        &core,
        &receivers,
        disk.entries(),
        &mut renderer,
        now.instant,
    ))
}

/// The agent must never wait for an answer that the kernel does not send.
pub fn check_stalls(kernel: &ModelKernel) -> Result<(), String> {
    match kernel.stalls() {
        0 => Ok(()),
        stalls => Err(format!(
            "the agent waited {stalls} times for an answer that the kernel does not send"
        )),
    }
}

/// The frontend that a connection has as its destination.
fn frontend_of(connection: &NewConnection, node_addresses: &BTreeSet<IpAddr>) -> Frontend {
    let (address, port) = (connection.destination.ip(), connection.destination.port());
    let is_tcp = connection.protocol == Transport::Tcp.number();
    let protocol = if is_tcp { Protocol::Tcp } else { Protocol::Udp };
    if node_addresses.contains(&address) {
        Frontend::NodePort { protocol, port }
    } else {
        Frontend::Address {
            address,
            protocol,
            port,
        }
    }
}

/// The addresses of a service that are tried.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tried<'a> {
    All,
    /// One at random, of those that the service has not lost to another one.
    OneExcept(&'a BTreeSet<Frontend>),
}

/// Opens connections of this client to the service, and compares their results with the expected ones.
pub(crate) fn check_flows(
    kernel: &ModelKernel,
    service: &ServedService,
    client: Client,
    node: &NodeFacts,
    node_addresses: &BTreeSet<IpAddr>,
    tried: Tried<'_>,
    rng: &mut SmallRng,
) -> Result<u64, String> {
    let mut connections = expected::connections(
        service,
        client,
        rng.random_range(1024..FIRST_PORT),
        node,
        node_addresses,
    );
    if let Tried::OneExcept(lost) = tried {
        connections.retain(|connection| {
            !lost.contains(&frontend_of(connection.connection(), node_addresses))
        });
        if connections.is_empty() {
            return Ok(0);
        }
        let chosen = connections.swap_remove(rng.random_range(0..connections.len()));
        connections = vec![chosen];
    }
    for connection in &connections {
        let mut draw = |bound| rng.random_range(0..bound);
        // With affinity the first packet stores the backend for the next connections of the client.
        let fate = if service.spec.has_affinity {
            kernel.open(connection.connection(), &mut draw)
        } else {
            kernel.evaluate(connection.connection(), &mut draw)
        };
        connection
            .check(&fate)
            .map_err(|what| format!("{what}; {service:#?}"))?;
    }
    kernel.close_connections(|connection| connection.client.port() < FIRST_PORT);
    Ok(connections.len() as u64)
}
