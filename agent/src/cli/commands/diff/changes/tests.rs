use std::{net::IpAddr, sync::Arc};

use contiv_model::{
    Backend, Carrier, ContivService, NodeFacts, Protocol, ServicePort, TrafficPolicy, trace::Client,
};

use super::*;

const ONE: &str = "10.244.2.1:8080";
const OTHER: &str = "10.244.2.2:8080";
const PODS: ComparedClient = ComparedClient::Kind(Client::LocalPod);
const OTHERS: ComparedClient = ComparedClient::Kind(Client::External);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn snapshot(services: Vec<ContivService>) -> Snapshot {
    let node = NodeFacts {
        node_ips: [ip("192.168.0.1")].into(),
        local_ips: [ip("192.168.0.1")].into(),
        pod_cidrs: ["10.244.1.0/24".parse().unwrap()].into(),
        ..NodeFacts::default()
    };
    let services = services
        .into_iter()
        .map(|service| (service.id.clone(), Arc::new(service)));
    Snapshot {
        services: services.collect(),
        node,
        ..Snapshot::default()
    }
}

fn web(backends: &[&str]) -> ContivService {
    let backends = backends.iter();
    ContivService {
        cluster_ips: [ip("10.96.0.1")].into(),
        ports: vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "main".into(),
            node_port: Some(30_080),
            backends: backends
                .map(|it| Backend::new(it.parse().unwrap()))
                .collect(),
        }],
        ..ContivService::new(ServiceId::new("shop", "web"))
    }
}

fn between(old: &Snapshot, new: &Snapshot) -> BTreeSet<Change> {
    let StateComparison {
        changes, unknown, ..
    } = StateComparison::between(old, new);
    assert_eq!(unknown, BTreeSet::new());
    changes
}

#[test]
fn equal_states_change_nothing() {
    let state = snapshot(vec![web(&[ONE])]);
    assert_eq!(between(&state, &state.clone()), BTreeSet::new());
}

#[test]
fn new_service_and_lost_backend_are_named_by_frontend_and_clients() {
    let (none, one) = (snapshot(vec![]), snapshot(vec![web(&[ONE])]));
    let added = between(&none, &one);
    let to: BTreeSet<SocketAddr> = added.iter().map(|change| change.to).collect();
    let expected = ["10.96.0.1:80", "192.168.0.1:30080"].map(|to| to.parse().unwrap());
    assert_eq!(to, expected.into());
    let is_added = |change: &Change| {
        change.old.verdict == VerdictKind::NoService && change.new.verdict == VerdictKind::Served
    };
    assert!(added.iter().all(is_added), "{added:#?}");
    let lost = between(&snapshot(vec![web(&[ONE, OTHER])]), &one);
    let has_lost = |change: &Change| {
        change.old.backends.len() == 2 && change.service == Some(ServiceId::new("shop", "web"))
    };
    assert!(!lost.is_empty() && lost.iter().all(has_lost), "{lost:#?}");
    for gone in [snapshot(vec![web(&[])]), none] {
        let changes = between(&one, &gone);
        let is_refused = |change: &Change| change.new.verdict != VerdictKind::Served;
        assert!(
            !changes.is_empty() && changes.iter().all(is_refused),
            "{changes:#?}"
        );
    }
}

#[test]
fn policy_changes_only_what_comes_from_elsewhere() {
    let mut local = web(&[ONE]);
    local.external_policy = TrafficPolicy::Local;
    let changes = between(&snapshot(vec![web(&[ONE])]), &snapshot(vec![local]));
    let dropped = changes
        .iter()
        .find(|change| change.new.verdict == VerdictKind::Dropped)
        .unwrap();
    assert!(
        dropped.clients.contains(&OTHERS) && !dropped.clients.contains(&PODS),
        "{dropped:#?}"
    );
    assert!(changes.iter().all(|change| change.to.port() == 30_080));
}

#[test]
fn source_range_changes_only_what_it_leaves_out() {
    let mut balanced = web(&[ONE]);
    balanced.external_ips = [ip("192.0.2.7")].into();
    balanced.load_balancer_ips = balanced.external_ips.clone();
    let mut restricted = balanced.clone();
    restricted.source_ranges = ["203.0.113.0/24".parse().unwrap()].into();
    let changes = between(&snapshot(vec![balanced]), &snapshot(vec![restricted]));
    let dropped = changes
        .iter()
        .find(|change| change.new.verdict == VerdictKind::Dropped)
        .unwrap();
    let inside = ComparedClient::Source(ip("203.0.113.0"));
    let after = ComparedClient::Source(ip("203.0.114.0"));
    assert!(
        dropped.clients.contains(&after) && !dropped.clients.contains(&inside),
        "{changes:#?}"
    );
}

#[test]
fn settings_of_the_node_change_all_services() {
    let old = snapshot(vec![web(&[ONE])]);
    let mut hidden = old.clone();
    hidden.node.cluster_ip_masquerade = contiv_model::ClusterIpMasquerade::All;
    let changes = between(&old, &hidden);
    let [change] = &changes.iter().collect::<Vec<_>>()[..] else {
        panic!("{changes:#?}");
    };
    assert!(
        change.clients == [PODS].into()
            && change.old.masqueraded.is_empty()
            && change.new.masqueraded.len() == 1,
        "{change:#?}"
    );
    let mut elsewhere = old.clone();
    elsewhere.node.node_ips = [ip("192.168.0.1"), ip("192.168.9.9")].into();
    let changes = between(&old, &elsewhere);
    let to: BTreeSet<SocketAddr> = changes.iter().map(|change| change.to).collect();
    assert_eq!(to, ["192.168.9.9:30080".parse().unwrap()].into());
    let mut without_pods = old.clone();
    without_pods.node.pod_cidrs.clear();
    let changes = between(&old, &without_pods);
    assert!(
        changes.iter().any(|change| change.clients.contains(&PODS)),
        "what was a pod is named so: {changes:#?}"
    );
}

#[test]
fn interfaces_at_which_services_no_longer_answer_are_named() {
    let old = snapshot(vec![web(&[ONE])]);
    let mut limited = old.clone();
    limited.node.service_interfaces = Some(["lo", "eth0"].map(|name| name.parse().unwrap()).into());
    let changes = between(&old, &limited);
    let is_dropped = |change: &Change| {
        change.clients == [ComparedClient::OtherInterface].into()
            && change.new.verdict == VerdictKind::Dropped
    };
    assert!(
        !changes.is_empty() && changes.iter().all(is_dropped),
        "{changes:#?}"
    );
    assert_eq!(between(&limited, &limited.clone()), BTreeSet::new());
}

#[test]
fn node_port_with_the_same_change_at_many_addresses_is_one_row() {
    let mut old = snapshot(vec![]);
    old.node.node_ips = ["192.168.0.1", "192.168.0.2", "192.168.0.3"].map(ip).into();
    let new = Snapshot {
        node: old.node.clone(),
        ..snapshot(vec![web(&[ONE])])
    };
    let items = StateComparison::between(&old, &new).listing().items;
    let to: Vec<&str> = items.iter().map(|item| item.cells.0[1].text()).collect();
    assert!(
        to.contains(&"192.168.0.1:30080/tcp (node port) and 2 more"),
        "{to:?}"
    );
}

#[test]
fn other_weights_are_other_shares_of_the_same_backends() {
    let even = web(&[ONE, OTHER]);
    let mut uneven = even.clone();
    uneven.ports[0].backends[0].weight = 199;
    let (old, new) = (snapshot(vec![even]), snapshot(vec![uneven]));
    let changes = StateComparison::between(&old, &new);
    let all = &changes.changes;
    assert!(
        !all.is_empty() && all.iter().all(|change| change.old == change.new),
        "{all:#?}"
    );
    let items = changes.listing().items;
    let ends = [3, 4].map(|column: usize| items[0].cells.0[column].text());
    assert_eq!(
        ends,
        [
            "10.244.2.1:8080 50 %, 10.244.2.2:8080 50 %",
            "other shares: 10.244.2.1:8080 99.5 %, 10.244.2.2:8080 0.5 %"
        ]
    );
    let lost = between(&old, &snapshot(vec![web(&[ONE])]));
    assert!(lost.iter().all(|change| change.shares.is_none()));
}

#[test]
fn service_that_loses_its_address_to_another_one_is_named() {
    let older = ContivService {
        id: ServiceId::new("shop", "aaa"),
        ..web(&[OTHER])
    };
    let changes = StateComparison::between(&snapshot(vec![web(&[ONE])]), &snapshot(vec![older]));
    let names: Vec<String> = changes.services().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["shop/aaa", "shop/web"]);
    let items = changes.listing().items;
    assert_eq!(items[0].cells.0[0].text(), "shop/web -> shop/aaa");
}

#[test]
fn whether_routes_carry_it_is_unknown_without_the_agent() {
    let mut routed = web(&[ONE]);
    routed.assignment.addresses = Carrier::Route;
    let (old, new) = (snapshot(vec![web(&[ONE])]), snapshot(vec![routed]));
    let known = StateComparison::between(&old, &new);
    assert!(!known.changes.is_empty() && known.unknown.is_empty());
    let places = known.places();
    let unknown = known.with_unknown_routes();
    assert_eq!(unknown.changes, BTreeSet::new());
    assert_eq!(unknown.places(), places);
}

#[test]
fn change_in_progress_is_not_confirmed() {
    let (none, one) = (snapshot(vec![]), snapshot(vec![web(&[ONE])]));
    let first = || StateComparison::between(&none, &one);
    let again_at = |places: BTreeSet<Place>, state| {
        StateComparison::of(&OtherState::new(state), &one, |it| {
            places.contains(&it.place())
        })
    };
    let places = first().places();
    let (all, count) = (first().changes, first().frontends);
    let second = first().confirmed_by(again_at(places.clone(), &none));
    assert_eq!((second.changes, second.frontends), (all, count));
    assert!(first().confirmed_by(again_at(places, &one)).is_empty());
    assert!(again_at(BTreeSet::new(), &none).is_empty());
}
