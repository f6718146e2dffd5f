//! What counts as an attempt to connect: each is served, or refused for one reason; a repetition is none.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
    time::Duration,
};

use contiv_model::{
    Backend, ContivService, Frontend, Protocol, ServiceId, ServicePort, Snapshot, TrafficPolicy,
};
use contiv_renderer::{
    Renderer,
    nftables::{
        Nftables,
        counters::{Connections, RefusalReason, connections},
    },
};
use contiv_tests::lab::{
    Family, Lab, LabError, Namespace, Outcome, Protocol as LabProtocol, Responder, Result,
    isolated, ranges,
};

const PORT: u16 = 80;
/// Within this time a client sends three SYNs: at once, after one second, and after three.
const REPEATING: Duration = Duration::from_millis(3_500);
/// How many attempts of each kind are made.
const ATTEMPTS: usize = 4;

/// A service whose only backends, if any, are on the other node.
fn service(number: u8, backends: &[&Namespace]) -> ContivService {
    let mut backends: Vec<Backend> = backends
        .iter()
        .flat_map(|pod| Family::BOTH.map(|family| Backend::new(pod.host.socket(family, PORT))))
        .collect();
    backends.sort();
    let port = |protocol| ServicePort {
        port: PORT,
        protocol,
        name: "".into(),
        node_port: Some(node_port(number)),
        backends: backends.clone(),
    };
    ContivService {
        cluster_ips: Family::BOTH
            .map(|family| ranges::SERVICES.address(family, number))
            .into(),
        external_ips: Family::BOTH.map(|family| balancer(number, family)).into(),
        load_balancer_ips: Family::BOTH.map(|family| balancer(number, family)).into(),
        ports: vec![port(Protocol::Tcp), port(Protocol::Udp)],
        ..ContivService::new(ServiceId::new("default", &*format!("service{number}")))
    }
}

fn node_port(number: u8) -> u16 {
    30_000 + u16::from(number)
}

fn balancer(number: u8, family: Family) -> IpAddr {
    ranges::LOAD_BALANCERS.address(family, number)
}

/// A kind of frontend, with its address for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    ClusterIp,
    Balancer,
    NodePort,
}

impl At {
    fn address(self, lab: &Lab, number: u8, family: Family) -> SocketAddr {
        match self {
            Self::ClusterIp => SocketAddr::new(ranges::SERVICES.address(family, number), PORT),
            Self::Balancer => SocketAddr::new(balancer(number, family), PORT),
            Self::NodePort => SocketAddr::new(lab.node.host.address(family), node_port(number)),
        }
    }

    fn frontend(self, lab: &Lab, number: u8, family: Family) -> Frontend {
        let (protocol, address) = (Protocol::Tcp, self.address(lab, number, family).ip());
        match self {
            Self::NodePort => Frontend::NodePort {
                protocol,
                port: node_port(number),
            },
            _ => Frontend::Address {
                address,
                protocol,
                port: PORT,
            },
        }
    }
}

/// Programs these services.
fn program(lab: &Lab, services: &[ContivService]) -> Result<Nftables> {
    let mut state = Snapshot::default();
    state.node.node_ips = Family::BOTH
        .map(|family| lab.node.host.address(family))
        .into();
    state.node.pod_cidrs = Family::BOTH
        .iter()
        .flat_map(|family| ranges::PODS.cidr(*family).parse())
        .collect();
    state.services = services
        .iter()
        .map(|one| (one.id.clone(), Arc::new(one.clone())))
        .collect();
    let mut renderer = Nftables::new();
    let unexpected = |error: &dyn ToString| LabError::Unexpected(error.to_string());
    lab.node.run(|| {
        renderer
            .resync(&state)
            .map(drop)
            .map_err(|error| unexpected(&error))
    })?;
    Ok(renderer)
}

fn count(lab: &Lab) -> Result<Connections> {
    lab.node
        .run(|| connections().map_err(|error| LabError::Unexpected(error.to_string())))
}

/// Connects to all addresses at the same time, from different ports.
fn connect(from: &Namespace, to: &[SocketAddr], limit: Duration) -> Result<Vec<Outcome>> {
    thread::scope(|scope| {
        let attempt = |to| scope.spawn(move || from.ask_within(LabProtocol::Tcp, to, limit));
        let attempts: Vec<_> = to.iter().map(|to| attempt(*to)).collect();
        let end = |attempt: thread::ScopedJoinHandle<'_, _>| {
            attempt
                .join()
                .unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        };
        attempts.into_iter().map(end).collect()
    })
}

#[test]
fn each_attempt_counts_once_as_served_or_with_its_reason() -> Result<()> {
    isolated(
        "attempt_counters::each_attempt_counts_once_as_served_or_with_its_reason",
        |lab| {
            let _responders = Responder::start_all(lab.pods(), PORT)?;
            let local = TrafficPolicy::Local;
            let elsewhere = ["203.0.113.0/24", "2001:db8:9::/48"];
            let services = [
                service(1, &[]),
                ContivService {
                    internal_policy: local,
                    ..service(2, &[&lab.pod3])
                },
                ContivService {
                    external_policy: local,
                    ..service(3, &[&lab.pod3])
                },
                ContivService {
                    source_ranges: elsewhere.iter().flat_map(|range| range.parse()).collect(),
                    source_ranges_on_node_ports: true,
                    ..service(4, &[&lab.pod3])
                },
                service(5, &[&lab.pod3]),
            ];
            let _renderer = program(lab, &services)?;
            // What is refused, from where, and whether the client hears it or repeats its SYN.
            let (pod, client) = (&lab.pod1, &lab.client);
            let (no_endpoints, policy, source_ranges) = (
                RefusalReason::NoEndpoints,
                RefusalReason::Policy,
                RefusalReason::SourceRanges,
            );
            let refused = [
                (pod, 1, At::ClusterIp, no_endpoints),
                (client, 1, At::Balancer, no_endpoints),
                (client, 1, At::NodePort, no_endpoints),
                (pod, 2, At::ClusterIp, policy),
                (client, 3, At::Balancer, policy),
                (client, 3, At::NodePort, policy),
                (client, 4, At::Balancer, source_ranges),
                (client, 4, At::NodePort, source_ranges),
            ];
            let served = [
                (pod, 5, At::ClusterIp),
                (client, 5, At::Balancer),
                (client, 5, At::NodePort),
                // The policy does not concern clients inside.
                (pod, 3, At::Balancer),
                (pod, 3, At::NodePort),
            ];
            let mut expected = Connections::default();
            let attempts = u64::try_from(ATTEMPTS).unwrap_or_default();
            for from in [pod, client] {
                let mut addresses = Vec::new();
                for (_, number, at, reason) in
                    refused.iter().filter(|(of, ..)| of.host == from.host)
                {
                    for family in Family::BOTH {
                        addresses.extend([at.address(lab, *number, family); ATTEMPTS]);
                        let frontend = (at.frontend(lab, *number, family), *reason);
                        *expected.refused.entry(frontend).or_default() += attempts;
                    }
                }
                let outcomes = connect(from, &addresses, REPEATING)?;
                assert!(
                    !outcomes
                        .iter()
                        .any(|outcome| matches!(outcome, Outcome::Answered { .. })),
                    "{outcomes:?}"
                );
                let mut addresses = Vec::new();
                for (_, number, at) in served.iter().filter(|(of, ..)| of.host == from.host) {
                    for family in Family::BOTH {
                        addresses.extend([at.address(lab, *number, family); ATTEMPTS]);
                        *expected
                            .served
                            .entry(at.frontend(lab, *number, family))
                            .or_default() += attempts;
                    }
                }
                for outcome in connect(from, &addresses, REPEATING)? {
                    outcome.answer()?;
                }
            }
            let counted = count(lab)?;
            let refused = |of: &Connections| -> BTreeMap<String, u64> {
                of.refused
                    .iter()
                    .map(|((at, reason), count)| (format!("{at} {}", reason.name()), *count))
                    .collect()
            };
            println!(
                "served {:?}\nrefused {:?}",
                counted.served,
                refused(&counted)
            );
            assert_eq!(refused(&counted), refused(&expected));
            assert_eq!(counted.served, expected.served);
            Ok(())
        },
    )
}

#[test]
fn datagrams_from_one_port_to_a_dead_service_are_one_attempt() -> Result<()> {
    isolated(
        "attempt_counters::datagrams_from_one_port_to_a_dead_service_are_one_attempt",
        |lab| {
            let _renderer = program(lab, &[service(1, &[])])?;
            for family in Family::BOTH {
                for _ in 0..2 {
                    let mut session = lab
                        .pod1
                        .open(LabProtocol::Udp, At::ClusterIp.address(lab, 1, family))?;
                    for _ in 0..3 {
                        let error = session
                            .ask()
                            .map_err(|error| error.to_string())
                            .err()
                            .unwrap_or_default();
                        assert!(error.contains("refused"), "{error}");
                    }
                }
            }
            let counts: Vec<u64> = count(lab)?.refused.into_values().collect();
            assert_eq!(counts, [2, 2], "two clients of each family");
            Ok(())
        },
    )
}

/// One that drops external clients counts the others itself; a frontend that is healthy again goes on from there.
#[test]
fn frontend_that_gets_a_local_backend_serves_external_clients_and_counts_them() -> Result<()> {
    let test = "attempt_counters::frontend_that_gets_a_local_backend_serves_external_clients_and_counts_them";
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), PORT)?;
        let local = |backends: &[&Namespace]| {
            let mut service = ContivService {
                external_policy: TrafficPolicy::Local,
                ..service(3, backends)
            };
            for backend in service.ports.iter_mut().flat_map(|port| &mut port.backends) {
                backend.local = Family::BOTH
                    .iter()
                    .any(|of| backend.address == lab.pod2.host.address(*of));
            }
            service
        };
        let mut renderer = program(lab, &[local(&[&lab.pod3])])?;
        let to = At::Balancer.address(lab, 3, Family::V4);
        connect(&lab.client, &[to; ATTEMPTS], REPEATING)?;
        connect(&lab.pod1, &[to], REPEATING)?;
        renderer = {
            drop(renderer);
            program(lab, &[local(&[&lab.pod2, &lab.pod3])])?
        };
        for outcome in connect(&lab.client, &[to; ATTEMPTS], REPEATING)? {
            assert_eq!(outcome.answer()?.by, "pod2");
        }
        let frontend = At::Balancer.frontend(lab, 3, Family::V4);
        let counted = count(lab)?;
        drop(renderer);
        assert_eq!(
            counted.refused,
            [((frontend, RefusalReason::Policy), 4)].into()
        );
        assert_eq!(counted.served, [(frontend, 5)].into());
        Ok(())
    })
}
