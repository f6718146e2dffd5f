//! One member of an etcd: a process on a machine of the lab.

use std::{
    env,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Command,
};

use super::client::OPERATIONS_PER_TRANSACTION;
use crate::lab::{Family, Namespace, Process, Result, scratch};

/// etcd's default ports for clients and for its other members.
pub(super) const CLIENT_PORT: u16 = 2379;
pub(super) const PEER_PORT: u16 = 2380;

/// The addresses of a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'lab> {
    pub(super) machine: &'lab Namespace,
    number: u16,
    pub(super) client: SocketAddr,
    peer: SocketAddr,
}

impl<'lab> Place<'lab> {
    /// On the loopback interface of a machine.
    pub(super) const fn loopback(machine: &'lab Namespace, number: u16) -> Self {
        Self::at(machine, IpAddr::V4(Ipv4Addr::LOCALHOST), number)
    }

    /// On the address that other machines reach.
    pub(super) const fn external(machine: &'lab Namespace, number: u16) -> Self {
        Self::at(machine, machine.host.address(Family::V4), number)
    }

    const fn at(machine: &'lab Namespace, address: IpAddr, number: u16) -> Self {
        let [client, peer] = [
            SocketAddr::new(address, CLIENT_PORT),
            SocketAddr::new(address, PEER_PORT),
        ];
        Self {
            machine,
            number,
            client,
            peer,
        }
    }

    pub(super) fn name(&self) -> String {
        format!("lab{}", self.number)
    }

    pub(super) fn peer_url(&self) -> String {
        format!("http://{}", self.peer)
    }

    pub(super) fn data(&self) -> Result<PathBuf> {
        scratch(&format!("etcd/{}", self.name()))
    }
}

/// A member, running or not.
#[derive(Debug)]
pub(super) struct Member<'lab> {
    pub(super) place: Place<'lab>,
    /// All members, as `--initial-cluster` wants them.
    pub(super) cluster: String,
    pub(super) process: Process,
}

impl<'lab> Member<'lab> {
    /// Starts members that are one cluster.
    pub(super) fn start_all(places: &[Place<'lab>]) -> Result<Vec<Self>> {
        let cluster: Vec<String> = places
            .iter()
            .map(|place| format!("{}={}", place.name(), place.peer_url()))
            .collect();
        let cluster = cluster.join(",");
        let start = |place: &Place<'lab>| {
            Ok(Self {
                place: *place,
                process: start(place, &cluster)?,
                cluster: cluster.clone(),
            })
        };
        places.iter().map(start).collect()
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    pub(super) fn start_again(&mut self) -> Result<()> {
        self.process = start(&self.place, &self.cluster)?;
        Ok(())
    }
}

fn start(place: &Place<'_>, cluster: &str) -> Result<Process> {
    let client_url = format!("http://{}", place.client);
    let peer_url = place.peer_url();
    let mut command = Command::new("etcd");
    // The configuration of this machine's own etcd must not be used.
    command
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default());
    command.arg("--data-dir").arg(place.data()?);
    command.args(["--name", &place.name(), "--logger=zap", "--log-level=error"]);
    // Other machines of the lab may connect too.
    let listen_url = format!("http://0.0.0.0:{}", place.client.port());
    command.args([
        "--listen-client-urls",
        &listen_url,
        "--advertise-client-urls",
        &client_url,
    ]);
    command.args([
        "--listen-peer-urls",
        &peer_url,
        "--initial-advertise-peer-urls",
        &peer_url,
    ]);
    // The largest tables of the benchmarks take more than the 2 GB it has by itself.
    command.args(["--quota-backend-bytes", "8000000000"]);
    command.args(["--max-txn-ops", &OPERATIONS_PER_TRANSACTION.to_string()]);
    command.args(["--initial-cluster", cluster]);
    Process::start(
        place.machine,
        &format!("etcd-{}", place.number),
        &mut command,
    )
}
