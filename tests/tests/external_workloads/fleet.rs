//! Several instances of `contiv controller`, each in a namespace of its own, so that each can be cut off alone.

use std::{fs, process::Command, time::Duration};

use contiv_tests::{
    agent::binary,
    cluster::EtcdClient,
    lab::{Family, Lab, LabError, Namespace, Process, Result, scratch, wait_for, wait_until},
};
use nix::sys::signal::Signal;

/// The key that the active instance holds.
pub(crate) const ELECTION: &str = "/contiv/controller/election";
/// For anything that has to happen: much more than the lease.
pub(crate) const SOON: Duration = Duration::from_secs(40);
/// Where each has its debug HTTP, inside its namespace.
const LISTEN: &str = "127.0.0.1:9998";
/// The times of the lease, so short that a test can wait for its end.
const LEASE: [&str; 3] =
    ["--lease-duration=3s", "--lease-renew-deadline=1500ms", "--lease-retry-period=300ms"];

/// One instance. Its identity is the name of its namespace.
pub(crate) struct Instance<'lab> {
    pub(crate) home: &'lab Namespace,
    process: Process,
}

impl<'lab> Instance<'lab> {
    /// Starts it and waits until it is ready, as the active one or as a standby.
    pub(crate) fn start(lab: &Lab, home: &'lab Namespace) -> Result<Self> {
        let name = home.host.name;
        // Whatever this machine is configured with is not meant for it.
        let config = scratch(&format!("{name}-controller.toml"))?;
        fs::write(&config, "").map_err(|error| LabError::system("write a configuration", error))?;
        let store = format!("etcd://{}:2379", lab.node.host.address(Family::V4));
        let mut command = Command::new(binary()?);
        command.env_clear().env("RUST_BACKTRACE", "1").arg("controller").arg("--config").arg(config);
        command.args(["--enable", "external-workloads", "--store", &store, "--identity", name]);
        command.args(["--listen", LISTEN]).args(LEASE);
        let process = Process::start(home, &format!("controller-{name}"), &mut command)?;
        let instance = Self { home, process };
        wait_until("the controller is ready", SOON, || {
            instance.get("/readiness").is_ok_and(|(status, _)| status == 200)
        })?;
        Ok(instance)
    }

    pub(crate) fn get(&self, path: &str) -> Result<(u16, String)> {
        let address = LISTEN.parse().map_err(|_| LabError::Unexpected("no address".to_owned()))?;
        let response = self.home.http("GET", address, path)?;
        Ok((response.status, response.body))
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Stops it as systemd would.
    pub(crate) fn stop(mut self) -> Result<bool> {
        self.process.terminate(SOON).map(|status| status.success())
    }

    /// Cuts it off from everybody.
    pub(crate) fn cut(&self) -> Result<()> {
        let drop_all = "add table inet cut\n\
            add chain inet cut in { type filter hook input priority 0; policy drop; }\n\
            add chain inet cut out { type filter hook output priority 0; policy drop; }\n\
            add rule inet cut in iif lo accept\n\
            add rule inet cut out oif lo accept\n";
        self.home.exec_with_input(&["nft", "-f", "-"], drop_all).map(drop)
    }

    pub(crate) fn mend(&self) -> Result<()> {
        self.home.exec(&["nft", "delete", "table", "inet", "cut"]).map(drop)
    }
}

/// The identity of the active instance, if it is not `former`.
pub(crate) fn next_holder(etcd: &EtcdClient<'_>, former: &str) -> Result<String> {
    wait_for("another instance is active", SOON, || {
        let value = etcd.etcdctl(&["get", ELECTION, "--print-value-only"]).ok()?;
        let (identity, _) = value.trim().rsplit_once(' ')?;
        (identity != former).then(|| identity.to_owned())
    })
}
