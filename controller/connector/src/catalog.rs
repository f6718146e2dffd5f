//! What a registry says: source services, and the instances behind them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use serde::Deserialize;

/// Everything one registry says, by the names it uses. A service without a value is listed by the registry, but what is
/// behind it is not known yet: whatever is stored of it stays as it is.
pub type Catalog = BTreeMap<String, Option<Arc<SourceService>>>;

/// One service of a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceService {
    /// All instances that are registered, the ones that are not ready too. A set: the order of answers means nothing.
    pub instances: BTreeSet<Instance>,
    /// The port that clients use; none for the ports of the instances.
    pub service_port: Option<u16>,
    /// What is spoken on the main port; none for what its registry is configured with.
    pub app_protocol: Option<AppProtocol>,
    /// Cluster addresses that are asked for, at most one per family.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// Annotations for the stored services, such as `contiv.io/balance`.
    pub annotations: BTreeMap<String, String>,
    /// What is registered and cannot be used, with the reason: a line each.
    pub unusable: BTreeSet<String>,
}

/// One process that serves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Where it is.
    pub address: IpAddr,
    /// Its main port.
    pub port: u16,
    /// The transport protocol of its ports.
    pub protocol: Protocol,
    /// Whether it may get traffic.
    pub ready: bool,
    /// What the registry says of it: `canary`, `gRPC.port=9090`, …
    pub tags: BTreeSet<String>,
}

impl Instance {
    /// One that is ready, speaks TCP, and has no tags.
    pub const fn new(address: IpAddr, port: u16) -> Self {
        Self { address, port, protocol: Protocol::Tcp, ready: true, tags: BTreeSet::new() }
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
    /// As stored objects have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// What is spoken on a port (flomesh's `MicroSvcAppProtocol`, and neither of its two).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppProtocol {
    /// HTTP, as flomesh takes every main port to be.
    #[default]
    Http,
    /// gRPC.
    Grpc,
    /// Something else: nothing is said of it.
    Other,
}

impl AppProtocol {
    /// The value of `app_protocol`; empty if nothing is said.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Other => "",
        }
    }
}
