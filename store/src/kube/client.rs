//! A client of one API server: connections, credentials, timeouts.

use std::{env, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Collected, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Config,
    client::{Body, ConfigExt},
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tower::ServiceBuilder;
use tracing::{info, warn};

use super::{
    KubeAddress,
    credentials::{Authorization, Credentials},
    failure::{self, ANSWER_TIMEOUT, Failure, chain, timeout_error, unavailable},
    kubeconfig::{self, Access},
    list_body::ListBody,
    protobuf,
    resource::Resource,
    watch_body::WatchBody,
};
use crate::{FileVersions, StoreError, certificate::version_problem};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A silent connection is probed after this time, and given up after as much again: a watch may be silent for long.
const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;
/// Pings within HTTP/2, which the server answers and not only its kernel. The times are those of client-go.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// How long before their expiry the credentials of a plugin are renewed.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_secs(30);
/// A plugin that renews credentials is run again after this time, since requests wait for it: also where it gives some that have
/// expired.
const MIN_RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// The pause doubles with each failure, up to this.
const MAX_RENEWAL_PAUSE: Duration = Duration::from_secs(30);
/// The limit of an answer that is an error, or one object.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// The limit of a page of a list that is read as a whole.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// Whether a connection can be upgraded to a WebSocket, which the API server does in HTTP/1.1 only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upgrades {
    Possible,
    /// HTTP/2 where the server has it: all requests share a connection.
    None,
}

/// Cheap to clone; clones share the connections.
#[derive(Clone)]
pub(super) struct Client {
    address: Arc<KubeAddress>,
    upgrades: Upgrades,
    /// Locked while files are read.
    connections: Arc<Mutex<Connections>>,
    /// The endpoint's name in errors.
    pub(super) endpoint: Arc<str>,
}

/// The connections that are made with one state of the files.
struct Connections {
    client: kube::Client,
    endpoint: Arc<str>,
    /// Those of the files.
    versions: FileVersions,
    /// When a plugin's credentials expire.
    expires_at: Option<Timestamp>,
    /// When they may be renewed.
    renewable_at: Instant,
    /// The pause after the next failure to renew them.
    renewal_pause: Duration,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Connections {
    /// Reads the files. Nothing is sent yet.
    async fn prepare(address: &KubeAddress, upgrades: Upgrades) -> Result<Self, String> {
        let Access {
            mut config,
            name,
            versions,
        } = kubeconfig::access(address).await?;
        if config.proxy_url.is_some() {
            return Err("its proxy-url (or $HTTPS_PROXY) is not supported".to_owned());
        }
        config.headers.push((header::USER_AGENT, user_agent()));
        let credentials = Credentials::take(&mut config.auth_info).await;
        let Credentials {
            authorization,
            expires_at,
        } = credentials.map_err(|reason| format!("{name}: {reason}"))?;
        let endpoint = config.cluster_url.to_string().into();
        let client = stack(&config, authorization, upgrades).map_err(|error| {
            let words = chain(&error);
            format!(
                "{name}: {}",
                version_problem(&words).unwrap_or(words.as_str())
            )
        })?;
        let (renewable_at, renewal_pause) = (Instant::now() + MIN_RENEWAL_PAUSE, MIN_RENEWAL_PAUSE);
        Ok(Self {
            client,
            endpoint,
            versions,
            expires_at,
            renewable_at,
            renewal_pause,
        })
    }

    /// Whether a plugin's credentials expire, and may be renewed now.
    fn needs_renewal(&self) -> bool {
        self.expires_at
            .is_some_and(|expiry| Timestamp::now() + EXPIRY_MARGIN >= expiry)
            && Instant::now() >= self.renewable_at
    }

    /// Goes on with these connections, since none could be made with these versions of the files.
    fn keep(&mut self, versions: FileVersions) {
        self.versions = versions;
        self.renewable_at = Instant::now() + self.renewal_pause;
        self.renewal_pause = (2 * self.renewal_pause).min(MAX_RENEWAL_PAUSE);
    }
}

impl Client {
    /// Reads the files. Nothing is sent yet.
    pub(super) async fn open(address: &KubeAddress) -> Result<Self, StoreError> {
        let refused = |reason: String| StoreError::Refused {
            action: format!("open {address}"),
            reason: format!(
                "{reason}; name a kubeconfig that can be used, as in kube:/etc/contiv/kubeconfig"
            ),
        };
        Self::connect(address, Upgrades::None)
            .await
            .map_err(refused)
    }

    /// The same, with the bare reason if a file cannot be used.
    pub(super) async fn connect(address: &KubeAddress, upgrades: Upgrades) -> Result<Self, String> {
        let connections = Connections::prepare(address, upgrades).await?;
        let endpoint = Arc::clone(&connections.endpoint);
        let (address, connections) = (Arc::new(address.clone()), Arc::new(Mutex::new(connections)));
        Ok(Self {
            address,
            upgrades,
            connections,
            endpoint,
        })
    }

    /// The client of the crate `kube`. If a certificate or another file has changed since its connections were made, or a plugin's
    /// credentials expire, it is one with new connections; requests that are under way end on the old ones. While the files cannot
    /// be used, as when only one of a certificate and its key has been replaced, and if they name another server, the old
    /// connections stay in use.
    pub(super) async fn current(&self) -> kube::Client {
        let mut connections = self.connections.lock().await;
        let versions = connections.versions.read_again();
        let is_changed = versions != connections.versions;
        if is_changed || connections.needs_renewal() {
            let address = &self.address;
            match Connections::prepare(address, self.upgrades).await {
                Ok(new) if new.endpoint == self.endpoint => {
                    info!(store = %address, "credentials were read again; new connections use them");
                    *connections = new;
                }
                Ok(new) => {
                    let (endpoint, other) = (&self.endpoint, &new.endpoint);
                    info!(store = %address, %endpoint, %other, "another server is used after the next failure");
                    connections.keep(versions);
                }
                Err(problem) => {
                    let what = if is_changed {
                        "changed credentials"
                    } else {
                        "renewed credentials"
                    };
                    warn!(store = %address, problem, "{what} cannot be used; those before stay in use");
                    connections.keep(versions);
                }
            }
        }
        connections.client.clone()
    }

    /// Requests one page of a list as a whole, in this form.
    pub(super) async fn get(
        &self,
        resource: &str,
        path_and_query: &str,
        form: &'static str,
    ) -> Result<Bytes, Failure> {
        let request = Request::get(path_and_query).header(header::ACCEPT, form);
        let answer = self
            .send(resource, request, "identity", Body::empty())
            .await?;
        self.read(answer, MAX_PAGE_BYTES).await
    }

    /// Requests a watch, and returns the answer as soon as it begins. It is not compressed: each event would be by itself.
    pub(super) async fn watch(
        &self,
        resource: &Resource,
        path_and_query: &str,
    ) -> Result<WatchBody, Failure> {
        let answer = self.request(resource, path_and_query, "identity").await?;
        Ok(WatchBody::new(answer, resource.kind))
    }

    /// Requests a list, and returns the answer as soon as it begins. The API server compresses what is larger than 128 KiB.
    pub(super) async fn list(
        &self,
        resource: &Resource,
        path_and_query: &str,
    ) -> Result<ListBody, Failure> {
        let answer = self.request(resource, path_and_query, "gzip").await?;
        Ok(ListBody::new(
            answer,
            resource.kind,
            Arc::clone(&self.endpoint),
        ))
    }

    /// Creates an object, and returns it as the API server has answered.
    pub(super) async fn post(
        &self,
        resource: &str,
        path: &str,
        object: String,
    ) -> Result<Bytes, Failure> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json");
        let answer = self
            .send(resource, request, "identity", object.into_bytes().into())
            .await?;
        self.read(answer, MAX_ANSWER_BYTES).await
    }

    async fn read(&self, answer: Response<Body>, limit: usize) -> Result<Bytes, Failure> {
        let body = timeout(
            ANSWER_TIMEOUT,
            Limited::new(answer.into_body(), limit).collect(),
        )
        .await;
        let body = body.map_err(|_| timeout_error(&self.endpoint))?;
        Ok(body
            .map_err(|error| unavailable(&self.endpoint, error.to_string()))?
            .to_bytes())
    }

    async fn request(
        &self,
        resource: &Resource,
        path_and_query: &str,
        encoding: &'static str,
    ) -> Result<Response<Body>, Failure> {
        let accepted = protobuf::accepted(resource.kind);
        let request = Request::get(path_and_query).header(header::ACCEPT, accepted);
        self.send(resource.name(), request, encoding, Body::empty())
            .await
    }

    async fn send(
        &self,
        resource: &str,
        request: http::request::Builder,
        encoding: &'static str,
        body: Body,
    ) -> Result<Response<Body>, Failure> {
        let request = request
            .header(header::ACCEPT_ENCODING, encoding)
            .body(body)
            .map_err(|error| unavailable(&self.endpoint, chain(&error)))?;
        let path = request.uri().path().to_owned();
        let answer = timeout(ANSWER_TIMEOUT, self.current().await.send(request)).await;
        let answer = answer.map_err(|_| timeout_error(&self.endpoint))?;
        let answer = answer.map_err(|error| unavailable(&self.endpoint, chain(&error)))?;
        let media_type = foreign_media_type(answer.headers());
        if answer.status().is_success() && media_type.is_none() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        let pause = failure::requested_pause(answer.headers());
        let body = timeout(
            ANSWER_TIMEOUT,
            Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect(),
        )
        .await;
        let body = body.map_err(|_| timeout_error(&self.endpoint))?;
        let body = body.map_or_else(|error| error.to_string().into(), Collected::to_bytes);
        let mut status = failure::status(code, &body);
        if let Some(media_type) = media_type {
            // Of another server, such as a proxy on the way.
            status.message = format!("{path} was answered with {media_type}: {}", status.message);
        }
        Err(failure::of(&self.endpoint, resource, &status, pause))
    }
}

/// The type of an answer that no API server gives.
fn foreign_media_type(headers: &HeaderMap) -> Option<String> {
    let media_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let is_known = ["json", "protobuf", "text/plain"]
        .iter()
        .any(|known| media_type.contains(known));
    (!is_known).then(|| media_type.to_owned())
}

/// Program, version and system, as kubectl and kube-proxy name themselves.
fn user_agent() -> HeaderValue {
    let architecture = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let text = format!(
        "contiv/{} ({}/{architecture})",
        env!("CARGO_PKG_VERSION"),
        env::consts::OS
    );
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("contiv"))
}

/// The middleware of `kube`'s own client, but with HTTP/2, where all requests share a connection, and with connections that
/// notice when the other side is gone.
fn stack(
    config: &Config,
    authorization: Authorization,
    upgrades: Upgrades,
) -> Result<kube::Client, kube::Error> {
    let connections: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector(config, upgrades)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .map_request(move |request: Request<Body>| authorization.authorize(request))
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(connections);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

fn connector(
    config: &Config,
    upgrades: Upgrades,
) -> Result<HttpsConnector<HttpConnector>, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE_TIME));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name
            .clone()
            .try_into()
            .map_err(|error| kube::Error::Service(Box::new(error)))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(match upgrades {
        Upgrades::Possible => builder.enable_http1().wrap_connector(connector),
        Upgrades::None => builder.enable_all_versions().wrap_connector(connector),
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Connections with the credentials of a plugin that runs these commands, and appends a line to the file `runs`.
    async fn with_plugin(folder: &Path, commands: &str) -> Client {
        let (plugin, kubeconfig) = (folder.join("plugin"), folder.join("kubeconfig"));
        fs::write(
            &plugin,
            format!("echo run >> {}\n{commands}", folder.join("runs").display()),
        )
        .unwrap();
        let text = format!(
            "clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'}}}}]
users: [{{name: a, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{}], interactiveMode: Never}}}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
current-context: a
",
            plugin.display()
        );
        fs::write(&kubeconfig, text).unwrap();
        let address = KubeAddress {
            kubeconfig: Some(kubeconfig),
            ..KubeAddress::default()
        };
        Client::connect(&address, Upgrades::None).await.unwrap()
    }

    #[tokio::test]
    async fn plugin_is_not_run_by_each_request_with_expired_credentials() {
        let expired =
            r#"echo '{"status": {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}}'"#;
        // With the seconds after each run. Failures double them.
        for (commands, pauses) in [
            (expired.to_owned(), [1, 1, 1, 1]),
            (
                format!("[ -e $0.first ] && exit 1; touch $0.first; {expired}"),
                [1, 1, 2, 4],
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let mut start = Instant::now();
            let client = with_plugin(folder.path(), &commands).await;
            for (count, pause) in (1..).zip(pauses) {
                {
                    let renewable_at = &mut client.connections.lock().await.renewable_at;
                    assert!(
                        *renewable_at >= start + Duration::from_secs(pause),
                        "{commands}: pause {count}"
                    );
                    // So that a slow machine is not too late.
                    *renewable_at += MAX_RENEWAL_PAUSE;
                }
                for _ in 0..3 {
                    client.current().await;
                }
                let runs = fs::read_to_string(folder.path().join("runs"))
                    .unwrap()
                    .lines()
                    .count();
                assert_eq!(runs, count, "{commands}");
                start = Instant::now();
                client.connections.lock().await.renewable_at = start;
                client.current().await;
            }
        }
    }

    #[test]
    fn user_agent_names_program_version_and_system() {
        let agent = user_agent();
        let agent = agent.to_str().unwrap_or_default();
        assert!(
            agent.starts_with("contiv/") && agent.contains(" (linux/"),
            "{agent}"
        );
        assert!(
            !agent.contains("x86_64") && !agent.contains("aarch64"),
            "{agent}"
        );
    }
}
