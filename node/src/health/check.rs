//! The content of a service's health check, and its changes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use contiv_model::{ChangeSet, ContivService, ServiceId};
use serde::Serialize;

/// The number of ready endpoints of a service on this node. Each address counts once for all its ports. Terminating ones do not
/// count, so that load balancers leave the node while they still serve (KEP-1669).
///
/// A load balancer may ask by the family that the service does not have, if the node has both: it gets the number of the family
/// that the service has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LocalEndpoints {
    /// What is answered at IPv4 addresses: those with an IPv4 address, if the service has that family.
    pub ipv4: usize,
    /// What is answered at IPv6 addresses.
    pub ipv6: usize,
}

/// The health check of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthCheck {
    /// Its port.
    pub port: u16,
    /// Its content.
    pub local_endpoints: LocalEndpoints,
}

/// Changes for the server of health checks. Each service occurs once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthUpdate {
    /// Services whose health check was added, changed, or removed (none).
    pub services: Vec<(ServiceId, Option<HealthCheck>)>,
    /// The addresses on which node ports answer, if they may have changed.
    pub node_ips: Option<BTreeSet<IpAddr>>,
}

impl LocalEndpoints {
    /// The local endpoints of a service.
    pub fn of(service: &ContivService) -> Self {
        let backends = service.ports.iter().flat_map(|port| &port.backends);
        // Those that the store says are ready: the load balancer asks for other nodes' clients too.
        let counted = backends.filter(|backend| backend.local && backend.state.is_ready());
        let addresses: BTreeSet<IpAddr> = counted.map(|backend| backend.address).collect();
        let ipv4 = addresses.iter().filter(|address| address.is_ipv4()).count();
        let ipv6 = addresses.len() - ipv4;
        let families: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        match families.map(|family| service.is_in_family_of(family)) {
            [true, false] => Self { ipv4, ipv6: ipv4 },
            [false, true] => Self { ipv4: ipv6, ipv6 },
            _ => Self { ipv4, ipv6 },
        }
    }

    /// The number for the family of this address: a load balancer that asks there sends traffic of this family.
    pub const fn in_family_of(self, address: IpAddr) -> usize {
        if address.is_ipv4() {
            self.ipv4
        } else {
            self.ipv6
        }
    }
}

impl HealthCheck {
    /// The health check of a service, if it has one.
    pub fn of(service: &ContivService) -> Option<Self> {
        let port = service.health_check_node_port?;
        Some(Self {
            port,
            local_endpoints: LocalEndpoints::of(service),
        })
    }
}

impl HealthUpdate {
    /// Adds a later update.
    pub fn merge(&mut self, later: Self) {
        let mut services: BTreeMap<_, _> = std::mem::take(&mut self.services).into_iter().collect();
        services.extend(later.services);
        self.services = services.into_iter().collect();
        self.node_ips = later.node_ips.or_else(|| self.node_ips.take());
    }

    /// The update that these changes require; none if they require none. Only changed services with a health check cost something.
    pub fn of(changes: &ChangeSet) -> Option<Self> {
        let check = |service: Option<&Arc<ContivService>>| {
            service.and_then(|service| HealthCheck::of(service))
        };
        let services = changes.services.iter().filter_map(|(id, change)| {
            let (old, new) = (check(change.old.as_ref()), check(change.new.as_ref()));
            (old != new).then(|| (id.clone(), new))
        });
        let services: Vec<_> = services.collect();
        let node_ips = changes.node.as_ref().map(|node| node.node_ips.clone());
        (!services.is_empty() || node_ips.is_some()).then_some(Self { services, node_ips })
    }
}

#[cfg(test)]
mod tests {
    use contiv_model::{Backend, BackendState, NodeFacts, Protocol, ServiceChange, ServicePort};

    use super::*;

    fn backend(endpoint: &str, local: bool, state: BackendState) -> Backend {
        Backend {
            local,
            state,
            ..Backend::new(endpoint.parse().unwrap())
        }
    }

    fn service(health_check_node_port: Option<u16>, ports: Vec<Vec<Backend>>) -> ContivService {
        let port = |(number, backends)| ServicePort {
            port: number,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends,
        };
        let ports = (80..).zip(ports).map(port).collect();
        ContivService {
            health_check_node_port,
            ports,
            ..ContivService::new(ServiceId::new("shop", "web"))
        }
    }

    fn changes(old: Option<ContivService>, new: Option<ContivService>) -> ChangeSet {
        let change = ServiceChange {
            old: old.map(Arc::new),
            new: new.map(Arc::new),
        };
        ChangeSet {
            services: [(ServiceId::new("shop", "web"), change)].into(),
            ..ChangeSet::default()
        }
    }

    #[test]
    fn local_ready_addresses_count_once_by_family() {
        use BackendState::{Failing, Ready, Terminating};
        let first = vec![
            backend("10.1.0.1:8080", true, Ready),
            backend("10.1.0.2:8080", true, Terminating),
            backend("10.1.1.3:8080", false, Ready),
            backend("10.1.0.5:8080", true, Failing),
            backend("[fd00::1]:8080", true, Ready),
            // Topology leaves it to other nodes, which does not affect traffic that stays on the node.
            Backend {
                in_topology: false,
                ..backend("10.1.0.4:8080", true, Ready)
            },
        ];
        let second = vec![
            backend("10.1.0.1:8443", true, Ready),
            backend("10.1.0.1:8444", true, Ready),
        ];
        let service = service(Some(32000), vec![first, second]);
        let expected = LocalEndpoints { ipv4: 3, ipv6: 1 };
        assert_eq!(
            HealthCheck::of(&service),
            Some(HealthCheck {
                port: 32000,
                local_endpoints: expected
            })
        );
        assert_eq!(expected.in_family_of("10.0.0.1".parse().unwrap()), 3);
        assert_eq!(expected.in_family_of("fd00::9".parse().unwrap()), 1);
    }

    #[test]
    fn family_that_the_service_lacks_reports_the_other_one() {
        let backends = ["10.1.0.1:80", "10.1.0.2:80", "[fd00::1]:80"];
        let backends = backends
            .map(|endpoint| backend(endpoint, true, BackendState::Ready))
            .to_vec();
        for (cluster_ips, ipv4, ipv6) in [
            (vec!["10.96.0.1"], 2, 2),
            (vec!["fd96::1"], 1, 1),
            (vec!["10.96.0.1", "fd96::1"], 2, 1),
            (vec![], 2, 1),
        ] {
            let cluster_ips = cluster_ips
                .into_iter()
                .map(|ip: &str| ip.parse().unwrap())
                .collect();
            let service = ContivService {
                cluster_ips,
                ..service(Some(32000), vec![backends.clone()])
            };
            assert_eq!(
                LocalEndpoints::of(&service),
                LocalEndpoints { ipv4, ipv6 },
                "{:?}",
                service.cluster_ips
            );
        }
    }

    #[test]
    fn update_is_sent_only_when_health_check_answer_changes() {
        let local = |address: &str| vec![backend(address, true, BackendState::Ready)];
        let with = |port, address| service(port, vec![local(address)]);
        let one = LocalEndpoints { ipv4: 1, ipv6: 0 };
        let check = |port| {
            Some(HealthCheck {
                port,
                local_endpoints: one,
            })
        };
        for (old, new, expected) in [
            (None, Some(with(Some(1), "10.1.0.1:80")), Some(check(1))),
            (Some(with(Some(1), "10.1.0.1:80")), None, Some(None)),
            (
                Some(with(Some(1), "10.1.0.1:80")),
                Some(with(None, "10.1.0.1:80")),
                Some(None),
            ),
            (
                Some(with(Some(1), "10.1.0.1:80")),
                Some(with(Some(2), "10.1.0.1:80")),
                Some(check(2)),
            ),
            (
                Some(with(Some(1), "10.1.0.1:80")),
                Some(with(Some(1), "10.1.0.2:80")),
                None,
            ),
            (None, Some(with(None, "10.1.0.1:80")), None),
        ] {
            let update = HealthUpdate::of(&changes(old, new));
            let services = update.map(|update| update.services);
            assert_eq!(
                services,
                expected.map(|check| vec![(ServiceId::new("shop", "web"), check)])
            );
        }
    }

    #[test]
    fn updates_merged_keep_the_later_value_of_each_field() {
        let check = |port| {
            Some(HealthCheck {
                port,
                local_endpoints: LocalEndpoints::default(),
            })
        };
        let id = |name: &str| ServiceId::new("shop", name);
        let node_ips = Some(["192.168.0.1".parse().unwrap()].into());
        let mut update = HealthUpdate {
            services: vec![(id("a"), check(1)), (id("b"), check(2))],
            node_ips: node_ips.clone(),
        };
        update.merge(HealthUpdate {
            services: vec![(id("b"), None), (id("c"), check(3))],
            node_ips: None,
        });
        let services = vec![(id("a"), check(1)), (id("b"), None), (id("c"), check(3))];
        assert_eq!(update, HealthUpdate { services, node_ips });
    }

    #[test]
    fn changed_node_ips_are_an_update() {
        let node_ips: BTreeSet<IpAddr> = ["192.168.0.1".parse().unwrap()].into();
        let node = Some(NodeFacts {
            node_ips: node_ips.clone(),
            ..NodeFacts::default()
        });
        let update = HealthUpdate::of(&ChangeSet {
            node,
            ..ChangeSet::default()
        });
        assert_eq!(
            update,
            Some(HealthUpdate {
                services: Vec::new(),
                node_ips: Some(node_ips)
            })
        );
    }
}
