//! `/healthz` and `/livez`, by which load balancers learn whether this node can take traffic. On a separate address, since the
//! debug HTTP is for this machine. As kube-proxy's `ProxyHealthServer`.

#[cfg(test)]
mod tests;

use contiv_node::Core;
use contiv_node::health::ProxyHealth;
use std::io;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::X_CONTENT_TYPE_OPTIONS},
    response::{IntoResponse, Response},
    routing::get,
};
use jiff::Timestamp;
use serde::Serialize;
use tokio::{net::TcpListener, sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Api, error, serve_router};

#[derive(Debug, Clone)]
struct Source {
    api: Api,
    proxy: watch::Receiver<ProxyHealth>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    last_updated: Option<Timestamp>,
    current_time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
}

/// Both endpoints.
fn router(api: Api, proxy: watch::Receiver<ProxyHealth>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/livez", get(livez))
        .fallback(error::no_such_path)
        .with_state(Source { api, proxy })
}

/// Serves both until `stop` is cancelled.
///
/// # Errors
/// When the listener fails.
pub async fn serve_load_balancers(
    listener: TcpListener,
    api: Api,
    proxy: watch::Receiver<ProxyHealth>,
    stop: CancellationToken,
) -> io::Result<()> {
    serve_router(listener, router(api, proxy), stop).await
}

async fn healthz(State(source): State<Source>) -> Response {
    let node_eligible = source.proxy.borrow().node_eligible;
    let answer = source.answer(Some(node_eligible)).await;
    if let Some(kube_proxy) = source.api.metrics.node.kube_proxy() {
        kube_proxy.count_healthz(answer.status().as_u16());
    }
    answer
}

/// Whether the agent should be restarted; the node's state does not matter.
async fn livez(State(source): State<Source>) -> Response {
    let answer = source.answer(None).await;
    if let Some(kube_proxy) = source.api.metrics.node.kube_proxy() {
        kube_proxy.count_livez(answer.status().as_u16());
    }
    answer
}

impl Source {
    async fn answer(&self, node_eligible: Option<bool>) -> Response {
        // A loop that does not answer does not update its state either.
        let is_alive = self.api.query(Core::status).await.is_ok();
        let proxy = *self.proxy.borrow();
        let healthy = is_alive && proxy.is_up_to_date(Instant::now().into_std());
        let current_time = Timestamp::now();
        // As in kube-proxy: if it is up to date, then as of now, even if nothing had to be done for long.
        let last_updated = if healthy {
            Some(current_time)
        } else {
            proxy.last_applied
        };
        let is_good = healthy && node_eligible != Some(false);
        let status = if is_good {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        let body = Body {
            last_updated,
            current_time,
            node_eligible,
            healthy,
        };
        (status, [(X_CONTENT_TYPE_OPTIONS, "nosniff")], Json(body)).into_response()
    }
}
