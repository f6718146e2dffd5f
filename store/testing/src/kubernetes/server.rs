//! The connections of the server.

use std::{
    convert::Infallible,
    io,
    net::TcpListener,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use http::Request;
use hyper::{
    body::Incoming,
    rt::{Read, Write},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::{sync::watch, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use super::{
    answer::answer,
    shared::{ClientCertificate, Shared},
};
use crate::Authority;

/// With the authority's server certificate. A client may show a certificate of the authority.
pub(super) fn acceptor(authority: &Authority) -> io::Result<TlsAcceptor> {
    let chain =
        CertificateDer::pem_file_iter(authority.file("server.pem")).map_err(io::Error::other)?;
    let chain = chain.collect::<Result<_, _>>().map_err(io::Error::other)?;
    let key =
        PrivateKeyDer::from_pem_file(authority.file("server-key.pem")).map_err(io::Error::other)?;
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(authority.file("ca.pem")).map_err(io::Error::other)?;
    roots.add(ca).map_err(io::Error::other)?;
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until the sender of `stopped` is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<()>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let mut is_cut = shared.is_cut.subscribe();
    // Dropped with this task, which closes every connection.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            // A connection after the cut is accepted after those before it are closed.
            biased;
            _ = stopped.changed() => return,
            // Also when connections are accepted again by now.
            _ = is_cut.changed() => {
                connections = JoinSet::new();
                continue;
            }
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if !*is_cut.borrow() => stream,
                _ => continue,
            },
        };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        match acceptor.clone() {
            None => drop(connections.spawn(connection(TokioIo::new(stream), None, shared))),
            Some(acceptor) => {
                connections.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let shown = stream
                            .get_ref()
                            .1
                            .peer_certificates()
                            .and_then(<[_]>::first);
                        let client =
                            shown.map(|certificate| ClientCertificate(certificate.to_vec()));
                        connection(TokioIo::new(stream), client, shared).await;
                    }
                });
            }
        }
    }
}

async fn connection(
    io: impl Read + Write + Unpin + Send + 'static,
    client: Option<ClientCertificate>,
    shared: Arc<Shared>,
) {
    let mut retirement = shared.retirement.subscribe();
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(client) = &client {
            request.extensions_mut().insert(client.clone());
        }
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(shared, request).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
    // A client that disconnects is not an error.
    tokio::select! {
        _ = &mut connection => return,
        Ok(()) = retirement.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
