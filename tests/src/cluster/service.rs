//! A service as the tests use it: with every frontend, all protocols and both families.

use std::net::{IpAddr, SocketAddr};

use crate::lab::{Family, Host, Lab, ranges};

/// The port of every service, for TCP, UDP and SCTP.
pub const PORT: u16 = 80;
/// The port of the backends.
pub const TARGET_PORT: u16 = 8080;

/// A service. All its addresses are derived from its number.
#[derive(Debug, Clone)]
pub struct Service {
    /// Its name.
    pub name: &'static str,
    /// The last part of its addresses; its node port is 30000 more.
    pub number: u8,
    /// The hosts behind it.
    pub backends: Vec<&'static Host>,
}

/// The frontends of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frontend {
    /// Its cluster IP.
    ClusterIp,
    /// Its external IP.
    ExternalIp,
    /// The address of its load balancer.
    LoadBalancer,
    /// A port of this node.
    NodePort,
}

impl Frontend {
    /// All of them, for loops.
    pub const ALL: [Self; 4] = [
        Self::ClusterIp,
        Self::ExternalIp,
        Self::LoadBalancer,
        Self::NodePort,
    ];
}

impl Service {
    /// A service with these backends.
    pub fn new(name: &'static str, number: u8, backends: &[&'static Host]) -> Self {
        Self {
            name,
            number,
            backends: backends.to_vec(),
        }
    }

    /// Its node port.
    pub fn node_port(&self) -> u16 {
        30_000 + u16::from(self.number)
    }

    /// The address of a frontend.
    pub fn address(&self, lab: &Lab, frontend: Frontend, family: Family) -> SocketAddr {
        match frontend {
            Frontend::ClusterIp => SocketAddr::new(self.in_range(&ranges::SERVICES, family), PORT),
            Frontend::ExternalIp => {
                SocketAddr::new(self.in_range(&ranges::EXTERNAL_IPS, family), PORT)
            }
            Frontend::LoadBalancer => {
                SocketAddr::new(self.in_range(&ranges::LOAD_BALANCERS, family), PORT)
            }
            Frontend::NodePort => lab.node.host.socket(family, self.node_port()),
        }
    }

    /// Its two addresses in a range: both families.
    pub(super) fn addresses(&self, range: &crate::lab::Range) -> [String; 2] {
        Family::BOTH.map(|family| self.in_range(range, family).to_string())
    }

    fn in_range(&self, range: &crate::lab::Range, family: Family) -> IpAddr {
        range.address(family, self.number)
    }
}

/// The `addressType` of a family.
pub(super) const fn address_type(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// The name of the endpoint slice of one family.
pub(super) fn slice_name(service: &Service, family: Family) -> String {
    format!("{}-{}", service.name, address_type(family).to_lowercase())
}
