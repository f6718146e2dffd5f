//! How new connections are spread over the backends of services, beside how they should be. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use contiv_model::{
    Backend, ContivService, Frontend, Protocol, ServiceId, ServicePort, TrafficPolicy,
};
use contiv_renderer::nftables::NewConnections;
use serde::Serialize;

use crate::flows::FrontendIndex;

/// The new connections of a backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendShare {
    /// The service.
    pub service: ServiceId,
    /// Its port.
    pub port: u16,
    /// The protocol of the port.
    pub protocol: Protocol,
    /// The backend.
    pub backend: SocketAddr,
    /// The connections that were sent to it.
    pub new_connections: u64,
    /// Its part of the connections of this port and address family, from 0 to 1, as they were counted.
    pub actual: f64,
    /// The same by the weights of the backends that each frontend chooses among; 0 if none chooses it.
    pub wanted: f64,
}

/// A port of a service in one family; IPv6 comes after IPv4.
type Group = (ServiceId, u16, Protocol, bool);

/// What was counted in a group.
#[derive(Debug, Default)]
struct Counted {
    by_backend: BTreeMap<SocketAddr, u64>,
    /// The expected connections of each backend.
    expected: BTreeMap<SocketAddr, f64>,
    total: u64,
}

/// The shares of all backends of those ports that had new connections, of services that are wanted, in the order of services, ports and
/// backends. Connections that no service has now count nowhere. Through an external frontend with policy Local, those to backends of
/// other nodes came from inside the cluster, and count nowhere either: the kernel does not tell them from others.
pub fn shares(
    counted: &[NewConnections],
    index: &FrontendIndex,
    is_wanted: impl Fn(&ServiceId) -> bool,
) -> Vec<BackendShare> {
    let mut by_frontend: BTreeMap<(Protocol, SocketAddr), Vec<&NewConnections>> = BTreeMap::new();
    for one in counted {
        let frontend = (one.protocol, one.destination);
        by_frontend.entry(frontend).or_default().push(one);
    }
    let mut groups: BTreeMap<Group, Counted> = BTreeMap::new();
    for ((protocol, destination), counted) in by_frontend {
        let Some((frontend, service)) = index.find(protocol, destination) else {
            continue;
        };
        if let Some(port) = port_of(service, frontend)
            && is_wanted(&service.id)
        {
            let is_ipv4 = destination.is_ipv4();
            let group = (service.id.clone(), port.port, port.protocol, !is_ipv4);
            let group = groups
                .entry(group)
                .or_insert_with(|| Counted::of(port, is_ipv4));
            let is_local = policy(service, frontend) == TrafficPolicy::Local;
            group.add(port, is_ipv4, is_local, &counted);
        }
    }
    let shares_of = |((service, port, protocol, _), counted): (Group, Counted)| {
        let share = move |(backend, count): (SocketAddr, u64)| {
            let expected = counted.expected.get(&backend).copied().unwrap_or_default();
            BackendShare {
                service: service.clone(),
                port,
                protocol,
                backend,
                new_connections: count,
                actual: ratio(count, counted.total),
                wanted: expected / as_f64(counted.total.max(1)),
            }
        };
        counted
            .by_backend
            .into_iter()
            .map(share)
            .collect::<Vec<_>>()
    };
    groups.into_iter().flat_map(shares_of).collect()
}

impl Counted {
    /// No connections of any backend.
    fn of(port: &ServicePort, is_ipv4: bool) -> Self {
        let alike = port.backends.iter().map(Backend::endpoint);
        let alike = alike.filter(|backend| backend.is_ipv4() == is_ipv4);
        Self {
            by_backend: alike.map(|backend| (backend, 0)).collect(),
            ..Self::default()
        }
    }

    /// Adds the connections of a frontend. A backend that is gone has its part too: its connections are a part of the whole.
    fn add(
        &mut self,
        port: &ServicePort,
        is_ipv4: bool,
        is_local: bool,
        counted: &[&NewConnections],
    ) {
        let mut chosen = if is_local {
            port.local_backends()
        } else {
            port.cluster_backends()
        };
        chosen.retain(|backend| backend.address.is_ipv4() == is_ipv4);
        let others: BTreeSet<SocketAddr> = port
            .backends
            .iter()
            .filter(|backend| is_local && !backend.local)
            .map(Backend::endpoint)
            .collect();
        let mut total = 0;
        for one in counted.iter().filter(|one| !others.contains(&one.backend)) {
            *self.by_backend.entry(one.backend).or_default() += one.count;
            total += one.count;
        }
        self.total += total;
        let weights: u64 = chosen.iter().map(|backend| u64::from(backend.weight)).sum();
        for backend in chosen {
            let share = ratio(u64::from(backend.weight), weights);
            *self.expected.entry(backend.endpoint()).or_default() += share * as_f64(total);
        }
    }
}

fn port_of(service: &ContivService, frontend: Frontend) -> Option<&ServicePort> {
    service.ports.iter().find(|of| match frontend {
        Frontend::Address { protocol, port, .. } => (of.protocol, of.port) == (protocol, port),
        Frontend::NodePort { protocol, port } => {
            of.protocol == protocol && of.node_port == Some(port)
        }
    })
}

fn policy(service: &ContivService, frontend: Frontend) -> TrafficPolicy {
    match frontend {
        Frontend::Address { address, .. } if service.cluster_ips.contains(&address) => {
            service.internal_policy
        }
        _ => service.external_policy,
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    as_f64(part) / as_f64(whole.max(1))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "connections of an hour are far below 2^52"
)]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contiv_model::Snapshot;

    use super::*;

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn backend(text: &str, local: bool, weight: u16) -> Backend {
        Backend {
            local,
            weight,
            ..Backend::new(end(text))
        }
    }

    /// A service with a backend of this node of weight 3, and one of another of weight 1; from outside only the first is chosen.
    fn service() -> ContivService {
        ContivService {
            cluster_ips: ["10.96.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into(),
            external_ips: ["192.0.2.1".parse().unwrap()].into(),
            external_policy: TrafficPolicy::Local,
            ports: vec![ServicePort {
                port: 80,
                protocol: Protocol::Tcp,
                name: "".into(),
                node_port: Some(30080),
                backends: vec![
                    backend("10.0.0.1:8080", true, 3),
                    backend("10.0.0.2:8080", false, 1),
                    backend("[fd01::1]:8080", false, 1),
                ],
            }],
            ..ContivService::new(ServiceId::new("shop", "web"))
        }
    }

    fn index() -> FrontendIndex {
        let mut snapshot = Snapshot::default();
        let service = service();
        snapshot
            .services
            .insert(service.id.clone(), Arc::new(service));
        snapshot.node.node_ips.insert("192.0.2.9".parse().unwrap());
        FrontendIndex::new(snapshot)
    }

    fn new(destination: &str, backend: &str, count: u64) -> NewConnections {
        NewConnections {
            protocol: Protocol::Tcp,
            destination: end(destination),
            backend: end(backend),
            count,
        }
    }

    /// Backend, new connections, and both shares in percent.
    fn shown(counted: &[NewConnections]) -> Vec<(String, u64, f64, f64)> {
        let percent = |share: f64| (share * 100.0).round();
        shares(counted, &index(), |_| true)
            .into_iter()
            .map(|of| {
                let (actual, wanted) = (percent(of.actual), percent(of.wanted));
                (of.backend.to_string(), of.new_connections, actual, wanted)
            })
            .collect()
    }

    #[test]
    fn share_is_wanted_by_weight_within_each_family() {
        let counted = [
            new("10.96.0.1:80", "10.0.0.1:8080", 60),
            new("10.96.0.1:80", "10.0.0.2:8080", 40),
            new("[fd00::1]:80", "[fd01::1]:8080", 7),
        ];
        let expected = [
            ("10.0.0.1:8080".to_owned(), 60, 60.0, 75.0),
            ("10.0.0.2:8080".to_owned(), 40, 40.0, 25.0),
            ("[fd01::1]:8080".to_owned(), 7, 100.0, 100.0),
        ];
        assert_eq!(shown(&counted), expected);
    }

    #[test]
    fn frontends_of_a_port_add_up_each_with_its_policy() {
        let counted = [
            new("10.96.0.1:80", "10.0.0.1:8080", 50),
            new("10.96.0.1:80", "10.0.0.2:8080", 50),
            // From outside all go to the backend of this node.
            new("192.0.2.1:80", "10.0.0.1:8080", 60),
            new("192.0.2.9:30080", "10.0.0.1:8080", 40),
            // From inside, which cannot be told from outside but by the backend.
            new("192.0.2.1:80", "10.0.0.2:8080", 5),
        ];
        let expected = [
            ("10.0.0.1:8080".to_owned(), 150, 75.0, 88.0),
            ("10.0.0.2:8080".to_owned(), 50, 25.0, 13.0),
        ];
        assert_eq!(shown(&counted), expected);
    }

    #[test]
    fn backend_that_is_gone_has_its_part_and_unknown_frontends_none() {
        let counted = [
            new("10.96.0.1:80", "10.0.0.9:8080", 20),
            new("10.96.0.1:80", "10.0.0.1:8080", 80),
            new("10.96.0.7:80", "10.0.0.1:8080", 1000),
            new("192.0.2.77:30080", "10.0.0.1:8080", 1000),
        ];
        let expected = [
            ("10.0.0.1:8080".to_owned(), 80, 80.0, 75.0),
            ("10.0.0.2:8080".to_owned(), 0, 0.0, 25.0),
            ("10.0.0.9:8080".to_owned(), 20, 20.0, 0.0),
        ];
        assert_eq!(shown(&counted), expected);
        assert!(shown(&[]).is_empty());
        assert!(shares(&counted, &index(), |_| false).is_empty());
    }
}
