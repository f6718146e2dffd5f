//! A client of one API server: connections, credentials, timeouts.

use std::{env, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Collected, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::timeout;
use tower::ServiceBuilder;

use super::{
    KubeAddress,
    failure::{self, ANSWER_TIMEOUT, Failure, chain, late, unavailable},
    list_body::ListBody,
    protobuf,
    resource::Resource,
    watch_body::WatchBody,
};
use crate::{StoreError, certificate::version_problem};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A silent connection is probed after this time, and given up after as much again: a watch may be silent for long.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;
/// The same within HTTP/2, which asks the server and not only its kernel. The times are those of client-go.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The limit of an answer that is an error, or one object.
const LARGEST_ANSWER: usize = 1 << 20;
/// Set within a pod.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Client {
    client: kube::Client,
    /// The endpoint's name in errors.
    pub(super) endpoint: Arc<str>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
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
        let config = config(address).await.map_err(refused)?;
        if config.proxy_url.is_some() {
            return Err(refused("its proxy-url is not supported".to_owned()));
        }
        let endpoint = config.cluster_url.to_string().into();
        let client = stack(&config).map_err(|error| {
            let words = chain(&error);
            refused(version_problem(&words).map_or(words, str::to_owned))
        })?;
        Ok(Self { client, endpoint })
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
    pub(super) async fn list(&self, resource: &Resource, path_and_query: &str) -> Result<ListBody, Failure> {
        let answer = self.request(resource, path_and_query, "gzip").await?;
        Ok(ListBody::new(answer, resource.kind, Arc::clone(&self.endpoint)))
    }

    /// Creates an object, and returns it as the API server has answered.
    pub(super) async fn post(&self, resource: &str, path: &str, object: String) -> Result<Bytes, Failure> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json");
        let answer = self.send(resource, request, "identity", object.into_bytes().into()).await?;
        let body = timeout(ANSWER_TIMEOUT, Limited::new(answer.into_body(), LARGEST_ANSWER).collect()).await;
        let body = body.map_err(|_| late(&self.endpoint))?;
        Ok(body.map_err(|error| unavailable(&self.endpoint, error.to_string()))?.to_bytes())
    }

    async fn request(
        &self,
        resource: &Resource,
        path_and_query: &str,
        encoding: &'static str,
    ) -> Result<Response<Body>, Failure> {
        let accepted = protobuf::accepted(resource.kind);
        let request = Request::get(path_and_query).header(header::ACCEPT, accepted);
        self.send(resource.name(), request, encoding, Body::empty()).await
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
            .header(header::USER_AGENT, user_agent())
            .body(body)
            .map_err(|error| unavailable(&self.endpoint, chain(&error)))?;
        let answer = timeout(ANSWER_TIMEOUT, self.client.send(request)).await;
        let answer = answer.map_err(|_| late(&self.endpoint))?;
        let answer = answer.map_err(|error| unavailable(&self.endpoint, chain(&error)))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        let pause = failure::requested_pause(answer.headers());
        let body = timeout(ANSWER_TIMEOUT, Limited::new(answer.into_body(), LARGEST_ANSWER).collect()).await;
        let body = body.map_err(|_| late(&self.endpoint))?;
        let body = body.map_or_else(|error| error.to_string().into(), Collected::to_bytes);
        Err(failure::of(&self.endpoint, resource, &failure::status(code, &body), pause))
    }
}

/// Program, version and system, as kubectl and kube-proxy name themselves.
fn user_agent() -> String {
    let architecture = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("contiv/{} ({}/{architecture})", env!("CARGO_PKG_VERSION"), env::consts::OS)
}

async fn config(address: &KubeAddress) -> Result<Config, String> {
    let options = KubeConfigOptions { context: address.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &address.kubeconfig {
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| chain(&error))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        return config.map_err(|error| format!("{}: {}", path.display(), chain(&error)));
    }
    if options.context.is_none() && env::var_os(IN_CLUSTER).is_some_and(|it| !it.is_empty()) {
        return Config::incluster().map_err(|error| chain(&error));
    }
    Config::from_kubeconfig(&options).await.map_err(|error| chain(&error))
}

/// The middleware of `kube`'s own client, but with HTTP/2, where all requests share a connection, and with connections that
/// notice when the other side is gone.
fn stack(config: &Config) -> Result<kube::Client, kube::Error> {
    let connections: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector(config)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(connections);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

fn connector(config: &Config) -> Result<HttpsConnector<HttpConnector>, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let mut builder =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_all_versions().wrap_connector(connector))
}

#[cfg(test)]
mod tests {
    #[test]
    fn user_agent_names_program_version_and_system() {
        let agent = super::user_agent();
        assert!(agent.starts_with("contiv/") && agent.contains(" (linux/"), "{agent}");
        assert!(!agent.contains("x86_64") && !agent.contains("aarch64"), "{agent}");
    }
}
