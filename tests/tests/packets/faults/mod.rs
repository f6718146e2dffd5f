//! Random faults while services change: a service with a live backend answers all the time, and at the end the kernel holds the
//! same as after a fresh start.
//!
//! Each run has two threads of faults: those of the store, and those of the node, which are the agent, its mirror and its
//! table. `CONTIV_FAULT_SECONDS` sets the length of a run, `CONTIV_FAULT_SEED` its seed.
#![expect(clippy::print_stdout, reason = "a run prints its counts")]

mod changes;
mod kernel;
mod mirror;
mod node;
mod run_result;
mod run_state;
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
        Family, LabError, Namespace, Probes, Protocol, Responder, Result, RetryMode,
        isolated_within,
    },
};
use parking_lot::RwLock;

use changes::Changes;
use node::NodeFaults;
use run_result::RunResult;
use run_state::{RunState, Table, WRITE_TIMEOUT};
use store::StoreFaults;

fn number_from_env(name: &str, default: u64) -> u64 {
    env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

#[test]
fn live_backends_answer_and_table_is_correct_after_faults() -> Result<()> {
    run_faults(
        "faults::live_backends_answer_and_table_is_correct_after_faults",
        Table::Owned,
    )
}

#[test]
fn open_table_ends_correct_after_faults_and_foreign_changes() -> Result<()> {
    let test = "faults::open_table_ends_correct_after_faults_and_foreign_changes";
    run_faults(test, Table::Open)
}

fn run_faults(test: &str, table: Table) -> Result<()> {
    let (seconds, seed) = (
        number_from_env("CONTIV_FAULT_SECONDS", 20),
        number_from_env("CONTIV_FAULT_SEED", 1),
    );
    let duration = Duration::from_secs(seconds);
    // Additional time for the start and the end.
    isolated_within(duration + Duration::from_secs(180), test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let etcd = Etcd::start_members(lab)?;
        let steady = Service::new("steady", 80, &[lab.pod1.host, lab.pod3.host]);
        etcd.put(&steady)?;
        (0..changes::NAMES.len()).try_for_each(|number| etcd.put(&changes::service(number)))?;
        // Deletions in etcd are held until they are confirmed at the end of the test.
        let mut flags = vec!["--mass-deletion-wait=1d".to_owned()];
        flags.extend((table == Table::Open).then(|| "--own-table=false".to_owned()));
        let options = AgentOptions {
            flags,
            ..AgentOptions::with_store(etcd.url())
        };
        let agent = Agent::start(lab, &options)?;

        let scene = RunState {
            lab,
            steady,
            end: Instant::now() + duration,
            done: AtomicBool::new(false),
            mirror_removal: RwLock::new(()),
            store_writes: RwLock::new(()),
        };
        let run = run(&scene, table, seed, etcd, agent, &options)?;
        println!("seed {seed}, {table:?} table: {run}");
        assert!(
            run.probes.failed.is_empty(),
            "connections failed: {:#?}",
            run.probes.failed
        );
        assert!(run.probes.opened > 100, "too few connections were opened");
        assert!(run.changes.written > 100, "too few changes were written");
        kernel::assert_it_is_right(lab, &run.etcd, run.agent, &options)
    })
}

fn run<'lab>(
    scene: &RunState<'lab>,
    table: Table,
    seed: u64,
    etcd: Etcd<'lab>,
    agent: Agent<'lab>,
    options: &'lab AgentOptions,
) -> Result<RunResult<'lab>> {
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
                let retry_mode = match table {
                    Table::Owned => RetryMode::Once(WRITE_TIMEOUT),
                    Table::Open => RetryMode::Again(WRITE_TIMEOUT),
                };
                scope.spawn(move || {
                    scene.unless_failed(|| from.probe(protocol, server, retry_mode, &scene.done))
                })
            })
            .collect();
        let of_store = StoreFaults::new(scene, etcd, seed);
        let of_node = NodeFaults::new(scene, agent, options, table, seed);
        let of_store = scope.spawn(|| scene.unless_failed(|| of_store.run_faults()));
        let of_node = scope.spawn(|| scene.unless_failed(|| of_node.run_faults()));
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
        let failed =
            |error| LabError::Unexpected(format!("{error}; until then {changes}, {probes:?}"));
        let ((etcd, mut faults), (agent, of_node)) =
            (store.map_err(failed)?, node.map_err(failed)?);
        for (place, tally) in [("the store", &faults), ("the node", &of_node)] {
            assert!(!tally.0.is_empty(), "no fault of {place} was injected");
        }
        faults += of_node;
        Ok(RunResult {
            etcd,
            agent,
            faults,
            changes,
            probes,
            duration: start.elapsed(),
        })
    })
}

/// Sends requests to the steady service.
fn probed<'a>(
    scene: &'a RunState<'_>,
) -> impl Iterator<Item = (&'a Namespace, Protocol, std::net::SocketAddr)> {
    let lab = scene.lab;
    let address = |frontend, family| scene.steady.address(lab, frontend, family);
    Family::BOTH.into_iter().flat_map(move |family| {
        [
            (
                &lab.pod2,
                Protocol::Tcp,
                address(Frontend::ClusterIp, family),
            ),
            (
                &lab.client,
                Protocol::Tcp,
                address(Frontend::LoadBalancer, family),
            ),
            (
                &lab.client,
                Protocol::Udp,
                address(Frontend::NodePort, family),
            ),
        ]
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|cause| panic::resume_unwind(cause))
}
