//! The addresses and node ports of services, as an API server allocates them: none to two services at once.

use std::collections::BTreeSet;

use rand::{RngExt as _, rngs::SmallRng};

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
    /// Notes the numbers that a service uses.
    pub(crate) fn add(
        &mut self,
        cluster_ip: u16,
        external_ips: impl IntoIterator<Item = u16>,
        node_ports: impl IntoIterator<Item = u16>,
    ) {
        self.cluster_ips.insert(cluster_ip);
        self.external_ips.extend(external_ips);
        self.node_ports.extend(node_ports);
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
