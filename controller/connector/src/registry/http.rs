//! A small HTTP client: GET, TLS, and limits.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use contiv_store::FileVersions;
use http_body_util::{BodyExt, Empty};
use hyper::{HeaderMap, Request, StatusCode, header::HeaderValue};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};
use tracing::warn;

use super::RegistryError;

/// The maximum size of an answer.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Answers up to this size are read concurrently, however many there are.
const SMALL_RESPONSE_BYTES: usize = 1 << 20;

/// The number of larger answers that may be in memory at the same time, for all registries.
const MAX_LARGE_ANSWERS: usize = 4;

/// A permit for each larger answer, from when its size is known until it is dropped.
static LARGE_ANSWERS: Semaphore = Semaphore::const_new(MAX_LARGE_ANSWERS);

/// How much of an error's text is reported.
const MAX_ERROR_TEXT: usize = 200;

/// Certificates, each as a PEM file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The authority of the server's certificate; none for those the system trusts.
    pub ca_file: Option<PathBuf>,
    /// This client's, with its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl Certificates {
    fn versions(&self) -> FileVersions {
        let client = self
            .client
            .iter()
            .flat_map(|(certificate, key)| [certificate, key]);
        FileVersions::read(client.chain(&self.ca_file))
    }
}

/// The pool of connections.
type Pool = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

pub(super) struct HttpClient {
    certificates: Certificates,
    /// The connections, and the versions of the certificates that they are made with.
    current: Mutex<(Pool, FileVersions)>,
}

/// A successful answer: status 200.
pub(super) struct Response {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Held while a large body is in memory.
    _permit: Option<SemaphorePermit<'static>>,
}

impl HttpClient {
    /// Reads the files.
    pub(super) fn new(certificates: &Certificates) -> Result<Self, RegistryError> {
        let versions = certificates.versions();
        let current = Mutex::new((Self::pool(certificates)?, versions));
        Ok(Self {
            certificates: certificates.clone(),
            current,
        })
    }

    fn pool(certificates: &Certificates) -> Result<Pool, RegistryError> {
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
                    let read_key = read_key
                        .map_err(|error| RegistryError::new(key.display().to_string(), error))?;
                    config
                        .with_client_auth_cert(read_certificates(certificate)?, read_key)
                        .map_err(|error| {
                            RegistryError::new(certificate.display().to_string(), error)
                        })?
                }
            };
            builder.with_tls_config(config)
        };
        let connector = builder.https_or_http().enable_http1().build();
        Ok(Client::builder(TokioExecutor::new()).build(connector))
    }

    /// The connections. If a file has changed since they were made there are new ones; while the files cannot be used, as when only
    /// one of a certificate and its key has been replaced, those before stay.
    fn current(&self) -> Pool {
        let mut current = self.current.lock();
        let versions = current.1.read_again();
        if versions != current.1 {
            match Self::pool(&self.certificates) {
                Ok(pool) => current.0 = pool,
                Err(error) => {
                    warn!(%error, "changed certificates cannot be used; those before stay in use");
                }
            }
            current.1 = versions;
        }
        current.0.clone()
    }

    /// Requests a URL with a timeout. Any status but 200 is an error.
    pub(super) async fn get(
        &self,
        url: &str,
        headers: &[(&'static str, HeaderValue)],
        limit: Duration,
    ) -> Result<Response, RegistryError> {
        let failed = |reason: String| RegistryError::new(url, reason);
        let mut request = Request::get(url);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(Empty::new())
            .map_err(|error| failed(error.to_string()))?;
        let late = |_| failed(format!("no answer within {limit:?}"));
        let mut deadline = Instant::now() + limit;
        let response = timeout_at(deadline, self.current().request(request))
            .await
            .map_err(late)?;
        let (parts, mut incoming) = response
            .map_err(|error| failed(chain(&error)))?
            .into_parts();
        let (mut body, mut permit) = (Vec::new(), None);
        while let Some(frame) = timeout_at(deadline, incoming.frame()).await.map_err(late)? {
            let Ok(data) = frame.map_err(|error| failed(chain(&error)))?.into_data() else {
                continue;
            };
            let size = body.len() + data.len();
            if size > MAX_RESPONSE_BYTES {
                return Err(failed(format!(
                    "its answer is larger than {} MiB",
                    MAX_RESPONSE_BYTES >> 20
                )));
            }
            if size > SMALL_RESPONSE_BYTES && permit.is_none() {
                let asked = Instant::now();
                permit = LARGE_ANSWERS.acquire().await.ok();
                // Waiting for the permit does not count against the server's timeout.
                deadline += asked.elapsed();
            }
            body.extend_from_slice(&data);
        }
        if parts.status == StatusCode::OK {
            return Ok(Response {
                headers: parts.headers,
                body,
                _permit: permit,
            });
        }
        let text = String::from_utf8_lossy(&body);
        let text: String = text.trim().chars().take(MAX_ERROR_TEXT).collect();
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
        return Err(RegistryError::new(
            place,
            "there is no certificate that can be trusted",
        ));
    }
    Ok(roots)
}

fn read_certificates(file: &PathBuf) -> Result<Vec<CertificateDer<'static>>, RegistryError> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    certificates.map_err(|error| RegistryError::new(file.display().to_string(), error))
}

/// An error with its causes, each once: the outermost one says only that it could not connect.
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
    contiv_store::with_certificate_hint(text)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead, BufReader, Write},
        net::{Ipv4Addr, TcpListener},
        pin::pin,
        thread,
    };

    use contiv_store_testing::{ApiServer, Authority};
    use tokio::time::timeout;

    use super::*;

    const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// A server that answers every connection once, with the number of bytes in the path.
    fn serve() -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut line = String::new();
                    BufReader::new(&stream).read_line(&mut line).unwrap();
                    let size: usize = line.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n"
                    );
                    stream.write_all(head.as_bytes()).unwrap();
                    // The client may stop reading.
                    let _ = stream.write_all(&vec![b'a'; size]);
                });
            }
        });
        url
    }

    /// By a server that tells client certificates apart.
    #[tokio::test]
    async fn renewed_client_certificate_is_used_at_once() {
        let server = ApiServer::start_with_tls(Authority::new().unwrap()).unwrap();
        let authority = server.authority().unwrap();
        let file = |name: &str| authority.file(name);
        let client = HttpClient::new(&Certificates {
            ca_file: Some(file("ca.pem")),
            client: Some((file("client.pem"), file("client-key.pem"))),
        })
        .unwrap();
        let url = format!("https://{}/api/v1/services", server.endpoint());
        for _ in 0..2 {
            server.accept_certificate(Some(authority.client_certificate().unwrap()));
            client.get(&url, &[], REQUEST_TIMEOUT).await.unwrap();
            authority.renew_client().unwrap();
        }
        // One that cannot be used leaves the one before in use.
        fs::write(file("client-key.pem"), "none").unwrap();
        client.get(&url, &[], REQUEST_TIMEOUT).await.unwrap();
    }

    #[tokio::test]
    async fn large_answers_wait_until_earlier_ones_are_dropped() {
        let url = serve();
        let client = HttpClient::new(&Certificates::default()).unwrap();
        let get = async |size: usize| {
            client
                .get(&format!("{url}/{size}"), &[], REQUEST_TIMEOUT)
                .await
        };
        let mut held = Vec::new();
        for _ in 0..MAX_LARGE_ANSWERS {
            held.push(get(2 * SMALL_RESPONSE_BYTES).await.unwrap());
        }
        let mut waiting = pin!(get(2 * SMALL_RESPONSE_BYTES));
        assert!(
            timeout(Duration::from_secs(1), &mut waiting).await.is_err(),
            "it waits for a permit"
        );
        assert_eq!(
            get(SMALL_RESPONSE_BYTES).await.unwrap().body.len(),
            SMALL_RESPONSE_BYTES,
            "small ones do not wait"
        );
        held.pop();
        assert_eq!(waiting.await.unwrap().body.len(), 2 * SMALL_RESPONSE_BYTES);
        let error = get(MAX_RESPONSE_BYTES + 1)
            .await
            .map(|answer| answer.body.len())
            .unwrap_err();
        assert!(error.reason.contains("larger than 64 MiB"), "{error}");
    }
}
