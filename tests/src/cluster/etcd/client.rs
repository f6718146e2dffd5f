//! Writes to an etcd in Contiv's form.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use base64::Engine;
use serde_json::{Value, json};

use crate::{
    cluster::{
        NAMESPACE, PORT, Service, State, TARGET_PORT,
        service::{address_type, slice_name},
    },
    lab::{Family, Host, Lab, LabError, Range, Result, ranges},
};

/// The `etcdctl` command, which uses its default endpoint.
pub(super) const ETCDCTL: [&str; 3] = ["env", "ETCDCTL_API=3", "etcdctl"];
/// The time limit of a write; the default of `etcdctl` is 5 s, which is too short on a busy machine.
const WRITE_LIMIT: Duration = Duration::from_secs(20);
/// The time limit of a write through one member, which may be one that hangs.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// A request of this size is far below etcd's limit of 1.5 MB.
pub(super) const OPERATIONS_PER_TRANSACTION: usize = 1000;
/// The prefix of the objects that Kubernetes has too.
pub const ROOT: &str = "/vnf-agent/contiv-ksr/k8s";

/// Writes to an etcd through its JSON gateway, and runs `etcdctl`.
#[derive(Debug, Clone)]
pub struct EtcdClient<'lab> {
    pub(super) lab: &'lab Lab,
    pub(super) members: Vec<SocketAddr>,
}

impl EtcdClient<'_> {
    /// Writes the nodes.
    pub fn put_nodes(&self) -> Result<()> {
        let nodes = [
            (self.lab.node.host, &ranges::PODS),
            (self.lab.node2.host, &ranges::PODS2),
        ];
        nodes.into_iter().try_for_each(|(node, pods)| {
            self.put_value(&node_key(node), &node_value(node, pods).to_string())
        })
    }

    /// Writes any value, for tests of invalid ones.
    pub fn put_value(&self, key: &str, value: &str) -> Result<()> {
        self.write("/v3/kv/put", &put_request(key, value))
    }

    /// Writes many values with few requests.
    pub fn put_values(&self, values: &[(String, String)]) -> Result<()> {
        values.chunks(OPERATIONS_PER_TRANSACTION).try_for_each(|chunk| {
            let put = |(key, value): &(String, String)| json!({"requestPut": put_request(key, value)});
            self.write("/v3/kv/txn", &json!({"success": chunk.iter().map(put).collect::<Vec<_>>()}))
        })
    }

    /// Removes any key.
    pub fn delete_key(&self, key: &str) -> Result<()> {
        self.write("/v3/kv/deleterange", &json!({"key": encode(key)}))
    }

    /// Writes through the first member that can be reached. It costs a tenth of what starting `etcdctl` does.
    fn write(&self, path: &str, body: &Value) -> Result<()> {
        let mut outcome = Err(LabError::Unexpected("an etcd without members".to_owned()));
        for member in 0..self.members.len() {
            outcome = self.request_within(WRITE_LIMIT, member, path, body);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Writes a service's endpoint slice of one family through one member. Returns the time before the request was sent.
    pub fn put_slice_at_once(
        &self,
        member: usize,
        service: &Service,
        family: Family,
    ) -> Result<Instant> {
        self.put_value_at_once(
            member,
            &slice_key(service, family),
            &slice_value(service, family).to_string(),
        )
    }

    /// The same for the service itself.
    pub fn put_service_at_once(&self, member: usize, service: &Service) -> Result<Instant> {
        self.put_value_at_once(
            member,
            &service_key(service),
            &service_value(service).to_string(),
        )
    }

    /// Writes any value in the same way.
    pub fn put_value_at_once(&self, member: usize, key: &str, value: &str) -> Result<Instant> {
        self.request_at_once(member, "/v3/kv/put", &put_request(key, value))
    }

    /// Removes a service in the same way.
    pub fn delete_service_at_once(&self, member: usize, service: &Service) -> Result<Instant> {
        self.delete_at_once(member, &service_key(service))
    }

    /// Removes any key in the same way.
    pub fn delete_at_once(&self, member: usize, key: &str) -> Result<Instant> {
        self.request_at_once(member, "/v3/kv/deleterange", &json!({"key": encode(key)}))
    }

    fn request_at_once(&self, member: usize, path: &str, body: &Value) -> Result<Instant> {
        let start = Instant::now();
        self.request_within(REQUEST_LIMIT, member, path, body)
            .map(|()| start)
    }

    fn request_within(
        &self,
        limit: Duration,
        member: usize,
        path: &str,
        body: &Value,
    ) -> Result<()> {
        let (server, body) = (self.members[member], body.to_string());
        let response = self
            .lab
            .node
            .http_within(limit, "POST", server, path, &body)?;
        if response.status == 200 {
            Ok(())
        } else {
            Err(LabError::Unexpected(response.body))
        }
    }

    /// Runs `etcdctl` on the node.
    pub fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        self.lab
            .node
            .exec(&[&ETCDCTL[..], &["--endpoints", &self.endpoints()], arguments].concat())
    }

    /// How many members it has.
    pub const fn count(&self) -> usize {
        self.members.len()
    }

    fn endpoints(&self) -> String {
        self.members
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    }
}

impl State for EtcdClient<'_> {
    fn url(&self) -> String {
        format!("etcd://{}", self.endpoints())
    }

    fn put(&self, service: &Service) -> Result<()> {
        let slice = |family| {
            (
                slice_key(service, family),
                slice_value(service, family).to_string(),
            )
        };
        let [slice4, slice6] = Family::BOTH.map(slice);
        // In one transaction, so that the agent sees all or nothing.
        self.put_values(&[
            slice4,
            slice6,
            (service_key(service), service_value(service).to_string()),
        ])
    }

    fn delete(&self, service: &Service) -> Result<()> {
        self.delete_key(&service_key(service))
    }

    fn delete_node(&self, node: &Host) -> Result<()> {
        self.delete_key(&node_key(node))
    }
}

/// The key of a service.
pub(super) fn service_key(service: &Service) -> String {
    format!("{ROOT}/service/{}/namespace/{NAMESPACE}", service.name)
}

fn node_key(node: &Host) -> String {
    format!("{ROOT}/node/{}", node.name)
}

fn slice_key(service: &Service, family: Family) -> String {
    format!(
        "{ROOT}/endpointslice/{}/namespace/{NAMESPACE}",
        slice_name(service, family)
    )
}

fn put_request(key: &str, value: &str) -> Value {
    json!({"key": encode(key), "value": encode(value)})
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
