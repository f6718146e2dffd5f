//! A client of one API server: connections, credentials, timeouts.

use std::{env, pin::Pin, sync::Arc, time::Duration};

use futures::{AsyncBufRead, AsyncReadExt};
use hyper_util::{client::legacy, rt::TokioExecutor};
use kube::{
    Config,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::timeout;
use tower::ServiceBuilder;

use super::{
    KubeAddress,
    failure::{self, Failure, chain, unavailable},
};
use crate::{StoreError, certificate::version_problem};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the API server may take to begin an answer, and to send a whole page.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A silent connection is probed after this time, and given up after as much again: a watch may be silent for long.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;
/// The limit of one page. A page of 500 pods has about 10 MiB.
const LARGEST_PAGE: u64 = 256 << 20;
/// Set within a pod.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// The body of an answer, line by line.
pub(super) type ResponseBody = Pin<Box<dyn AsyncBufRead + Send>>;

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

    /// Requests `path_and_query`, and returns the answer as soon as it begins.
    pub(super) async fn get(&self, resource: &str, path_and_query: &str) -> Result<ResponseBody, Failure> {
        let request = http::Request::get(path_and_query)
            .header(http::header::ACCEPT, "application/json")
            .body(Vec::new())
            .map_err(|error| unavailable(&self.endpoint, chain(&error)))?;
        let answer = timeout(ANSWER_TIMEOUT, self.client.request_stream(request)).await;
        match answer.map_err(|_| self.late(ANSWER_TIMEOUT))? {
            Ok(answer) => Ok(Box::pin(answer)),
            Err(error) => Err(failure::of(&self.endpoint, resource, &error)),
        }
    }

    /// The whole answer.
    pub(super) async fn get_whole(&self, resource: &str, path_and_query: &str) -> Result<Vec<u8>, Failure> {
        let mut answer = self.get(resource, path_and_query).await?.take(LARGEST_PAGE);
        let mut bytes = Vec::new();
        timeout(ANSWER_TIMEOUT, answer.read_to_end(&mut bytes))
            .await
            .map_err(|_| self.late(ANSWER_TIMEOUT))?
            .map_err(|error| unavailable(&self.endpoint, chain(&error)))?;
        Ok(bytes)
    }

    fn late(&self, limit: Duration) -> StoreError {
        unavailable(&self.endpoint, format!("no answer within {limit:?}"))
    }
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

/// The middleware of `kube`'s own client, but with connections that notice when the other side is gone.
fn stack(config: &Config) -> Result<kube::Client, kube::Error> {
    let mut connector = legacy::connect::HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let connections: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(connections);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}
