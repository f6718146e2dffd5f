//! The addresses and node ports of services, as an API server allocates them: none to two services at once.

use std::collections::BTreeSet;

use rand::{RngExt as _, rngs::SmallRng};

use super::service::ServiceSpec;

/// How many cluster IPs, external addresses and node ports there are: so few that they soon move to another service.
const CLUSTER_IPS: u16 = 30;
const EXTERNAL_IPS: u16 = 24;
const NODE_PORTS: std::ops::Range<u16> = 30_000..30_064;

/// The numbers in use.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    cluster_ips: BTreeSet<u16>,
    external_ips: BTreeSet<u16>,
    node_ports: BTreeSet<u16>,
}

impl Pools {
    /// The numbers that these services use.
    pub(crate) fn used_by<'a>(services: impl IntoIterator<Item = &'a ServiceSpec>) -> Self {
        let mut pools = Self::default();
        for spec in services {
            pools.cluster_ips.insert(spec.cluster_ip);
            pools.external_ips.extend(spec.external_ip.into_iter().chain(spec.ingress_ip));
            pools.node_ports.extend(spec.ports.iter().map(|port| port.node_port));
        }
        pools
    }

    /// A free cluster IP; none if all are in use.
    pub(crate) fn free_cluster_ip(&self, rng: &mut SmallRng) -> Option<u16> {
        pick(0..CLUSTER_IPS, &self.cluster_ips, rng)
    }

    /// A free external address; none if all are in use.
    pub(crate) fn free_external_ip(&self, rng: &mut SmallRng) -> Option<u16> {
        pick(0..EXTERNAL_IPS, &self.external_ips, rng)
    }

    /// Free node ports, from a random one on.
    pub(crate) fn free_node_ports(&self, rng: &mut SmallRng) -> impl Iterator<Item = u16> {
        let start = rng.random_range(NODE_PORTS);
        let all = (start..NODE_PORTS.end).chain(NODE_PORTS.start..start);
        all.filter(|port| !self.node_ports.contains(port))
    }
}

fn pick(all: std::ops::Range<u16>, used: &BTreeSet<u16>, rng: &mut SmallRng) -> Option<u16> {
    let free: Vec<u16> = all.filter(|number| !used.contains(number)).collect();
    (!free.is_empty()).then(|| free[rng.random_range(0..free.len())])
}
