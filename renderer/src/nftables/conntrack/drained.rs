//! Backends that are no longer, with connections that go on: those are drained. Pure.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use contiv_model::{ContivService, Protocol};

use super::{backends::Backends, flow::Flow, serving::serving};
use crate::nftables::{Family, FrontendKey};

/// More former backends than this are not remembered, which bounds the memory.
const MAX_DRAINED: usize = 16_384;

/// Former backends, each with the frontend of its connections.
#[derive(Debug, Default)]
pub(super) struct DrainedBackends(BTreeSet<Drained>);

/// Protocol and port of a frontend, its address as clients use it, and the former backend.
type Drained = (Protocol, u16, IpAddr, SocketAddr);

impl DrainedBackends {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the frontend and the backend of a flow.
    pub(super) fn insert(&mut self, flow: &Flow<'_>) {
        if self.0.len() < MAX_DRAINED {
            self.0.insert(drained(flow));
        }
    }

    /// True for a flow from such a frontend to such a backend.
    pub(super) fn contains(&self, flow: &Flow<'_>) -> bool {
        self.0.contains(&drained(flow))
    }

    /// The families and protocols of the flows.
    pub(super) fn scopes(&self) -> BTreeSet<(Family, Protocol)> {
        self.0
            .iter()
            .map(|(protocol, _, address, _)| (Family::of(address), *protocol))
            .collect()
    }

    /// Replaces those of one family and protocol.
    pub(super) fn replace(&mut self, family: Family, protocol: Protocol, found: Self) {
        self.0
            .retain(|(of, _, address, _)| *of != protocol || Family::of(address) != family);
        self.0.extend(found.0);
    }

    /// Removes the backends that serve again.
    pub(super) fn remove_serving<'a>(&mut self, services: impl Iterator<Item = &'a ContivService>) {
        if self.is_empty() {
            return;
        }
        for (frontend, backends) in services.flat_map(serving) {
            self.remove_backends(&frontend, &backends);
        }
    }

    fn remove_backends(&mut self, frontend: &FrontendKey, backends: &Backends) {
        let FrontendKey {
            address,
            protocol,
            port,
        } = *frontend;
        let first = (
            protocol,
            port,
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ([0, 0, 0, 0], 0).into(),
        );
        let is_of_frontend = |of: &IpAddr| {
            *of == address || frontend.is_node_port() && frontend.family() == Family::of(of)
        };
        let of_port = self
            .0
            .range(first..)
            .take_while(|(of, at, ..)| (*of, *at) == (protocol, port));
        let serves =
            of_port.filter(|(_, _, of, backend)| is_of_frontend(of) && backends.contains(backend));
        for one in serves.copied().collect::<Vec<_>>() {
            self.0.remove(&one);
        }
    }
}

fn drained(flow: &Flow<'_>) -> Drained {
    (
        flow.protocol,
        flow.destination.port(),
        flow.destination.ip(),
        flow.backend,
    )
}

#[cfg(test)]
mod tests {
    use contiv_model::{Addresses, Backend, ServiceId, ServicePort};

    use super::*;
    use crate::nftables::conntrack::flow::Identity;

    fn flow(protocol: Protocol, destination: &str, backend: &str) -> Flow<'static> {
        let [destination, backend] =
            [destination, backend].map(|end| end.parse::<SocketAddr>().unwrap());
        Flow {
            protocol,
            destination,
            backend,
            is_in_use: true,
            identity: Identity {
                tuple: &[],
                id: &[],
            },
        }
    }

    fn service(backends: &[&str]) -> ContivService {
        ContivService {
            cluster_ips: Addresses::from(["10.96.0.1".parse().unwrap()]),
            ports: vec![ServicePort {
                port: 53,
                protocol: Protocol::Tcp,
                name: "".into(),
                node_port: Some(30_053),
                backends: backends
                    .iter()
                    .map(|backend| Backend::new(backend.parse().unwrap()))
                    .collect(),
            }],
            ..ContivService::new(ServiceId::new("default", "web"))
        }
    }

    #[test]
    fn backend_that_serves_again_is_drained_at_no_frontend() {
        let mut drained = DrainedBackends::default();
        let [cluster_ip, node_port] = ["10.96.0.1:53", "172.31.0.1:30053"];
        let other_address = flow(Protocol::Tcp, "10.96.0.2:53", "10.244.1.1:53");
        let other_protocol = flow(Protocol::Sctp, cluster_ip, "10.244.1.1:53");
        for destination in [cluster_ip, node_port] {
            for backend in ["10.244.1.1:53", "10.244.1.2:53"] {
                drained.insert(&flow(Protocol::Tcp, destination, backend));
            }
        }
        drained.insert(&other_address);
        drained.insert(&other_protocol);
        drained.remove_serving(std::iter::once(&service(&["10.244.1.1:53"])));
        for destination in [cluster_ip, node_port] {
            assert!(
                !drained.contains(&flow(Protocol::Tcp, destination, "10.244.1.1:53")),
                "{destination}"
            );
            assert!(
                drained.contains(&flow(Protocol::Tcp, destination, "10.244.1.2:53")),
                "{destination}"
            );
        }
        assert!(drained.contains(&other_address) && drained.contains(&other_protocol));
        assert_eq!(
            drained.scopes(),
            [(Family::V4, Protocol::Tcp), (Family::V4, Protocol::Sctp)].into()
        );
    }

    #[test]
    fn survey_replaces_what_was_found_before_in_its_family_and_protocol() {
        let mut drained = DrainedBackends::default();
        let ended = flow(Protocol::Tcp, "10.96.0.1:53", "10.244.1.1:53");
        let others = [
            flow(Protocol::Sctp, "10.96.0.1:53", "10.244.1.1:53"),
            flow(Protocol::Tcp, "[fd00::1]:53", "[fd00:1::1]:53"),
        ];
        drained.insert(&ended);
        for other in &others {
            drained.insert(other);
        }
        let mut found = DrainedBackends::default();
        let kept = flow(Protocol::Tcp, "10.96.0.1:53", "10.244.1.2:53");
        found.insert(&kept);
        drained.replace(Family::V4, Protocol::Tcp, found);
        assert!(!drained.contains(&ended) && drained.contains(&kept));
        assert!(others.iter().all(|other| drained.contains(other)));
        for (family, protocol) in drained.scopes() {
            drained.replace(family, protocol, DrainedBackends::default());
        }
        assert!(drained.is_empty());
    }

    #[test]
    fn former_backends_are_bounded() {
        let mut drained = DrainedBackends::default();
        for number in 0..=u16::MAX {
            drained.insert(&flow(
                Protocol::Tcp,
                "10.96.0.1:53",
                &format!("10.244.1.1:{number}"),
            ));
        }
        assert_eq!(drained.0.len(), MAX_DRAINED);
    }
}
