//! Consul's HTTP catalog, watched with blocking queries.
//!
//! One query waits for changes of `/v1/catalog/services`; for each selected service, one waits for changes of
//! `/v1/health/service/<name>`. All instances are requested, and readiness is decided here: so a service whose last instance
//! fails its checks keeps its ports and its address. Source of the rules on indexes:
//! <https://developer.hashicorp.com/consul/api-docs/features/blocking>.

mod answer;
mod blocking;
mod options;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{
    sync::Semaphore,
    task::{AbortHandle, JoinSet, spawn_blocking},
    time::sleep,
};

pub use super::http::Certificates;
use super::{
    Publisher, Registry, RegistryError, backoff,
    http::{HttpClient, Response},
};
use crate::catalog::Catalog;
use blocking::BlockingQuery;
pub use options::ConsulOptions;

/// Consul's own service, which is skipped.
const ITSELF: &str = "consul";

/// A registry that is a Consul.
#[derive(Debug, Clone)]
pub struct Consul {
    options: Arc<ConsulOptions>,
}

impl Consul {
    /// A registry with these options.
    pub fn new(options: ConsulOptions) -> Self {
        Self {
            options: Arc::new(options),
        }
    }

    async fn run(&self, publisher: &Publisher) -> Result<Infallible, RegistryError> {
        let options = &self.options;
        let instances = InstanceWatcher {
            client: Arc::new(HttpClient::new(&options.certificates)?),
            options: Arc::clone(options),
            permits: Arc::new(Semaphore::new(options.connections)),
            watched: Arc::default(),
            publisher: publisher.clone(),
        };
        // Dropped together with this future, which ends all watches.
        let mut watches = JoinSet::new();
        let mut handles = BTreeMap::<String, AbortHandle>::new();
        let mut query = BlockingQuery::new("/v1/catalog/services".to_owned());
        loop {
            let answer = query.poll(&instances.client, options, options.wait).await?;
            let names = decode(answer, answer::services).await;
            let names = names.map_err(|reason| query.error(options, reason))?;
            let is_taken = |(name, tags): &(String, Vec<String>)| {
                name != ITSELF
                    && (options.tag.is_empty() || tags.contains(&options.tag))
                    && (options.exclude_tag.is_empty() || !tags.contains(&options.exclude_tag))
            };
            let catalog: Catalog = names
                .into_iter()
                .filter(is_taken)
                .map(|(name, _)| (name, None))
                .collect();
            handles.retain(|name, watch| {
                let stays = catalog.contains_key(name);
                if !stays {
                    watch.abort();
                }
                stays
            });
            let new: Vec<String> = catalog
                .keys()
                .filter(|name| !handles.contains_key(*name))
                .cloned()
                .collect();
            instances.watched.store(catalog.len(), Ordering::Relaxed);
            publisher.publish(catalog);
            for name in new {
                let watch = watches.spawn(instances.clone().watch(name.clone()));
                handles.insert(name, watch);
            }
            // Collects the aborted ones.
            while watches.try_join_next().is_some() {}
        }
    }
}

/// Watches the instances of single services.
#[derive(Clone)]
struct InstanceWatcher {
    client: Arc<HttpClient>,
    options: Arc<ConsulOptions>,
    permits: Arc<Semaphore>,
    /// How many services are watched.
    watched: Arc<AtomicUsize>,
    publisher: Publisher,
}

impl InstanceWatcher {
    /// Publishes the instances of a service until it is aborted.
    async fn watch(self, name: String) {
        let path = format!(
            "/v1/health/service/{}",
            utf8_percent_encode(&name, NON_ALPHANUMERIC)
        );
        let mut query = BlockingQuery::new(path);
        let mut backoff = backoff();
        loop {
            match self.poll(&name, &mut query).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    let pause = backoff.next(rand::random());
                    // If the whole Consul fails, the query for services reports it, and ends this before the next retry.
                    if backoff.failures() == 2 {
                        self.publisher.partly_failed(&error);
                    }
                    sleep(pause).await;
                }
            }
        }
    }

    async fn poll(&self, name: &str, query: &mut BlockingQuery) -> Result<(), RegistryError> {
        let watched = self.watched.load(Ordering::Relaxed);
        let wait = blocking::shared_wait(self.options.wait, watched, self.options.connections);
        let answer = {
            let closed = |_| RegistryError::new(name, "no query is allowed any more");
            let _permit = self.permits.acquire().await.map_err(closed)?;
            query.poll(&self.client, &self.options, wait).await?
        };
        let passing_only = self.options.passing_only;
        let service = decode(answer, move |body| answer::instances(body, passing_only)).await;
        let service = service.map_err(|reason| query.error(&self.options, reason))?;
        self.publisher.publish_service(name, service);
        Ok(())
    }
}

/// Decodes an answer in a thread for blocking work, and drops it there. An answer of 64 MiB takes so long that the runtime could
/// not renew the lease meanwhile.
async fn decode<T: Send + 'static>(
    answer: Response,
    decode: impl FnOnce(&[u8]) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let decoded = spawn_blocking(move || decode(&answer.body)).await;
    decoded.map_err(|error| format!("its answer was not decoded: {error}"))?
}

impl Registry for Consul {
    fn watch<'a>(&'a self, publisher: &'a Publisher) -> BoxFuture<'a, RegistryError> {
        async move {
            let Err(error) = self.run(publisher).await;
            error
        }
        .boxed()
    }
}
