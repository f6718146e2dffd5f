//! `/metrics` on a separate address, for scrapers on other machines: the debug HTTP is for this machine only.
//!
//! With the metrics of kube-proxy also what kube-proxy has at its metrics address: `/healthz` and `/proxyMode`.

#[cfg(test)]
mod tests;

use std::{io, sync::Arc};

use axum::{
    Router, http::header::X_CONTENT_TYPE_OPTIONS, middleware::from_fn, response::IntoResponse,
    routing::get,
};
use contiv_node::metrics::KubeProxyMetrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    Api,
    bearer::{ScrapeGuard, guard},
    error, scrape,
    serve_router::{serve_router, serve_router_over_tls},
};
use crate::tls::ServerCertificate;

fn router(api: Api, scrape_guard: Arc<ScrapeGuard>) -> Router {
    let mode = api.metrics.node.kube_proxy().map(KubeProxyMetrics::mode);
    let guarded = Router::new()
        .route("/metrics", get(scrape::metrics))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .with_state(api)
        .layer(from_fn(move |request, next| {
            guard(Arc::clone(&scrape_guard), request, next)
        }));
    match mode {
        None => guarded,
        // Programs that ask kube-proxy have no tokens.
        Some(mode) => guarded
            .route("/healthz", get(|| async { plain("ok".to_owned()) }))
            .route(
                "/proxyMode",
                get(move || async move { plain(mode.to_string()) }),
            ),
    }
}

/// As kube-proxy answers: text that no client guesses to be something else.
fn plain(text: String) -> impl IntoResponse {
    ([(X_CONTENT_TYPE_OPTIONS, "nosniff")], text)
}

/// Serves the metrics until `stop` is cancelled, to requests that `scrape_guard` allows; over TLS with a certificate.
///
/// # Errors
/// When the listener fails.
pub(crate) async fn serve_metrics(
    listener: TcpListener,
    api: Api,
    scrape_guard: ScrapeGuard,
    certificate: Option<ServerCertificate>,
    stop: CancellationToken,
) -> io::Result<()> {
    let router = router(api, Arc::new(scrape_guard));
    match certificate {
        Some(certificate) => serve_router_over_tls(listener, certificate, router, stop).await,
        None => serve_router(listener, router, stop).await,
    }
}
