//! The running agent, put together: store, event loop, renderers, debug HTTP, signals.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, anyhow};
use contiv_proto::key;
use contiv_renderer::{registry, route::Routes};
use contiv_store::Feed;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    config::{Config, RendererName, Settings as _},
    counters::ConnectionCounters,
    event_loop::{
        EventLoop, GuardConfig, HistoryLimits, LoopConfig, LoopMetrics, MirrorConfig, RendererSpec, Request,
        StoreFeedEnded,
    },
    health,
    http::{self, Api},
    local_addresses,
    logging::LogLevel,
    metrics::Metrics,
    otlp,
    service_manager::ServiceManager,
    state_dir::StateDir,
};

/// Work for the runtime is little: watching, and answering a few requests.
const WORKERS: usize = 2;
/// How many requests may wait for the loop before callers have to.
const REQUESTS: usize = 64;
/// How long requests that are under way at the end may take.
const HTTP_DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// Runs the agent until it is told to stop by a signal.
///
/// # Errors
/// When it cannot start: the state folder, the address or the store cannot be had. Never for what happens later to the
/// store or a renderer.
pub fn run(config: &Config, log_level: LogLevel) -> anyhow::Result<()> {
    let _state_dir = StateDir::lock(&config.state_dir)?;
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
    config: &Config,
    log_level: LogLevel,
    manager: Option<&ServiceManager>,
) -> anyhow::Result<()> {
    let names: Vec<&str> = config.renderers.iter().map(|name| name.as_str()).collect();
    info!(
        version = env!("CARGO_PKG_VERSION"),
        node = config.node_name,
        store = %config.store,
        renderers = names.join(","),
        "starting"
    );
    let mut signals = Signals::install()?;
    let listener = listen("--listen", config.listen).await?;
    // With port 0 the system has chosen one.
    info!(listen = %listener.local_addr().unwrap_or(config.listen), "debug HTTP");
    let healthz_listener = match config.healthz_listen.0 {
        None => None,
        Some(address) => {
            let listener = listen("--healthz-listen", address).await?;
            info!(healthz = %listener.local_addr().unwrap_or(address), "health for load balancers");
            Some(listener)
        }
    };
    let store = contiv_store::open_for_node(&config.store, config.etcd_access(), &config.node_name)
        .await
        .with_context(|| format!("failed to open the store {}; set another with --store", config.store))?;
    let feed = Feed::start(store, key::ROOT);
    let metrics = Arc::new(Metrics::new(config.service_counters));
    let (requests, receiver) = mpsc::channel(REQUESTS);
    let (outputs, health_checks, questions, proxy_health) = health::channels(traffic_renderer(config));
    let options = registry::Options { own_table: config.own_table, route: config.routes() };
    let (local_addresses, followed) = local_addresses::open().await;
    let event_loop = EventLoop::new(
        LoopConfig {
            store: config.store.to_string(),
            processor: config.processor(),
            mirror: Some(MirrorConfig { folder: config.state_dir.clone(), source: config.store.to_string() }),
            local_addresses,
            verification: config.verification(),
            guard: GuardConfig { percent: config.mass_deletion_percent, wait: config.mass_deletion_wait },
            history: HistoryLimits {
                events: config.history_events,
                age: config.history_age,
                bytes: config.history_bytes,
            },
        },
        feed,
        receiver,
        config.renderers.iter().map(|name| spec(*name, options)).collect(),
        LoopMetrics { events: metrics.events.clone(), renderers: metrics.renderers.clone() },
        outputs,
    )
    .context("failed to start a renderer's thread")?;

    let stop = CancellationToken::new();
    let api = Api::new(requests.clone(), metrics, questions, log_level, counters(config))
        .with_configuration(config.to_toml().unwrap_or_else(|error| format!("# {error}\n")));
    let mut servers = JoinSet::new();
    servers.spawn(http::serve(listener, api.clone(), stop.clone()));
    if let Some(listener) = healthz_listener {
        servers.spawn(http::serve_load_balancers(listener, api, proxy_health, stop.clone()));
    }
    // It ends with the loop.
    tokio::spawn(health_checks.run());
    tokio::spawn(local_addresses::follow(followed, requests.clone()));
    otlp::start(config, &requests)?;
    let mut event_loop = tokio::spawn(event_loop.run());
    let (reloads, reloaded) = mpsc::channel(REQUESTS);
    if let Some(manager) = manager.cloned() {
        // It ends with the loop.
        tokio::spawn(manager.follow(requests.clone(), reloaded));
    }
    let result = tokio::select! {
        ended = &mut event_loop => ended_early(ended),
        () = signals.forward(&requests, &reloads) => {
            if let Some(manager) = manager {
                manager.stopping();
            }
            ended_as_asked(event_loop.await)
        }
    };
    stop.cancel();
    // A request that does not end must not keep the agent from ending.
    let _ = tokio::time::timeout(HTTP_DRAIN_LIMIT, servers.join_all()).await;
    if result.is_ok() && config.route_withdraw_on_stop && config.renderers.contains(&RendererName::ROUTE) {
        withdraw(config);
    }
    info!("stopped; the dataplane stays in place");
    result
}

type LoopEnd = Result<Result<(), StoreFeedEnded>, tokio::task::JoinError>;

fn ended_as_asked(end: LoopEnd) -> anyhow::Result<()> {
    end.context("the event loop has failed")?.map_err(Into::into)
}

fn ended_early(end: LoopEnd) -> anyhow::Result<()> {
    ended_as_asked(end)?;
    Err(anyhow!("the event loop has ended without being asked to; this is a bug"))
}

fn spec(name: RendererName, options: registry::Options) -> RendererSpec {
    let name = name.as_str();
    RendererSpec::new(name, move || {
        // The name has been looked up when the configuration was read.
        registry::create(name, options).unwrap_or_else(|| unreachable!("renderer {name} is registered"))
    })
}

/// The kernel counts where the renderer `nftables` has programmed it.
fn counters(config: &Config) -> ConnectionCounters {
    if config.renderers.contains(&RendererName::NFTABLES) {
        ConnectionCounters::of_kernel()
    } else {
        ConnectionCounters::none()
    }
}

/// The renderers have ended, so nothing puts back what is taken away here.
fn withdraw(config: &Config) {
    match Routes::new(config.routes()).withdraw() {
        Ok(report) => info!(routes = report.removed, "what was advertised is withdrawn"),
        Err(error) => {
            error!(%error, "what was advertised is still there; run `contiv cleanup --renderers route`");
        }
    }
}

/// The renderer that this node's traffic depends on. Without the one that programs the kernel, it is the first.
fn traffic_renderer(config: &Config) -> &'static str {
    let nftables = config.renderers.iter().find(|name| **name == RendererName::NFTABLES);
    nftables.or(config.renderers.first()).unwrap_or(&RendererName::NFTABLES).as_str()
}

/// Listens; what is wrong with the address is said with the flag that sets it.
pub(crate) async fn listen(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "another program listens there; stop it, or choose another with",
            io::ErrorKind::AddrNotAvailable => "this machine does not have that address; choose another with",
            io::ErrorKind::PermissionDenied => "not allowed; choose a port above 1023 with",
            _ => "choose another with",
        };
        anyhow!("failed to listen on {address}: {error}: {hint} {flag}")
    })
}

/// The signals that the agent heeds.
#[derive(Debug)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn install() -> anyhow::Result<Self> {
        let install = |kind| signal(kind).context("failed to install a signal handler");
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
            hangup: install(SignalKind::hangup())?,
        })
    }

    /// Turns signals into requests, until one has asked for the end. `reloads` hears of SIGHUP.
    async fn forward(&mut self, requests: &mpsc::Sender<Request>, reloads: &mpsc::Sender<()>) {
        loop {
            let request = tokio::select! {
                _ = self.terminate.recv() => Request::Shutdown,
                _ = self.interrupt.recv() => Request::Shutdown,
                _ = self.hangup.recv() => Request::Resync { cause: "SIGHUP" },
            };
            let is_last = matches!(request, Request::Shutdown);
            let is_reload = matches!(request, Request::Resync { .. });
            // A loop that is gone has ended, which is noticed elsewhere.
            if requests.send(request).await.is_err() || is_last {
                return;
            }
            if is_reload {
                // Nobody listens without a service manager, and one that is told of a reload already knows.
                let _ = reloads.try_send(());
            }
        }
    }
}
