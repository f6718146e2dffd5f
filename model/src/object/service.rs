//! A service, decoded from the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnetwork::IpNetwork;
use serde::Serialize;

use super::ServiceOptions;
use crate::{Addresses, Protocol, ServiceId, TrafficPolicy};

/// The addresses of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum ServiceType {
    /// On its cluster addresses.
    #[default]
    ClusterIp,
    /// On a port of every node too.
    NodePort,
    /// On the addresses of a load balancer too.
    LoadBalancer,
    /// An alias in DNS: proxies ignore it.
    ExternalName,
}

/// A service as its author and the cluster describe it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Namespace and name.
    pub id: ServiceId,
    /// Its addresses.
    pub service_type: ServiceType,
    /// `cluster_ip` is "None": clients find the backends by DNS, without a proxy.
    pub headless: bool,
    /// At most one per family.
    pub cluster_ips: Addresses,
    /// As the author of the service gave them.
    pub external_ips: Addresses,
    /// Load-balancer addresses that every node answers for (ingress of mode VIP).
    pub load_balancer_ips: Addresses,
    /// Sources that may use the load balancer's addresses, as the author wrote them, without host bits.
    pub source_ranges: BTreeSet<IpNetwork>,
    /// The port on which nodes answer health checks of the load balancer: whether they have local backends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check_node_port: Option<u16>,
    /// No two with the same port and protocol, nor with the same node port and protocol.
    pub ports: Vec<ServicePortSpec>,
    /// For traffic to external addresses and node ports.
    pub external_policy: TrafficPolicy,
    /// For traffic to cluster addresses.
    pub internal_policy: TrafficPolicy,
    /// Seconds a client stays with its backend; 0 means no affinity.
    pub session_affinity_timeout: u32,
    /// Options set by annotation.
    pub options: ServiceOptions,
    /// Labels, for selectors.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Value of the label `service.kubernetes.io/service-proxy-name`: another proxy serves this service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_name: Option<Arc<str>>,
    /// Decides which of two claims on one frontend is the older.
    pub seniority: Seniority,
}

/// A port as the author of the service describes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ServicePortSpec {
    /// On cluster and external addresses.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// The name that endpoints use for the port. Empty for a service's only port.
    pub name: Arc<str>,
    /// On the addresses of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_port: Option<u16>,
}

/// Age of a service. The older, the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Seniority {
    /// Seconds since 1970 in UTC. [`Seniority::UNKNOWN`], the newest, if the object has no creation time.
    created: i64,
    /// The store's revision that created the object: orders services of the same second.
    create_revision: i64,
}

impl Seniority {
    /// The creation time of a service without one: newer than any other.
    pub const UNKNOWN: i64 = i64::MAX;

    /// At least as old as any other.
    pub(crate) const OLDEST: Self = Self {
        created: i64::MIN,
        create_revision: i64::MIN,
    };

    /// From the creation time in seconds since 1970 (none if unknown) and the store's creation revision.
    pub const fn new(created: Option<i64>, create_revision: i64) -> Self {
        let created = match created {
            Some(created) => created,
            None => Self::UNKNOWN,
        };
        Self {
            created,
            create_revision,
        }
    }
}
