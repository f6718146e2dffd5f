//! One health check on one address.

use contiv_node::health::{LocalEndpoints, ProxyHealth};
use std::{io, net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, response::Response};
use contiv_model::ServiceId;
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::Instant,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use super::answer::answer;
use crate::connections::{Connections, open_files_limit};

/// A listener and the task that serves it. Both end when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    _slot: OwnedSemaphorePermit,
    stop: DropGuard,
    server: AbortOnDropHandle<()>,
}

/// Resources shared by all listeners.
#[derive(Debug, Clone)]
pub(super) struct SharedListeners {
    /// One permit for each listener: the store's content must not exhaust file descriptors.
    pub(super) slots: Arc<Semaphore>,
    pub(super) connections: Connections,
}

impl SharedListeners {
    /// Leaves half of the file descriptors to everything else.
    pub(super) fn of_this_process(connections: Connections) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(open_files_limit() / 2)),
            connections,
        }
    }
}

/// The data of the answer.
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
    /// When it cannot listen on the address.
    pub(super) async fn open(
        endpoint: SocketAddr,
        service: &ServiceId,
        local_endpoints: watch::Receiver<LocalEndpoints>,
        proxy: watch::Receiver<ProxyHealth>,
        shared: SharedListeners,
    ) -> io::Result<Self> {
        let full = |_| {
            io::Error::other("there are too many health checks for the open files that are allowed")
        };
        let slot = shared.slots.try_acquire_owned().map_err(full)?;
        let listener = TcpListener::bind(endpoint).await?;
        let source = Source {
            endpoint,
            service: service.clone(),
            local_endpoints,
            proxy,
        };
        let router = Router::new().fallback(current).with_state(source);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let server = tokio::spawn(async move {
            // It retries failures, and so ends only when it is stopped.
            let _ = axum::serve(shared.connections.on(listener), router)
                .with_graceful_shutdown(stopped)
                .await;
        });
        Ok(Self {
            _slot: slot,
            stop: stop.drop_guard(),
            server: AbortOnDropHandle::new(server),
        })
    }

    /// Stops it, and waits until the address is free. Answers in progress are completed.
    pub(super) async fn close(self) {
        drop(self.stop);
        // Connections are not waited for: the task contains only the listener.
        self.server.abort();
        let _ = self.server.await;
    }
}

async fn current(State(source): State<Source>) -> Response {
    let local_endpoints = source
        .local_endpoints
        .borrow()
        .in_family_of(source.endpoint.ip());
    let is_healthy = source.proxy.borrow().is_healthy(Instant::now().into_std());
    answer(&source.service, local_endpoints, is_healthy)
}
