//! Invariants: at every step for flows, and at rest for everything that the agent reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use contiv_agent::{
    health::HealthCheck,
    node::{
        core::Core,
        decode::Decoder,
        message::{Input, Now, Output, WorkDone},
    },
};
use contiv_model::ServiceId;
use contiv_renderer::{Renderer, nftables::Nftables, poison_isolator::PoisonIsolator};
use contiv_store::{Entry, FeedEvent, Snapshot};
use jiff::Timestamp;
use rand::{RngExt as _, rngs::SmallRng};

use crate::{
    cluster::{NODE_ADDRESS, cluster_ip, node_port},
    config,
    kernel::{Fate, ModelKernel, NewConnection},
    outputs,
    store::ModelStore,
};

/// How long after a change, or after the last trouble, a service must have a way to its endpoints.
pub const PROMISED_DELAY: Duration = Duration::from_secs(120);

/// So many services that go at once, of which most were known, are not to go without a second look.
pub const MASS_DELETION: usize = 10;

/// Everything that the agent tells the outside, but for times.
#[derive(Debug, PartialEq)]
pub struct Observed {
    /// Named, so that a difference can be told.
    parts: BTreeMap<&'static str, String>,
    /// The saved entries.
    saved: BTreeMap<String, Entry>,
    /// How the kernel differs from what it must have.
    drift: BTreeSet<String>,
}

impl Observed {
    /// Of an agent that is at rest.
    pub fn of(
        core: &Core,
        health_checks: &BTreeMap<ServiceId, HealthCheck>,
        saved: BTreeMap<String, Entry>,
        renderer: &mut dyn Renderer,
    ) -> Self {
        let snapshot = core.snapshot().unwrap_or_default();
        let quarantine: Vec<_> = core
            .quarantine(0)
            .into_iter()
            .map(|entry| (entry.source, entry.reason, entry.in_force))
            .collect();
        let (status, health) = (core.status(), core.proxy_health());
        let parts = BTreeMap::from([
            ("services", format!("{:#?}", core.services())),
            ("facts about the node", format!("{:#?}", snapshot.node)),
            ("sizes", format!("{:#?}", core.sizes())),
            ("quarantine", format!("{quarantine:#?}")),
            ("health checks", format!("{health_checks:#?}")),
            (
                "health of the node",
                format!("{:?}", (health.in_sync, health.unapplied_since, health.node_eligible)),
            ),
            ("readiness", format!("{:?}", (status.ready, status.synced, status.from_mirror))),
            ("revision", status.revision.to_string()),
            ("outage", format!("{:?}", (status.store_down, status.held_deletions))),
            ("number of entries in quarantine", status.quarantined.to_string()),
        ]);
        let verified = renderer.verifier().map(|mut verifier| verifier.verify(&snapshot));
        let drift = match verified {
            Some(Ok(verification)) => verification.drift.iter().map(ToString::to_string).collect(),
            Some(Err(error)) => BTreeSet::from([error.to_string()]),
            None => BTreeSet::new(),
        };
        Self { parts, saved, drift }
    }

    /// Compares it with what a fresh start comes to.
    pub fn compare(&self, fresh: &Self) -> Result<(), String> {
        if !self.drift.is_empty() {
            return Err(format!("at rest the kernel differs from the core: {:#?}", self.drift));
        }
        if !fresh.drift.is_empty() {
            return Err(format!("after a fresh start the kernel differs from the core: {:#?}", fresh.drift));
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
            return Err(format!("at rest the mirror differs from the store in {keys:?}"));
        }
        Ok(())
    }
}

/// The lines in which two texts differ.
fn difference(one: &str, other: &str) -> String {
    let (one, other): (Vec<&str>, Vec<&str>) = (one.lines().collect(), other.lines().collect());
    let start = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let part = |lines: &[&str]| {
        lines.iter().skip(start.saturating_sub(3)).take(12).copied().collect::<Vec<_>>().join("\n")
    };
    format!("it is:\n{}\nexpected:\n{}", part(&one), part(&other))
}

/// The state of an agent that starts now, without a mirror and with an empty kernel.
pub fn fresh(store: &ModelStore) -> Result<Observed, String> {
    let base = Instant::now();
    let now = Now { instant: base, time: Timestamp::UNIX_EPOCH, random: 0.5 };
    let config = contiv_agent::node::CoreConfig { has_mirror: false, ..config::core() };
    let mut core = Core::new(config, now);
    let mut decoder = Decoder::new(now.time);
    let kernel = ModelKernel::new();
    let mut renderer = PoisonIsolator::new(Nftables::owning_on(kernel.shared()));
    let mut health_checks = BTreeMap::new();
    let entries: Vec<Entry> = store.entries().values().cloned().collect();
    let list = FeedEvent::Snapshot(Snapshot { revision: store.revision(), entries, problems: Vec::new() });
    let Some(event) = decoder.decode(list) else { return Err("a snapshot is no list".to_owned()) };
    let mut out = Vec::new();
    core.handle(Input::Store(event, base), now, &mut out);
    while !out.is_empty() {
        for output in std::mem::take(&mut out) {
            match output {
                Output::Render(name, work) => {
                    let result = outputs::render(&mut renderer, &work).map_err(|error| error.to_string());
                    let done =
                        WorkDone { renderer: name, result, is_watched: true, duration: Duration::ZERO };
                    core.handle(Input::WorkDone(done), now, &mut out);
                }
                Output::HealthChecks(update) => {
                    outputs::update_health_checks(&mut health_checks, update.services);
                }
                _ => {}
            }
        }
    }
    check_stalls(&kernel)?;
    Ok(Observed::of(&core, &health_checks, store.entries().clone(), &mut renderer))
}

/// Nobody waits for an answer of the kernel that never comes.
pub fn check_stalls(kernel: &ModelKernel) -> Result<(), String> {
    match kernel.stalls() {
        0 => Ok(()),
        stalls => Err(format!("{stalls} times somebody waits for an answer of the kernel that never comes")),
    }
}

/// A new connection to a service goes to one of these endpoints; to its node port too, where node ports must answer.
pub fn check_flow(
    kernel: &ModelKernel,
    service: u16,
    endpoints: &[Ipv4Addr],
    has_node_ports: bool,
    rng: &mut SmallRng,
) -> Result<(), String> {
    let client = SocketAddr::from((Ipv4Addr::new(11, 255, 0, 1), 40_000));
    let address = SocketAddr::from((cluster_ip(service), 80));
    let node_port =
        node_port(service).filter(|_| has_node_ports).map(|port| SocketAddr::from((NODE_ADDRESS, port)));
    for destination in [Some(address), node_port].into_iter().flatten() {
        let connection =
            NewConnection { protocol: 6, client, destination, interface: Some("eth0".to_owned()) };
        match kernel.evaluate(&connection, &mut |bound| rng.random_range(0..bound)) {
            Fate::Delivered { server, .. } if endpoints.iter().any(|endpoint| server.ip() == *endpoint) => {}
            fate => {
                return Err(format!(
                    "a connection to {destination} of service s{service} with endpoints {endpoints:?} ends so: {fate:?}"
                ));
            }
        }
    }
    Ok(())
}
