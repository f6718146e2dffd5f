//! The agent under test, as a process on the node.

mod service_manager;

use std::{
    collections::BTreeSet,
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Command, ExitStatus},
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    cluster::{NAMESPACE, Service},
    lab::{Family, Lab, LabError, Namespace, Process, Response, Result, scratch, wait_until},
};
use service_manager::ServiceManager;

/// The address of the agent's debug HTTP, inside the node's namespace.
const DEBUG_HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9999);
/// The time limit for starting, applying and stopping. Generous, so that a busy machine fails no test.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The path of the `contiv` binary: named by `CONTIV_BIN`, or beside the running program.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("CONTIV_BIN") {
        return Ok(path.into());
    }
    let program =
        env::current_exe().map_err(|error| LabError::system("find this program", error))?;
    // target/debug/contiv-demo, or a test in target/debug/deps/.
    program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("contiv"))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            LabError::Unexpected(
                "no `contiv` beside this program: cargo build -p contiv-agent".to_owned(),
            )
        })
}

/// How to start the agent.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The store's URL, such as `dir:/run/manifests`.
    pub store: String,
    /// More flags, such as `--local-endpoint-weight=2`.
    pub flags: Vec<String>,
}

impl AgentOptions {
    /// The nftables renderer with this store.
    pub const fn with_store(store: String) -> Self {
        Self {
            store,
            flags: Vec::new(),
        }
    }

    /// The same, with a table that other processes can change.
    pub fn with_open_table(store: String) -> Self {
        Self {
            store,
            flags: vec!["--own-table=false".to_owned()],
        }
    }
}

/// A running agent on a node.
#[derive(Debug)]
pub struct Agent<'lab> {
    node: &'lab Namespace,
    process: Process,
    /// Listens until the agent has ended.
    _manager: Option<ServiceManager>,
}

impl<'lab> Agent<'lab> {
    /// Starts the agent on the node and waits until it is ready: every renderer has applied its first snapshot.
    pub fn start(lab: &'lab Lab, options: &AgentOptions) -> Result<Self> {
        Self::start_on(&lab.node, "agent", options)
    }

    /// The same on any node. Each agent has its own name.
    pub fn start_on(node: &'lab Namespace, name: &str, options: &AgentOptions) -> Result<Self> {
        let agent = Self::launch(node, name, options)?;
        agent.wait_until_ready(TIME_LIMIT)?;
        Ok(agent)
    }

    /// Starts the agent with the priority of its systemd unit and waits until it reports that it is ready. It is not polled
    /// meanwhile, since polling takes processor time that would count in a measured start.
    pub fn start_as_service(lab: &'lab Lab, options: &AgentOptions) -> Result<Self> {
        let mut manager = ServiceManager::start()?;
        let mut command = manager.command(&binary()?);
        arguments(&mut command, &lab.node, "agent", options)?;
        let process = Process::start(&lab.node, "agent", &mut command)?;
        manager.wait_until_ready(TIME_LIMIT)?;
        Ok(Self {
            node: &lab.node,
            process,
            _manager: Some(manager),
        })
    }

    /// Starts the agent without waiting for anything.
    pub fn launch(node: &'lab Namespace, name: &str, options: &AgentOptions) -> Result<Self> {
        let mut command = Command::new(binary()?);
        command.env_clear();
        arguments(&mut command, node, name, options)?;
        Ok(Self {
            node,
            process: Process::start(node, name, &mut command)?,
            _manager: None,
        })
    }

    /// Waits until every renderer has applied its first snapshot.
    pub fn wait_until_ready(&self, limit: Duration) -> Result<()> {
        wait_until("the agent is ready", limit, || {
            self.http("GET", "/readiness")
                .is_ok_and(|response| response.status == 200)
        })
        .map(drop)
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the kernel has exactly the backends of this service.
    pub fn wait_until_applied(&self, service: &Service) -> Result<()> {
        let expected: BTreeSet<IpAddr> = Family::BOTH
            .into_iter()
            .flat_map(|family| {
                service
                    .backends
                    .iter()
                    .map(move |host| host.address(family))
            })
            .collect();
        let what = format!(
            "service {} with {} backends is applied",
            service.name,
            service.backends.len()
        );
        wait_until(&what, TIME_LIMIT, || {
            self.service(service)
                .is_ok_and(|service| backend_addresses(&service).as_ref() == Some(&expected))
                && self.is_in_sync()
        })
        .map(drop)
    }

    /// Waits until the kernel has nothing of a service any more.
    pub fn wait_until_gone(&self, service: &Service) -> Result<()> {
        let what = format!("service {} is gone", service.name);
        let path = service_path(service);
        wait_until(&what, TIME_LIMIT, || {
            self.http("GET", &path)
                .is_ok_and(|response| response.status == 404)
                && self.is_in_sync()
        })
        .map(drop)
    }

    /// The answer of `/status`.
    pub fn status(&self) -> Result<Value> {
        self.http("GET", "/status")?.json()
    }

    /// Waits until the store was listed; an agent is ready before if it has a saved state.
    pub fn wait_until_listed(&self, limit: Duration) -> Result<()> {
        let is_listed = |status: &Value| status["from_mirror"] == false;
        wait_until("the store is listed", limit, || {
            self.status().is_ok_and(|status| is_listed(&status))
        })
        .map(drop)
    }

    /// Waits until the mirror has everything of the store that the agent has handled.
    pub fn wait_until_saved(&self) -> Result<()> {
        wait_until("everything is saved", TIME_LIMIT, || {
            self.status().is_ok_and(|status| is_saved(&status))
        })
        .map(drop)
    }

    fn service(&self, service: &Service) -> Result<Value> {
        self.http("GET", &service_path(service))?.json()
    }

    /// Whether every renderer has applied everything. If this is true after the expected state was observed, the expected state
    /// is in the kernel.
    pub fn is_in_sync(&self) -> bool {
        let at_rest = |renderer: &Value| {
            renderer["state"] == "idle"
                && renderer["pending"] == "nothing"
                && renderer["failures"] == 0
        };
        self.http("GET", "/renderers")
            .and_then(|response| response.json())
            .is_ok_and(|renderers| {
                renderers
                    .as_array()
                    .is_some_and(|all| !all.is_empty() && all.iter().all(at_rest))
            })
    }

    /// A request to its debug HTTP.
    pub fn http(&self, method: &str, path: &str) -> Result<Response> {
        self.node.http(method, DEBUG_HTTP, path)
    }

    /// Stops it with SIGTERM, which leaves the dataplane in place.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.process.terminate(TIME_LIMIT)
    }

    /// Pauses it until [`Agent::resume`].
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// Resumes it.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::SIGKILL)?;
        self.process.wait(TIME_LIMIT).map(drop)
    }
}

/// Adds the environment and the arguments of an agent.
fn arguments(
    command: &mut Command,
    node: &Namespace,
    name: &str,
    options: &AgentOptions,
) -> Result<()> {
    // The configuration of an agent of this machine must not be used.
    let config = scratch(&format!("{name}.toml"))?;
    fs::write(&config, "")
        .map_err(|error| LabError::system(format!("write {}", config.display()), error))?;
    command.env("RUST_BACKTRACE", "1");
    command
        .args(["agent", "--node-name", node.host.name])
        .arg("--config")
        .arg(config);
    command
        .args(["--store", &options.store, "--renderers", "nftables"])
        .args(&options.flags);
    command.args(["--listen", &DEBUG_HTTP.to_string()]);
    command
        .arg("--state-dir")
        .arg(scratch(&format!("{name}-state"))?);
    Ok(())
}

fn service_path(service: &Service) -> String {
    format!("/services/{NAMESPACE}/{}", service.name)
}

/// Whether the saved revision is the one that the agent has, of which there must be one.
fn is_saved(status: &Value) -> bool {
    status["revision"].is_i64() && status["mirror"]["revision"] == status["revision"]
}

/// The backend addresses of a service, which must be the same for every port.
fn backend_addresses(service: &Value) -> Option<BTreeSet<IpAddr>> {
    let of_port = |port: &Value| -> Option<BTreeSet<IpAddr>> {
        port["backends"]
            .as_array()?
            .iter()
            .map(|backend| backend["address"].as_str()?.parse().ok())
            .collect()
    };
    let ports: Option<BTreeSet<_>> = service["ports"].as_array()?.iter().map(of_port).collect();
    let mut ports = ports?.into_iter();
    ports.next().filter(|_| ports.next().is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_without_revision_is_not_saved() {
        assert!(is_saved(&json!({"revision": 7, "mirror": {"revision": 7}})));
        assert!(!is_saved(
            &json!({"revision": 7, "mirror": {"revision": 6}})
        ));
        assert!(!is_saved(&json!({"revision": 7})));
        assert!(!is_saved(
            &json!({"revision": null, "mirror": {"revision": null}})
        ));
        assert!(!is_saved(&json!({})));
    }
}
