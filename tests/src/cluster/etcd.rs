//! State in a real etcd, in Contiv's form.

use std::{
    env,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Deref,
    process::Command,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    NAMESPACE, PORT, Service, State, TARGET_PORT,
    service::{address_type, slice_name},
};
use crate::lab::{Family, Host, Lab, LabError, Process, Range, Result, ranges, scratch, wait_until};

/// Where a member answers clients, inside the node's namespace.
const fn client_address(member: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2379 + 10 * member)
}
/// Where `etcdctl` looks by itself.
const ETCDCTL: [&str; 3] = ["env", "ETCDCTL_API=3", "etcdctl"];
/// A request of this size is far below etcd's limit of 1.5 MB.
const OPERATIONS_PER_TRANSACTION: usize = 1000;
/// Below this key are the objects that Kubernetes has too.
pub const ROOT: &str = "/vnf-agent/contiv-ksr/k8s";

/// An etcd on the node.
#[derive(Debug)]
pub struct Etcd<'lab> {
    client: EtcdClient<'lab>,
    members: Vec<Process>,
}

/// Writes to an etcd and runs `etcdctl`.
#[derive(Debug, Clone)]
pub struct EtcdClient<'lab> {
    lab: &'lab Lab,
    endpoints: String,
}

impl<'lab> Etcd<'lab> {
    /// Starts an etcd of one member and puts the nodes into it.
    pub fn start(lab: &'lab Lab) -> Result<Self> {
        Self::start_members(lab, 1)
    }

    /// Starts an etcd of so many members and puts the nodes into it.
    pub fn start_members(lab: &'lab Lab, count: u16) -> Result<Self> {
        let members = (0..count).map(|member| start_process(lab, member, count)).collect::<Result<_>>()?;
        let addresses: Vec<String> = (0..count).map(|member| client_address(member).to_string()).collect();
        let etcd = Self { client: EtcdClient { lab, endpoints: addresses.join(",") }, members };
        etcd.wait_until_ready()?;
        for (node, pods) in [(lab.node.host, &ranges::PODS), (lab.node2.host, &ranges::PODS2)] {
            etcd.put_value(&format!("{ROOT}/node/{}", node.name), &node_value(node, pods).to_string())?;
        }
        Ok(etcd)
    }

    /// Kills it, as a power failure would. Its data stays.
    pub fn kill(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(Process::kill)
    }

    /// Starts it again after [`Self::kill`], on the same data.
    pub fn start_again(&mut self) -> Result<()> {
        for member in 0..self.count() {
            self.start_member_again(member)?;
        }
        self.wait_until_ready()
    }

    /// Kills one member. Its data stays.
    pub fn kill_member(&mut self, member: u16) -> Result<()> {
        self.members[usize::from(member)].kill()
    }

    /// Starts one member again, and does not wait for it.
    pub fn start_member_again(&mut self, member: u16) -> Result<()> {
        self.members[usize::from(member)] = start_process(self.client.lab, member, self.count())?;
        Ok(())
    }

    /// Sends a signal to one member: SIGSTOP makes it hang, SIGCONT go on.
    pub fn signal_member(&self, member: u16, signal: Signal) -> Result<()> {
        self.members[usize::from(member)].signal(signal)
    }

    fn count(&self) -> u16 {
        u16::try_from(self.members.len()).unwrap_or(u16::MAX)
    }

    fn wait_until_ready(&self) -> Result<()> {
        wait_until("etcd answers", Duration::from_secs(20), || self.etcdctl(&["endpoint", "health"]).is_ok())
            .map(drop)
    }

    /// What clients of their own need, as in another thread.
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
    /// Writes any value, as a test of broken ones needs.
    pub fn put_value(&self, key: &str, value: &str) -> Result<()> {
        self.etcdctl(&["put", key, value]).map(drop)
    }

    /// Writes many values with few commands.
    pub fn put_values(&self, values: &[(String, String)]) -> Result<()> {
        for chunk in values.chunks(OPERATIONS_PER_TRANSACTION) {
            // A JSON string is what etcdctl takes for a quoted word.
            let puts: Vec<String> =
                chunk.iter().map(|(key, value)| format!("put {key} {}\n", json!(value))).collect();
            // No conditions; what to do if they hold; nothing otherwise.
            let transaction = format!("\n{}\n\n", puts.concat());
            let command = [&ETCDCTL[..], &["--endpoints", &self.endpoints, "txn"]].concat();
            self.lab.node.exec_with_input(&command, &transaction)?;
        }
        Ok(())
    }

    /// Writes a service's endpoint slice of one family, without the cost of starting a command. Returns the moment
    /// before the request went out.
    pub fn put_slice_at_once(&self, service: &Service, family: Family) -> Result<Instant> {
        let encode = |text: &str| self.lab.node.exec_with_input(&["base64", "--wrap=0"], text);
        let key = encode(&slice_key(service, family))?;
        let value = encode(&slice_value(service, family).to_string())?;
        let body = json!({"key": key, "value": value}).to_string();
        let start = Instant::now();
        let response = self.lab.node.http_with_body("POST", client_address(0), "/v3/kv/put", &body)?;
        if response.status == 200 { Ok(start) } else { Err(LabError::Unexpected(response.body)) }
    }

    /// Runs `etcdctl` on the node.
    pub fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        self.lab.node.exec(&[&ETCDCTL[..], &["--endpoints", &self.endpoints], arguments].concat())
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
}

impl State for EtcdClient<'_> {
    fn url(&self) -> String {
        format!("etcd://{}", self.endpoints)
    }

    fn put(&self, service: &Service) -> Result<()> {
        let slice = |family| (slice_key(service, family), slice_value(service, family).to_string());
        let [slice4, slice6] = Family::BOTH.map(slice);
        // In one transaction: the agent sees all of it, or nothing yet.
        self.put_values(&[slice4, slice6, (Etcd::key(service), service_value(service).to_string())])
    }

    fn delete(&self, service: &Service) -> Result<()> {
        self.etcdctl(&["del", &Etcd::key(service)]).map(drop)
    }
}

fn slice_key(service: &Service, family: Family) -> String {
    format!("{ROOT}/endpointslice/{}/namespace/{NAMESPACE}", slice_name(service, family))
}

fn start_process(lab: &Lab, member: u16, count: u16) -> Result<Process> {
    let client_url = format!("http://{}", client_address(member));
    let name = |member: u16| format!("lab{member}");
    let peer_url = |member: u16| format!("http://127.0.0.1:{}", client_address(member).port() + 1);
    let cluster: Vec<String> =
        (0..count).map(|member| format!("{}={}", name(member), peer_url(member))).collect();
    let mut command = Command::new("etcd");
    // Whatever the machine's own etcd is configured with is not meant for this one.
    command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
    command.arg("--data-dir").arg(scratch(&format!("etcd/{}", name(member)))?).args([
        "--name",
        &name(member),
        "--logger=zap",
        "--log-level=warn",
    ]);
    // Other machines of the lab may ask it too.
    let listen_url = format!("http://0.0.0.0:{}", client_address(member).port());
    command.args(["--listen-client-urls", &listen_url, "--advertise-client-urls", &client_url]);
    let peer = peer_url(member);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--max-txn-ops", &OPERATIONS_PER_TRANSACTION.to_string()]);
    command.args(["--initial-cluster", &cluster.join(",")]);
    Process::start(&lab.node, &format!("etcd-{member}"), &mut command)
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
