//! A small HTTP client: GET, TLS, a limit for everything.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::time::timeout;

use super::RegistryError;

/// No answer is larger.
const LARGEST: usize = 64 << 20;

/// How much of an error's text is shown.
const SHOWN: usize = 200;

/// Certificates, each as a PEM file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// What that of the server is signed with; none for what the system trusts.
    pub ca_file: Option<PathBuf>,
    /// This client's, with its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

pub(super) struct HttpClient {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

/// What a server answered with 200.
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl HttpClient {
    /// Reads the files.
    pub(super) fn new(certificates: &Certificates) -> Result<Self, RegistryError> {
        let provider = Arc::new(ring::default_provider());
        let builder = HttpsConnectorBuilder::new();
        let Certificates { ca_file, client } = certificates;
        let builder = if ca_file.is_none() && client.is_none() {
            builder
                .with_provider_and_native_roots(Arc::unwrap_or_clone(provider))
                .map_err(|error| RegistryError::new("the system's certificates", error))?
        } else {
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| RegistryError::new("TLS", error))?
                .with_root_certificates(roots(ca_file.as_ref())?);
            let config = match client {
                None => config.with_no_client_auth(),
                Some((certificate, key)) => {
                    let read_key = PrivateKeyDer::from_pem_file(key);
                    let read_key =
                        read_key.map_err(|error| RegistryError::new(key.display().to_string(), error))?;
                    config
                        .with_client_auth_cert(read_certificates(certificate)?, read_key)
                        .map_err(|error| RegistryError::new(certificate.display().to_string(), error))?
                }
            };
            builder.with_tls_config(config)
        };
        let connector = builder.https_or_http().enable_http1().build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// Gets a URL within a time limit. Any answer but 200 is an error.
    pub(super) async fn get(
        &self,
        url: &str,
        headers: &[(&'static str, String)],
        limit: Duration,
    ) -> Result<Answer, RegistryError> {
        let failed = |reason: String| RegistryError::new(url, reason);
        let mut request = Request::get(url);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Empty::new()).map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| failed(chain(&error)))?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, LARGEST).collect().await;
            let body = body.map_err(|error| failed(error.to_string()))?.to_bytes();
            Ok((parts, body))
        };
        let (parts, body) =
            timeout(limit, exchange).await.map_err(|_| failed(format!("no answer within {limit:?}")))??;
        if parts.status == StatusCode::OK {
            return Ok(Answer { headers: parts.headers, body });
        }
        let text = String::from_utf8_lossy(&body);
        let text: String = text.trim().chars().take(SHOWN).collect();
        Err(failed(format!("it answers {}: {text}", parts.status)))
    }
}

fn roots(ca_file: Option<&PathBuf>) -> Result<RootCertStore, RegistryError> {
    let mut roots = RootCertStore::empty();
    let certificates = match ca_file {
        Some(file) => read_certificates(file)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        let place = ca_file.map_or("the system".to_owned(), |file| file.display().to_string());
        return Err(RegistryError::new(place, "there is no certificate that can be trusted"));
    }
    Ok(roots)
}

fn read_certificates(file: &PathBuf) -> Result<Vec<CertificateDer<'static>>, RegistryError> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    certificates.map_err(|error| RegistryError::new(file.display().to_string(), error))
}

/// An error with its causes, each once: the outermost says no more than that it could not connect.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
