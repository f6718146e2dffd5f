//! State in a real etcd, in Contiv's form.

mod disaster;
mod member;

use std::{
    net::SocketAddr,
    ops::Deref,
    time::{Duration, Instant},
};

use base64::Engine;
use serde_json::{Value, json};

use super::{
    NAMESPACE, PORT, Service, State, TARGET_PORT,
    service::{address_type, slice_name},
};
use crate::lab::{Family, Host, Lab, LabError, Range, Result, ranges, wait_until};
use member::{Member, Place};

pub use disaster::{Backup, Isolation};

/// The time limit for starting, including an election.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// The `etcdctl` command, which uses its default endpoint.
const ETCDCTL: [&str; 3] = ["env", "ETCDCTL_API=3", "etcdctl"];
/// The time limit of a command; the default of `etcdctl` is 5 s, which is too short on a busy machine.
const COMMAND_TIMEOUT: &str = "--command-timeout=20s";
/// A request of this size is far below etcd's limit of 1.5 MB.
const OPERATIONS_PER_TRANSACTION: usize = 1000;
/// The prefix of the objects that Kubernetes has too.
pub const ROOT: &str = "/vnf-agent/contiv-ksr/k8s";

/// An etcd of one or more members.
#[derive(Debug)]
pub struct Etcd<'lab> {
    client: EtcdClient<'lab>,
    members: Vec<Member<'lab>>,
}

/// Writes to an etcd and runs `etcdctl`.
#[derive(Debug, Clone)]
pub struct EtcdClient<'lab> {
    lab: &'lab Lab,
    members: Vec<SocketAddr>,
}

impl<'lab> Etcd<'lab> {
    /// Starts an etcd of one member on the node, and puts the nodes into it.
    pub fn start(lab: &'lab Lab) -> Result<Self> {
        Self::start_at(lab, &[Place::loopback(&lab.node, 0)])
    }

    /// Starts an etcd of three members, each on a machine of its own, and puts the nodes into it. The first one is on the
    /// node.
    pub fn start_members(lab: &'lab Lab) -> Result<Self> {
        let places = [(&lab.node, 0), (&lab.node2, 1), (&lab.client, 2)];
        Self::start_at(lab, &places.map(|(machine, number)| Place::external(machine, number)))
    }

    fn start_at(lab: &'lab Lab, places: &[Place<'lab>]) -> Result<Self> {
        let client = EtcdClient { lab, members: places.iter().map(|place| place.client).collect() };
        let etcd = Self { client, members: Member::start_all(places)? };
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
        wait_until("etcd answers", READY_LIMIT, || self.etcdctl(&["endpoint", "health"]).is_ok()).map(drop)
    }

    /// A client that another thread can use.
    pub const fn client(&self) -> &EtcdClient<'lab> {
        &self.client
    }

    /// The key of a service.
    pub fn key(service: &Service) -> String {
        format!("{ROOT}/service/{}/namespace/{NAMESPACE}", service.name)
    }
}

impl<'lab> Deref for Etcd<'lab> {
    type Target = EtcdClient<'lab>;

    fn deref(&self) -> &Self::Target {
        &self.client
    }
}

impl EtcdClient<'_> {
    /// Writes the nodes.
    pub fn put_nodes(&self) -> Result<()> {
        let nodes = [(self.lab.node.host, &ranges::PODS), (self.lab.node2.host, &ranges::PODS2)];
        nodes
            .into_iter()
            .try_for_each(|(node, pods)| self.put_value(&node_key(node), &node_value(node, pods).to_string()))
    }

    /// Writes any value, for tests of invalid ones.
    pub fn put_value(&self, key: &str, value: &str) -> Result<()> {
        self.etcdctl(&["put", key, value]).map(drop)
    }

    /// Writes a value that is too long for a command line.
    pub fn put_long_value(&self, key: &str, value: &str) -> Result<()> {
        let endpoints = self.endpoints();
        let command = [&ETCDCTL[..], &[COMMAND_TIMEOUT, "--endpoints", &endpoints, "put", key]].concat();
        self.lab.node.exec_with_input(&command, value).map(drop)
    }

    /// Writes many values with few commands.
    pub fn put_values(&self, values: &[(String, String)]) -> Result<()> {
        let endpoints = self.endpoints();
        for chunk in values.chunks(OPERATIONS_PER_TRANSACTION) {
            // `etcdctl` reads a JSON string as a quoted word.
            let puts: Vec<String> =
                chunk.iter().map(|(key, value)| format!("put {key} {}\n", json!(value))).collect();
            // No conditions, the operations on success, none on failure.
            let transaction = format!("\n{}\n\n", puts.concat());
            let command = [&ETCDCTL[..], &[COMMAND_TIMEOUT, "--endpoints", &endpoints, "txn"]].concat();
            self.lab.node.exec_with_input(&command, &transaction)?;
        }
        Ok(())
    }

    /// Writes a service's endpoint slice of one family by a request to one member, without the cost of starting a command.
    /// Returns the time before the request was sent.
    pub fn put_slice_at_once(&self, member: usize, service: &Service, family: Family) -> Result<Instant> {
        let value = slice_value(service, family).to_string();
        let body = json!({"key": encode(&slice_key(service, family)), "value": encode(&value)});
        self.request_at_once(member, "/v3/kv/put", &body)
    }

    /// The same for the service itself.
    pub fn put_service_at_once(&self, member: usize, service: &Service) -> Result<Instant> {
        let value = service_value(service).to_string();
        let body = json!({"key": encode(&Etcd::key(service)), "value": encode(&value)});
        self.request_at_once(member, "/v3/kv/put", &body)
    }

    /// Removes a service in the same way.
    pub fn delete_service_at_once(&self, member: usize, service: &Service) -> Result<Instant> {
        self.request_at_once(member, "/v3/kv/deleterange", &json!({"key": encode(&Etcd::key(service))}))
    }

    fn request_at_once(&self, member: usize, path: &str, body: &Value) -> Result<Instant> {
        let start = Instant::now();
        let response = self.lab.node.http_with_body("POST", self.members[member], path, &body.to_string())?;
        if response.status == 200 { Ok(start) } else { Err(LabError::Unexpected(response.body)) }
    }

    /// Runs `etcdctl` on the node.
    pub fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        self.lab.node.exec(&[&ETCDCTL[..], &["--endpoints", &self.endpoints()], arguments].concat())
    }

    /// How many members it has.
    pub const fn count(&self) -> usize {
        self.members.len()
    }

    fn endpoints(&self) -> String {
        self.members.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
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

impl State for EtcdClient<'_> {
    fn url(&self) -> String {
        format!("etcd://{}", self.endpoints())
    }

    fn put(&self, service: &Service) -> Result<()> {
        let slice = |family| (slice_key(service, family), slice_value(service, family).to_string());
        let [slice4, slice6] = Family::BOTH.map(slice);
        // In one transaction, so that the agent sees all or nothing.
        self.put_values(&[slice4, slice6, (Etcd::key(service), service_value(service).to_string())])
    }

    fn delete(&self, service: &Service) -> Result<()> {
        self.etcdctl(&["del", &Etcd::key(service)]).map(drop)
    }

    fn delete_node(&self, node: &Host) -> Result<()> {
        self.etcdctl(&["del", &node_key(node)]).map(drop)
    }
}

fn node_key(node: &Host) -> String {
    format!("{ROOT}/node/{}", node.name)
}

fn slice_key(service: &Service, family: Family) -> String {
    format!("{ROOT}/endpointslice/{}/namespace/{NAMESPACE}", slice_name(service, family))
}

/// Base64, which etcd's JSON gateway expects for keys and values.
fn encode(text: &str) -> String {
    base64::prelude::BASE64_STANDARD.encode(text)
}

fn node_value(node: &Host, pods: &Range) -> Value {
    json!({
        "name": node.name,
        "pod_CIDR": pods.cidr(Family::V4),
        "pod_cidrs": Family::BOTH.map(|family| pods.cidr(family)),
        "addresses": Family::BOTH.map(|family| json!({
            "type": "NodeInternalIP", "address": node.address(family)
        })),
    })
}

fn service_value(service: &Service) -> Value {
    let port = |name: &str, protocol: &str| {
        json!({
            "name": name, "protocol": protocol, "port": PORT,
            "target_port": {"int_val": TARGET_PORT}, "node_port": service.node_port(),
        })
    };
    let cluster_ips = service.addresses(&ranges::SERVICES);
    json!({
        "name": service.name,
        "namespace": NAMESPACE,
        "port": [port("web", "TCP"), port("web-udp", "UDP"), port("web-sctp", "SCTP")],
        "cluster_ip": cluster_ips[0],
        "cluster_ips": cluster_ips,
        "service_type": "LoadBalancer",
        "external_ips": service.addresses(&ranges::EXTERNAL_IPS),
        "lb_ingress_ips": service.addresses(&ranges::LOAD_BALANCERS),
        "annotations": {},
    })
}

fn slice_value(service: &Service, family: Family) -> Value {
    let endpoint = |host: &&Host| {
        json!({
            "addresses": [host.address(family)], "node_name": host.node, "conditions": {"ready": true},
        })
    };
    let port = |name: &str, protocol: &str| json!({"name": name, "port": TARGET_PORT, "protocol": protocol});
    json!({
        "name": slice_name(service, family),
        "namespace": NAMESPACE,
        "service_name": service.name,
        "address_type": address_type(family),
        "endpoints": service.backends.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [port("web", "TCP"), port("web-udp", "UDP"), port("web-sctp", "SCTP")],
    })
}
