//! The connections of the server.

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    io,
    net::TcpListener,
    sync::Arc,
    time::Duration,
};

use hyper::{
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{sync::watch, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use super::{answer::answer, cluster::Cluster};
use crate::Authority;

/// Shared by the server and the test.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) cluster: watch::Sender<Cluster>,
    pub(super) faults: Mutex<Faults>,
    pub(super) is_cut: watch::Sender<bool>,
}

/// The configured faults, and the received requests.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) token: Option<String>,
    pub(super) failures: VecDeque<u16>,
    /// The code with which all lists fail.
    pub(super) list_failure: Option<u16>,
    pub(super) delay: Duration,
    pub(super) bookmark_interval: Duration,
    pub(super) longest_watch: Duration,
    /// The plurals of types whose watches get no bookmarks.
    pub(super) silent: BTreeSet<String>,
    pub(super) requests: Vec<String>,
}

impl Default for Shared {
    fn default() -> Self {
        let faults = Faults {
            token: None,
            failures: VecDeque::new(),
            list_failure: None,
            delay: Duration::ZERO,
            bookmark_interval: Duration::from_secs(60),
            longest_watch: Duration::from_secs(3600),
            silent: BTreeSet::new(),
            requests: Vec::new(),
        };
        Self {
            cluster: watch::Sender::new(Cluster::default()),
            faults: Mutex::new(faults),
            is_cut: watch::Sender::new(false),
        }
    }
}

/// With the authority's server certificate.
pub(super) fn acceptor(authority: &Authority) -> io::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(authority.file("server.pem")).map_err(io::Error::other)?;
    let chain = chain.collect::<Result<_, _>>().map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(authority.file("server-key.pem")).map_err(io::Error::other)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until the sender of `stopped` is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<()>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut is_cut = shared.is_cut.subscribe();
    // Dropped with this task, which closes every connection.
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            _ = stopped.changed() => return,
            _ = is_cut.changed() => {
                if *is_cut.borrow_and_update() {
                    connections = JoinSet::new();
                }
                continue;
            }
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if !*is_cut.borrow() => stream,
                _ => continue,
            },
        };
        let shared = Arc::clone(&shared);
        match acceptor.clone() {
            None => drop(connections.spawn(connection(TokioIo::new(stream), shared))),
            Some(acceptor) => {
                connections.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection(TokioIo::new(stream), shared).await;
                    }
                });
            }
        }
    }
}

async fn connection(io: impl Read + Write + Unpin + Send + 'static, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(shared, request).await) }
    });
    // A client that disconnects is not an error.
    let _ = http1::Builder::new().serve_connection(io, service).await;
}
