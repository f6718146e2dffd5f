//! Several instances of `contiv controller`, each in its own namespace, so that each can be isolated.

pub mod history;

use std::{fs, process::Command, thread, time::Duration};

use nix::sys::signal::Signal;

use crate::{
    agent::binary,
    cluster::EtcdClient,
    lab::{Family, Lab, LabError, Namespace, Process, Result, scratch, wait_for, wait_until},
};

/// The key of the election.
pub const ELECTION: &str = "/contiv/controller/election";
/// The time limit for any event; much longer than the lease.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(40);
/// The debug HTTP of each instance, inside its namespace.
const LISTEN: &str = "127.0.0.1:9998";
/// The times of the lease, short enough for a test to wait for its expiry.
const LEASE: [&str; 3] = [
    "--lease-duration=3s",
    "--lease-renew-deadline=1500ms",
    "--lease-retry-period=300ms",
];
/// How long changes continue between two interruptions, at least.
const PHASE_DURATION: Duration = Duration::from_secs(2);

/// One instance. Its identity is the name of its namespace.
#[derive(Debug)]
pub struct Instance<'lab> {
    /// The namespace in which it runs.
    pub home: &'lab Namespace,
    /// Its arguments in addition to the common ones.
    arguments: Vec<String>,
    process: Process,
}

impl<'lab> Instance<'lab> {
    /// Starts it with the etcd of the lab and waits until it is ready, as the leader or as a standby. The arguments select the
    /// controllers.
    pub fn start(lab: &Lab, home: &'lab Namespace, arguments: &[&str]) -> Result<Self> {
        let store = format!("etcd://{}:2379", lab.node.host.address(Family::V4));
        let mut arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
        arguments.extend(["--store".to_owned(), store]);
        Self::launch(home, arguments)
    }

    fn launch(home: &'lab Namespace, arguments: Vec<String>) -> Result<Self> {
        let name = home.host.name;
        // The configuration of this machine must not be used.
        let config = scratch(&format!("{name}-controller.toml"))?;
        fs::write(&config, "").map_err(|error| LabError::system("write a configuration", error))?;
        let mut command = Command::new(binary()?);
        command
            .env_clear()
            .env("RUST_BACKTRACE", "1")
            .arg("controller")
            .arg("--config")
            .arg(config);
        command
            .args(&arguments)
            .args(["--identity", name, "--listen", LISTEN])
            .args(LEASE);
        let process = Process::start(home, &format!("controller-{name}"), &mut command)?;
        let instance = Self {
            home,
            arguments,
            process,
        };
        wait_until("the controller is ready", EVENT_TIMEOUT, || {
            instance
                .get("/readiness")
                .is_ok_and(|(status, _)| status == 200)
        })?;
        Ok(instance)
    }

    /// Asks its debug HTTP.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let address = LISTEN
            .parse()
            .map_err(|_| LabError::Unexpected("no address".to_owned()))?;
        let response = self.home.http("GET", address, path)?;
        Ok((response.status, response.body))
    }

    /// Stops it as systemd would. Returns whether it ended without an error.
    pub fn stop(mut self) -> Result<bool> {
        self.process
            .terminate(EVENT_TIMEOUT)
            .map(|status| status.success())
    }

    /// Kills it, and starts it again when another one is the leader.
    fn kill(&mut self, etcd: &EtcdClient<'_>) -> Result<String> {
        self.process.kill()?;
        let next = next_holder(etcd, self.home.host.name)?;
        *self = Self::launch(self.home, std::mem::take(&mut self.arguments))?;
        Ok(next)
    }

    /// Isolates it from all traffic.
    fn cut(&self) -> Result<()> {
        let drop_all = "add table inet cut\n\
            add chain inet cut in { type filter hook input priority 0; policy drop; }\n\
            add chain inet cut out { type filter hook output priority 0; policy drop; }\n\
            add rule inet cut in iif lo accept\n\
            add rule inet cut out oif lo accept\n";
        self.home
            .exec_with_input(&["nft", "-f", "-"], drop_all)
            .map(drop)
    }

    fn reconnect(&self) -> Result<()> {
        self.home
            .exec(&["nft", "delete", "table", "inet", "cut"])
            .map(drop)
    }
}

/// The identity of the leader, once it is not `former`.
pub fn next_holder(etcd: &EtcdClient<'_>, former: &str) -> Result<String> {
    wait_for("another instance is active", EVENT_TIMEOUT, || {
        let value = etcd
            .etcdctl(&["get", ELECTION, "--print-value-only"])
            .ok()?;
        let (identity, _) = value.trim().rsplit_once(' ')?;
        (identity != former).then(|| identity.to_owned())
    })
}

/// Lets changes continue until the leader has written below one of these prefixes.
fn let_it_write(etcd: &EtcdClient<'_>, prefixes: &[String]) -> Result<()> {
    thread::sleep(PHASE_DURATION);
    wait_until("the leader writes", EVENT_TIMEOUT, || {
        let revision = |key: &str, order: &[&str]| {
            let arguments = [&["get", key, "-w", "fields"], order].concat();
            let text = etcd.etcdctl(&arguments).ok()?;
            let (_, after) = text.split_once("\"ModRevision\" : ")?;
            after.lines().next()?.trim().parse::<i64>().ok()
        };
        let newest = [
            "--prefix",
            "--sort-by=MODIFY",
            "--order=DESCEND",
            "--limit=1",
        ];
        let elected = revision(ELECTION, &[]);
        let written = prefixes
            .iter()
            .filter_map(|prefix| revision(prefix, &newest))
            .max();
        elected.is_some() && written > elected
    })
    .map(drop)
}

/// Interrupts the leader in every way in turn: it is killed, paused beyond its lease, and isolated. At the end the instances
/// that were never interrupted are killed, so that one that was isolated takes over. Between two interruptions the leader writes
/// below one of `prefixes`.
///
/// # Errors
/// When no other instance takes over, or it writes nothing.
pub fn interrupt(
    etcd: &EtcdClient<'_>,
    fleet: &mut [Instance<'_>],
    prefixes: &[String],
) -> Result<()> {
    let find = |fleet: &[Instance<'_>], holder: &str| {
        let found = fleet
            .iter()
            .position(|instance| instance.home.host.name == holder);
        found.ok_or_else(|| LabError::Unexpected(format!("there is no instance {holder}")))
    };
    let killed = next_holder(etcd, "")?;
    let_it_write(etcd, prefixes)?;
    let index = find(fleet, &killed)?;
    let frozen = fleet[index].kill(etcd)?;
    let_it_write(etcd, prefixes)?;

    let index = find(fleet, &frozen)?;
    fleet[index].process.signal(Signal::SIGSTOP)?;
    next_holder(etcd, &frozen)?;
    let_it_write(etcd, prefixes)?;
    fleet[index].process.signal(Signal::SIGCONT)?;
    thread::sleep(PHASE_DURATION);

    let cut_off = next_holder(etcd, "")?;
    let index = find(fleet, &cut_off)?;
    fleet[index].cut()?;
    next_holder(etcd, &cut_off)?;
    let_it_write(etcd, prefixes)?;
    fleet[index].reconnect()?;
    // The instance's state is outdated, and this must not show.
    let mut holder = next_holder(etcd, "")?;
    for _ in 0..fleet.len() {
        if holder == cut_off {
            break;
        }
        let index = find(fleet, &holder)?;
        holder = fleet[index].kill(etcd)?;
    }
    let_it_write(etcd, prefixes)?;
    Ok(())
}
