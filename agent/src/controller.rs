//! Assembles the running `contiv controller`: store, election, manager, debug HTTP, signals.

use std::{future::pending, sync::Arc};

use anyhow::{Context, anyhow};
use contiv_controller::{Manager, lease::election::Election};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    config::{controller::ControllerConfig, list},
    controllers::{ControllerContext, Observer, Reload, Reports, register},
    http::{self, ControllerApi},
    logging::LogLevel,
    metrics::ControllerMetrics,
    process::{self, SignalRequest, Signals, listen},
    service_manager::{ServiceManager, controllers_status},
};

/// Runs the controllers until a signal stops them: they finish running work, and the lease is released.
///
/// # Errors
/// When it cannot start: the address, the store or a controller's settings are invalid. Never for later failures of the store.
pub fn run(config: &ControllerConfig, log_level: LogLevel) -> anyhow::Result<()> {
    process::run(|manager| run_until_stopped(config, log_level, manager))
}

async fn run_until_stopped(
    config: &ControllerConfig,
    log_level: LogLevel,
    service_manager: Option<ServiceManager>,
) -> anyhow::Result<()> {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        identity = config.identity,
        store = %config.store,
        enable = list(config.enable.iter().copied()),
        "starting"
    );
    let mut signals = Signals::install()?;
    let listener = listen("--listen", config.listen).await?;
    // With port 0 the system has chosen one.
    info!(listen = %listener.local_addr().unwrap_or(config.listen), "debug HTTP");
    let store = contiv_store::open(&config.store, config.etcd_access())
        .await
        .with_context(|| {
            format!(
                "failed to open the store {}; set another with --store",
                config.store
            )
        })?;
    let (election, lease) = Election::enter(Arc::clone(&store), config.election())?;
    let observer = Observer::start(Arc::clone(&store), lease.clone());
    let mut metrics = ControllerMetrics::new();
    let mut manager = counted(Manager::new(store, lease), config, &mut metrics);
    let (mut reports, mut reloads) = (Reports::new(), Vec::new());
    for name in &config.enable {
        let register = register(*name);
        let mut context = ControllerContext {
            config,
            metrics: metrics.prefixed(),
            reloads: &mut reloads,
            reports: &mut reports,
        };
        register(&mut manager, &mut context).with_context(|| format!("controller {name}"))?;
    }
    manager.validate_dependencies()?;

    // Dropping the sender ends the reports to the service manager.
    let (report_guard, reports_end) = mpsc::channel(1);
    if let Some(service_manager) = service_manager.clone() {
        let progress = manager.progress().with("the election", election.liveness());
        let (observer, reports) = (observer.clone(), reports.clone());
        let query = move || controllers_status(progress.clone(), observer.clone(), reports.clone());
        // Nothing waits for controllers.
        tokio::spawn(service_manager.run(query, pending(), reports_end));
    }
    let api = ControllerApi::new(config, observer, reports, metrics, log_level);
    let (stop, http_stop) = (CancellationToken::new(), CancellationToken::new());
    let mut servers = JoinSet::new();
    servers.spawn(http::serve_controllers(listener, api, http_stop.clone()));
    let mut running = tokio::spawn(manager.run(stop.clone()));
    let result = tokio::select! {
        ended = &mut running => match ended {
            Ok(()) => Err(anyhow!("the controllers ended unexpectedly; this is a bug")),
            Err(error) => Err(error).context("the manager of the controllers has failed"),
        },
        () = stop_requested(&mut signals, reloads) => {
            drop(report_guard);
            if let Some(service_manager) = &service_manager {
                service_manager.stopping();
            }
            stop.cancel();
            running.await.context("the manager of the controllers has failed")
        }
    };
    http_stop.cancel();
    process::drain(servers).await;
    // Nothing writes any more, so another instance may start at once.
    election.resign().await;
    info!("stopped; stored objects stay");
    result
}

/// The manager with metrics of its queues, unless the configuration leaves them out.
fn counted(
    manager: Manager,
    config: &ControllerConfig,
    metrics: &mut ControllerMetrics,
) -> Manager {
    if config.export_queue_metrics {
        manager.with_metrics(&metrics.register_queues())
    } else {
        manager
    }
}

/// Returns on SIGTERM or SIGINT.
async fn stop_requested(signals: &mut Signals, mut reloads: Vec<Reload>) {
    while signals.next().await == SignalRequest::Reload {
        if reloads.is_empty() {
            warn!(
                "SIGHUP reloads nothing here; restart to apply new settings: another instance takes over meanwhile"
            );
        }
        for reload in &mut reloads {
            reload();
        }
    }
}

#[cfg(test)]
mod tests {
    use contiv_controller::Lease;
    use contiv_store_testing::MemoryStore;

    use super::*;
    use crate::metrics::Exposition;

    #[test]
    fn queue_metrics_are_there_unless_left_out() {
        for export_queue_metrics in [true, false] {
            let config = ControllerConfig {
                export_queue_metrics,
                ..ControllerConfig::default()
            };
            let mut metrics = ControllerMetrics::new();
            let manager = Manager::new(MemoryStore::new().shared(), Lease::always_leader());
            drop(counted(manager, &config, &mut metrics));
            let text = metrics.text(Exposition::Prometheus).unwrap();
            assert_eq!(
                text.contains("workqueue_unfinished_work_seconds"),
                export_queue_metrics,
                "{text}"
            );
        }
    }
}
