//! The addresses of the simulated node's interfaces. The node's own address stays; others come and go.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use rand::{RngExt as _, rngs::SmallRng};

use crate::{cluster::NODE_ADDRESS, expected::NODE_IPV6};

/// The range of addresses on which node ports answer besides the node's own address.
pub(crate) const NODE_PORT_RANGE: &str = "192.168.2.0/24";
/// Addresses that come and go; node ports answer on all but the last.
const OTHERS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(192, 168, 2, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 168, 2, 2)),
    IpAddr::V4(Ipv4Addr::new(192, 168, 3, 1)),
];

/// The addresses that come and go, as they are now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LocalAddresses(BTreeSet<IpAddr>);

impl LocalAddresses {
    /// One comes or goes.
    pub(crate) fn change(&mut self, rng: &mut SmallRng) {
        let address = OTHERS[rng.random_range(0..OTHERS.len())];
        if !self.0.remove(&address) {
            self.0.insert(address);
        }
    }

    /// All.
    pub(crate) fn all(&self) -> BTreeSet<IpAddr> {
        self.0
            .iter()
            .copied()
            .chain([NODE_ADDRESS, NODE_IPV6.into()])
            .collect()
    }

    /// Those of IPv4 on which node ports answer.
    pub(crate) fn with_node_ports(&self) -> BTreeSet<IpAddr> {
        let others = self
            .0
            .iter()
            .copied()
            .filter(|address| *address != OTHERS[2]);
        others.chain([NODE_ADDRESS]).collect()
    }
}
