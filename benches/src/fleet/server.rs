//! The etcd of a fleet, with any proxies in front of it, and what they use.

use std::{
    env,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::{self, Command},
    time::Duration,
};

use contiv_proto::key::ROOT;
use contiv_store::Store;
use contiv_tests::{
    cluster::Etcd,
    lab::{Lab, LabError, Process, Result, wait_until},
};

use super::prometheus::sum;
use crate::{
    cluster::{Client, process as usage, remove_state, unexpected},
    workload::Workload,
};

/// The address of etcd, and of the first proxy.
const ETCD: SocketAddr = local(2379);
const FIRST_PROXY_PORT: u16 = 23_790;
/// A server that has thousands of connections may be busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// An etcd and its proxies, with the objects of a workload.
pub(super) struct Server<'lab> {
    lab: &'lab Lab,
    etcd: Etcd<'lab>,
    proxies: Vec<Process>,
    /// For writers: directly at etcd.
    pub(super) client: Client,
}

/// What was used and counted so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Processor time of etcd, of all proxies, and of this process, which has the watchers and writers.
    pub(super) etcd: Duration,
    pub(super) proxies: Duration,
    pub(super) clients: Duration,
    /// Of everything else on the machine, which slows down a measurement.
    pub(super) others: Duration,
    /// What etcd has sent to clients.
    pub(super) sent_bytes: f64,
    /// Events that etcd has sent to watches.
    pub(super) sent_events: f64,
    /// Requests, of any kind, and messages of requests that are streams.
    pub(super) requests: f64,
}

/// Resident memory in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) etcd: f64,
    /// Of all of them.
    pub(super) proxies: f64,
}

impl Usage {
    /// The difference to an earlier time.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            etcd: self.etcd.saturating_sub(before.etcd),
            proxies: self.proxies.saturating_sub(before.proxies),
            clients: self.clients.saturating_sub(before.clients),
            others: self.others.saturating_sub(before.others),
            sent_bytes: self.sent_bytes - before.sent_bytes,
            sent_events: self.sent_events - before.sent_events,
            requests: self.requests - before.requests,
        }
    }
}

impl<'lab> Server<'lab> {
    /// Starts a new etcd with these objects, and so many proxies.
    pub(super) fn start(lab: &'lab Lab, workload: Workload, proxies: usize) -> Result<Self> {
        remove_state()?;
        let etcd = Etcd::start(lab)?;
        let client = Client::new()?;
        client.fill(lab, workload)?;
        let proxies = (0..proxies)
            .map(|number| start_proxy(lab, proxy_address(number)))
            .collect::<Result<_>>()?;
        Ok(Self {
            lab,
            etcd,
            proxies,
            client,
        })
    }

    /// Where watchers connect: the proxies if there are any.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let proxies = (0..self.proxies.len()).map(|number| proxy_address(number).to_string());
        if self.proxies.is_empty() {
            vec![ETCD.to_string()]
        } else {
            proxies.collect()
        }
    }

    /// The store URL of agents.
    pub(super) fn url(&self) -> String {
        format!("etcd://{}", self.endpoints().join(","))
    }

    pub(super) fn etcd_id(&self) -> u32 {
        self.etcd.id()
    }

    /// What was used so far.
    pub(super) fn usage(&self) -> Result<Usage> {
        let answer = self
            .lab
            .node
            .http_within(ANSWER_LIMIT, "GET", ETCD, "/metrics", "")?;
        if answer.status != 200 {
            return Err(LabError::Unexpected(format!(
                "etcd's metrics: {}",
                answer.body
            )));
        }
        let counted = |metric, labels| sum(&answer.body, metric, labels);
        let proxies = self
            .proxies
            .iter()
            .map(|proxy| usage::processor_time(proxy.id()));
        let (etcd, proxies, clients) = (
            usage::processor_time(self.etcd_id())?,
            proxies.sum::<Result<Duration>>()?,
            usage::processor_time(process::id())?,
        );
        let ours = etcd + proxies + clients;
        Ok(Usage {
            etcd,
            proxies,
            clients,
            others: usage::machine_time()?.saturating_sub(ours),
            sent_bytes: counted("etcd_network_client_grpc_sent_bytes_total", &[]),
            sent_events: counted("etcd_debugging_mvcc_events_total", &[]),
            requests: counted("grpc_server_msg_received_total", &[]),
        })
    }

    /// The resident memory now.
    pub(super) fn memory(&self) -> Result<Memory> {
        let bytes = |process| Ok(usage::memory(process)?.resident.number() * f64::from(1 << 20));
        let proxies = self.proxies.iter().map(|proxy| bytes(proxy.id()));
        Ok(Memory {
            etcd: bytes(self.etcd_id())?,
            proxies: proxies.sum::<Result<f64>>()?,
        })
    }

    /// The newest revision.
    pub(super) fn revision(&self) -> Result<i64> {
        let list = || {
            let list = self.client.store.list(ROOT);
            self.client.runtime.block_on(list).map_err(unexpected)
        };
        Ok(self.lab.node.run(list)?.revision)
    }
}

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn proxy_address(number: usize) -> SocketAddr {
    local(FIRST_PROXY_PORT + u16::try_from(number).unwrap_or_default())
}

fn start_proxy(lab: &Lab, address: SocketAddr) -> Result<Process> {
    let mut command = Command::new("etcd");
    command
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .args(["grpc-proxy", "start"])
        .args([
            format!("--endpoints={ETCD}"),
            format!("--listen-addr={address}"),
        ]);
    let name = format!("grpc-proxy-{}", address.port());
    let proxy = Process::start(&lab.node, &name, &mut command)?;
    let health = || {
        let answer = lab.node.http("GET", address, "/health");
        answer.is_ok_and(|answer| answer.status == 200)
    };
    wait_until("the proxy answers", ANSWER_LIMIT, health)?;
    Ok(proxy)
}
