//! External workloads end to end: a real etcd, a real `contiv controller`, a real agent. Measures the time from a change of a
//! workload until the slices of its services are in etcd and in the node's kernel.

mod cluster;
mod latency;

use std::{fs, process::Command, time::Duration};

use contiv_tests::{
    agent::{Agent, AgentOptions, binary},
    cluster::{Etcd, State},
    lab::{Lab, LabError, Process, Result, scratch, wait_until},
};

use crate::{
    cluster::Client,
    figures::{Figure, Limit, Quantity},
    statistics::timed,
};

/// The section of these figures in the table.
pub const SECTION: &str = "controllers";
/// The time limit for the initial state.
const TIME_TO_START: Duration = Duration::from_secs(180);
/// The address of the controller's debug HTTP.
const LISTEN: &str = "127.0.0.1:9998";

/// Fills an etcd with workloads and services, starts a controller and an agent, and changes one workload after the other.
///
/// # Errors
/// When an operation fails; slow figures are not errors.
pub fn measure(lab: &Lab) -> Result<Vec<Figure>> {
    // Files of a previous section.
    let data = scratch("etcd")?;
    if data.exists() {
        fs::remove_dir_all(&data)
            .map_err(|error| LabError::system(format!("remove {}", data.display()), error))?;
    }
    let etcd = Etcd::start(lab)?;
    let client = Client::new()?;
    lab.node.run(|| cluster::fill(&client))?;
    let figure = |name: &str, measured: Quantity, limit: Option<Limit>| {
        let figure = Figure::new(SECTION, name, (cluster::SERVICES, 1), measured);
        limit.into_iter().fold(figure, Figure::with_limit)
    };

    let (first, controller) = timed(|| start(lab, &etcd));
    let _controller = controller?;
    let agent = Agent::start(lab, &AgentOptions::with_store(etcd.url()))?;
    let (in_etcd, in_kernel) = lab.node.run(|| latency::measure(&client))?;
    let milliseconds = |limit: f64| Some(Limit::AtMost(Quantity::Seconds(limit / 1000.0)));
    let figures = vec![
        figure(
            "slices of all services, from the start of the controller",
            first.into(),
            None,
        ),
        figure(
            "one workload changed until in etcd, p50",
            in_etcd.median().into(),
            milliseconds(20.0),
        ),
        figure(
            "one workload changed until in etcd, p99",
            in_etcd.percentile(99).into(),
            milliseconds(100.0),
        ),
        figure(
            "one workload changed until in the kernel, p50",
            in_kernel.median().into(),
            milliseconds(20.0),
        ),
        figure(
            "one workload changed until in the kernel, p99",
            in_kernel.percentile(99).into(),
            milliseconds(100.0),
        ),
    ];
    agent.stop()?;
    lab.node.exec(&["nft", "delete table inet contiv"])?;
    Ok(figures)
}

/// Starts the controller and waits until every service has its slice.
fn start(lab: &Lab, etcd: &Etcd<'_>) -> Result<Process> {
    // The configuration of this machine must not be used.
    let config = scratch("controller.toml")?;
    fs::write(&config, "").map_err(|error| LabError::system("write a configuration", error))?;
    let mut command = Command::new(binary()?);
    command
        .env_clear()
        .arg("controller")
        .arg("--config")
        .arg(config);
    command.args([
        "--enable",
        "external-workloads",
        "--store",
        &etcd.url(),
        "--listen",
        LISTEN,
    ]);
    let controller = Process::start(&lab.node, "controller", &mut command)?;
    // Fails early if etcd cannot be queried.
    count_slices(etcd)?;
    wait_until("every service has its slice", TIME_TO_START, || {
        count_slices(etcd).is_ok_and(|count| count == cluster::SERVICES)
    })?;
    Ok(controller)
}

/// The number of slices. Only one is transferred; etcd counts all.
fn count_slices(etcd: &Etcd<'_>) -> Result<usize> {
    let fields = etcd.etcdctl(&[
        "get",
        "--prefix",
        &cluster::slices_prefix(),
        "--limit=1",
        "--write-out=fields",
    ])?;
    let count = fields
        .lines()
        .find_map(|line| line.strip_prefix("\"Count\" : ")?.trim().parse().ok());
    count.ok_or_else(|| LabError::Unexpected(format!("no count in what etcdctl says: {fields}")))
}
