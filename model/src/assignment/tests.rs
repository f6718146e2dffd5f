use std::sync::Arc;

use super::*;
use crate::{Addresses, BackendState, Protocol};

fn port(number: u16, backends: Vec<Backend>) -> ServicePort {
    ServicePort {
        port: number,
        protocol: Protocol::Tcp,
        name: Arc::from(""),
        node_port: None,
        backends,
    }
}

fn backend(last: u8, port: u16) -> Backend {
    Backend::new(([10, 1, 0, last], port).into())
}

fn service() -> ContivService {
    ContivService {
        cluster_ips: [IpAddr::from([10, 96, 0, 1])].into(),
        ports: vec![port(80, vec![backend(1, 80), backend(2, 80)])],
        ..ContivService::new(ServiceId::new("default", "web"))
    }
}

fn reason(service: &ContivService) -> Option<DirectRoutingBlocker> {
    let assignment = assign(service, true, true, None);
    assert_eq!(
        assignment.addresses.routes(),
        assignment.reason.is_none(),
        "never half: {assignment:?}"
    );
    assignment.reason.map(|reason| *reason)
}

#[test]
fn routes_carry_exactly_the_requested_services() {
    assert_eq!(
        assign(&service(), true, true, None).addresses,
        Carrier::Route
    );
    assert_eq!(assign(&service(), false, true, None), Assignment::default());
    let without = assign(&service(), true, false, None);
    assert_eq!(
        (without.addresses, without.reason),
        (
            Carrier::Nftables,
            Some(Box::new(DirectRoutingBlocker::NoRenderer))
        )
    );
}

#[test]
fn node_ports_are_always_translated() {
    let mut service = service();
    service.ports[0].node_port = Some(30_080);
    let both = assign(&service, true, true, None);
    assert_eq!(
        (both.addresses, both.node_ports),
        (Carrier::Route, Some(Carrier::Nftables))
    );
    service.cluster_ips = Addresses::new();
    let only = assign(&service, true, true, None);
    assert_eq!(
        (only.addresses, only.reason),
        (Carrier::Nftables, None),
        "there is nothing to route"
    );
}

#[test]
fn unroutable_services_are_left_to_nftables_with_the_reason() {
    assert_eq!(reason(&service()), None);
    let mut other_port = service();
    other_port.ports[0].backends[1].port = 8080;
    assert_eq!(
        reason(&other_port),
        Some(DirectRoutingBlocker::OtherPort {
            port: 80,
            target: 8080
        })
    );
    let sticky = ContivService {
        session_affinity_timeout: 1,
        ..service()
    };
    assert_eq!(reason(&sticky), Some(DirectRoutingBlocker::Affinity));
    let by_client = ContivService {
        balance: Balance::ClientAddress,
        ..service()
    };
    assert_eq!(
        reason(&by_client),
        Some(DirectRoutingBlocker::ClientBalance)
    );
    let ranges = ContivService {
        source_ranges: ["192.0.2.0/24".parse().unwrap()].into(),
        ..service()
    };
    assert_eq!(reason(&ranges), Some(DirectRoutingBlocker::SourceRanges));
    let shared = (
        IpAddr::from([10, 96, 0, 1]),
        ServiceId::new("default", "other"),
    );
    let text = assign(&service(), true, true, Some(shared))
        .reason
        .unwrap()
        .to_string();
    assert_eq!(
        text,
        "default/other has the address 10.96.0.1 too; a route leads to one service"
    );
}

#[test]
fn all_ports_must_have_same_backends() {
    let mut service = service();
    service
        .ports
        .push(port(443, vec![backend(2, 443), backend(1, 443)]));
    assert_eq!(reason(&service), None);
    service.ports[1].backends.pop();
    assert_eq!(reason(&service), Some(DirectRoutingBlocker::BackendsDiffer));
}

#[test]
fn node_and_its_pods_are_not_mixed_but_other_nodes_may_be() {
    let mut service = service();
    service.ports[0].backends[0].host_network = true;
    assert_eq!(reason(&service), None);
    for backend in &mut service.ports[0].backends {
        backend.local = true;
    }
    assert_eq!(reason(&service), Some(DirectRoutingBlocker::PodsAndNode));
    service.ports[0].backends[0].state = BackendState::Terminating;
    assert_eq!(reason(&service), None, "no new connection goes to the node");
}
