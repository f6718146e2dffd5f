//! Registries: the sources of services.
//!
//! A registry watches its source and publishes its content. A failed query never means that something was deleted: the watch
//! ends with an error, the published content stays, and the registry is watched again after a pause.

pub mod consul;
#[cfg(feature = "dns")]
pub mod dns;
pub mod file;
mod http;

use std::{net::IpAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use contiv_proto::check::InvalidText;
use contiv_store::Backoff;
use futures::{FutureExt, future::BoxFuture};
use thiserror::Error;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::{
    catalog::{Catalog, SourceService},
    metrics::ConnectorMetrics,
    sink::Sink,
};

/// Why a registry cannot be watched at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
pub struct RegistryError {
    /// The queried file, URL or name.
    pub place: String,
    /// The problem, and its remedy.
    pub reason: String,
}

impl RegistryError {
    /// An error at a place.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "errors are handed over where they come up"
    )]
    pub fn new(place: impl Into<String>, reason: impl ToString) -> Self {
        Self {
            place: place.into(),
            reason: reason.to_string(),
        }
    }
}

/// A source of services.
pub trait Registry: Send + Sync + 'static {
    /// Watches the source and publishes its content until a failure. It is called again later, and the future may be dropped at
    /// any await. Addresses of instances must come from [`address`].
    fn watch<'a>(&'a self, publisher: &'a Publisher) -> BoxFuture<'a, RegistryError>;
}

/// The addresses that a lookup found, and the time for which they are valid.
pub type FoundAddresses = (Vec<IpAddr>, Duration);

/// Looks up host names.
pub trait HostLookup: std::fmt::Debug + Send + Sync + 'static {
    /// The addresses of a host name; none if there is no such name. It may be dropped at any await.
    fn lookup<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<FoundAddresses, RegistryError>>;
}

/// A registry with its name in the configuration.
#[derive(Clone)]
pub struct NamedRegistry {
    /// The name.
    pub name: String,
    /// The registry.
    pub registry: Arc<dyn Registry>,
}

impl std::fmt::Debug for NamedRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NamedRegistry").field(&self.name).finish()
    }
}

/// Passes one registry's content to the sink.
#[derive(Debug, Clone)]
pub struct Publisher {
    registry: String,
    sink: Sink,
    metrics: ConnectorMetrics,
}

impl Publisher {
    /// A publisher of one registry.
    pub fn new(registry: &str, sink: Sink, metrics: ConnectorMetrics) -> Self {
        Self {
            registry: registry.to_owned(),
            sink,
            metrics,
        }
    }

    /// Publishes the complete content of the registry. A service without a value keeps its previous one.
    pub fn publish(&self, catalog: Catalog) {
        self.announce(catalog);
        self.succeeded();
    }

    /// Publishes the services of a registry that was not queried yet. One without a value keeps its previous one.
    pub fn announce(&self, mut catalog: Catalog) {
        self.sink.keep_known(&self.registry, &mut catalog);
        self.sink.set_services(&self.registry, catalog);
    }

    /// Publishes the instances of one published service.
    pub fn publish_service(&self, name: &str, service: SourceService) {
        self.sink.set_service(&self.registry, name, service);
        self.succeeded();
    }

    /// The registry answered with unchanged content.
    pub fn succeeded(&self) {
        if self.metrics.registry_up(&self.registry) {
            info!(registry = self.registry, "the registry answers");
        }
    }

    /// A query failed. The published content stays.
    pub fn failed(&self, error: &RegistryError) {
        if self.metrics.registry_failed(&self.registry) {
            warn!(registry = self.registry, %error, "failed to query the registry; its last known services stay");
        }
    }

    /// A query of a registry that answers others failed. The published content of it stays.
    pub fn partly_failed(&self, error: &RegistryError) {
        self.metrics.partly_failed(&self.registry);
        warn!(registry = self.registry, %error, "the registry answered only in part; the last known state of the rest stays");
    }

    /// How often the registry has answered.
    fn answers(&self) -> u64 {
        self.metrics.answers(&self.registry)
    }
}

/// The pauses between two attempts to query a failed registry.
pub(crate) const fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30))
}

/// Watches a registry, again after each failure. Never returns.
pub(crate) async fn watch_with_retries(registry: NamedRegistry, publisher: Publisher) {
    let mut backoff = backoff();
    loop {
        let answers = publisher.answers();
        let result = AssertUnwindSafe(registry.registry.watch(&publisher))
            .catch_unwind()
            .await;
        let error = result.unwrap_or_else(|_| RegistryError::new(&registry.name, "it panicked"));
        if publisher.answers() != answers {
            backoff.reset();
        }
        publisher.failed(&error);
        sleep(backoff.next(rand::random())).await;
    }
}

/// An address that other hosts can send to, as agents require for endpoints.
pub use contiv_proto::check::routable_address as address;

/// The address or host name of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// At an address, as by [`address`].
    Address(IpAddr),
    /// At a host name of at least two labels, in lower case.
    Host(String),
}

/// An address or a host name.
///
/// # Errors
/// The reason why it is invalid.
pub fn destination(text: &str) -> Result<Destination, InvalidText> {
    match address(text) {
        Ok(address) => Ok(Destination::Address(address)),
        Err(reason) => host_name(text).map(Destination::Host).ok_or(reason),
    }
}

/// A DNS name as in RFC 1123, with at least two labels, and without the dot at its end.
fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(is_legal)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let mut labels = name.rsplit('.');
    // The last label of an address is a number.
    let is_name = labels
        .next()
        .is_some_and(|last| is_label(last) && last.contains(char::is_alphabetic))
        && labels.clone().count() > 0
        && labels.all(is_label);
    (name.len() <= 253 && is_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_is_an_address_or_a_host_name() {
        let host = |name: &str| Ok(Destination::Host(name.to_owned()));
        assert_eq!(destination("DB.example.org."), host("db.example.org"));
        assert_eq!(destination("a-1.b"), host("a-1.b"));
        assert_eq!(
            destination("10.0.0.1"),
            Ok(Destination::Address("10.0.0.1".parse().unwrap()))
        );
        for wrong in [
            "",
            "x",
            ".",
            "a..b",
            "-a.b",
            "a-.b",
            "a_b.c",
            "10.0.0",
            "10.0.0.999",
            "127.0.0.1",
            "a b.c",
            "a.b/c",
        ] {
            assert!(destination(wrong).is_err(), "{wrong}");
        }
    }
}
