//! Everything fails at random while services change: what has a live backend answers all the while, and at the end the
//! kernel holds what a fresh start would put there.
//!
//! Each run has troubles of two sorts at the same time, one thread for each: of the store, and of the node, which are those
//! of the agent, its mirror and its table. `CONTIV_FAULT_SECONDS` makes a run longer, `CONTIV_FAULT_SEED` makes another.
#![expect(clippy::print_stdout, reason = "a run says what it did")]

mod changes;
mod kernel;
mod mirror;
mod node;
mod store;
mod tally;

use std::{
    env, panic,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Etcd, Frontend, Service, State, TARGET_PORT},
    lab::{
        Family, Lab, LabError, Namespace, Probes, Protocol, Responder, Result, RetryMode, isolated_within,
        wait_until,
    },
};
use parking_lot::RwLock;

use changes::Changes;
use node::NodeTroubles;
use store::StoreTroubles;
use tally::Tally;

/// For what must happen. Much more than is needed, so that a busy machine fails no test.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);
/// A member of etcd may be away for some seconds, and this machine may be busy.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Who may change the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    /// The agent, as by default: a flush passes over it, and no connection may even have to be tried again.
    Owned,
    /// Everybody: when the rules are gone for a moment, a client has to connect again.
    Open,
}

/// What all threads of a run share.
struct RunState<'lab> {
    lab: &'lab Lab,
    steady: Service,
    /// Until when there is trouble.
    end: Instant,
    /// Somebody has failed, or the end has come.
    done: AtomicBool,
    /// Held for writing while etcd has lost everything: who takes the mirror away meanwhile takes away all that was known.
    memory: RwLock<()>,
    /// The same for those who write: a store that has lost everything must not look as if most of it were there.
    content: RwLock<()>,
}

impl RunState<'_> {
    fn is_over(&self) -> bool {
        self.done.load(Ordering::Relaxed) || Instant::now() >= self.end
    }

    /// Does `work`; if that fails, the run is over for all.
    fn unless_failed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        work().inspect_err(|_| self.done.store(true, Ordering::Relaxed))
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn faults_leave_live_backends_answering_and_the_kernel_right() -> Result<()> {
    suffer("faults::faults_leave_live_backends_answering_and_the_kernel_right", Table::Owned)
}

#[test]
fn faults_and_foreign_changes_leave_an_open_table_whole() -> Result<()> {
    let test = "faults::faults_and_foreign_changes_leave_an_open_table_whole";
    suffer(test, Table::Open)
}

fn suffer(test: &str, table: Table) -> Result<()> {
    let (seconds, seed) = (number("CONTIV_FAULT_SECONDS", 20), number("CONTIV_FAULT_SEED", 1));
    let trouble = Duration::from_secs(seconds);
    // Some time besides for the start and the end.
    isolated_within(trouble + Duration::from_secs(180), test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let etcd = Etcd::start_members(lab)?;
        let steady = Service::new("steady", 80, &[lab.pod1.host, lab.pod3.host]);
        etcd.put(&steady)?;
        (0..changes::NAMES.len()).try_for_each(|number| etcd.put(&changes::service(number)))?;
        // What is gone from etcd is held until the end of the test, when it is confirmed.
        let mut flags = vec!["--mass-deletion-wait=1d".to_owned()];
        flags.extend((table == Table::Open).then(|| "--own-table=false".to_owned()));
        let options = AgentOptions { flags, ..AgentOptions::with_store(etcd.url()) };
        let agent = Agent::start(lab, &options)?;

        let scene = RunState {
            lab,
            steady,
            end: Instant::now() + trouble,
            done: AtomicBool::new(false),
            memory: RwLock::new(()),
            content: RwLock::new(()),
        };
        let run = run(&scene, table, seed, etcd, agent, &options)?;
        println!("seed {seed}, {table:?} table: {run}");
        assert!(run.probes.failed.is_empty(), "connections failed: {:#?}", run.probes.failed);
        assert!(run.probes.opened > 100, "too few were tried");
        kernel::assert_it_is_right(lab, &run.etcd, run.agent, &options)
    })
}

/// What a run left behind, and what it did.
struct Run<'lab> {
    etcd: Etcd<'lab>,
    agent: Agent<'lab>,
    troubles: Tally,
    changes: Changes,
    probes: Probes,
    lasted: Duration,
}

fn run<'lab>(
    scene: &RunState<'lab>,
    table: Table,
    seed: u64,
    etcd: Etcd<'lab>,
    agent: Agent<'lab>,
    options: &'lab AgentOptions,
) -> Result<Run<'lab>> {
    let start = Instant::now();
    let client = etcd.client().clone();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..changes::WRITERS)
            .map(|writer| {
                let client = &client;
                scope.spawn(move || changes::write(scene, client, writer, seed))
            })
            .collect();
        let clients: Vec<_> = probed(scene)
            .map(|(from, protocol, server)| {
                let patience = match table {
                    Table::Owned => RetryMode::Once(WRITE_TIMEOUT),
                    Table::Open => RetryMode::Again(WRITE_TIMEOUT),
                };
                scope.spawn(move || {
                    scene.unless_failed(|| from.probe(protocol, server, patience, &scene.done))
                })
            })
            .collect();
        let of_store = StoreTroubles::new(scene, etcd, seed);
        let of_node = NodeTroubles::new(scene, agent, options, table, seed);
        let of_store = scope.spawn(|| scene.unless_failed(|| of_store.suffer()));
        let of_node = scope.spawn(|| scene.unless_failed(|| of_node.suffer()));
        let (store, node) = (join(of_store), join(of_node));
        scene.done.store(true, Ordering::Relaxed);
        let mut changes = Changes::default();
        for writer in writers {
            changes += join(writer);
        }
        let mut probes = Probes::default();
        for client in clients {
            probes += join(client)?;
        }
        let failed = |error| LabError::Unexpected(format!("{error}; until then {changes}, {probes:?}"));
        let ((etcd, mut troubles), (agent, of_node)) = (store.map_err(failed)?, node.map_err(failed)?);
        troubles += of_node;
        Ok(Run { etcd, agent, troubles, changes, probes, lasted: start.elapsed() })
    })
}

/// Who asks the steady service, and how.
fn probed<'a>(
    scene: &'a RunState<'_>,
) -> impl Iterator<Item = (&'a Namespace, Protocol, std::net::SocketAddr)> {
    let lab = scene.lab;
    let address = |frontend, family| scene.steady.address(lab, frontend, family);
    Family::BOTH.into_iter().flat_map(move |family| {
        [
            (&lab.pod2, Protocol::Tcp, address(Frontend::ClusterIp, family)),
            (&lab.client, Protocol::Tcp, address(Frontend::LoadBalancer, family)),
            (&lab.client, Protocol::Udp, address(Frontend::NodePort, family)),
        ]
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
}

/// Until the store has taken this in.
fn put_for_sure(etcd: &Etcd<'_>, service: &Service) -> Result<()> {
    wait_until("etcd takes a service in", EVENT_TIMEOUT, || etcd.put(service).is_ok()).map(drop)
}
