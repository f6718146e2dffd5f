//! An etcd that runs: its members, and a client of it.

use std::{ops::Deref, time::Duration};

use nix::sys::signal::Signal;

use super::{
    client::{EtcdClient, service_key},
    member::{Member, Place},
};
use crate::{
    cluster::{Service, State},
    lab::{Host, Lab, Result, wait_until},
};

/// The time limit for starting, including an election.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// An etcd of one or more members.
#[derive(Debug)]
pub struct Etcd<'lab> {
    pub(super) client: EtcdClient<'lab>,
    pub(super) members: Vec<Member<'lab>>,
}

impl<'lab> Etcd<'lab> {
    /// Starts an etcd of one member on the node, and stores the Node objects.
    pub fn start(lab: &'lab Lab) -> Result<Self> {
        Self::start_at(lab, &[Place::loopback(&lab.node, 0)])
    }

    /// Starts an etcd of three members, each in its own network namespace, and stores the Node objects. The first one is on the
    /// node.
    pub fn start_members(lab: &'lab Lab) -> Result<Self> {
        let places = [(&lab.node, 0), (&lab.node2, 1), (&lab.client, 2)];
        Self::start_at(
            lab,
            &places.map(|(machine, number)| Place::external(machine, number)),
        )
    }

    fn start_at(lab: &'lab Lab, places: &[Place<'lab>]) -> Result<Self> {
        let client = EtcdClient {
            lab,
            members: places.iter().map(|place| place.client).collect(),
        };
        let etcd = Self {
            client,
            members: Member::start_all(places)?,
        };
        etcd.wait_until_ready()?;
        etcd.put_nodes()?;
        Ok(etcd)
    }

    /// Kills it, as a power failure would. Its data stays.
    pub fn kill(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(Member::kill)
    }

    /// Starts it again after [`Self::kill`], on the same data.
    pub fn start_again(&mut self) -> Result<()> {
        for number in 0..self.members.len() {
            self.start_member_again(number)?;
        }
        self.wait_until_ready()
    }

    fn wait_until_ready(&self) -> Result<()> {
        wait_until("etcd answers", READY_LIMIT, || {
            self.etcdctl(&["endpoint", "health"]).is_ok()
        })
        .map(drop)
    }

    /// The process ID of the first member.
    pub fn id(&self) -> u32 {
        self.members[0].process.id()
    }

    /// A client that another thread can use.
    pub const fn client(&self) -> &EtcdClient<'lab> {
        &self.client
    }

    /// The key of a service.
    pub fn key(service: &Service) -> String {
        service_key(service)
    }
}

impl<'lab> Deref for Etcd<'lab> {
    type Target = EtcdClient<'lab>;

    fn deref(&self) -> &Self::Target {
        &self.client
    }
}

impl State for Etcd<'_> {
    fn url(&self) -> String {
        self.client.url()
    }

    fn put(&self, service: &Service) -> Result<()> {
        self.client.put(service)
    }

    fn delete(&self, service: &Service) -> Result<()> {
        self.client.delete(service)
    }

    fn delete_node(&self, node: &Host) -> Result<()> {
        self.client.delete_node(node)
    }
}

impl Etcd<'_> {
    /// Kills one member. Its data stays.
    pub fn kill_member(&mut self, member: usize) -> Result<()> {
        self.members[member].kill()
    }

    /// Starts one member again, and does not wait for it.
    pub fn start_member_again(&mut self, member: usize) -> Result<()> {
        self.members[member].start_again()
    }

    /// Sends a signal to one member: SIGSTOP pauses it, SIGCONT resumes it.
    pub fn signal_member(&self, member: usize, signal: Signal) -> Result<()> {
        self.members[member].process.signal(signal)
    }
}
