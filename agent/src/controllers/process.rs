//! The running `contiv controller`, put together: store, election, manager, debug HTTP, signals.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use contiv_controller::{Lease, Manager, lease::election::Election};
use contiv_store::Store;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{Observer, Reports, Wiring, list, register};
use crate::{
    agent::listen,
    config::controller::ControllerConfig,
    http::{self, ControllerApi},
    logging::LogLevel,
    metrics::ControllerMetrics,
    service_manager::ServiceManager,
};

/// Watching, reconciling and a few requests.
const WORKERS: usize = 2;
/// How long requests that are under way at the end may take.
const HTTP_DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// Runs the controllers until a signal says to stop: they finish what is under way, and the lease is given back.
///
/// # Errors
/// When it cannot start: the address, the store or a controller's settings are wrong. Never for what happens later to the
/// store.
pub fn run(config: &ControllerConfig, log_level: LogLevel) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let manager = ServiceManager::of_environment();
    let result = runtime.block_on(run_until_stopped(config, log_level, manager.as_ref()));
    if let (Some(manager), Err(error)) = (&manager, &result) {
        manager.failed(&format!("{error:#}"));
    }
    // Nothing is left to do; what still hangs is not waited for.
    runtime.shutdown_background();
    result
}

async fn run_until_stopped(
    config: &ControllerConfig,
    log_level: LogLevel,
    service_manager: Option<&ServiceManager>,
) -> anyhow::Result<()> {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = config.identity,
        store = %config.store,
        enable = list(config.enable.iter().copied()),
        "starting"
    );
    let stop = stop_on_signal()?;
    let listener = listen("--listen", config.listen).await?;
    // With port 0 the system has chosen one.
    info!(listen = %listener.local_addr().unwrap_or(config.listen), "debug HTTP");
    let store = contiv_store::open(&config.store, config.etcd_access())
        .await
        .with_context(|| format!("failed to open the store {}; set another with --store", config.store))?;
    let (election, lease) = Election::enter(Arc::clone(&store), config.election())?;
    if let Some(manager) = service_manager.cloned() {
        // Also where another instance is active: this one waits for its turn.
        manager.ready();
        let stop = stop.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            manager.stopping();
        });
    }
    let result = run_controllers(config, store, lease, listener, log_level, stop).await;
    // Nothing writes any more, so another instance may begin at once.
    election.resign().await;
    info!("stopped; what was written stays");
    result
}

async fn run_controllers(
    config: &ControllerConfig,
    store: Arc<dyn Store>,
    lease: Lease,
    listener: TcpListener,
    log_level: LogLevel,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let observer = Observer::start(Arc::clone(&store), lease.clone());
    let mut metrics = ControllerMetrics::new();
    let mut manager = Manager::new(store, lease);
    if config.export_queue_metrics {
        manager = manager.with_metrics(&metrics.export_queues());
    }
    let mut reports = Reports::new();
    for name in &config.enable {
        let register = register(*name);
        let mut wiring = Wiring { config, metrics: metrics.prefixed(), reports: &mut reports };
        register(&mut manager, &mut wiring).with_context(|| format!("controller {name}"))?;
    }
    manager.validate_dependencies()?;

    let http_stop = CancellationToken::new();
    let api = ControllerApi::new(config, observer, reports, metrics, log_level);
    let server = tokio::spawn(http::serve_controllers(listener, api, http_stop.clone()));
    let was_stopped = stop.clone();
    manager.run(stop).await;
    http_stop.cancel();
    // A request that does not end must not keep the process from ending.
    let _ = timeout(HTTP_DRAIN_LIMIT, server).await;
    if was_stopped.is_cancelled() {
        Ok(())
    } else {
        Err(anyhow!("the controllers have ended without being asked to; this is a bug"))
    }
}

/// Cancelled by SIGTERM or SIGINT.
fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let install = |kind| signal(kind).context("failed to install a signal handler");
    let (mut terminate, mut interrupt) =
        (install(SignalKind::terminate())?, install(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.cancel();
    });
    Ok(stop)
}
