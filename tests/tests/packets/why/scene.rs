//! The cluster in which faults are made: an agent on the node, services, and servers behind them.

use std::{
    any::Any,
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Manifests, State, TARGET_PORT},
    lab::{Lab, LabError, Namespace, Protocol, Responder, Result},
};
use serde_json::Value;

/// The time limit of the agent's steps.
pub(super) const EVENT_TIMEOUT: Duration = Duration::from_secs(4);
/// The ports of the servers with large answers, and with large requests, and their length.
const LARGE_ANSWERS_PORT: u16 = 8088;
const LARGE_REQUESTS_PORT: u16 = 8089;
pub(super) const LARGE_BYTES: usize = 200_000;

/// A machine or pod of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// This node, with the agent.
    Node,
    /// The other node.
    Node2,
    /// Outside of the cluster.
    Client,
    /// On this node.
    Pod1,
    /// On this node.
    Pod2,
    /// On the other node.
    Pod3,
    /// On the other node.
    Pod4,
}

impl Machine {
    pub(super) const fn namespace(self, lab: &Lab) -> &Namespace {
        match self {
            Self::Node => &lab.node,
            Self::Node2 => &lab.node2,
            Self::Client => &lab.client,
            Self::Pod1 => &lab.pod1,
            Self::Pod2 => &lab.pod2,
            Self::Pod3 => &lab.pod3,
            Self::Pod4 => &lab.pod4,
        }
    }
}

/// The cluster.
pub(super) struct Scene<'lab> {
    pub(super) lab: &'lab Lab,
    pub(super) manifests: Manifests,
    pub(super) options: AgentOptions,
    pub(super) agent: Option<Agent<'lab>>,
    servers: BTreeMap<&'static str, Responder>,
    /// What must live as long as a fault does.
    pub(super) kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl<'lab> Scene<'lab> {
    /// A cluster with the usual services, and an agent with these flags.
    pub(super) fn start(lab: &'lab Lab, flags: &[&str]) -> Result<Self> {
        let manifests = Manifests::new(lab)?;
        let options = AgentOptions {
            flags: flags.iter().map(ToString::to_string).collect(),
            ..AgentOptions::with_store(manifests.url())
        };
        let mut scene = Self {
            lab,
            manifests,
            options,
            agent: None,
            servers: BTreeMap::new(),
            kept: Vec::new(),
        };
        for machine in [
            Machine::Node,
            Machine::Pod1,
            Machine::Pod2,
            Machine::Pod3,
            Machine::Pod4,
        ] {
            scene.serve(machine)?;
        }
        for pod in [&lab.pod1, &lab.pod3] {
            serve_large(pod, LARGE_ANSWERS_PORT, |stream| {
                stream.write_all(&vec![b'x'; LARGE_BYTES])
            })?;
            serve_large(pod, LARGE_REQUESTS_PORT, |stream| {
                stream.read_exact(&mut vec![0; LARGE_BYTES])?;
                stream.write_all(b"x")
            })?;
        }
        for (name, number, backends) in [
            ("web", 80, &["pod3"][..]),
            ("local", 81, &["pod1"]),
            ("host", 82, &["node"]),
            ("pair", 83, &["pod3", "pod4"]),
        ] {
            scene.put(&Object::new(name, number, backends))?;
        }
        for (name, number, target_port, backend) in [
            ("large", 84, LARGE_ANSWERS_PORT, "pod3"),
            ("large-local", 74, LARGE_ANSWERS_PORT, "pod1"),
            ("upload", 75, LARGE_REQUESTS_PORT, "pod3"),
            ("upload-local", 76, LARGE_REQUESTS_PORT, "pod1"),
        ] {
            scene.put(&Object {
                target_port,
                ..Object::new(name, number, &[backend])
            })?;
        }
        scene.start_agent()?;
        Ok(scene)
    }

    /// Starts the servers of a machine.
    pub(super) fn serve(&mut self, machine: Machine) -> Result<()> {
        let namespace = machine.namespace(self.lab);
        self.servers.remove(namespace.host.name);
        let responder = Responder::start(namespace, TARGET_PORT)?;
        self.servers.insert(namespace.host.name, responder);
        Ok(())
    }

    /// Stops the servers of a machine.
    pub(super) fn unserve(&mut self, machine: Machine) -> Result<()> {
        let name = machine.namespace(self.lab).host.name;
        let stopped = self.servers.remove(name);
        stopped
            .map(drop)
            .ok_or_else(|| LabError::Unexpected(format!("nothing serves on {name}")))
    }

    /// Creates or replaces a service with its slices.
    pub(super) fn put(&self, object: &Object) -> Result<()> {
        let text = format!("{}---\n{}", object.service(), object.slices());
        self.manifests
            .write(&format!("{}.yaml", object.name), &text)
    }

    /// Deletes a file of the store.
    pub(super) fn delete(&self, name: &str) -> Result<()> {
        let path = format!("{}/{name}.yaml", self.manifests.folder());
        fs::remove_file(&path).map_err(|error| LabError::system(format!("remove {path}"), error))
    }

    pub(super) fn start_agent(&mut self) -> Result<()> {
        self.agent = Some(Agent::start(self.lab, &self.options)?);
        Ok(())
    }

    pub(super) fn stop_agent(&mut self) -> Result<()> {
        match self.agent.take() {
            Some(agent) => agent.stop().map(drop),
            None => Ok(()),
        }
    }

    /// The running agent.
    pub(super) fn agent(&self) -> Result<&Agent<'lab>> {
        self.agent
            .as_ref()
            .ok_or_else(|| LabError::Unexpected("no agent runs".to_owned()))
    }

    /// Restarts the agent with other flags.
    pub(super) fn restart_with(&mut self, flags: &[&str]) -> Result<()> {
        self.stop_agent()?;
        self.options.flags = flags.iter().map(ToString::to_string).collect();
        self.start_agent()
    }

    /// What `contiv why` prints about a connection, and its exit code.
    pub(super) fn explain(
        &self,
        from: Machine,
        to: &str,
        probes: bool,
    ) -> Result<(Value, Option<i32>)> {
        let (address, _) = destination(to)?;
        let from = source(self.lab, from, address);
        let mut command = Command::new(binary()?);
        command
            .args(["why", "--from", &from, "--to", to, "-o", "json"])
            .args(probes.then_some("--probe"))
            .env_remove("CONTIV_NODE_NAME");
        let output = self.lab.node.run(|| {
            command
                .output()
                .map_err(|error| LabError::system("run contiv why", error))
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let value = serde_json::from_str(&text).map_err(|error| {
            let errors = String::from_utf8_lossy(&output.stderr);
            LabError::Unexpected(format!("contiv why {from} {to}: {error}: {text}{errors}"))
        })?;
        Ok((value, output.status.code()))
    }
}

/// The client as `--from` has it: a pod with its interface, which packets come in by.
fn source(lab: &Lab, from: Machine, to: SocketAddr) -> String {
    let host = from.namespace(lab).host;
    let address = if to.is_ipv4() {
        host.v4.to_string()
    } else {
        host.v6.to_string()
    };
    match from {
        Machine::Pod1 | Machine::Pod2 => format!("{address}%{}", host.name),
        _ if to.ip().is_loopback() => to.ip().to_string(),
        _ => address,
    }
}

/// The destination that `--to` has.
pub(super) fn destination(to: &str) -> Result<(SocketAddr, Protocol)> {
    let parsed = || {
        let (address, protocol) = to.split_once('/')?;
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => return None,
        };
        Some((address.parse().ok()?, protocol))
    };
    parsed().ok_or_else(|| LabError::Unexpected(format!("{to} is no destination")))
}

/// A server of TCP that does this on each connection, until the lab ends.
fn serve_large(
    pod: &Namespace,
    port: u16,
    serve: fn(&mut TcpStream) -> io::Result<()>,
) -> Result<()> {
    for address in [
        SocketAddr::new(pod.host.v4.into(), port),
        SocketAddr::new(pod.host.v6.into(), port),
    ] {
        let failed = |error| LabError::system(format!("listen on {address}"), error);
        let listener = pod.run(|| TcpListener::bind(address).map_err(failed))?;
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                // A client that gave up is no failure.
                thread::spawn(move || drop(serve(&mut stream)));
            }
        });
    }
    Ok(())
}

/// A service and its endpoint slices, with what faults change.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) name: &'static str,
    /// The last part of its addresses; its node port is 30000 more.
    pub(super) number: u8,
    /// The names of the machines behind it.
    pub(super) backends: Vec<&'static str>,
    pub(super) target_port: u16,
    /// Further lines of its metadata, and of its specification.
    pub(super) metadata: &'static str,
    pub(super) spec: &'static str,
    /// The service that the slices name.
    pub(super) slices_of: &'static str,
    /// The namespace of the slices.
    pub(super) slice_namespace: &'static str,
    /// The name of the port of TCP in the slices.
    pub(super) port_name: &'static str,
    /// The conditions of the endpoints.
    pub(super) conditions: &'static str,
    /// The families of the slices.
    pub(super) families: &'static [&'static str],
    /// An address of IPv4 in place of those of the backends.
    pub(super) address: Option<&'static str>,
    /// `ipMode` of the load balancer.
    pub(super) ip_mode: &'static str,
}

impl Object {
    /// A healthy service.
    pub(super) fn new(name: &'static str, number: u8, backends: &[&'static str]) -> Self {
        Self {
            name,
            number,
            backends: backends.to_vec(),
            target_port: TARGET_PORT,
            metadata: "",
            spec: "",
            slices_of: name,
            slice_namespace: "default",
            port_name: "web",
            conditions: "ready: true",
            families: &["IPv4", "IPv6"],
            address: None,
            ip_mode: "VIP",
        }
    }

    /// The manifest of the service.
    pub(super) fn service(&self) -> String {
        let Self {
            name,
            number,
            target_port,
            metadata,
            spec,
            ip_mode,
            ..
        } = self;
        let node_port = 30_000 + u16::from(*number);
        format!(
            "apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: default
{metadata}spec:
  type: LoadBalancer
  clusterIP: 10.96.0.{number}
  clusterIPs: [10.96.0.{number}, 'fd00:10:96::{number}']
  ipFamilies: [IPv4, IPv6]
  externalIPs: [192.0.2.{number}, '2001:db8:1::{number}']
  ports:
  - {{name: web, protocol: TCP, port: 80, targetPort: {target_port}, nodePort: {node_port}}}
  - {{name: web-udp, protocol: UDP, port: 80, targetPort: {target_port}, nodePort: {node_port}}}
{spec}status:
  loadBalancer:
    ingress: [{{ip: 198.51.100.{number}, ipMode: {ip_mode}}}, {{ip: '2001:db8:2::{number}', ipMode: {ip_mode}}}]
"
        )
    }

    /// The manifests of the slices.
    pub(super) fn slices(&self) -> String {
        let slices = self.families.iter().map(|family| self.slice(family));
        slices.collect::<Vec<_>>().join("---\n")
    }

    fn slice(&self, family: &str) -> String {
        let Self {
            name,
            target_port,
            conditions,
            port_name,
            slices_of,
            slice_namespace,
            ..
        } = self;
        let endpoints = self.backends.iter().map(|backend| {
            let (node, v4, v6) = match *backend {
                "node" => ("node", "172.31.0.1", "fd00:172:31::1"),
                "pod1" => ("node", "10.244.1.10", "fd00:10:244:1::10"),
                "pod2" => ("node", "10.244.1.11", "fd00:10:244:1::11"),
                "pod3" => ("node2", "10.244.2.10", "fd00:10:244:2::10"),
                _ => ("node2", "10.244.2.11", "fd00:10:244:2::11"),
            };
            let address = if family == "IPv4" {
                self.address.unwrap_or(v4)
            } else {
                v6
            };
            format!(
                "\n- {{addresses: ['{address}'], nodeName: {node}, conditions: {{{conditions}}}}}"
            )
        });
        let endpoints: String = endpoints.collect();
        let endpoints = if endpoints.is_empty() {
            " []"
        } else {
            &endpoints
        };
        format!(
            "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}-{}
  namespace: {slice_namespace}
  labels: {{kubernetes.io/service-name: {slices_of}}}
addressType: {family}
ports:
- {{name: {port_name}, protocol: TCP, port: {target_port}}}
- {{name: {port_name}-udp, protocol: UDP, port: {target_port}}}
endpoints:{endpoints}
",
            family.to_lowercase()
        )
    }
}
