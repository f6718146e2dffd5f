use std::sync::Arc;

use contiv_model::{Backend, BackendState, Protocol, ServiceId};

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node() -> NodeFacts {
    let own = ["192.0.2.1", "fd00::1"].map(ip);
    NodeFacts {
        primary_ips: own.into(),
        local_ips: own.into(),
        ..NodeFacts::default()
    }
}

fn backend(address: &str, local: bool, state: BackendState) -> Backend {
    Backend {
        local,
        state,
        ..Backend::new((ip(address), 8080).into())
    }
}

/// With all three kinds of addresses in IPv4, and an external one in IPv6.
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
        external_ips: ["203.0.113.1", "198.51.100.1", "2001:db8::1"]
            .map(ip)
            .into(),
        load_balancer_ips: [ip("198.51.100.1")].into(),
        ports: vec![port],
        ..ContivService::new(ServiceId::new("default", "web"))
    }
}

fn planned(
    service: &ContivService,
    node: &NodeFacts,
    options: &RouteOptions,
    purpose: Purpose,
) -> Vec<String> {
    let mut addresses: Vec<String> = destinations(service, node, options)
        .into_iter()
        .filter(|destination| destination.purpose == purpose)
        .map(|destination| destination.address.to_string())
        .collect();
    addresses.sort();
    addresses
}

fn advertised(service: &ContivService) -> Vec<String> {
    planned(
        service,
        &node(),
        &RouteOptions::default(),
        Purpose::Advertise,
    )
}

fn reached(service: &ContivService, node: &NodeFacts) -> Vec<String> {
    planned(service, node, &RouteOptions::default(), Purpose::Reach)
}

#[test]
fn each_kind_of_address_is_advertised_if_configured() {
    let service = service(vec![backend("10.1.0.1", false, BackendState::Ready)]);
    let of = |kind| {
        let options = RouteOptions {
            advertise: [kind].into_iter().collect(),
            ..RouteOptions::default()
        };
        planned(&service, &node(), &options, Purpose::Advertise)
    };
    assert_eq!(of(AddressKind::Cluster), ["10.96.0.1"]);
    assert_eq!(of(AddressKind::External), ["203.0.113.1"]);
    assert_eq!(of(AddressKind::LoadBalancer), ["198.51.100.1"]);
}

#[test]
fn family_is_advertised_as_long_as_it_has_backends_of_its_own() {
    use BackendState::{Ready, Terminating};
    assert!(advertised(&service(vec![])).is_empty());
    let v4 = ["198.51.100.1", "203.0.113.1"];
    assert_eq!(
        advertised(&service(vec![backend("10.1.0.1", false, Ready)])),
        v4
    );
    assert_eq!(
        advertised(&service(vec![backend("10.1.0.1", false, Terminating)])),
        v4
    );
    assert_eq!(
        advertised(&service(vec![backend("fd00:1::1", false, Ready)])),
        ["2001:db8::1"]
    );
}

#[test]
fn policy_local_attracts_traffic_only_with_ready_local_backends() {
    use BackendState::{Failing, Ready, Terminating};
    let of = |backends| {
        let local = ContivService {
            external_policy: TrafficPolicy::Local,
            ..service(backends)
        };
        advertised(&local)
    };
    assert!(of(vec![backend("10.1.0.1", false, Ready)]).is_empty());
    assert!(of(vec![backend("10.1.0.1", true, Terminating)]).is_empty());
    for state in [Ready, Failing] {
        assert_eq!(
            of(vec![backend("10.1.0.1", true, state)]),
            ["198.51.100.1", "203.0.113.1"],
            "the store says that it is ready"
        );
    }
    assert!(
        of(vec![
            backend("10.1.0.1", false, Ready),
            backend("fd00:1::1", true, Ready)
        ])
        .iter()
        .all(|address| address.contains(':'))
    );
}

#[test]
fn policy_of_cluster_ip_is_internal_one() {
    let options = RouteOptions {
        advertise: [AddressKind::Cluster].into_iter().collect(),
        ..RouteOptions::default()
    };
    let mut service = service(vec![backend("10.1.0.1", false, BackendState::Ready)]);
    service.external_policy = TrafficPolicy::Local;
    assert_eq!(
        planned(&service, &node(), &options, Purpose::Advertise),
        ["10.96.0.1"]
    );
    service.internal_policy = TrafficPolicy::Local;
    assert!(planned(&service, &node(), &options, Purpose::Advertise).is_empty());
}

#[test]
fn address_that_older_service_holds_is_its_affair() {
    let mut service = service(vec![backend("10.1.0.1", true, BackendState::Ready)]);
    let address = ip("198.51.100.1");
    let lost = Frontend::Address {
        address,
        protocol: Protocol::Tcp,
        port: 80,
    };
    service
        .lost
        .insert(lost, ServiceId::new("default", "older"));
    assert_eq!(advertised(&service), ["203.0.113.1"]);
    assert!(!reached(&service, &node()).contains(&address.to_string()));
}

#[test]
fn node_addresses_and_invalid_host_addresses_get_no_route() {
    let mut service = service(vec![backend("10.1.0.1", true, BackendState::Ready)]);
    service.external_ips = [
        "192.0.2.1",
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "169.254.1.1",
        "255.255.255.255",
    ]
    .map(ip)
    .into();
    assert!(advertised(&service).is_empty());
    assert_eq!(reached(&service, &node()), ["10.96.0.1"]);
}

#[test]
fn node_without_address_of_the_family_gets_no_route() {
    let service = service(vec![]);
    let all = ["10.96.0.1", "198.51.100.1", "2001:db8::1", "203.0.113.1"];
    assert_eq!(
        reached(&service, &node()),
        all,
        "also without backends: packets to it are refused, not unreachable"
    );
    let elsewhere = NodeFacts {
        local_ips: [ip("fd00::1")].into(),
        ..node()
    };
    assert_eq!(
        reached(&service, &elsewhere),
        ["2001:db8::1"],
        "an address that the node does not have"
    );
    let options = RouteOptions {
        reach_from_node: false,
        ..RouteOptions::default()
    };
    assert!(planned(&service, &node(), &options, Purpose::Reach).is_empty());
}

#[test]
fn source_is_one_that_node_is_known_by_and_has() {
    let mut node = node();
    node.primary_ips = [
        "192.0.2.0",
        "192.0.2.1",
        "192.0.2.2",
        "127.0.0.1",
        "fe80::1",
    ]
    .map(ip)
    .into();
    node.local_ips = ["10.0.0.1", "192.0.2.1", "192.0.2.2", "127.0.0.1", "fe80::1"]
        .map(ip)
        .into();
    assert_eq!(source(&node, true), Some(ip("192.0.2.1")));
    assert_eq!(source(&node, false), None);
}
