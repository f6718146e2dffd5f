//! Tables with wrong elements: the differences that are reported, and the text of the evaluation.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use contiv_model::{
    Addresses, Backend, ContivService, NodeFacts, Protocol, ServiceId, ServicePort, Snapshot,
    TrafficPolicy, trace,
};

use super::{rendered::RenderedTables, *};
use crate::nftables::{
    desired::{
        element::{FrontendKey, Key, Value},
        elements::of_chain,
    },
    layout::{Choice as PickChoice, DemandChain, LearnChain, PickChain, Set, SetKind},
};

const POD: &str = "10.244.1.5";
const EXTERNAL: &str = "198.51.100.7";
const CLUSTER_IP: &str = "10.96.0.1:80";
const LOAD_BALANCER: &str = "203.0.113.1:80";
const LOCAL: &str = "10.244.1.10:8080";
const REMOTE: &str = "10.244.2.10:8080";

/// A service with a backend on this node and one elsewhere.
fn web() -> ContivService {
    let local = Backend {
        local: true,
        ..Backend::new(LOCAL.parse().unwrap())
    };
    ContivService {
        cluster_ips: Addresses::from(["10.96.0.1".parse().unwrap()]),
        external_ips: Addresses::from(["203.0.113.1".parse().unwrap()]),
        load_balancer_ips: Addresses::from(["203.0.113.1".parse().unwrap()]),
        ports: vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "http".into(),
            node_port: Some(30080),
            backends: vec![local, Backend::new(REMOTE.parse().unwrap())],
        }],
        ..ContivService::new(ServiceId::new("shop", "web"))
    }
}

fn snapshot(service: ContivService) -> Snapshot {
    let node = NodeFacts {
        node_ips: BTreeSet::from(["192.168.0.1".parse().unwrap()]),
        pod_cidrs: BTreeSet::from(["10.244.1.0/24".parse().unwrap()]),
        service_cidrs: BTreeSet::from(["10.96.0.0/16".parse().unwrap()]),
        ..NodeFacts::default()
    };
    let services = [(service.id.clone(), Arc::new(service))].into();
    Snapshot {
        services,
        node,
        ..Snapshot::default()
    }
}

fn frontend(at: &str) -> FrontendKey {
    let at: SocketAddr = at.parse().unwrap();
    FrontendKey {
        address: at.ip(),
        protocol: Protocol::Tcp,
        port: at.port(),
    }
}

fn backend(at: &str) -> Value {
    Value::Backend(at.parse::<SocketAddr>().unwrap().into())
}

const fn v4(kind: SetKind) -> Set {
    Set::new(kind, Family::V4)
}

/// A goto to the chain with this number of slots.
const fn chain(slots: u32, external_slots: Option<u32>) -> Value {
    let (family, choice) = (Family::V4, PickChoice::Random);
    Value::Goto(DemandChain::Pick(PickChain {
        family,
        node_port: false,
        choice,
        slots,
        external_slots,
    }))
}

/// Changes elements of a service's table, and evaluates a flow. Returns its differences, and the text of the evaluation.
fn differences_and_text(
    service: ContivService,
    from: &str,
    to: &str,
    changes: &[(SetKind, Key, Option<Value>)],
) -> (Vec<String>, String) {
    let snapshot = snapshot(service);
    let mut table = RenderedTables::of(&snapshot);
    let flow = Flow::new(from.parse().unwrap(), to.parse().unwrap(), Protocol::Tcp).unwrap();
    let desired = trace(&snapshot, &flow);
    let Ok(unchanged) = evaluate(&mut table, &flow);
    assert_eq!(
        differences(&desired, &unchanged),
        Vec::<String>::new(),
        "before anything is changed"
    );
    for (kind, key, value) in changes {
        table.change(v4(*kind), *key, *value);
        // A chain is found by its number in another map.
        if let Some(Value::Goto(chain)) = value
            && let Some(element) = of_chain(*chain)
        {
            table.change(element.set, element.key, Some(element.value));
        }
    }
    let Ok(answer) = evaluate(&mut table, &flow);
    (differences(&desired, &answer), answer.to_string())
}

#[test]
fn missing_service_is_reported() {
    let gone = (SetKind::Services, Key::Frontend(frontend(CLUSTER_IP)), None);
    let (differences, text) = differences_and_text(web(), POD, CLUSTER_IP, &[gone]);
    assert_eq!(
        differences,
        ["the connection should reach a backend, but is rejected by an element of cluster-ips4"]
    );
    assert!(
        text.contains("verdict   REJECTED: is rejected by an element of cluster-ips4"),
        "{text}"
    );
}

#[test]
fn empty_slot_is_reported() {
    let hole = (SetKind::Backends, Key::Slot(frontend(CLUSTER_IP), 1), None);
    let (differences, text) = differences_and_text(web(), POD, CLUSTER_IP, &[hole]);
    assert_eq!(
        differences,
        [
            "the connection should reach a backend, but 50.0 % of the time is rejected by an element of cluster-ips4",
            "no connection reaches 10.244.2.10:8080, which should get 50.0 % of them",
        ]
    );
    assert!(
        text.contains("or        REJECTED: 50.0 % of the time it is rejected by"),
        "{text}"
    );
}

#[test]
fn replaced_backend_is_reported_with_its_replacement() {
    let other = (
        SetKind::Backends,
        Key::Slot(frontend(CLUSTER_IP), 1),
        Some(backend("192.0.2.1:80")),
    );
    let (differences, _) = differences_and_text(web(), POD, CLUSTER_IP, &[other]);
    assert_eq!(
        differences,
        [
            "no connection reaches 10.244.2.10:8080, which should get 50.0 % of them",
            "50.0 % of connections go to 192.0.2.1:80, which should not get any",
        ]
    );
}

#[test]
fn wrong_share_is_reported() {
    let key = frontend(CLUSTER_IP);
    let changes = [
        (SetKind::Services, Key::Frontend(key), Some(chain(4, None))),
        (SetKind::Backends, Key::Slot(key, 2), Some(backend(LOCAL))),
        (SetKind::Backends, Key::Slot(key, 3), Some(backend(LOCAL))),
    ];
    let (differences, text) = differences_and_text(web(), POD, CLUSTER_IP, &changes);
    assert_eq!(
        differences,
        [
            "10.244.1.10:8080 gets 75.0 % of connections, but should get 50.0 %",
            "10.244.2.10:8080 gets 25.0 % of connections, but should get 50.0 %",
        ]
    );
    assert!(
        text.contains("backend   10.244.1.10:8080  75.0 %, 3 slots, source kept"),
        "{text}"
    );
}

#[test]
fn wrong_masquerading_is_reported() {
    let range = "10.244.1.0/24".parse().unwrap();
    let gone = [SetKind::Pods, SetKind::NoMasquerade].map(|kind| (kind, Key::Range(range), None));
    let (differences, _) = differences_and_text(web(), POD, CLUSTER_IP, &gone);
    assert_eq!(
        differences,
        [
            "the client is treated as an external client instead of a pod of this node; this may explain the other differences",
            "10.244.1.10:8080 sees this node's address, but should see the client's",
            "10.244.2.10:8080 sees this node's address, but should see the client's",
        ]
    );
    let shown = (
        SetKind::MasqueradeAlways,
        Key::Frontend(frontend(LOAD_BALANCER)),
        None,
    );
    let (differences, _) = differences_and_text(web(), EXTERNAL, LOAD_BALANCER, &[shown]);
    assert_eq!(differences.len(), 2);
    assert!(
        differences[0].contains("10.244.1.10:8080 sees the client's address"),
        "{differences:?}"
    );
    // Hairpin masquerading applies only to a pod that reaches itself.
    let hairpin = (
        SetKind::Hairpin,
        Key::Pair("10.244.1.10".parse().unwrap()),
        None,
    );
    let (differences, _) = differences_and_text(web(), "10.244.1.10", CLUSTER_IP, &[hairpin]);
    assert_eq!(differences.len(), 1, "{differences:?}");
}

#[test]
fn verdict_differences_are_reported() {
    let ranged = || ContivService {
        source_ranges: ["192.0.2.0/24".parse().unwrap()].into(),
        ..web()
    };
    let open = (
        SetKind::Restricted,
        Key::Frontend(frontend(LOAD_BALANCER)),
        None,
    );
    let (differences, _) = differences_and_text(ranged(), EXTERNAL, LOAD_BALANCER, &[open]);
    assert_eq!(
        differences[0],
        "the connection should be dropped, but goes to 10.244.1.10:8080"
    );

    let closed = (
        SetKind::SourceRanges,
        Key::Source(frontend(LOAD_BALANCER), "192.0.2.0/24".parse().unwrap()),
        None,
    );
    let (differences, _) = differences_and_text(ranged(), "192.0.2.9", LOAD_BALANCER, &[closed]);
    assert_eq!(
        differences,
        [
            "the connection should reach a backend, but is dropped: the client is in no element of source-ranges4"
        ]
    );

    let mut empty = web();
    empty.ports[0].backends.clear();
    let accepted = (
        SetKind::NoEndpoints,
        Key::Frontend(frontend(LOAD_BALANCER)),
        None,
    );
    let (differences, _) = differences_and_text(empty, EXTERNAL, LOAD_BALANCER, &[accepted]);
    assert_eq!(
        differences,
        ["the connection should be rejected, but is left alone: no element concerns it"]
    );

    let foreign = (
        SetKind::ClusterIps,
        Key::Address("203.0.113.1".parse().unwrap()),
        Some(Value::None),
    );
    let (differences, _) = differences_and_text(web(), EXTERNAL, "203.0.113.1:81", &[foreign]);
    assert_eq!(
        differences,
        ["the connection should be left alone, but is rejected by an element of cluster-ips4"]
    );

    let mut remote = ContivService {
        external_policy: TrafficPolicy::Local,
        ..web()
    };
    remote.ports[0].backends.remove(0);
    let key = Key::Frontend(frontend(LOAD_BALANCER));
    let for_all = chain(1, None);
    let (differences, _) = differences_and_text(
        remote,
        EXTERNAL,
        LOAD_BALANCER,
        &[(SetKind::Services, key, Some(for_all))],
    );
    assert_eq!(
        differences,
        ["the connection should be dropped, but goes to 10.244.2.10:8080"]
    );
    let local = ContivService {
        external_policy: TrafficPolicy::Local,
        ..web()
    };
    let (differences, _) = differences_and_text(
        local.clone(),
        EXTERNAL,
        LOAD_BALANCER,
        &[(SetKind::Services, key, Some(chain(2, Some(0))))],
    );
    assert_eq!(
        differences,
        ["the connection should reach a backend, but is dropped by an element of services4"]
    );
    let hole = (
        SetKind::BackendsExternal,
        Key::Slot(frontend(LOAD_BALANCER), 0),
        None,
    );
    let (differences, _) = differences_and_text(local, EXTERNAL, LOAD_BALANCER, &[hole]);
    assert_eq!(
        differences,
        [
            "the connection should reach a backend, but is dropped by an element of backends-external4"
        ]
    );
}

#[test]
fn affinity_differences_are_reported() {
    let sticky = || ContivService {
        session_affinity_timeout: 600,
        ..web()
    };
    let key = frontend(CLUSTER_IP);
    let (differences, text) = differences_and_text(
        sticky(),
        POD,
        CLUSTER_IP,
        &[(SetKind::Sticky, Key::Frontend(key), None)],
    );
    assert_eq!(
        differences,
        [
            "a backend is chosen at random unless the client has an affinity entry, and no rule writes one, but should be chosen at \
          random, and then remembered until 600 s after the client's last new connection"
        ]
    );
    assert!(
        text.contains("choice    at random unless the client has an affinity entry"),
        "{text}"
    );

    let learn = DemandChain::Learn(LearnChain {
        family: Family::V4,
        node_port: false,
        timeout: 60,
    });
    let shorter = (
        SetKind::Sticky,
        Key::Frontend(key),
        Some(Value::Goto(learn)),
    );
    let (differences, _) = differences_and_text(sticky(), POD, CLUSTER_IP, &[shorter]);
    assert!(
        differences.len() == 1 && differences[0].contains("60 s"),
        "{differences:?}"
    );

    let client = Key::Client(key, POD.parse().unwrap());
    let right = (SetKind::Affinity, client, Some(backend(REMOTE)));
    let (differences, text) = differences_and_text(sticky(), POD, CLUSTER_IP, &[right]);
    assert_eq!(differences, Vec::<String>::new());
    assert!(
        text.contains("its next connection goes to 10.244.2.10:8080"),
        "{text}"
    );
    let stale = (SetKind::Affinity, client, Some(backend("192.0.2.1:80")));
    let (differences, _) = differences_and_text(sticky(), POD, CLUSTER_IP, &[stale]);
    assert_eq!(
        differences,
        ["the affinity entry of this client is 192.0.2.1:80, which should not get its connections"]
    );
}

#[test]
fn translated_flow_is_not_rejected_at_its_backend_address() {
    let refused = (
        SetKind::NoEndpoints,
        Key::Frontend(frontend(REMOTE)),
        Some(Value::None),
    );
    let (differences, _) = differences_and_text(web(), POD, CLUSTER_IP, &[refused]);
    assert_eq!(differences, Vec::<String>::new());
}
