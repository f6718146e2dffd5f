//! Faults of the node: of the agent, its mirror, and its table.

use std::{fs, path::PathBuf, thread, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions},
    lab::{LabError, Result, scratch, wait_until},
};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{
    mirror,
    run_state::{EVENT_TIMEOUT, RunState, Table},
    tally::Tally,
};

/// Separates the random numbers of the node's faults from others with the same seed.
const STREAM: u64 = 0x0de0_0000;
/// The name of the agent's process.
pub(super) const AGENT: &str = "agent";

/// Changes by other processes. Deleting what is already gone is no failure.
const MANUAL_CHANGES: [&str; 7] = [
    "flush ruleset",
    "flush ruleset",
    "delete table inet contiv",
    "flush map inet contiv services4",
    "flush map inet contiv backends6",
    "flush chain inet contiv services-v4",
    "add element inet contiv cluster-ips4 { 192.0.2.1 }",
];

/// Calls to the kernel that fail, and their errors. The first two serve netlink and TCP sockets.
const FAILING_CALLS: [&str; 6] = [
    "sendto:error=ENOBUFS",
    "sendto:error=EPERM",
    "recvfrom:error=ENOBUFS",
    "recvfrom:error=EINTR",
    "pwrite64:error=ENOSPC",
    "fsync,fdatasync:error=EIO",
];

pub(super) struct NodeFaults<'run, 'lab> {
    scene: &'run RunState<'lab>,
    agent: Option<Agent<'lab>>,
    options: &'lab AgentOptions,
    table: Table,
    random: StdRng,
    tally: Tally,
}

impl<'run, 'lab> NodeFaults<'run, 'lab> {
    pub(super) fn new(
        scene: &'run RunState<'lab>,
        agent: Agent<'lab>,
        options: &'lab AgentOptions,
        table: Table,
        seed: u64,
    ) -> Self {
        let random = StdRng::seed_from_u64(seed ^ STREAM);
        Self {
            scene,
            agent: Some(agent),
            options,
            table,
            random,
            tally: Tally::default(),
        }
    }

    /// One fault after the other until the end; then an agent runs.
    pub(super) fn run_faults(mut self) -> Result<(Agent<'lab>, Tally)> {
        while !self.scene.is_over() {
            self.inject_fault()?;
            thread::sleep(Duration::from_millis(self.random.random_range(0..600)));
        }
        let agent = match self.agent.take() {
            Some(agent) => agent,
            None => self.started()?,
        };
        Ok((agent, self.tally))
    }

    fn inject_fault(&mut self) -> Result<()> {
        match self.random.random_range(0..20) {
            0..5 => {
                self.kill("the agent killed")?;
                self.agent = Some(self.started()?);
                Ok(())
            }
            5..8 => self.kill_while_it_starts(),
            8..10 => {
                self.tally.count("the agent stopped and started");
                self.agent.take().map(Agent::stop).transpose()?;
                self.agent = Some(self.started()?);
                Ok(())
            }
            10 | 11 => {
                self.tally.count("the agent paused");
                self.running()?.pause()?;
                self.last(3000);
                self.running()?.resume()
            }
            12..14 => self.damage_the_mirror(),
            14 => self.few_files(),
            15 | 16 => self.failing_calls(),
            _ => {
                self.damage_the_table();
                Ok(())
            }
        }
    }

    fn kill(&mut self, what: &'static str) -> Result<()> {
        let Some(agent) = self.agent.take() else {
            return Ok(());
        };
        agent.kill()?;
        self.tally.count(what);
        self.last(400);
        Ok(())
    }

    fn kill_while_it_starts(&mut self) -> Result<()> {
        self.kill("the agent killed")?;
        for _ in 0..self.random.random_range(1..4) {
            self.agent = Some(self.launched()?);
            self.last(500);
            self.kill("the agent killed while it starts")?;
        }
        self.agent = Some(self.started()?);
        Ok(())
    }

    /// Not while etcd has lost everything too: then the state would be lost.
    fn damage_the_mirror(&mut self) -> Result<()> {
        let _etcd_has_everything = self.scene.mirror_removal.read();
        self.kill("the agent killed")?;
        let file = mirror_file("mirror.redb")?;
        // An interrupted start may have left no file.
        if file.exists() {
            self.tally.count(mirror::damage(&file, &mut self.random)?);
        }
        self.agent = Some(self.started()?);
        self.wait_until_mirror_is_right()?;
        let quarantined = mirror_file("mirror.redb.damaged")?;
        if fs::remove_file(quarantined).is_ok() {
            self.tally.count("a damaged mirror in quarantine");
        }
        Ok(())
    }

    /// Changes continue, so the mirror need not have the last one.
    fn wait_until_mirror_is_right(&self) -> Result<()> {
        let agent = self.running()?;
        wait_until(
            "the mirror is written without an error",
            EVENT_TIMEOUT,
            || {
                agent.status().is_ok_and(|status| {
                    status["mirror"]["revision"].is_i64() && status["mirror"].get("error").is_none()
                })
            },
        )
        .map(drop)
    }

    /// The agent can open no file and no connection for a while.
    fn few_files(&mut self) -> Result<()> {
        let process = self.running()?.id().to_string();
        let limit = |limit: &str| {
            self.scene
                .lab
                .node
                .exec(&["prlimit", "--pid", &process, &format!("--nofile={limit}:")])
        };
        limit("8")?;
        thread::sleep(Duration::from_millis(1500));
        limit("1024")?;
        self.tally.count("the agent without a free file descriptor");
        Ok(())
    }

    /// Some calls of the agent to the kernel fail.
    fn failing_calls(&mut self) -> Result<()> {
        let _etcd_has_everything = self.scene.mirror_removal.read();
        let process = self.running()?.id().to_string();
        let Some(fault) = FAILING_CALLS.choose(&mut self.random) else {
            return Ok(());
        };
        let (first, step) = (
            self.random.random_range(1..5),
            self.random.random_range(2..9),
        );
        let inject = format!("inject={fault}:when={first}+{step}");
        let calls = format!("trace={}", fault.split(':').next().unwrap_or_default());
        // The tracer ends with the signal and detaches from the agent.
        let _ = self.scene.lab.node.exec(&[
            "timeout",
            "--signal=INT",
            "1",
            "strace",
            "--follow-forks",
            "--quiet=all",
            "--output=/dev/null",
            "-e",
            &calls,
            "-e",
            &inject,
            "--attach",
            &process,
        ]);
        self.tally.count(fault);
        self.wait_until_mirror_is_right()
    }

    fn damage_the_table(&mut self) {
        let Some(damage) = MANUAL_CHANGES.choose(&mut self.random) else {
            return;
        };
        let command: Vec<&str> = std::iter::once("nft").chain(damage.split(' ')).collect();
        let done = self.scene.lab.node.exec(&command);
        match (self.table, done) {
            (Table::Open, Ok(_)) => self.tally.count(damage),
            // A flush skips the table.
            (Table::Owned, Ok(_)) => self.tally.count("a flush of the ruleset"),
            (Table::Owned, Err(_)) => self.tally.count("an attempt to change the table, refused"),
            (Table::Open, Err(_)) => self.tally.count("an attempt to damage what was gone"),
        }
    }

    fn running(&self) -> Result<&Agent<'lab>> {
        self.agent
            .as_ref()
            .ok_or_else(|| LabError::Unexpected("no agent runs".to_owned()))
    }

    fn launched(&self) -> Result<Agent<'lab>> {
        Agent::launch(&self.scene.lab.node, AGENT, self.options)
    }

    fn started(&self) -> Result<Agent<'lab>> {
        let agent = self.launched()?;
        agent.wait_until_ready(EVENT_TIMEOUT)?;
        Ok(agent)
    }

    /// Keeps a fault for a while.
    fn last(&mut self, milliseconds: u64) {
        thread::sleep(Duration::from_millis(
            self.random.random_range(0..milliseconds),
        ));
    }
}

/// A file of the agent's state.
fn mirror_file(name: &str) -> Result<PathBuf> {
    Ok(scratch(&format!("{AGENT}-state"))?.join(name))
}
