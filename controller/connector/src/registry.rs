//! Registries: where services come from.
//!
//! A registry follows its source and publishes what that says. It never says that something is gone because it could
//! not be asked: then it fails, what it said before stays, and it is followed again after a while.

pub mod consul;
pub mod dns;
pub mod file;
mod http;

use std::{net::IpAddr, panic::AssertUnwindSafe, sync::Arc, time::Duration};

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

/// Why a registry cannot be followed at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
pub struct RegistryError {
    /// The file, URL or name that was asked.
    pub place: String,
    /// What went wrong, and what to do if something can be done.
    pub reason: String,
}

impl RegistryError {
    /// An error at a place.
    #[expect(clippy::needless_pass_by_value, reason = "errors are handed over where they come up")]
    pub fn new(place: impl Into<String>, reason: impl ToString) -> Self {
        Self { place: place.into(), reason: reason.to_string() }
    }
}

/// A source of services.
pub trait Registry: Send + Sync + 'static {
    /// Follows it, and publishes all it says, until that fails. It is called again later, and may be dropped at any await.
    /// Addresses of instances must be such as [`address`] gives.
    fn follow<'a>(&'a self, publisher: &'a Publisher) -> BoxFuture<'a, RegistryError>;
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

/// Takes what one registry says to the sink.
#[derive(Debug, Clone)]
pub struct Publisher {
    registry: String,
    sink: Sink,
    metrics: ConnectorMetrics,
}

impl Publisher {
    /// A publisher of one registry.
    pub fn new(registry: &str, sink: Sink, metrics: ConnectorMetrics) -> Self {
        Self { registry: registry.to_owned(), sink, metrics }
    }

    /// This is all that the registry says. A service without a value keeps the one it was published with before.
    pub fn publish(&self, catalog: Catalog) {
        self.announce(catalog);
        self.succeeded();
    }

    /// These are the services of a registry that was not asked yet. One without a value keeps the one it had.
    pub fn announce(&self, mut catalog: Catalog) {
        self.sink.keep_known(&self.registry, &mut catalog);
        self.sink.set_services(&self.registry, catalog);
    }

    /// This is what is behind one of the services that were published.
    pub fn publish_service(&self, name: &str, service: SourceService) {
        self.sink.set_service(&self.registry, name, service);
        self.succeeded();
    }

    /// The registry said what it said before.
    pub fn succeeded(&self) {
        if self.metrics.registry_up(&self.registry) {
            info!(registry = self.registry, "the registry answers");
        }
    }

    /// Something could not be asked. What was published stays.
    pub fn failed(&self, error: &RegistryError) {
        if self.metrics.registry_failed(&self.registry) {
            warn!(registry = self.registry, %error, "the registry fails; what it said before stays");
        }
    }

    /// Something of a registry that answers otherwise could not be asked. What was published of it stays.
    pub fn partly_failed(&self, error: &RegistryError) {
        self.metrics.partly_failed(&self.registry);
        warn!(registry = self.registry, %error, "the registry does not say all; what it said of that before stays");
    }

    /// How often the registry has answered.
    fn answers(&self) -> u64 {
        self.metrics.answers(&self.registry)
    }
}

/// Between two attempts to ask a registry that failed.
pub(crate) const fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30))
}

/// Follows a registry for ever.
pub(crate) async fn follow(registry: NamedRegistry, publisher: Publisher) {
    let mut backoff = backoff();
    loop {
        let answers = publisher.answers();
        let followed = AssertUnwindSafe(registry.registry.follow(&publisher)).catch_unwind().await;
        let error = followed.unwrap_or_else(|_| RegistryError::new(&registry.name, "it panicked"));
        if publisher.answers() != answers {
            backoff.reset();
        }
        publisher.failed(&error);
        sleep(backoff.next(rand::random())).await;
    }
}

/// An address to which another host can send (Kubernetes' `ValidateNonSpecialIP`), which agents ask of endpoints. An IPv4
/// address in IPv6 form becomes the IPv4 address that it is.
///
/// # Errors
/// What else it is.
pub fn address(text: &str) -> Result<IpAddr, String> {
    let address = text.parse::<IpAddr>().map(|address| address.to_canonical());
    let address = address.map_err(|_| format!("{text:?} is not an IP address"))?;
    let special = match address {
        _ if address.is_unspecified() => "the unspecified address",
        _ if address.is_loopback() => "a loopback address",
        _ if address.is_multicast() => "a multicast address",
        IpAddr::V4(v4) if v4.is_broadcast() => "the broadcast address",
        IpAddr::V4(v4) if v4.is_link_local() => "a link-local address",
        IpAddr::V6(v6) if v6.is_unicast_link_local() => "a link-local address",
        _ => return Ok(address),
    };
    Err(format!("{address} is {special}; other hosts cannot send to it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_no_other_host_can_send_to_are_refused() {
        for wrong in ["0.0.0.0", "127.0.0.1", "::1", "224.0.0.1", "169.254.0.1", "fe80::1", "host.example"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
    }
}
