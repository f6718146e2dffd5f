//! Serves a router on a listener.

use std::io;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    connections::{BoundedListener, Connections, Peer},
    tls::{ServerCertificate, TlsListener},
};

/// The maximum number of connections of one listener: more than requests, since idle ones count too.
const MAX_CONNECTIONS: usize = 100;

/// Serves until `stop` is cancelled; pending requests are completed.
pub(super) async fn serve_router(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let service = router.into_make_service_with_connect_info::<Peer>();
    axum::serve(bounded(listener), service)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// Serves the routes over TLS. Handlers do not learn the client's address.
pub(super) async fn serve_router_over_tls(
    listener: TcpListener,
    certificate: ServerCertificate,
    router: Router,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = TlsListener::new(bounded(listener), certificate)?;
    axum::serve(listener, router.into_make_service())
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

fn bounded(listener: TcpListener) -> BoundedListener {
    Connections::of_this_process(MAX_CONNECTIONS).on(listener)
}
