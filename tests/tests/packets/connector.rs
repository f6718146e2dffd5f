//! From services of other registries to packets: `contiv controller --enable connector`, etcd, the agent.

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpListener},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use contiv_connector_testing::{ConsulInstance, ConsulServer, Fault};
use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, ROOT, State, TARGET_PORT},
    lab::{
        Family, Host, Lab, LabError, Outcome, Process, Protocol, Responder, Result, isolated,
        ranges, scratch, wait_for, wait_until,
    },
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The time limit for expected events. Generous.
const EVENT_TIMEOUT: Duration = Duration::from_secs(90);

/// The address of Consul in the node's namespace.
const CONSUL: &str = "127.0.0.1:8500";
const HTTP: &str = "127.0.0.1:9998";

/// The controller's registries: a file and Consul.
struct Registries {
    file: PathBuf,
    consul: ConsulServer,
    config: PathBuf,
}

impl Registries {
    /// `db` is a service of the file, `web` one of Consul.
    fn start(lab: &Lab) -> Result<Self> {
        let failed = |error| LabError::system("start the registries", error);
        let listener = lab.node.run(|| TcpListener::bind(CONSUL).map_err(failed))?;
        let consul = ConsulServer::listen(listener).map_err(failed)?;
        let registries = Self {
            file: scratch("services.yaml")?,
            consul,
            config: scratch("connector.toml")?,
        };
        let ranges: Vec<String> = Family::BOTH
            .iter()
            .map(|family| format!("{:?}", ranges::SERVICES.cidr(*family)))
            .collect();
        let config = format!(
            "cluster-ip-ranges = [{}]\n\
             [[registries]]\nname = \"machines\"\nfile = {:?}\n\
             [[registries]]\nname = \"office\"\nservice-port = 80\n\
             consul = {{ url = \"http://{CONSUL}\", wait = \"5s\" }}\n",
            ranges.join(", "),
            registries.file.display(),
        );
        fs::write(&registries.config, config).map_err(failed)?;
        Ok(registries)
    }

    /// Makes this host the backend of `db` in the file.
    fn set_db(&self, host: &Host) -> Result<()> {
        let text = format!(
            "services:\n  - name: db\n    port: 80\n    appProtocol: other\n    endpoints:\n\
             \x20     - {{address: '{}', port: {TARGET_PORT}}}\n      - {{address: '{}', port: {TARGET_PORT}}}\n",
            host.v4, host.v6
        );
        self.write(&text)
    }

    fn write(&self, text: &str) -> Result<()> {
        fs::write(&self.file, text)
            .map_err(|error| LabError::system("write the file of services", error))
    }

    /// Registers this host as the backend of `web` in Consul.
    fn set_web(&self, host: &Host) {
        for address in [host.v4.to_string(), host.v6.to_string()] {
            self.consul
                .register("web", ConsulInstance::new(&address, TARGET_PORT, &[]));
        }
    }

    /// Deregisters this host from `web`.
    fn unset_web(&self, host: &Host) {
        for address in [host.v4.to_string(), host.v6.to_string()] {
            self.consul
                .deregister("web", &format!("{address}-{TARGET_PORT}"));
        }
    }
}

/// Starts `contiv controller` with a short lease.
fn controller(lab: &Lab, etcd: &Etcd<'_>, registries: &Registries) -> Result<Process> {
    let empty = scratch("controller.toml")?;
    fs::write(&empty, "").map_err(|error| LabError::system("write the configuration", error))?;
    let mut command = Command::new(binary()?);
    command
        .env_clear()
        .env("RUST_BACKTRACE", "1")
        .args(["controller", "--enable", "connector"]);
    command.args([
        "--store",
        &etcd.url(),
        "--listen",
        HTTP,
        "--identity",
        "lab",
    ]);
    command.args([
        "--lease-duration=3s",
        "--lease-renew-deadline=2s",
        "--lease-retry-period=500ms",
    ]);
    command
        .arg("--connector-file")
        .arg(&registries.config)
        .arg("--config")
        .arg(empty);
    Process::start(&lab.node, "controller", &mut command)
}

fn stored(etcd: &Etcd<'_>, name: &str) -> Option<Value> {
    stored_in(etcd, "default", name)
}

fn stored_in(etcd: &Etcd<'_>, namespace: &str, name: &str) -> Option<Value> {
    let key = format!("{ROOT}/service/{name}/namespace/{namespace}");
    serde_json::from_str(&etcd.etcdctl(&["get", "--print-value-only", &key]).ok()?).ok()
}

/// The addresses of a service in etcd: one of each family.
fn addresses(etcd: &Etcd<'_>, name: &str) -> Result<Vec<SocketAddr>> {
    wait_for(
        &format!("service {name} is stored with two addresses"),
        EVENT_TIMEOUT,
        || cluster_addresses(stored(etcd, name)),
    )
}

/// The addresses of a stored service, if it has one of each family.
fn cluster_addresses(service: Option<Value>) -> Option<Vec<SocketAddr>> {
    let service = service?;
    let ips = service["cluster_ips"].as_array()?.iter();
    let ips: Option<Vec<IpAddr>> = ips.map(|ip| ip.as_str()?.parse().ok()).collect();
    let ips = ips.filter(|ips| ips.len() == 2)?;
    Some(ips.into_iter().map(|ip| SocketAddr::new(ip, 80)).collect())
}

fn is_answered(lab: &Lab, addresses: &[SocketAddr], by: &Host) -> bool {
    addresses.iter().all(|address| {
        lab.client.ask(Protocol::Tcp, *address).is_ok_and(
            |outcome| matches!(outcome, Outcome::Answered { answer, .. } if answer.by == by.name),
        )
    })
}

fn wait_until_answered(lab: &Lab, addresses: &[SocketAddr], by: &Host) -> Result<()> {
    wait_until(
        &format!("{addresses:?} are answered by {}", by.name),
        EVENT_TIMEOUT,
        || is_answered(lab, addresses, by),
    )
    .map(drop)
}

/// A metric of the controller.
fn metric(lab: &Lab, line: &str) -> Option<f64> {
    let http = HTTP.parse().ok()?;
    let text = lab.node.http("GET", http, "/metrics").ok()?.body;
    let found = text.lines().find(|of| of.starts_with(line))?;
    found.split(' ').next_back()?.parse().ok()
}

#[test]
fn service_of_file_and_one_of_consul_are_reached_by_packets() -> Result<()> {
    isolated(
        "connector::service_of_file_and_one_of_consul_are_reached_by_packets",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let etcd = Etcd::start(lab)?;
            let registries = Registries::start(lab)?;
            registries.set_db(lab.pod1.host)?;
            registries.set_web(lab.pod3.host);
            let mut controller = controller(lab, &etcd, &registries)?;
            let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
            let (db, web) = (addresses(&etcd, "db")?, addresses(&etcd, "web")?);
            wait_until_answered(lab, &db, lab.pod1.host)?;
            wait_until_answered(lab, &web, lab.pod3.host)?;

            // Both registries fail: nothing is deleted, and connections still work.
            registries.consul.set_fault(Some(Fault::Down));
            registries.write("services:\n")?;
            for registry in ["machines", "office"] {
                let line = format!("contiv_connector_registry_up{{registry=\"{registry}\"}}");
                wait_until(&format!("{registry} is down"), EVENT_TIMEOUT, || {
                    metric(lab, &line) == Some(0.0)
                })?;
            }
            // Longer than any sync takes.
            std::thread::sleep(Duration::from_secs(6));
            assert!(is_answered(lab, &db, lab.pod1.host) && is_answered(lab, &web, lab.pod3.host));
            assert!(stored(&etcd, "db").is_some() && stored(&etcd, "web").is_some());

            // The registries are back with other content.
            registries.set_db(lab.pod2.host)?;
            registries.set_web(lab.pod4.host);
            registries.unset_web(lab.pod3.host);
            registries.consul.set_fault(None);
            wait_until_answered(lab, &db, lab.pod2.host)?;
            wait_until_answered(lab, &web, lab.pod4.host)?;
            assert_eq!(
                (addresses(&etcd, "db")?, addresses(&etcd, "web")?),
                (db, web.clone())
            );

            // A service that fails its checks is rejected immediately, at the same address.
            for address in [lab.pod4.host.v4.to_string(), lab.pod4.host.v6.to_string()] {
                registries.consul.set_status(
                    "web",
                    &format!("{address}-{TARGET_PORT}"),
                    "critical",
                );
            }
            wait_until("clients of web are refused", EVENT_TIMEOUT, || {
                let refused = |address| lab.client.ask(Protocol::Tcp, address)?.refusal();
                web.iter().all(|address| refused(*address).is_ok())
            })?;
            // The namespace changes while it runs.
            let failed = |error| LabError::system("write the connector's file", error);
            let config = fs::read_to_string(&registries.config).map_err(failed)?;
            fs::write(
                &registries.config,
                format!("namespace = \"edge\"\n{config}"),
            )
            .map_err(failed)?;
            controller.signal(Signal::SIGHUP)?;
            let moved = wait_for("db is stored in another namespace", EVENT_TIMEOUT, || {
                let is_gone = stored(&etcd, "db").is_none();
                cluster_addresses(stored_in(&etcd, "edge", "db")).filter(|_| is_gone)
            })?;
            wait_until_answered(lab, &moved, lab.pod2.host)?;

            registries.write("services: []\n")?;
            registries.unset_web(lab.pod4.host);
            wait_until("nothing is left", EVENT_TIMEOUT, || {
                ["db", "web"]
                    .iter()
                    .all(|name| stored_in(&etcd, "edge", name).is_none())
            })?;
            controller.terminate(EVENT_TIMEOUT)?;
            agent.stop().map(drop)
        },
    )
}

#[test]
fn restart_of_a_killed_controller_ends_in_the_correct_state() -> Result<()> {
    isolated(
        "connector::restart_of_a_killed_controller_ends_in_the_correct_state",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
            let etcd = Etcd::start(lab)?;
            let registries = Registries::start(lab)?;
            registries.set_db(lab.pod1.host)?;
            registries.set_web(lab.pod3.host);
            let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
            let mut first = controller(lab, &etcd, &registries)?;
            let (db, web) = (addresses(&etcd, "db")?, addresses(&etcd, "web")?);
            wait_until_answered(lab, &web, lab.pod3.host)?;

            // Killed when there is something to write.
            registries.set_db(lab.pod2.host)?;
            std::thread::sleep(Duration::from_secs(1));
            first.kill()?;
            registries.set_web(lab.pod4.host);
            registries.unset_web(lab.pod3.host);
            for n in 0..20 {
                registries.consul.register(
                    &format!("more{n}"),
                    ConsulInstance::new("10.244.1.10", TARGET_PORT, &[]),
                );
            }
            assert!(
                is_answered(lab, &web, lab.pod3.host),
                "the written state stays applied"
            );

            let mut second = controller(lab, &etcd, &registries)?;
            wait_until_answered(lab, &db, lab.pod2.host)?;
            wait_until_answered(lab, &web, lab.pod4.host)?;
            assert_eq!(
                (addresses(&etcd, "db")?, addresses(&etcd, "web")?),
                (db, web)
            );
            let mut seen = Vec::new();
            for n in 0..20 {
                let name = format!("more{n}");
                let service = wait_for(&format!("{name} is stored"), EVENT_TIMEOUT, || {
                    stored(&etcd, &name)
                })?;
                seen.push(service["cluster_ip"].clone());
            }
            seen.sort_by_key(Value::to_string);
            seen.dedup();
            assert_eq!(seen.len(), 20, "each has an address of its own");
            second.terminate(EVENT_TIMEOUT)?;
            agent.stop().map(drop)
        },
    )
}
