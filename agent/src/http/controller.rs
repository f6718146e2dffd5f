//! The debug HTTP of `contiv controller`.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, io, sync::Arc};

use axum::{
    Json, Router,
    extract::{FromRef, State},
    http::HeaderMap,
    response::Response,
    routing::get,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    error::{self, ApiError},
    log_level,
    protection::protect,
    scrape, serve_router,
};
use crate::{
    config::{ControllerName, controller::ControllerConfig},
    controllers::{Observer, Report, Reports},
    logging::LogLevel,
    metrics::ControllerMetrics,
};

/// Every endpoint, with its purpose. `GET /` lists them.
pub const CONTROLLER_ENDPOINTS: [(&str, &str, &str); 7] = [
    ("GET", "/liveness", "200 while the process answers"),
    (
        "GET",
        "/readiness",
        "200 while the store is watched; on the active instance, once every controller has read the types it needs",
    ),
    ("GET", "/metrics", "Prometheus metrics"),
    (
        "GET",
        "/status",
        "which instance is active, and how the controllers of this one are",
    ),
    ("GET", "/log/level", "the log level"),
    (
        "PUT",
        "/log/level",
        "log more or less from now on: info, or info,contiv_controller=debug",
    ),
    ("GET", "/", "this list"),
];

/// The state of handlers.
#[derive(Clone)]
pub(crate) struct ControllerApi {
    inner: Arc<Inner>,
    log_level: LogLevel,
}

struct Inner {
    identity: String,
    store: String,
    observer: Observer,
    reports: Reports,
    metrics: ControllerMetrics,
}

impl fmt::Debug for ControllerApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerApi")
            .field("observer", &self.inner.observer)
            .finish_non_exhaustive()
    }
}

impl ControllerApi {
    pub(crate) fn new(
        config: &ControllerConfig,
        observer: Observer,
        reports: Reports,
        metrics: ControllerMetrics,
        log_level: LogLevel,
    ) -> Self {
        let (identity, store) = (config.identity.clone(), config.store.to_string());
        Self {
            inner: Arc::new(Inner {
                identity,
                store,
                observer,
                reports,
                metrics,
            }),
            log_level,
        }
    }
}

impl FromRef<ControllerApi> for LogLevel {
    fn from_ref(api: &ControllerApi) -> Self {
        api.log_level.clone()
    }
}

/// All endpoints.
fn router(api: ControllerApi) -> Router {
    protect(
        Router::new()
            .route("/", get(endpoints))
            .route("/liveness", get(liveness))
            .route("/readiness", get(readiness))
            .route("/metrics", get(metrics))
            .route("/status", get(status))
            .route("/log/level", get(log_level::get).put(log_level::put))
            .fallback(error::no_such_path)
            .method_not_allowed_fallback(error::no_such_method)
            .with_state(api),
    )
}

/// Serves until `stop` is cancelled; pending requests are completed.
///
/// # Errors
/// When the listener fails.
pub(crate) async fn serve_controllers(
    listener: TcpListener,
    api: ControllerApi,
    stop: CancellationToken,
) -> io::Result<()> {
    serve_router(listener, router(api), stop).await
}

async fn endpoints() -> Json<Value> {
    let endpoint =
        |(method, path, purpose)| json!({ "method": method, "path": path, "purpose": purpose });
    Json(CONTROLLER_ENDPOINTS.into_iter().map(endpoint).collect())
}

async fn liveness() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

async fn readiness(State(api): State<ControllerApi>) -> Result<Json<Value>, ApiError> {
    let leadership = api.inner.observer.leadership();
    if !leadership.is_known {
        return Err(ApiError::NotReady("the store has not been read yet"));
    }
    if leadership.store_down.is_some() {
        return Err(ApiError::NotReady(
            "the store cannot be watched at the moment; see /status",
        ));
    }
    let has_synced = |report: &Report| report.has_synced;
    if leadership.is_leader && !api.reports().values().all(has_synced) {
        return Err(ApiError::NotReady(
            "not every controller has read the types it needs; see /status",
        ));
    }
    Ok(Json(
        json!({ "status": "ready", "leads": leadership.is_leader }),
    ))
}

async fn status(State(api): State<ControllerApi>) -> Json<Value> {
    let inner = &api.inner;
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "identity": inner.identity,
        "store": inner.store,
        "leadership": inner.observer.leadership(),
        "controllers": api.reports(),
    }))
}

async fn metrics(State(api): State<ControllerApi>, headers: HeaderMap) -> Response {
    api.inner
        .metrics
        .set_is_leader(api.inner.observer.leadership().is_leader);
    scrape::answer(&headers, |form| api.inner.metrics.text(form))
}

impl ControllerApi {
    fn reports(&self) -> BTreeMap<ControllerName, Report> {
        self.inner
            .reports
            .iter()
            .map(|(name, report)| (*name, report()))
            .collect()
    }
}
