//! Several instances of `contiv controller`, each in a namespace of its own, so that each can be cut off alone.

pub mod history;

use std::{fs, process::Command, thread, time::Duration};

use nix::sys::signal::Signal;

use crate::{
    agent::binary,
    cluster::EtcdClient,
    lab::{Family, Lab, LabError, Namespace, Process, Result, scratch, wait_for, wait_until},
};

/// The key that the active instance holds.
pub const ELECTION: &str = "/contiv/controller/election";
/// For anything that has to happen: much more than the lease.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(40);
/// Where each has its debug HTTP, inside its namespace.
const LISTEN: &str = "127.0.0.1:9998";
/// The times of the lease, so short that a test can wait for its end.
const LEASE: [&str; 3] =
    ["--lease-duration=3s", "--lease-renew-deadline=1500ms", "--lease-retry-period=300ms"];
/// How long things change between two interruptions.
const PHASE: Duration = Duration::from_secs(2);

/// One instance. Its identity is the name of its namespace.
#[derive(Debug)]
pub struct Instance<'lab> {
    /// Where it runs.
    pub home: &'lab Namespace,
    /// Its arguments beside those that all have.
    arguments: Vec<String>,
    process: Process,
}

impl<'lab> Instance<'lab> {
    /// Starts it with the etcd of the lab, and waits until it is ready, as the active one or as a standby. The arguments
    /// say what it enables.
    pub fn start(lab: &Lab, home: &'lab Namespace, arguments: &[&str]) -> Result<Self> {
        let store = format!("etcd://{}:2379", lab.node.host.address(Family::V4));
        let mut arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
        arguments.extend(["--store".to_owned(), store]);
        Self::launch(home, arguments)
    }

    fn launch(home: &'lab Namespace, arguments: Vec<String>) -> Result<Self> {
        let name = home.host.name;
        // Whatever this machine is configured with is not meant for it.
        let config = scratch(&format!("{name}-controller.toml"))?;
        fs::write(&config, "").map_err(|error| LabError::system("write a configuration", error))?;
        let mut command = Command::new(binary()?);
        command.env_clear().env("RUST_BACKTRACE", "1").arg("controller").arg("--config").arg(config);
        command.args(&arguments).args(["--identity", name, "--listen", LISTEN]).args(LEASE);
        let process = Process::start(home, &format!("controller-{name}"), &mut command)?;
        let instance = Self { home, arguments, process };
        wait_until("the controller is ready", EVENT_TIMEOUT, || {
            instance.get("/readiness").is_ok_and(|(status, _)| status == 200)
        })?;
        Ok(instance)
    }

    /// Asks its debug HTTP.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let address = LISTEN.parse().map_err(|_| LabError::Unexpected("no address".to_owned()))?;
        let response = self.home.http("GET", address, path)?;
        Ok((response.status, response.body))
    }

    /// Stops it as systemd would. Says whether it ended well.
    pub fn stop(mut self) -> Result<bool> {
        self.process.terminate(EVENT_TIMEOUT).map(|status| status.success())
    }

    /// Kills it, and starts it again when another one is active.
    fn kill(&mut self, etcd: &EtcdClient<'_>) -> Result<String> {
        self.process.kill()?;
        let next = next_holder(etcd, self.home.host.name)?;
        *self = Self::launch(self.home, std::mem::take(&mut self.arguments))?;
        Ok(next)
    }

    /// Cuts it off from everybody.
    fn cut(&self) -> Result<()> {
        let drop_all = "add table inet cut\n\
            add chain inet cut in { type filter hook input priority 0; policy drop; }\n\
            add chain inet cut out { type filter hook output priority 0; policy drop; }\n\
            add rule inet cut in iif lo accept\n\
            add rule inet cut out oif lo accept\n";
        self.home.exec_with_input(&["nft", "-f", "-"], drop_all).map(drop)
    }

    fn mend(&self) -> Result<()> {
        self.home.exec(&["nft", "delete", "table", "inet", "cut"]).map(drop)
    }
}

/// The identity of the active instance, if it is not `former`.
pub fn next_holder(etcd: &EtcdClient<'_>, former: &str) -> Result<String> {
    wait_for("another instance is active", EVENT_TIMEOUT, || {
        let value = etcd.etcdctl(&["get", ELECTION, "--print-value-only"]).ok()?;
        let (identity, _) = value.trim().rsplit_once(' ')?;
        (identity != former).then(|| identity.to_owned())
    })
}

/// Does to whoever is active, one after the other, what can happen: it is killed, frozen beyond its lease, and cut off.
/// At the end those that were always there are killed, so that one that was cut off takes over.
///
/// # Errors
/// When no other instance takes over.
pub fn interrupt(etcd: &EtcdClient<'_>, fleet: &mut [Instance<'_>]) -> Result<()> {
    let find = |fleet: &[Instance<'_>], holder: &str| {
        let found = fleet.iter().position(|instance| instance.home.host.name == holder);
        found.ok_or_else(|| LabError::Unexpected(format!("there is no instance {holder}")))
    };
    let killed = next_holder(etcd, "")?;
    thread::sleep(PHASE);
    let index = find(fleet, &killed)?;
    let frozen = fleet[index].kill(etcd)?;
    thread::sleep(PHASE);

    let index = find(fleet, &frozen)?;
    fleet[index].process.signal(Signal::SIGSTOP)?;
    next_holder(etcd, &frozen)?;
    thread::sleep(PHASE);
    fleet[index].process.signal(Signal::SIGCONT)?;
    thread::sleep(PHASE);

    let cut_off = next_holder(etcd, "")?;
    let index = find(fleet, &cut_off)?;
    fleet[index].cut()?;
    next_holder(etcd, &cut_off)?;
    thread::sleep(PHASE);
    fleet[index].mend()?;
    // What it knows is old, and nobody may see that.
    let mut holder = next_holder(etcd, "")?;
    for _ in 0..fleet.len() {
        if holder == cut_off {
            break;
        }
        let index = find(fleet, &holder)?;
        holder = fleet[index].kill(etcd)?;
    }
    thread::sleep(PHASE);
    Ok(())
}
