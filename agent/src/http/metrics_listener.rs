//! `/metrics` on a separate address, for scrapers on other machines: the debug HTTP is for this machine only.

#[cfg(test)]
mod tests;

use std::{io, sync::Arc};

use axum::{Router, middleware::from_fn, routing::get};
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
    Router::new()
        .route("/metrics", get(scrape::metrics))
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .with_state(api)
        .layer(from_fn(move |request, next| guard(Arc::clone(&scrape_guard), request, next)))
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
