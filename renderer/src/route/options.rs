//! The options of the route renderer.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::nexthop::Grouping;

/// The options of direct mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectOptions {
    /// The routing table with the routes to backends. A rule before the main table points to it.
    pub table: u32,
    /// How flows are distributed to backends.
    pub grouping: Grouping,
}

/// A kind of service addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressKind {
    /// Cluster IPs.
    Cluster,
    /// External IPs, as the author of the service gave them.
    External,
    /// Addresses of its load balancer.
    LoadBalancer,
}

impl AddressKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::External, Self::LoadBalancer];

    const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::External => "external",
            Self::LoadBalancer => "load-balancer",
        }
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that is not a kind of address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not one of cluster, external, load-balancer")]
pub struct UnknownAddressKind(String);

impl FromStr for AddressKind {
    type Err = UnknownAddressKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| UnknownAddressKind(text.to_owned()))
    }
}

/// A set of kinds of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddressKinds([bool; AddressKind::ALL.len()]);

impl AddressKinds {
    /// True if this kind is in the set.
    pub const fn contains(self, kind: AddressKind) -> bool {
        self.0[kind as usize]
    }
}

impl FromIterator<AddressKind> for AddressKinds {
    fn from_iter<T: IntoIterator<Item = AddressKind>>(kinds: T) -> Self {
        let mut set = Self::default();
        for kind in kinds {
            set.0[kind as usize] = true;
        }
        set
    }
}

/// The options of the route renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteOptions {
    /// Addresses that are advertised to the network.
    pub advertise: AddressKinds,
    /// The table that routing daemons read. The kernel does not use it.
    pub advertise_table: u32,
    /// Makes service addresses reachable from the node itself, independent of its other routes.
    pub reach_from_node: bool,
    /// The table with the routes for that. A rule after all others selects it.
    pub node_table: u32,
    /// Options of services that routes carry.
    pub direct: DirectOptions,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self {
            advertise: [AddressKind::External, AddressKind::LoadBalancer]
                .into_iter()
                .collect(),
            advertise_table: 67,
            reach_from_node: true,
            node_table: 68,
            direct: DirectOptions {
                table: 69,
                grouping: Grouping::Resilient { idle: 120 },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_name_round_trips_and_set_holds_its_members() {
        for kind in AddressKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let set = AddressKinds::from_iter([kind]);
            assert!(
                AddressKind::ALL
                    .into_iter()
                    .all(|other| set.contains(other) == (other == kind))
            );
        }
        assert!(
            "loadbalancer"
                .parse::<AddressKind>()
                .unwrap_err()
                .to_string()
                .contains("load-balancer")
        );
    }
}
