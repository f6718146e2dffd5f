//! The debug HTTP: the whole state of the agent, as JSON. Handlers send messages to the event loop and hold no state. The debug
//! HTTP of the controllers is beside it.

mod actions;
mod controller;
mod counters;
mod error;
mod health;
mod load_balancer;
mod log_level;
mod loopback;
mod page;
mod pods;
mod protection;
mod response_budget;
mod trace;
mod views;

#[cfg(test)]
mod tests;

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::FromRef,
    routing::{delete, get, post},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use crate::{
    connections::{Connections, Peer},
    counters::ConnectionCounters,
    health::HealthCheckQuestions,
    logging::LogLevel,
    metrics::Metrics,
    node::{Query, Reply, Request},
};
use error::ApiError;
use protection::protect;

pub use controller::CONTROLLER_ENDPOINTS;
pub(crate) use controller::{ControllerApi, serve_controllers};
pub use load_balancer::serve_load_balancers;

/// How long a request waits for the event loop, or for a renderer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// The maximum number of connections of one listener: more than requests, since idle ones count too.
const CONNECTIONS: usize = 100;

/// Every endpoint, with its purpose. The page at `/` lists them.
pub const ENDPOINTS: [(&str, &str, &str); 26] = [
    ("GET", "/liveness", "200 while the event loop answers"),
    ("GET", "/readiness", "200 once every renderer has applied its first snapshot"),
    ("GET", "/metrics", "Prometheus metrics"),
    ("GET", "/status", "how the agent is: store, revision, mirror, quarantine"),
    ("GET", "/sizes", "how many services, ports and backends there are"),
    ("GET", "/counters", "new connections by service, as the kernel has counted them: ?top=10"),
    ("GET", "/services", "every service as renderers have it"),
    ("GET", "/services/{namespace}/{name}", "one service"),
    ("GET", "/snapshot", "everything that renderers are told: services, and facts about this node"),
    ("GET", "/objects/{kind}", "stored objects in their state in use, as in /objects/endpointslice"),
    ("GET", "/nodes", "every node"),
    ("GET", "/pods", "the pods that are attached to this node's dataplane"),
    ("POST", "/pods", "attach a pod: {namespace, name, interface}, and ?wait=5s for the result"),
    ("DELETE", "/pods/{namespace}/{name}", "detach a pod"),
    ("GET", "/renderers", "how the renderers are"),
    ("GET", "/renderers/{name}/dump", "what a renderer has applied: text, or ?format=json"),
    ("GET", "/health-checks", "the health-check node ports of services, and where they cannot be served"),
    ("GET", "/quarantine", "what is stored and cannot be used"),
    ("GET", "/trace", "why a packet goes where it goes: ?from=, ?to=, ?port=, ?protocol=, ?format=text"),
    (
        "GET",
        "/controller/event-history",
        "what happened: ?last=20, ?since=, ?until=, ?from=, ?to=, ?first=, ?seq-num=",
    ),
    ("GET", "/config", "the configuration in effect, as a file that says the same"),
    ("GET", "/log/level", "what is logged"),
    ("PUT", "/log/level", "log more or less from now on: info, or info,contiv_store=debug"),
    ("POST", "/controller/resync", "read the store again and give every renderer everything again"),
    ("POST", "/controller/confirm-deletions", "let deletions count that are held because they are too many"),
    ("GET", "/", "this page"),
];

/// The state of handlers.
#[derive(Debug, Clone)]
pub struct Api {
    requests: mpsc::Sender<Request>,
    metrics: Arc<Metrics>,
    health_checks: HealthCheckQuestions,
    log_level: LogLevel,
    counters: ConnectionCounters,
    configuration: Arc<str>,
}

impl Api {
    /// Sends queries to the loop through `requests`, and to the server of health checks.
    pub fn new(
        requests: mpsc::Sender<Request>,
        metrics: Arc<Metrics>,
        health_checks: HealthCheckQuestions,
        log_level: LogLevel,
        counters: ConnectionCounters,
    ) -> Self {
        Self { requests, metrics, health_checks, log_level, counters, configuration: "".into() }
    }

    /// The same, with the effective configuration as a file.
    #[must_use]
    pub fn with_configuration(self, toml: String) -> Self {
        Self { configuration: toml.into(), ..self }
    }

    /// Queries the loop. `question` wraps the channel for the answer.
    async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> Query) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        let exchange = async {
            self.requests.send(Request::Query(question(reply))).await.map_err(|_| ApiError::Stopping)?;
            answer.await.map_err(|_| ApiError::Stopping)
        };
        tokio::time::timeout(ANSWER_LIMIT, exchange).await.map_err(|_| ApiError::LoopBusy)?
    }
}

impl FromRef<Api> for LogLevel {
    fn from_ref(api: &Api) -> Self {
        api.log_level.clone()
    }
}

/// All endpoints.
pub fn router(api: Api) -> Router {
    protect(
        Router::new()
            .route("/", get(page::page))
            .route("/liveness", get(health::liveness))
            .route("/readiness", get(health::readiness))
            .route("/metrics", get(health::metrics))
            .route("/status", get(views::status))
            .route("/sizes", get(counters::sizes))
            .route("/counters", get(counters::counters))
            .route("/services", get(views::services))
            .route("/services/{namespace}/{name}", get(views::service))
            .route("/snapshot", get(views::snapshot))
            .route("/config", get(views::configuration))
            .route("/objects/{kind}", get(views::objects))
            .route("/nodes", get(views::nodes))
            .route("/pods", get(pods::list).post(pods::add))
            .route("/pods/{namespace}/{name}", delete(pods::delete))
            .route("/renderers", get(views::renderers))
            .route("/renderers/{name}/dump", get(views::dump))
            .route("/health-checks", get(views::health_checks))
            .route("/quarantine", get(views::quarantine))
            .route("/trace", get(trace::trace))
            .route("/controller/event-history", get(views::history))
            .route("/log/level", get(log_level::get).put(log_level::put))
            .route("/controller/resync", post(actions::resync))
            .route("/controller/confirm-deletions", post(actions::confirm_deletions))
            .fallback(error::no_such_path)
            .method_not_allowed_fallback(error::no_such_method)
            .with_state(api),
    )
}

/// Serves until `stop` is cancelled; pending requests are completed.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, api: Api, stop: CancellationToken) -> io::Result<()> {
    serve_router(listener, router(api), stop).await
}

/// The same for another router.
async fn serve_router(listener: TcpListener, router: Router, stop: CancellationToken) -> io::Result<()> {
    let service = router.into_make_service_with_connect_info::<Peer>();
    let listener = Connections::of_this_process(CONNECTIONS).on(listener);
    axum::serve(listener, service).with_graceful_shutdown(stop.cancelled_owned()).await
}
