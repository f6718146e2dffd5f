//! The agent under test, as a process on the node.

use std::{
    env,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Command, ExitStatus},
    time::Duration,
};

use nix::sys::signal::Signal;

use super::{Lab, LabError, Process, Response, Result, process::scratch, wait_until};

/// Where the agent's debug HTTP listens, inside the node's namespace.
const DEBUG_HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9999);
/// For starting, applying and stopping. Much more than is needed, so that a busy machine fails no test.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Where the `contiv` binary is: named by `CONTIV_BIN`, or beside the program that is running.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("CONTIV_BIN") {
        return Ok(path.into());
    }
    let program = env::current_exe().map_err(|error| LabError::system("find this program", error))?;
    // target/debug/contiv-demo, or a test in target/debug/deps/.
    program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("contiv"))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            LabError::Unexpected("no `contiv` beside this program: cargo build -p contiv-agent".to_owned())
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
    /// The nftables renderer, fed from this store.
    pub const fn with_store(store: String) -> Self {
        Self { store, flags: Vec::new() }
    }
}

/// A running agent on the node.
#[derive(Debug)]
pub struct Agent<'lab> {
    lab: &'lab Lab,
    process: Process,
}

impl<'lab> Agent<'lab> {
    /// Starts the agent on the node and waits until it is ready: every renderer has applied its first snapshot.
    pub fn start(lab: &'lab Lab, options: &AgentOptions) -> Result<Self> {
        let agent = Self::spawn(lab, options)?;
        agent.wait_until_ready()?;
        Ok(agent)
    }

    /// Starts the agent and does not wait.
    pub fn spawn(lab: &'lab Lab, options: &AgentOptions) -> Result<Self> {
        let mut command = Command::new(binary()?);
        command.args(["agent", "--node-name", lab.node.host.name]);
        command.args(["--store", &options.store, "--renderers", "nftables"]);
        command.args(&options.flags);
        command.args(["--listen", &DEBUG_HTTP.to_string()]).arg("--state-dir").arg(scratch("agent-state")?);
        Ok(Self { lab, process: Process::start(&lab.node, "agent", &mut command)? })
    }

    /// Waits for `/readiness`.
    pub fn wait_until_ready(&self) -> Result<Duration> {
        wait_until("the agent is ready", TIME_LIMIT, || {
            self.http("GET", "/readiness").is_ok_and(|response| response.status == 200)
        })
    }

    /// A request to its debug HTTP.
    pub fn http(&self, method: &str, path: &str) -> Result<Response> {
        self.lab.node.http(method, DEBUG_HTTP, path)
    }

    /// The process, for its log and its signals.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Stops it by SIGTERM, which leaves the dataplane in place.
    pub fn stop(mut self) -> Result<ExitStatus> {
        self.process.terminate(TIME_LIMIT)
    }

    /// Ends it by SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::SIGKILL)?;
        self.process.wait(TIME_LIMIT).map(drop)
    }
}
