//! Failures of an etcd beyond members that die: networks that are cut, data that is lost, old backups.

use std::{fs, path::PathBuf};

use super::{
    Etcd,
    client::ETCDCTL,
    member::{CLIENT_PORT, Member, PEER_PORT, Place},
};
use crate::lab::{LabError, Result, scratch};

/// The table that isolates a member; not one that an agent knows.
const TABLE: &str = "cut-off";

/// How a member is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// From all traffic; requests to it get no answer.
    All,
    /// From the other members only; clients still reach it.
    Members,
}

/// A snapshot of an etcd.
#[derive(Debug, Clone)]
pub struct Backup(PathBuf);

impl Etcd<'_> {
    /// Isolates a member until [`Self::rejoin`].
    pub fn cut_off(&self, member: usize, cut: Isolation) -> Result<()> {
        let place = &self.members[member].place;
        let address = place.client.ip();
        let to_and_from = |port: u16| {
            format!(
                "ip daddr {address} tcp dport {port} drop\nip saddr {address} tcp sport {port} drop\n"
            )
        };
        // The member uses any port for these connections.
        let its_own_connections = format!(
            "ip saddr {address} tcp dport {PEER_PORT} drop\nip daddr {address} tcp sport {PEER_PORT} drop\n"
        );
        let clients = if cut == Isolation::All {
            to_and_from(CLIENT_PORT)
        } else {
            String::new()
        };
        let rules = [to_and_from(PEER_PORT), its_own_connections, clients].concat();
        let chain =
            |hook| format!("chain {hook} {{\ntype filter hook {hook} priority 0\n{rules}}}\n");
        let table = format!(
            "table inet {TABLE} {{\n{}{}}}\n",
            chain("input"),
            chain("output")
        );
        place
            .machine
            .exec_with_input(&["nft", "-f", "-"], &table)
            .map(drop)
    }

    /// Ends the isolation of a member, if there is one.
    pub fn rejoin(&self, member: usize) -> Result<()> {
        // Created first, because deleting a missing table is an error.
        let script = format!("table inet {TABLE} {{ }}\ndelete table inet {TABLE}\n");
        self.members[member]
            .place
            .machine
            .exec_with_input(&["nft", "-f", "-"], &script)
            .map(drop)
    }

    /// Compacts all revisions before the newest one.
    pub fn compact(&self) -> Result<()> {
        let status = self.etcdctl(&["endpoint", "status", "--write-out=json"])?;
        let revisions = status.split("\"revision\":").skip(1).filter_map(|rest| {
            rest.split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse::<u64>()
                .ok()
        });
        // A member may lag behind, so the smallest of the newest revisions is known to all.
        let revision = revisions.min().unwrap_or_default();
        self.etcdctl(&["compact", &revision.to_string()]).map(drop)
    }

    /// Saves a snapshot from one member.
    pub fn back_up(&self, member: usize) -> Result<Backup> {
        let file = scratch("etcd/backup.db")?;
        let endpoint = self.members[member].place.client.to_string();
        let arguments = [
            "--endpoints",
            &endpoint,
            "snapshot",
            "save",
            &file.to_string_lossy(),
        ];
        self.client
            .lab
            .node
            .exec(&[&ETCDCTL[..], &arguments].concat())?;
        Ok(Backup(file))
    }

    /// Restores every member from a snapshot; revisions continue from there.
    pub fn restore(&mut self, Backup(file): &Backup) -> Result<()> {
        self.begin_again(|place, cluster| {
            let (name, peer, data) = (place.name(), place.peer_url(), place.data()?);
            let file = file.to_string_lossy();
            let data = data.to_string_lossy();
            let arguments = [
                "snapshot",
                "restore",
                &file,
                "--name",
                &name,
                "--initial-cluster",
                cluster,
                "--initial-advertise-peer-urls",
                &peer,
                "--data-dir",
                &data,
            ];
            place
                .machine
                .exec(&[&ETCDCTL[..], &arguments].concat())
                .map(drop)
        })
    }

    /// Restarts it with empty data: no key, revision 1.
    pub fn wipe(&mut self) -> Result<()> {
        self.begin_again(|_, _| Ok(()))
    }

    fn begin_again(&mut self, fill: impl Fn(&Place<'_>, &str) -> Result<()>) -> Result<()> {
        self.kill()?;
        for Member { place, cluster, .. } in &self.members {
            let data = place.data()?;
            fs::remove_dir_all(&data)
                .map_err(|error| LabError::system(format!("remove {}", data.display()), error))?;
            fill(place, cluster)?;
        }
        self.start_again()
    }
}
