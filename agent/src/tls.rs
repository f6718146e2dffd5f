//! Serves over TLS, with a certificate that is read again when its files change.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::serve::Listener;
use contiv_store::FileVersions;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use thiserror::Error;
use tokio::{sync::mpsc, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::connections::{BoundedListener, Connection};

/// How long a client may take until the connection is encrypted.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How many encrypted connections may wait to be served.
const MAX_WAITING_CONNECTIONS: usize = 8;

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub(crate) enum CertificateError {
    /// A file holds none, or cannot be read.
    #[error("{}: {problem}; it must be PEM", .file.display())]
    File { file: PathBuf, problem: String },
    /// They do not fit.
    #[error("{} and {}: {problem}", .certificate.display(), .key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        problem: rustls::Error,
    },
}

/// A server's certificate with its chain, and its private key.
pub(crate) struct ServerCertificate {
    certificate: PathBuf,
    key: PathBuf,
    /// Those of the files when they were last read.
    versions: FileVersions,
    acceptor: TlsAcceptor,
}

impl ServerCertificate {
    /// Reads both files.
    ///
    /// # Errors
    /// When they are no certificate with its key.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let versions = FileVersions::read([&certificate, &key]);
        let acceptor = acceptor(&certificate, &key)?;
        Ok(Self {
            certificate,
            key,
            versions,
            acceptor,
        })
    }

    /// With the present files. While they do not fit, as when one of them has been replaced, those before count.
    fn acceptor(&mut self) -> TlsAcceptor {
        let now = self.versions.read_again();
        if now != self.versions {
            self.versions = now;
            match acceptor(&self.certificate, &self.key) {
                Ok(acceptor) => {
                    info!(certificate = %self.certificate.display(), "the certificate for metrics is read again");
                    self.acceptor = acceptor;
                }
                Err(error) => {
                    warn!(%error, "the certificate for metrics cannot be used; the one before stays in use");
                }
            }
        }
        self.acceptor.clone()
    }
}

impl std::fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerCertificate")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, CertificateError> {
    let unread = |file: &Path, error: rustls::pki_types::pem::Error| CertificateError::File {
        file: file.to_owned(),
        problem: error.to_string(),
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| unread(certificate, error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(chain, private)
        });
    let mut config = config.map_err(|problem| CertificateError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        problem,
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts encrypted connections. A client that is slow to encrypt keeps no other one waiting.
#[derive(Debug)]
pub(crate) struct TlsListener {
    accepted: mpsc::Receiver<(TlsStream<Connection>, SocketAddr)>,
    local: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl TlsListener {
    /// Encrypts what this listener accepts.
    ///
    /// # Errors
    /// When the listener has no address.
    pub(crate) fn new(
        listener: BoundedListener,
        certificate: ServerCertificate,
    ) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let (sender, accepted) = mpsc::channel(MAX_WAITING_CONNECTIONS);
        let accepting = tokio::spawn(accept(listener, certificate, sender));
        Ok(Self {
            accepted,
            local,
            _accepting: AbortOnDropHandle::new(accepting),
        })
    }
}

async fn accept(
    mut listener: BoundedListener,
    mut certificate: ServerCertificate,
    accepted: mpsc::Sender<(TlsStream<Connection>, SocketAddr)>,
) {
    loop {
        let (stream, peer) = listener.accept().await;
        let (handshake, accepted) = (certificate.acceptor().accept(stream), accepted.clone());
        tokio::spawn(async move {
            // A client that does not encrypt is no error of ours.
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_LIMIT, handshake).await {
                let _ = accepted.send((stream, peer)).await;
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<Connection>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The task that accepts lives as long as this.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }
}
