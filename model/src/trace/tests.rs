//! The tables of kube-proxy's behaviour, cell by cell.

mod cells;
mod text;
mod verdicts;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::*;
use crate::{Addresses, Backend, BackendState, NodeFacts, Protocol, ServicePort};

const CLUSTER_IP: &str = "10.96.0.1:80";
const NODE_PORT: &str = "192.168.0.1:30080";
const LOAD_BALANCER: &str = "203.0.113.1:80";
const EXTERNAL_IP: &str = "203.0.113.2:80";

const POD: &str = "10.244.1.5";
const NODE: &str = "192.168.0.1";
const EXTERNAL: &str = "198.51.100.7";

/// A backend on this node, and one elsewhere.
const LOCAL: &str = "10.244.1.10:8080";
const REMOTE: &str = "10.244.2.10:8080";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn range(text: &str) -> IpNetwork {
    text.parse().unwrap()
}

fn local_backend() -> Backend {
    Backend {
        local: true,
        ..Backend::new(LOCAL.parse().unwrap())
    }
}

fn remote_backend() -> Backend {
    Backend::new(REMOTE.parse().unwrap())
}

const fn terminating(mut backend: Backend) -> Backend {
    backend.state = BackendState::Terminating;
    backend
}

const fn failing(mut backend: Backend) -> Backend {
    backend.state = BackendState::Failing;
    backend
}

/// A service with one of each kind of frontend, and these backends.
fn web(backends: Vec<Backend>) -> ContivService {
    ContivService {
        cluster_ips: Addresses::from([ip("10.96.0.1")]),
        external_ips: Addresses::from([ip("203.0.113.1"), ip("203.0.113.2")]),
        load_balancer_ips: Addresses::from([ip("203.0.113.1")]),
        ports: vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "http".into(),
            node_port: Some(30080),
            backends,
        }],
        ..ContivService::new(ServiceId::new("shop", "web"))
    }
}

fn snapshot_of(services: Vec<ContivService>) -> Snapshot {
    let node = NodeFacts {
        node_ips: BTreeSet::from([ip(NODE)]),
        pod_cidrs: BTreeSet::from([range("10.244.1.0/24")]),
        service_cidrs: BTreeSet::from([range("10.96.0.0/16")]),
        ..NodeFacts::default()
    };
    let services: BTreeMap<_, _> = services
        .into_iter()
        .map(|service| (service.id.clone(), Arc::new(service)))
        .collect();
    Snapshot {
        services,
        node,
        ..Snapshot::default()
    }
}

fn traced(snapshot: &Snapshot, from: &str, to: &str) -> Trace {
    trace(
        snapshot,
        &Flow::new(ip(from), to.parse().unwrap(), Protocol::Tcp).unwrap(),
    )
}

fn verdict(service: ContivService, from: &str, to: &str) -> Verdict {
    traced(&snapshot_of(vec![service]), from, to).verdict
}

fn delivery(service: ContivService, from: &str, to: &str) -> Delivery {
    match verdict(service, from, to) {
        Verdict::Backends(delivery) => delivery,
        other => panic!("{from} to {to}: {other:?}"),
    }
}

/// The endpoints of the candidates.
fn endpoints(delivery: &Delivery) -> Vec<String> {
    delivery
        .candidates
        .iter()
        .map(|candidate| candidate.endpoint().to_string())
        .collect()
}
