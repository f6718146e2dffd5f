//! The content of a registry: source services and their instances.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use serde::Deserialize;

/// The services of a registry, by name. `None`: the service is listed, but its instances are not known yet; its stored objects
/// stay as they are.
pub type Catalog = BTreeMap<String, Option<Arc<SourceService>>>;

/// The addresses of each host name that was looked up.
pub type ResolvedHosts = BTreeMap<String, BTreeSet<IpAddr>>;

/// One service of a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceService {
    /// All registered instances, including those that are not ready. A set, since the order of answers does not matter.
    pub instances: BTreeSet<Instance>,
    /// Instances that are registered by a host name.
    pub hosts: BTreeSet<Instance<String>>,
    /// The port for clients. `None`: clients use the ports of the instances.
    pub service_port: Option<u16>,
    /// The application protocol of the main port. `None`: the registry's default.
    pub app_protocol: Option<AppProtocol>,
    /// Requested cluster addresses, at most one per family.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// Annotations for the stored services, such as `contiv.io/balance`.
    pub annotations: BTreeMap<String, String>,
    /// Unusable registrations, with the reason: a line each.
    pub unusable: BTreeSet<String>,
}

/// One serving process, by its address or by its host name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance<A = IpAddr> {
    /// Its address, or its host name.
    pub address: A,
    /// Its main port.
    pub port: u16,
    /// The transport protocol of its ports.
    pub protocol: Protocol,
    /// Whether it may get traffic.
    pub ready: bool,
    /// Its tags in the registry: `canary`, `gRPC.port=9090`, …
    pub tags: BTreeSet<String>,
}

impl Instance {
    /// A ready instance with TCP and without tags.
    pub const fn new(address: IpAddr, port: u16) -> Self {
        Self {
            address,
            port,
            protocol: Protocol::Tcp,
            ready: true,
            tags: BTreeSet::new(),
        }
    }
}

impl<A> Instance<A> {
    /// The same instance with another address.
    pub fn with_address<B>(self, address: B) -> Instance<B> {
        let Self {
            port,
            protocol,
            ready,
            tags,
            ..
        } = self;
        Instance {
            address,
            port,
            protocol,
            ready,
            tags,
        }
    }
}

/// Transport protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl fmt::Display for Protocol {
    /// The spelling of stored objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// The application protocol of a port. flomesh's `MicroSvcAppProtocol` has only the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppProtocol {
    /// HTTP, flomesh's default for every main port.
    #[default]
    Http,
    /// gRPC.
    Grpc,
    /// Another protocol, which is not stored.
    Other,
}

impl AppProtocol {
    /// The value of `app_protocol` in a stored port; empty for [`AppProtocol::Other`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Other => "",
        }
    }
}
