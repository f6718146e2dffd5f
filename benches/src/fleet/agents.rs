//! Many real agents that start at once, and again over an unchanged store. They have the renderer that changes nothing, so that all
//! can be in one namespace.

mod readiness;

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::Command,
    time::{Duration, Instant},
};

use contiv_proto::{Key, Kind};
use contiv_store::Store;
use contiv_tests::{
    agent::binary,
    lab::{Lab, LabError, Process, Result, scratch, wait_until},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::server::{Server, Usage};
use crate::{
    cluster::{process, put, unexpected},
    figures::Quantity,
};
use readiness::ReadinessListener;

/// How many agents there are.
pub(super) const AGENTS: u16 = 100;
/// The debug HTTP of the first one.
const FIRST_PORT: u16 = 20_000;
/// The address of the first one's node.
const FIRST_NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// How long all of them may take to start.
const START_LIMIT: Duration = Duration::from_secs(300);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// What a start of all agents took.
#[derive(Debug)]
pub(super) struct FleetStart {
    /// Until the first and the last were ready.
    pub(super) first_ready: Duration,
    pub(super) last_ready: Duration,
    /// Of etcd, until all watched.
    pub(super) usage: Usage,
    /// The largest memory of etcd meanwhile.
    pub(super) peak: Quantity,
    /// Warnings and errors in the logs of all agents, and how many there are of each.
    pub(super) warnings: BTreeMap<String, usize>,
}

/// Stores the Node objects of the agents: an agent warns without its own.
pub(super) fn put_nodes(lab: &Lab, server: &Server<'_>) -> Result<()> {
    let nodes = (0..AGENTS).flat_map(|number| {
        let address = Ipv4Addr::from_bits(FIRST_NODE_ADDRESS.to_bits() + u32::from(number));
        let value = json!({
            "name": node_name(number),
            "addresses": [{"type": "NodeInternalIP", "address": address}],
        });
        let key = format!("{}{}", Key::prefix(Kind::Node), node_name(number));
        put((key, value.to_string()))
    });
    let commit = server.client.store.commit(nodes.collect());
    let commit = || server.client.runtime.block_on(commit).map_err(unexpected);
    lab.node.run(commit).map(drop)
}

/// Starts the agents, waits until all of them have saved everything, and stops them.
pub(super) fn start_and_stop(lab: &Lab, server: &Server<'_>, name: &str) -> Result<FleetStart> {
    // So that the peak is that of the start.
    let peak = format!("/proc/{}/clear_refs", server.etcd_id());
    fs::write(&peak, "5").map_err(|error| LabError::system(format!("write {peak}"), error))?;
    let before = server.usage()?;
    let listener = ReadinessListener::start()?;
    let begin = Instant::now();
    let mut agents = (0..AGENTS)
        .map(|number| launch(lab, server, &listener, name, number))
        .collect::<Result<Vec<_>>>()?;
    let ready = listener.wait(AGENTS.into(), START_LIMIT)?;
    for number in 0..AGENTS {
        wait_until("an agent watches and has saved", START_LIMIT, || {
            status(lab, number).is_ok_and(|status| is_watching(&status))
        })?;
    }
    let usage = server.usage()?.since(before);
    let peak = process::memory(server.etcd_id())?.peak;
    let mut problems = BTreeMap::new();
    for message in agents.iter().flat_map(|agent| warnings(&agent.log())) {
        *problems.entry(message).or_default() += 1;
    }
    for agent in &mut agents {
        agent.signal(Signal::SIGTERM)?;
    }
    for agent in &mut agents {
        agent.wait(STOP_LIMIT)?;
    }
    let since = |at: Option<&Instant>| at.map_or(Duration::ZERO, |at| at.duration_since(begin));
    Ok(FleetStart {
        first_ready: since(ready.first()),
        last_ready: since(ready.last()),
        usage,
        peak,
        warnings: problems,
    })
}

fn launch(
    lab: &Lab,
    server: &Server<'_>,
    listener: &ReadinessListener,
    start: &str,
    number: u16,
) -> Result<Process> {
    let name = node_name(number);
    // The configuration of an agent of this machine must not be used.
    let config = scratch("fleet.toml")?;
    fs::write(&config, "").map_err(unexpected)?;
    let mut command = Command::new(binary()?);
    command
        .env_clear()
        .env("NOTIFY_SOCKET", listener.path())
        .args(["agent", "--node-name", &name, "--renderers", "dry-run"])
        .args(["--store", &server.url(), "--log-format", "json"])
        .args(["--listen", &address(number).to_string()])
        .arg("--config")
        .arg(config)
        .arg("--state-dir")
        // Removed with that of a single agent before each etcd.
        .arg(scratch(&format!("agent-state/{name}"))?);
    Process::start(&lab.node, &format!("{name}-{start}"), &mut command)
}

fn node_name(number: u16) -> String {
    format!("agent-{number}")
}

fn address(number: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), FIRST_PORT + number)
}

fn status(lab: &Lab, number: u16) -> Result<Value> {
    lab.node.http("GET", address(number), "/status")?.json()
}

/// Whether it has what the store has, and has saved it.
fn is_watching(status: &Value) -> bool {
    status["from_mirror"] == false
        && status["revision"].is_i64()
        && status["mirror"]["revision"] == status["revision"]
}

/// The messages of warnings and errors in a log of JSON lines.
fn warnings(log: &str) -> Vec<String> {
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["level"] == "WARN" || line["level"] == "ERROR")
        .map(|line| line["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_found_by_level_and_not_by_text() {
        let log = r#"{"level":"INFO","message":"WARN"}
{"level":"WARN","message":"lost the store"}
not JSON: WARN
{"level":"ERROR","message":"failed"}
"#;
        assert_eq!(warnings(log), ["lost the store", "failed"]);
    }

    #[test]
    fn agent_watches_if_everything_is_of_the_store_and_saved() {
        let status = |from_mirror: bool, saved: i64| json!({"from_mirror": from_mirror, "revision": 7, "mirror": {"revision": saved}});
        assert!(is_watching(&status(false, 7)));
        assert!(!is_watching(&status(true, 7)));
        assert!(!is_watching(&status(false, 6)));
        assert!(!is_watching(&json!({"from_mirror": false})));
    }
}
