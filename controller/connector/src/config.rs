//! The connector's file: where services go, and the registries they come from.
//!
//! ```toml
//! cluster-ip-ranges = ["10.97.0.0/16"]
//!
//! [[registries]]
//! name = "office"
//! consul = { url = "https://consul.example.org:8501", token-file = "/etc/contiv/consul-token" }
//! ```

mod check;
mod load;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use ipnetwork::IpNetwork;
use serde::{Deserialize, Deserializer, de::Error as _};
use thiserror::Error;

use crate::{
    Aggregator, ConnectorMetrics, HostNames, Parts,
    catalog::AppProtocol,
    plan::Target,
    registry::{
        HostLookup, NamedRegistry, Registry,
        consul::{Certificates, Consul, ConsulOptions},
        file::FileRegistry,
    },
};

/// Everything that is wrong with the file, each with its place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<String>);

/// The content of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConnectorConfig {
    /// The namespace of the stored services.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Whether to write nothing as long as the store has no such namespace.
    #[serde(default)]
    pub wait_for_namespace: bool,
    /// The ranges of cluster addresses, at most one per family.
    #[serde(default)]
    pub cluster_ip_ranges: Vec<IpNetwork>,
    /// The servers that host names are looked up with; without any, those of `/etc/resolv.conf`.
    #[serde(default)]
    pub name_servers: Vec<SocketAddr>,
    /// How often everything is compared again, without a change.
    #[serde(default = "default_sync_period", deserialize_with = "period")]
    pub sync_period: Duration,
    /// The sources of services. If two have a service of the same name, the first one gets the name.
    pub registries: Vec<RegistryConfig>,
}

/// One registry: what its services become, and one of `file`, `consul` and `dns`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RegistryConfig {
    /// Its name, which its services carry as a label.
    pub name: String,
    /// Comes before every name.
    #[serde(default)]
    pub prefix: String,
    /// Comes after every name.
    #[serde(default)]
    pub suffix: String,
    /// The tag whose value comes before the name of another service.
    #[serde(default)]
    pub prefix_tag: String,
    /// The tag whose value comes after the name of another service.
    #[serde(default)]
    pub suffix_tag: String,
    /// Only instances with this tag count.
    #[serde(default)]
    pub tag: String,
    /// Services with this tag are left out: they come from Kubernetes. Empty: none.
    #[serde(default = "default_exclude_tag")]
    pub exclude_tag: String,
    /// The treatment of instances that are registered by a host name.
    #[serde(default)]
    pub host_names: HostNames,
    /// The service port of services that do not set one.
    pub service_port: Option<u16>,
    /// The application protocol of main ports, for services that do not set one.
    #[serde(default)]
    pub app_protocol: AppProtocol,
    /// It is a file: this one.
    pub file: Option<PathBuf>,
    /// It is a Consul.
    pub consul: Option<ConsulConfig>,
    /// It is a DNS.
    pub dns: Option<DnsConfig>,
}

/// A Consul.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConsulConfig {
    /// Its URL.
    pub url: String,
    /// File with a token.
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) that its own is signed with.
    pub ca_file: Option<PathBuf>,
    /// This client's certificate (PEM).
    pub cert_file: Option<PathBuf>,
    /// The key (PEM) of that.
    pub key_file: Option<PathBuf>,
    /// The queried datacenter.
    pub datacenter: Option<String>,
    /// Whether only instances whose checks all pass get traffic.
    pub passing_only: Option<bool>,
    /// How long a query waits for a change.
    #[serde(default, deserialize_with = "duration")]
    pub wait: Option<Duration>,
    /// How many queries for instances may wait at once.
    pub connections: Option<usize>,
}

/// A DNS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DnsConfig {
    /// The servers to ask; without any, those of `/etc/resolv.conf`.
    #[serde(default)]
    pub servers: Vec<SocketAddr>,
    /// The names of services, and those of their SRV records.
    pub services: BTreeMap<String, String>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// The tag that consul-k8s gives to services that it syncs from Kubernetes.
fn default_exclude_tag() -> String {
    "k8s".to_owned()
}

const fn default_sync_period() -> Duration {
    Duration::from_secs(600)
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    period(deserializer).map(Some)
}

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(|error| {
        D::Error::custom(format!(
            "{text:?} is not a duration: {error}; write one as in 30s or 5m"
        ))
    })
}

impl ConnectorConfig {
    /// The parts of the connector with this configuration, which has been checked.
    pub fn parts(&self, metrics: ConnectorMetrics) -> Parts {
        let target = Target {
            namespace: self.namespace.clone(),
            cluster_ip_ranges: self.cluster_ip_ranges.clone(),
        };
        let registries = self
            .registries
            .iter()
            .map(|registry| (registry.registry(), registry.aggregator()));
        Parts {
            target,
            wait_for_namespace: self.wait_for_namespace,
            sync_period: self.sync_period,
            registries: registries.collect(),
            host_lookup: self.host_lookup(),
            metrics,
        }
    }
}

impl ConnectorConfig {
    #[cfg(feature = "dns")]
    fn host_lookup(&self) -> Option<Arc<dyn HostLookup>> {
        let is_needed = self
            .registries
            .iter()
            .any(|registry| registry.host_names == HostNames::Resolve);
        let servers = self.name_servers.clone();
        is_needed
            .then(|| Arc::new(crate::registry::dns::DnsHosts::new(servers)) as Arc<dyn HostLookup>)
    }

    #[cfg(not(feature = "dns"))]
    #[expect(clippy::unused_self, reason = "with the feature it is asked")]
    const fn host_lookup(&self) -> Option<Arc<dyn HostLookup>> {
        None
    }
}

impl RegistryConfig {
    fn aggregator(&self) -> Aggregator {
        Aggregator {
            prefix: self.prefix.clone(),
            suffix: self.suffix.clone(),
            prefix_tag: self.prefix_tag.clone(),
            suffix_tag: self.suffix_tag.clone(),
            tag: self.tag.clone(),
            exclude_tag: self.exclude_tag.clone(),
            host_names: self.host_names,
            service_port: self.service_port,
            app_protocol: self.app_protocol,
        }
    }

    fn registry(&self) -> NamedRegistry {
        let registry: Arc<dyn Registry> = match (&self.consul, &self.dns) {
            (Some(consul), _) => {
                Arc::new(Consul::new(consul.options(&self.tag, &self.exclude_tag)))
            }
            #[cfg(feature = "dns")]
            (None, Some(DnsConfig { servers, services })) => {
                let (services, servers) = (services.clone(), servers.clone());
                Arc::new(crate::registry::dns::Dns::new(
                    crate::registry::dns::DnsOptions { services, servers },
                ))
            }
            _ => Arc::new(FileRegistry::new(self.file.clone().unwrap_or_default())),
        };
        NamedRegistry {
            name: self.name.clone(),
            registry,
        }
    }
}

impl ConsulConfig {
    fn options(&self, tag: &str, exclude_tag: &str) -> ConsulOptions {
        let default = ConsulOptions::new(&self.url);
        ConsulOptions {
            token_file: self.token_file.clone(),
            certificates: Certificates {
                ca_file: self.ca_file.clone(),
                client: self.cert_file.clone().zip(self.key_file.clone()),
            },
            datacenter: self.datacenter.clone(),
            tag: tag.to_owned(),
            exclude_tag: exclude_tag.to_owned(),
            passing_only: self.passing_only.unwrap_or(default.passing_only),
            wait: self.wait.unwrap_or(default.wait),
            connections: self.connections.unwrap_or(default.connections),
            ..default
        }
    }
}
