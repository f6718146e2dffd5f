//! State in a real etcd, in Contiv's form.

use std::{
    env,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    NAMESPACE, PORT, Service, State, TARGET_PORT,
    service::{address_type, slice_name},
};
use crate::lab::{Family, Host, Lab, LabError, Process, Range, Result, ranges, scratch, wait_until};

/// Inside the node's namespace.
const CLIENT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2379);
/// Where `etcdctl` looks by itself.
const ETCDCTL: [&str; 3] = ["env", "ETCDCTL_API=3", "etcdctl"];
/// A request of this size is far below etcd's limit of 1.5 MB.
const OPERATIONS_PER_TRANSACTION: usize = 1000;
const PEER_URL: &str = "http://127.0.0.1:2380";
/// Below this key are the objects that Kubernetes has too.
pub const ROOT: &str = "/vnf-agent/contiv-ksr/k8s";

/// An etcd of one member on the node.
#[derive(Debug)]
pub struct Etcd<'lab> {
    lab: &'lab Lab,
    process: Process,
}

impl<'lab> Etcd<'lab> {
    /// Starts etcd and puts the nodes into it.
    pub fn start(lab: &'lab Lab) -> Result<Self> {
        let etcd = Self { lab, process: start_process(lab)? };
        etcd.wait_until_ready()?;
        for (node, pods) in [(lab.node.host, &ranges::PODS), (lab.node2.host, &ranges::PODS2)] {
            etcd.put_value(&format!("{ROOT}/node/{}", node.name), &node_value(node, pods).to_string())?;
        }
        Ok(etcd)
    }

    /// Kills it, as a power failure would. Its data stays.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again after [`Self::kill`], on the same data.
    pub fn start_again(&mut self) -> Result<()> {
        self.process = start_process(self.lab)?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&self) -> Result<()> {
        wait_until("etcd answers", Duration::from_secs(20), || self.etcdctl(&["endpoint", "health"]).is_ok())
            .map(drop)
    }

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
            self.lab.node.exec_with_input(&[&ETCDCTL[..], &["txn"]].concat(), &transaction)?;
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
        let response = self.lab.node.http_with_body("POST", CLIENT_ADDRESS, "/v3/kv/put", &body)?;
        if response.status == 200 { Ok(start) } else { Err(LabError::Unexpected(response.body)) }
    }

    /// The key of a service.
    pub fn key(service: &Service) -> String {
        format!("{ROOT}/service/{}/namespace/{NAMESPACE}", service.name)
    }

    /// Runs `etcdctl` on the node.
    pub fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        self.lab.node.exec(&[&ETCDCTL[..], arguments].concat())
    }
}

impl State for Etcd<'_> {
    fn url(&self) -> String {
        format!("etcd://{CLIENT_ADDRESS}")
    }

    fn put(&self, service: &Service) -> Result<()> {
        let slice = |family| (slice_key(service, family), slice_value(service, family).to_string());
        let [slice4, slice6] = Family::BOTH.map(slice);
        // In one transaction: the agent sees all of it, or nothing yet.
        self.put_values(&[slice4, slice6, (Self::key(service), service_value(service).to_string())])
    }

    fn delete(&self, service: &Service) -> Result<()> {
        self.etcdctl(&["del", &Self::key(service)]).map(drop)
    }
}

fn slice_key(service: &Service, family: Family) -> String {
    format!("{ROOT}/endpointslice/{}/namespace/{NAMESPACE}", slice_name(service, family))
}

fn start_process(lab: &Lab) -> Result<Process> {
    let client_url = format!("http://{CLIENT_ADDRESS}");
    let mut command = Command::new("etcd");
    // Whatever the machine's own etcd is configured with is not meant for this one.
    command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
    command.arg("--data-dir").arg(scratch("etcd")?).args([
        "--name",
        "lab",
        "--logger=zap",
        "--log-level=warn",
    ]);
    command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
    command.args(["--listen-peer-urls", PEER_URL, "--initial-advertise-peer-urls", PEER_URL]);
    command.args(["--max-txn-ops", &OPERATIONS_PER_TRANSACTION.to_string()]);
    command.args(["--initial-cluster", &format!("lab={PEER_URL}")]);
    Process::start(&lab.node, "etcd", &mut command)
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
        "port": [port("web", "TCP"), port("web-udp", "UDP")],
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
        "ports": [port("web", "TCP"), port("web-udp", "UDP")],
    })
}
