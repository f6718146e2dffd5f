//! Assembles the running agent: store, node core, renderers, debug HTTP, signals.

use contiv_node::health::ProxyHealth;
use contiv_node::{CoreConfig, GuardConfig, HistoryLimits, Input, VerificationConfig};
use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use anyhow::{Context, anyhow, bail};
use contiv_model::{InterfaceName, PodId};
use contiv_proto::key;
use contiv_renderer::{
    ForwardingNeeds, ForwardingOff, InterfaceKind, nftables::StaleFlowObserver, registry,
    route::Routes, shared_tables,
};
use contiv_store::{Delivery, Feed, FeedHandle, NodeScope, Store, StoreUrl, kube::TokenReviewer};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    config::{Config, RendererName, Settings as _},
    counters::ConnectionCounters,
    drivers::{Node, NodeConfig, RendererSpec, Request, StoreFeedEnded},
    health,
    http::{self, Api, ScrapeGuard},
    local_addresses::{self, Local},
    logging::LogLevel,
    metrics::Metrics,
    mirror,
    process::{self, RetryingListener, SignalRequest, Signals, listen},
    self_check::SelfCheck,
    service_manager::{ServiceManager, node_status, readiness_of_node},
    shared_tables::{SharedTablesView, watch_tables},
    state_dir::{StateDir, attached_pods},
    tls::ServerCertificate,
};

/// How many requests may be queued for the node core before callers have to wait.
const QUEUE_CAPACITY: usize = 64;

/// Runs the agent until a signal stops it.
///
/// # Errors
/// When it cannot start, because of the state folder, the address or the store. Never for later failures of the store or a
/// renderer.
pub fn run(config: &Config, log_level: LogLevel) -> anyhow::Result<()> {
    let _state_dir = StateDir::lock(&config.state_dir)?;
    process::run(|manager| run_until_stopped(config, log_level, manager))
}

/// Logs what starts, and settings that have no effect.
fn log_start(config: &Config) {
    let names: Vec<&str> = config.renderers.iter().map(|name| name.as_str()).collect();
    info!(
        version = env!("CARGO_PKG_VERSION"),
        node = config.node_name,
        store = %config.store,
        renderers = names.join(","),
        "starting"
    );
    for addresses in config
        .node_port_addresses
        .iter()
        .filter(|addresses| addresses.is_loopback())
    {
        warn!(
            "node-port-addresses: {addresses} is loopback, and left out; use node-ports-on-loopback for that"
        );
    }
}

async fn open_self_check(config: &Config) -> anyhow::Result<Option<SelfCheck>> {
    if !config.self_check {
        return Ok(None);
    }
    let opened = SelfCheck::open().await;
    opened
        .map(Some)
        .context("failed to listen for the self-check")
}

fn metrics_of(config: &Config) -> Metrics {
    let metrics = Metrics::new(config.service_counters);
    if config.kube_proxy_metrics {
        metrics.with_kube_proxy(traffic_renderer(config))
    } else {
        metrics
    }
}

async fn run_until_stopped(
    config: &Config,
    log_level: LogLevel,
    manager: Option<ServiceManager>,
) -> anyhow::Result<()> {
    log_start(config);
    let mut signals = Signals::install()?;
    let listener = listen("--listen", config.listen).await?;
    // With port 0 the system chooses one.
    info!(listen = %listener.local_addr().unwrap_or(config.listen), "debug HTTP");
    let healthz = open_healthz(config).await?;
    let metrics_server = open_metrics(config).await?;
    let feed = start_feed(config).await?;
    let metrics = metrics_of(config);
    let stale_flows = metrics
        .node
        .kube_proxy()
        .cloned()
        .map(|metrics| Arc::new(metrics) as Arc<dyn StaleFlowObserver>);
    let metrics = Arc::new(metrics);
    let (requests, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let (outputs, health_checks, health_check_queries, proxy_health) = health::channels();
    let options = registry::Options {
        own_table: config.own_table,
        route: config.routes(),
        stale_flows,
    };
    let (local, address_watch) = local_addresses::open().await;
    let attached = still_attached(attached_pods(&config.state_dir), &local);
    let self_check = open_self_check(config).await?;
    let own_service = self_check.as_ref().map(SelfCheck::service).transpose()?;
    let node = Node::new(
        NodeConfig {
            core: CoreConfig {
                store: config.store.to_string(),
                processor: config.processor(),
                has_mirror: true,
                local_addresses: local.addresses.clone(),
                local_interfaces: local.interfaces.clone().unwrap_or_default(),
                attached,
                verification: verification(config),
                guard: GuardConfig {
                    percent: config.mass_deletion_percent,
                    wait: config.mass_deletion_wait,
                },
                history: HistoryLimits {
                    events: config.history_events,
                    age: config.history_age,
                    bytes: config.history_bytes,
                },
                renderers: Vec::new(),
                verified_renderers: Vec::new(),
                traffic_renderer: traffic_renderer(config).into(),
                self_check: own_service,
            },
            mirror: Some(config.state_dir.clone()),
            // With etcd the controller external-workloads writes these slices.
            derives_slices: !is_etcd(config),
            answer_within: config.failover_answer_within,
            resumes: is_etcd(config),
        },
        feed,
        receiver,
        config
            .renderers
            .iter()
            .map(|name| renderer_spec(*name, options.clone()))
            .collect(),
        Arc::<Metrics>::clone(&metrics),
        outputs,
    )
    .context("failed to start a thread")?;

    let stop = CancellationToken::new();
    let api = Api::new(
        requests.clone(),
        metrics,
        health_check_queries,
        log_level,
        counters(config),
    )
    .with_interfaces(InterfaceKind::of)
    .with_forwarding(forwarding_check(config))
    .with_shared_tables(shared_tables_of(config))
    .with_configuration(published_text(config))
    .with_attempts(config.renderers.contains(&RendererName::NFTABLES));
    let mut servers = JoinSet::new();
    servers.spawn(http::serve(listener, api.clone(), stop.clone()));
    if let Some(metrics_server) = metrics_server {
        servers.spawn(metrics_server.serve(api.clone(), stop.clone()));
    }
    if let Some(listener) = healthz {
        servers.spawn(serve_healthz(
            listener,
            api.clone(),
            proxy_health,
            stop.clone(),
        ));
    }
    // These end with the node.
    if let Some(self_check) = self_check {
        tokio::spawn(self_check.run(api.clone(), requests.clone()));
    }
    #[cfg(feature = "otlp")]
    crate::otlp::start(config, &requests, api.flows())?;
    tokio::spawn(http::log_forwarding(api));
    tokio::spawn(health_checks.run());
    tokio::spawn(local_addresses::report_changes(
        address_watch,
        local,
        requests.clone(),
    ));
    let mut node = tokio::spawn(node.run());
    let (reloads, reloaded) = mpsc::channel(QUEUE_CAPACITY);
    if let Some(manager) = manager.clone() {
        let (requests, readiness) = (requests.clone(), readiness_of_node(requests.clone()));
        // It ends with the node.
        tokio::spawn(manager.run(move || node_status(requests.clone()), readiness, reloaded));
    }
    let result = tokio::select! {
        ended = &mut node => ended_early(ended),
        () = forward(&mut signals, &requests, &reloads) => {
            if let Some(manager) = &manager {
                manager.stopping();
            }
            node_result(node.await)
        }
    };
    stop.cancel();
    process::drain(servers).await;
    if result.is_ok()
        && config.route_withdraw_on_stop
        && config.renderers.contains(&RendererName::ROUTE)
    {
        withdraw(config);
    }
    info!("stopped; the dataplane stays in place");
    result
}

/// Opens the store, with what this node needs of it.
async fn open_store(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let recall = mirror::recall(config.state_dir.clone(), config.store.to_string());
    let scope = NodeScope {
        node_name: &config.node_name,
        proxy_name: &config.service_proxy_name,
        state_dir: &config.state_dir,
    };
    contiv_store::open_for_node(&config.store, config.etcd_access(), scope, recall)
        .await
        .with_context(|| {
            format!(
                "failed to open the store {}; set another with --store",
                config.store
            )
        })
}

/// Lists and watches the store. Only with etcd, where a revision can be read again, the feed goes on from what was saved.
async fn start_feed(config: &Config) -> anyhow::Result<(mpsc::Receiver<Delivery>, FeedHandle)> {
    let store = open_store(config).await?;
    Ok(if is_etcd(config) {
        Feed::start_saving(store, key::ROOT)
    } else {
        Feed::start_paged(store, key::ROOT)
    })
}

const fn is_etcd(config: &Config) -> bool {
    matches!(config.store, StoreUrl::Etcd { .. })
}

const HEALTHZ: &str = "health for load balancers";
const METRICS: &str = "metrics for scrapers";

/// The address of /healthz, if it is configured.
async fn open_healthz(config: &Config) -> anyhow::Result<Option<RetryingListener>> {
    let Some(address) = config.healthz_listen.0 else {
        return Ok(None);
    };
    RetryingListener::open("--healthz-listen", address, HEALTHZ)
        .await
        .map(Some)
}

async fn serve_healthz(
    listener: RetryingListener,
    api: Api,
    proxy: watch::Receiver<ProxyHealth>,
    stop: CancellationToken,
) -> io::Result<()> {
    match listener.when_free(&stop).await {
        Some(listener) => http::serve_load_balancers(listener, api, proxy, stop).await,
        None => Ok(()),
    }
}

/// The server of the metrics at a separate address: its listener, and the requirements for scrapes.
#[derive(Debug)]
struct MetricsServer {
    listener: RetryingListener,
    guard: ScrapeGuard,
    certificate: Option<ServerCertificate>,
}

/// The separate address of the metrics, if it is configured.
async fn open_metrics(config: &Config) -> anyhow::Result<Option<MetricsServer>> {
    let Some(address) = config.metrics_address() else {
        return Ok(None);
    };
    if !config.has_own_metrics_address() {
        let listener = RetryingListener::open("--kube-proxy-metrics", address, METRICS).await?;
        return Ok(Some(MetricsServer {
            listener,
            guard: ScrapeGuard::new(None, None),
            certificate: None,
        }));
    }
    let is_set = |path: &&PathBuf| !path.as_os_str().is_empty();
    let certificate = Some(&config.metrics_cert_file).filter(is_set);
    let certificate =
        certificate.map(|file| ServerCertificate::read(file, &config.metrics_key_file));
    let certificate = certificate.transpose().context("--metrics-cert-file")?;
    let reviewer = match &config.store {
        _ if !config.metrics_token_review => None,
        StoreUrl::Kube(address) => Some(TokenReviewer::new(address.clone())),
        other => {
            bail!(
                "metrics-token-review: the store {other} has no API server that knows tokens; use metrics-token-file"
            )
        }
    };
    let guard = ScrapeGuard::new(
        Some(&config.metrics_token_file).filter(is_set).cloned(),
        reviewer,
    );
    if guard.requires_token() && certificate.is_none() && !address.ip().is_loopback() {
        warn!(%address, "{METRICS}: tokens are sent unencrypted; set metrics-cert-file and metrics-key-file");
    }
    let listener = RetryingListener::open("--metrics-listen", address, METRICS).await?;
    Ok(Some(MetricsServer {
        listener,
        guard,
        certificate,
    }))
}

impl MetricsServer {
    async fn serve(self, api: Api, stop: CancellationToken) -> io::Result<()> {
        match self.listener.when_free(&stop).await {
            Some(listener) => {
                http::serve_metrics(listener, api, self.guard, self.certificate, stop).await
            }
            None => Ok(()),
        }
    }
}

/// The attached pods, without those whose interface was deleted while no agent ran: no other process detaches them.
fn still_attached(
    mut attached: BTreeMap<PodId, InterfaceName>,
    local: &Local,
) -> BTreeMap<PodId, InterfaceName> {
    if let Some(interfaces) = &local.interfaces {
        attached.retain(|pod, interface| {
            let exists = interfaces.contains_key(interface);
            if !exists {
                info!(%pod, %interface, "the pod is detached: this node has no such interface of a pod any more");
            }
            exists
        });
    }
    attached
}

type NodeEnd = Result<Result<(), StoreFeedEnded>, tokio::task::JoinError>;

fn node_result(end: NodeEnd) -> anyhow::Result<()> {
    end.context("the node has failed")?.map_err(Into::into)
}

fn ended_early(end: NodeEnd) -> anyhow::Result<()> {
    node_result(end)?;
    Err(anyhow!("the node core ended unexpectedly; this is a bug"))
}

fn renderer_spec(name: RendererName, options: registry::Options) -> RendererSpec {
    let name = name.as_str();
    RendererSpec::new(name, move || {
        // The name was validated when the configuration was read.
        registry::create(name, options.clone())
            .unwrap_or_else(|| unreachable!("renderer {name} is registered"))
    })
}

/// The interval of verifications, and whether differences are repaired.
fn verification(config: &Config) -> VerificationConfig {
    let interval = (!config.verify_interval.is_zero()).then_some(config.verify_interval);
    VerificationConfig {
        interval,
        resync_on_drift: config.verify_heal,
    }
}

/// The kernel has counters if the renderer `nftables` programs it.
fn counters(config: &Config) -> ConnectionCounters {
    if config.renderers.contains(&RendererName::NFTABLES) {
        ConnectionCounters::of_kernel()
    } else {
        ConnectionCounters::none()
    }
}

/// The settings of this machine, if a renderer programs its kernel.
fn forwarding_check(config: &Config) -> fn(&ForwardingNeeds) -> Vec<ForwardingOff> {
    if config.renderers.contains(&RendererName::NFTABLES) {
        ForwardingNeeds::check
    } else {
        |_| Vec::new()
    }
}

/// The effective configuration, as it is served.
fn published_text(config: &Config) -> String {
    let text = published(config).to_toml();
    text.unwrap_or_else(|error| format!("# {error}\n"))
}

/// The readings of the kernel's shared tables, if its connections are this agent's concern.
fn shared_tables_of(config: &Config) -> SharedTablesView {
    if config.renderers.contains(&RendererName::NFTABLES) {
        watch_tables(shared_tables::read)
    } else {
        watch::channel(Arc::default()).1
    }
}

/// The renderers have ended, so nothing can add the removed objects again.
fn withdraw(config: &Config) {
    match Routes::new(config.routes()).withdraw() {
        Ok(report) => info!(
            routes = report.removed,
            "the advertised routes are withdrawn"
        ),
        Err(error) => {
            error!(%error, "failed to withdraw the advertised routes; run `contiv cleanup --renderers route`");
        }
    }
}

/// The renderer that this node's traffic depends on: `nftables`, or without it the first one.
fn traffic_renderer(config: &Config) -> &'static str {
    let nftables = config
        .renderers
        .iter()
        .find(|name| **name == RendererName::NFTABLES);
    nftables
        .or(config.renderers.first())
        .unwrap_or(&RendererName::NFTABLES)
        .as_str()
}

/// Turns signals into requests, until one requests the end. `reloads` receives a message for each SIGHUP.
async fn forward(
    signals: &mut Signals,
    requests: &mpsc::Sender<Request>,
    reloads: &mpsc::Sender<()>,
) {
    loop {
        let signal = signals.next().await;
        let request = match signal {
            SignalRequest::Stop => Request::Shutdown,
            SignalRequest::Reload => Request::Input(Input::Resync { cause: "SIGHUP" }),
        };
        // Sending fails only after the node core has ended, which the caller handles.
        if requests.send(request).await.is_err() || signal == SignalRequest::Stop {
            return;
        }
        // Without a service manager nothing receives it, and a full queue contains a reload already.
        let _ = reloads.try_send(());
    }
}

/// The configuration as commands read it, which run in another folder.
fn published(config: &Config) -> Config {
    Config {
        store: config.store.absolute(),
        ..config.clone()
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::{LocalInterface, LocalInterfaces};

    use super::*;

    #[tokio::test]
    async fn metrics_where_kube_proxy_has_them_are_plain_and_open() {
        let config = Config {
            kube_proxy_metrics: true,
            metrics_cert_file: "/nonexistent/tls.crt".into(),
            metrics_key_file: "/nonexistent/tls.key".into(),
            metrics_token_file: "/nonexistent/tokens".into(),
            metrics_token_review: true,
            ..Config::default()
        };
        // The address may be in use on this machine, which it retries.
        let server = open_metrics(&config).await.unwrap().unwrap();
        assert!(
            server.certificate.is_none() && !server.guard.requires_token(),
            "{server:?}"
        );
        let own = Config {
            metrics_listen: "127.0.0.1:0".parse().unwrap(),
            ..config
        };
        assert!(open_metrics(&own).await.is_err());
    }

    #[test]
    fn pods_with_deleted_interface_are_detached() {
        let pod = |name: &str, interface: &str| {
            (PodId::new("default", name), InterfaceName::new(interface))
        };
        let attached = BTreeMap::from([pod("p1", "veth1"), pod("p2", "veth2")]);
        let interfaces =
            LocalInterfaces::from([(InterfaceName::new("veth2"), LocalInterface::default())]);
        let local = |interfaces| Local {
            interfaces,
            ..Local::default()
        };
        let left = still_attached(attached.clone(), &local(Some(interfaces)));
        assert_eq!(left, BTreeMap::from([pod("p2", "veth2")]));
        assert_eq!(
            still_attached(attached.clone(), &local(None)),
            attached,
            "the interfaces are unknown"
        );
    }
}
