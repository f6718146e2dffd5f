//! What happens to an etcd beyond members that die: networks that are cut, data that is lost, old backups.

use std::{fs, path::PathBuf};

use super::{
    ETCDCTL, Etcd,
    member::{CLIENT_PORT, Member, PEER_PORT, Place},
};
use crate::lab::{LabError, Result, scratch};

/// The table that cuts a member off; not one that an agent knows.
const TABLE: &str = "cut-off";

/// From whom a member is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// From everybody. What is sent to it gets no answer.
    All,
    /// From the other members only: clients still reach it.
    Members,
}

/// What an etcd held when it was saved.
#[derive(Debug, Clone)]
pub struct Backup(PathBuf);

impl Etcd<'_> {
    /// Cuts a member off, until [`Self::rejoin`].
    pub fn cut_off(&self, member: usize, cut: Isolation) -> Result<()> {
        let place = &self.members[member].place;
        let address = place.client.ip();
        let to_and_from = |port: u16| {
            format!("ip daddr {address} tcp dport {port} drop\nip saddr {address} tcp sport {port} drop\n")
        };
        // They have any port on its side.
        let its_own_connections = format!(
            "ip saddr {address} tcp dport {PEER_PORT} drop\nip daddr {address} tcp sport {PEER_PORT} drop\n"
        );
        let clients = if cut == Isolation::All { to_and_from(CLIENT_PORT) } else { String::new() };
        let rules = [to_and_from(PEER_PORT), its_own_connections, clients].concat();
        let chain = |hook| format!("chain {hook} {{\ntype filter hook {hook} priority 0\n{rules}}}\n");
        let table = format!("table inet {TABLE} {{\n{}{}}}\n", chain("input"), chain("output"));
        place.machine.exec_with_input(&["nft", "-f", "-"], &table).map(drop)
    }

    /// Ends what [`Self::cut_off`] began, and what nobody began.
    pub fn rejoin(&self, member: usize) -> Result<()> {
        // Made first, because only a table that is there can be deleted.
        let script = format!("table inet {TABLE} {{ }}\ndelete table inet {TABLE}\n");
        self.members[member].place.machine.exec_with_input(&["nft", "-f", "-"], &script).map(drop)
    }

    /// Forgets every revision before the newest one.
    pub fn compact(&self) -> Result<()> {
        let status = self.etcdctl(&["endpoint", "status", "--write-out=json"])?;
        let revisions = status
            .split("\"revision\":")
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok());
        // A member may lag behind; the oldest of their newest is known to all.
        let revision = revisions.min().unwrap_or_default();
        self.etcdctl(&["compact", &revision.to_string()]).map(drop)
    }

    /// Saves what one member holds.
    pub fn back_up(&self, member: usize) -> Result<Backup> {
        let file = scratch("etcd/backup.db")?;
        let endpoint = self.members[member].place.client.to_string();
        let arguments = ["--endpoints", &endpoint, "snapshot", "save", &file.to_string_lossy()];
        self.client.lab.node.exec(&[&ETCDCTL[..], &arguments].concat())?;
        Ok(Backup(file))
    }

    /// Puts every member back to what was saved; revisions go on from there.
    pub fn restore(&mut self, Backup(file): &Backup) -> Result<()> {
        self.begin_anew(|place, cluster| {
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
            place.machine.exec(&[&ETCDCTL[..], &arguments].concat()).map(drop)
        })
    }

    /// Starts it from nothing: no key, revision 1.
    pub fn wipe(&mut self) -> Result<()> {
        self.begin_anew(|_, _| Ok(()))
    }

    fn begin_anew(&mut self, fill: impl Fn(&Place<'_>, &str) -> Result<()>) -> Result<()> {
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
