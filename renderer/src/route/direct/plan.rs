//! The route targets of a service's addresses on this node. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use contiv_model::{Backend, ContivService, NodeFacts, TrafficPolicy};

use crate::route::plan::is_routable;

/// The target of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::route) enum RouteTarget {
    /// To these backends.
    Backends {
        /// All of them are on this node.
        local: bool,
        /// Their weights.
        weights: BTreeMap<IpAddr, u32>,
    },
    /// To this node itself, which is a backend.
    Local,
    /// Unreachable: there is no backend, and clients get an error.
    Unreachable,
    /// Dropped: the policy allows no backend, and clients should try again elsewhere.
    Blackhole,
    /// No route is possible: the address is this node's own, or no host's.
    Impossible,
}

impl RouteTarget {
    /// True if connections reach a backend.
    pub(super) const fn reaches_backend(&self) -> bool {
        match self {
            Self::Backends { .. } | Self::Local => true,
            Self::Unreachable | Self::Blackhole | Self::Impossible => false,
        }
    }
}

/// The target of each address of the service.
///
/// On a node with a backend, traffic for a service stays there, independent of topology, because the node that forwarded it has
/// no backend itself: otherwise two nodes could forward it to each other. Source: Contiv's `ipv6route` renderer.
pub(in crate::route) fn targets(
    service: &ContivService,
    node: &NodeFacts,
) -> BTreeMap<IpAddr, RouteTarget> {
    // As in Kubernetes, a service has the families of its cluster IPs; one without any has both.
    let clusters = &service.cluster_ips;
    let is_in_family = |ip: &IpAddr| {
        clusters.is_empty() || clusters.iter().any(|other| other.is_ipv4() == ip.is_ipv4())
    };
    let external = service
        .external_ips
        .iter()
        .filter(|ip| is_in_family(ip) && !clusters.contains(*ip));
    let of_cluster = clusters.iter().map(|ip| (*ip, service.internal_policy));
    let all = of_cluster.chain(external.map(|ip| (*ip, service.external_policy)));
    all.map(|(address, policy)| (address, target(service, node, address, policy)))
        .collect()
}

fn target(
    service: &ContivService,
    node: &NodeFacts,
    address: IpAddr,
    policy: TrafficPolicy,
) -> RouteTarget {
    if node.is_local_address(address) || !is_routable(address) {
        return RouteTarget::Impossible;
    }
    let backends = service.ports.iter().flat_map(|port| &port.backends);
    let of_family: Vec<&Backend> = backends
        .filter(|backend| backend.address.is_ipv4() == address.is_ipv4())
        .collect();
    // No route depends on whether a backend answers this node's clients: only nftables watches that.
    let of = |is_ready, local| {
        let chosen = of_family.iter().copied();
        let chosen =
            chosen.filter(|backend| backend.state.is_ready() == is_ready && backend.local == local);
        let (preferred, others): (Vec<&Backend>, Vec<_>) =
            chosen.partition(|backend| local || backend.in_topology);
        if preferred.is_empty() {
            others
        } else {
            preferred
        }
    };
    let order = match policy {
        TrafficPolicy::Cluster => vec![(true, true), (true, false), (false, true), (false, false)],
        TrafficPolicy::Local => vec![(true, true), (false, true)],
    };
    let chosen = order
        .into_iter()
        .map(|(is_ready, local)| of(is_ready, local))
        .find(|chosen| !chosen.is_empty());
    match chosen {
        None if of_family.is_empty() => RouteTarget::Unreachable,
        None => RouteTarget::Blackhole,
        Some(chosen) if chosen.iter().any(|backend| is_this_node(backend, node)) => {
            RouteTarget::Local
        }
        Some(chosen) => {
            // All ports have the same backends.
            let weights = chosen
                .iter()
                .map(|backend| (backend.address, u32::from(backend.weight.max(1))));
            RouteTarget::Backends {
                local: chosen.iter().all(|backend| backend.local),
                weights: weights.collect(),
            }
        }
    }
}

fn is_this_node(backend: &Backend, node: &NodeFacts) -> bool {
    backend.local && backend.host_network || node.is_local_address(backend.address)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contiv_model::{BackendState, Protocol, ServiceId, ServicePort, Snapshot};
    use contiv_model_testing::mirror;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn backend(address: &str, local: bool, state: BackendState) -> Backend {
        Backend {
            local,
            state,
            ..Backend::new((ip(address), 80).into())
        }
    }

    /// With a cluster IP and an external one.
    fn service(backends: Vec<Backend>) -> ContivService {
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: Arc::from(""),
            node_port: None,
            backends,
        };
        ContivService {
            cluster_ips: [ip("10.96.0.1")].into(),
            external_ips: ["198.51.100.1", "2001:db8::1"].map(ip).into(),
            ports: vec![port],
            ..ContivService::new(ServiceId::new("default", "web"))
        }
    }

    /// The target of the cluster IP, of which that of the mirror image is one.
    fn of(backends: Vec<Backend>) -> RouteTarget {
        let service = service(backends);
        let services = [(service.id.clone(), Arc::new(service.clone()))].into();
        let image = mirror::snapshot(&Snapshot {
            services,
            ..Snapshot::default()
        });
        let of_image = image
            .services
            .values()
            .map(|service| targets(service, &NodeFacts::default()));
        let of_image: Vec<_> = of_image.collect();
        let mut targets = targets(&service, &NodeFacts::default());
        let expected = targets.iter().map(|(address, target)| {
            let target = match target.clone() {
                RouteTarget::Backends { local, weights } => {
                    let weights = weights
                        .into_iter()
                        .map(|(of, weight)| (mirror::address(of), weight));
                    RouteTarget::Backends {
                        local,
                        weights: weights.collect(),
                    }
                }
                other => other,
            };
            (mirror::address(*address), target)
        });
        assert_eq!(of_image, [expected.collect::<BTreeMap<_, _>>()]);
        targets.remove(&ip("10.96.0.1")).unwrap()
    }

    /// Backends in 10.1.0.0/16 are on this node.
    fn to(addresses: &[(&str, u32)]) -> RouteTarget {
        let weights = addresses
            .iter()
            .map(|(address, weight)| (ip(address), *weight))
            .collect();
        RouteTarget::Backends {
            local: addresses
                .iter()
                .all(|(address, _)| address.starts_with("10.1.")),
            weights,
        }
    }

    #[test]
    fn local_backends_come_first_and_ready_before_terminating() {
        use BackendState::{Ready, Terminating};
        let all = [
            backend("10.1.0.1", true, Ready),
            backend("10.2.0.1", false, Ready),
            backend("10.1.0.2", true, Terminating),
            backend("10.2.0.2", false, Terminating),
        ];
        for first in 0..4 {
            let backends = all[first..].to_vec();
            let expected = backends[0].address.to_string();
            assert_eq!(of(backends), to(&[(&expected, 1)]));
        }
        assert_eq!(of(vec![]), RouteTarget::Unreachable);
    }

    #[test]
    fn local_backend_is_used_even_if_topology_excludes_it() {
        let here = Backend {
            in_topology: false,
            ..backend("10.1.0.1", true, BackendState::Ready)
        };
        let there = backend("10.2.0.1", false, BackendState::Ready);
        let elsewhere = Backend {
            in_topology: false,
            ..backend("10.2.0.2", false, BackendState::Ready)
        };
        let both = vec![there.clone(), elsewhere.clone()];
        assert_eq!(
            of(vec![here, there, elsewhere.clone()]),
            to(&[("10.1.0.1", 1)])
        );
        assert_eq!(
            of(both),
            to(&[("10.2.0.1", 1)]),
            "between other nodes topology decides"
        );
        assert_eq!(of(vec![elsewhere]), to(&[("10.2.0.2", 1)]));
    }

    #[test]
    fn failing_backends_are_ready_for_routes() {
        use BackendState::{Failing, Ready, Terminating};
        let here = |state| backend("10.1.0.1", true, state);
        let there = backend("10.2.0.1", false, Ready);
        let other = backend("10.1.0.2", true, Terminating);
        for state in [Ready, Failing] {
            assert_eq!(
                of(vec![here(state), there.clone(), other.clone()]),
                to(&[("10.1.0.1", 1)])
            );
        }
    }

    #[test]
    fn weights_are_those_of_backends() {
        let heavy = Backend {
            weight: 3,
            ..backend("10.1.0.1", true, BackendState::Ready)
        };
        let light = backend("10.1.0.2", true, BackendState::Ready);
        assert_eq!(
            of(vec![heavy, light]),
            to(&[("10.1.0.1", 3), ("10.1.0.2", 1)])
        );
    }

    #[test]
    fn external_policy_local_without_local_backend_is_a_blackhole() {
        let mut service = service(vec![backend("10.2.0.1", false, BackendState::Ready)]);
        service.external_policy = TrafficPolicy::Local;
        let targets = targets(&service, &NodeFacts::default());
        assert_eq!(targets[&ip("10.96.0.1")], to(&[("10.2.0.1", 1)]));
        assert_eq!(targets[&ip("198.51.100.1")], RouteTarget::Blackhole);
        assert!(
            !targets.contains_key(&ip("2001:db8::1")),
            "not a family of the service"
        );
    }

    #[test]
    fn policy_local_uses_terminating_local_backends_before_none() {
        use BackendState::{Ready, Terminating};
        let all = [
            backend("10.1.0.1", true, Ready),
            backend("10.1.0.2", true, Terminating),
            backend("10.2.0.1", false, Ready),
            backend("10.2.0.2", false, Terminating),
        ];
        let (cluster_ip, external_ip) = (ip("10.96.0.1"), ip("198.51.100.1"));
        let expected = [
            to(&[("10.1.0.1", 1)]),
            to(&[("10.1.0.2", 1)]),
            RouteTarget::Blackhole,
        ];
        for (first, local) in expected.into_iter().enumerate() {
            for address in [cluster_ip, external_ip] {
                let mut service = service(all[first..].to_vec());
                let policy = if address == cluster_ip {
                    &mut service.internal_policy
                } else {
                    &mut service.external_policy
                };
                *policy = TrafficPolicy::Local;
                let mut targets = targets(&service, &NodeFacts::default());
                assert_eq!(
                    targets.remove(&address),
                    Some(local.clone()),
                    "{address} without {first}"
                );
            }
        }
    }

    #[test]
    fn backend_on_network_of_this_node_is_this_node() {
        let host = |local| Backend {
            host_network: true,
            ..backend("192.0.2.1", local, BackendState::Ready)
        };
        assert_eq!(of(vec![host(true)]), RouteTarget::Local);
        assert_eq!(of(vec![host(false)]), to(&[("192.0.2.1", 1)]));
    }

    #[test]
    fn address_of_this_node_cannot_be_routed() {
        let node = NodeFacts {
            local_ips: [ip("10.96.0.1")].into(),
            ..NodeFacts::default()
        };
        let targets = targets(&service(vec![]), &node);
        assert_eq!(targets[&ip("10.96.0.1")], RouteTarget::Impossible);
        assert_eq!(targets[&ip("198.51.100.1")], RouteTarget::Unreachable);
    }
}
