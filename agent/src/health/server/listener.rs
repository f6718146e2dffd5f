//! One health check on one address.

use std::{io, net::SocketAddr};

use axum::{Router, extract::State, response::Response};
use contiv_model::ServiceId;
use tokio::{net::TcpListener, sync::watch, time::Instant};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use super::answer::answer;
use crate::health::{LocalEndpoints, ProxyHealth};

/// A listener and the task that serves it. Both end when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    stop: DropGuard,
    server: AbortOnDropHandle<()>,
}

/// What the answer is made of.
#[derive(Debug, Clone)]
struct Source {
    endpoint: SocketAddr,
    service: ServiceId,
    local_endpoints: watch::Receiver<LocalEndpoints>,
    proxy: watch::Receiver<ProxyHealth>,
}

impl Listener {
    /// Listens, and answers on every path.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub(super) async fn open(
        endpoint: SocketAddr,
        service: &ServiceId,
        local_endpoints: watch::Receiver<LocalEndpoints>,
        proxy: watch::Receiver<ProxyHealth>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(endpoint).await?;
        let source = Source { endpoint, service: service.clone(), local_endpoints, proxy };
        let router = Router::new().fallback(current).with_state(source);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let server = tokio::spawn(async move {
            // It retries what fails, and so ends only when it is stopped.
            let _ = axum::serve(listener, router).with_graceful_shutdown(stopped).await;
        });
        Ok(Self { stop: stop.drop_guard(), server: AbortOnDropHandle::new(server) })
    }

    /// Ends it, and waits until the address is free. Answers that are under way are finished.
    pub(super) async fn close(self) {
        drop(self.stop);
        // Not waiting for connections: only the listener is in the task.
        self.server.abort();
        let _ = self.server.await;
    }
}

async fn current(State(source): State<Source>) -> Response {
    let local_endpoints = source.local_endpoints.borrow().in_family_of(source.endpoint.ip());
    let is_healthy = source.proxy.borrow().can_be_relied_on(Instant::now());
    answer(&source.service, local_endpoints, is_healthy)
}
