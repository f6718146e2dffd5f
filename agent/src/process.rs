//! The common part of both long-running processes, the agent and `contiv controller`: the runtime, the service manager,
//! signals, listening, and the end.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::{Context, anyhow};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::service_manager::ServiceManager;

/// The runtime has little work: watching, and answering a few requests.
const WORKER_THREADS: usize = 2;
/// How often an address that another program has is tried again.
const LISTEN_RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// How long pending requests may take at the end.
const HTTP_DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// Runs `work` to its end on its own runtime. Failures are reported to the service manager, if there is one.
pub(crate) fn run<F>(work: impl FnOnce(Option<ServiceManager>) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let manager = ServiceManager::of_environment();
    let result = runtime.block_on(work(manager.clone()));
    if let (Some(manager), Err(error)) = (&manager, &result) {
        manager.failed(&format!("{error:#}"));
    }
    // Nothing is left to do; work that does not end is abandoned.
    runtime.shutdown_background();
    result
}

/// Listens; an error about the address names the flag that sets it.
pub(crate) async fn listen(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| failed_to_listen(flag, address, &error))
}

/// Listens on an address as soon as no other program has it: while kube-proxy runs, it occupies its addresses.
#[derive(Debug)]
pub(crate) struct RetryingListener {
    address: SocketAddr,
    /// The name of the server, for the log.
    server: &'static str,
    /// None while another program has the address.
    listener: Option<TcpListener>,
}

impl RetryingListener {
    /// Listens, if the address is free.
    pub(crate) async fn open(
        flag: &str,
        address: SocketAddr,
        server: &'static str,
    ) -> anyhow::Result<Self> {
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => {
                info!(address = %listener.local_addr().unwrap_or(address), "{server}");
                Some(listener)
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                warn!(%address, "{server}: another program has the address; trying again until it is free");
                None
            }
            Err(error) => return Err(failed_to_listen(flag, address, &error)),
        };
        Ok(Self {
            address,
            server,
            listener,
        })
    }

    /// The listener once the address is free; none if `stop` comes first.
    pub(crate) async fn when_free(self, stop: &CancellationToken) -> Option<TcpListener> {
        let Self {
            address,
            server,
            listener,
        } = self;
        if listener.is_some() {
            return listener;
        }
        let bound = async {
            loop {
                sleep(LISTEN_RETRY_INTERVAL).await;
                if let Ok(listener) = TcpListener::bind(address).await {
                    return listener;
                }
            }
        };
        let listener = stop.run_until_cancelled(bound).await?;
        info!(%address, "{server}: the address is free now");
        Some(listener)
    }
}

fn failed_to_listen(flag: &str, address: SocketAddr, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there; stop it, or choose another with"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; choose another with"
        }
        io::ErrorKind::PermissionDenied => "not allowed; choose a port above 1023 with",
        _ => "choose another with",
    };
    anyhow!("failed to listen on {address}: {error}: {hint} {flag}")
}

/// Waits for stopping servers: a request that hangs must not keep the process from ending.
pub(crate) async fn drain(servers: JoinSet<io::Result<()>>) {
    let _ = timeout(HTTP_DRAIN_LIMIT, servers.join_all()).await;
}

/// The request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// SIGTERM or SIGINT: stop.
    Stop,
    /// SIGHUP: read again.
    Reload,
}

/// The signals that are handled.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    /// From now on they no longer end the process by themselves. Must be called within a tokio runtime.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let install = |kind| signal(kind).context("failed to install a signal handler");
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
            hangup: install(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancelling the wait loses none.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }
}
