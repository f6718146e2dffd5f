//! Defects of Contiv's processor that must not come back. The numbers are those of the list in the reference.

use contiv_model::{
    Addresses, Event, Frontend, InterfaceName, Protocol, Resync, TrafficPolicy,
    object::{EndpointAddress, Service, ServiceType},
    wire,
};
use contiv_proto::Key;

use crate::builders::*;

fn this_node() -> Event {
    put(mk_node(MASTER, &["192.168.1.1"], &["10.1.1.0/24"]))
}

fn web() -> Event {
    put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"]))
}

fn web_endpoints(addresses: &[EndpointAddress]) -> Event {
    put(mk_endpoints(
        "default/web",
        &[mk_subset(addresses, &["http:8080/tcp"])],
    ))
}

/// Every order of the events.
fn orders(events: &[Event]) -> Vec<Vec<Event>> {
    if events.is_empty() {
        return vec![vec![]];
    }
    let mut orders = Vec::new();
    for first in 0..events.len() {
        let mut others = events.to_vec();
        let event = others.remove(first);
        for mut order in self::orders(&others) {
            order.insert(0, event.clone());
            orders.push(order);
        }
    }
    orders
}

/// Defect 1: A count of services became negative when the pod was deleted before its endpoints, and stayed wrong.
#[test]
fn pod_created_again_before_its_endpoints_serves_again() {
    let p1 = || of_pod("default/p1", "10.1.1.3");
    let mut processor = mk_processor_with([
        this_node(),
        web(),
        web_endpoints(&[p1()]),
        add_pod("default/p1", "tap1"),
    ]);
    processor.apply([delete_pod("default/p1")]);
    processor.apply([web_endpoints(&[])]);
    assert_eq!(interfaces(&processor), (vec![], vec![]));
    processor.apply([add_pod("default/p1", "tap1")]);
    processor.apply([web_endpoints(&[p1()])]);
    assert_eq!(interfaces(&processor).1, ["tap1"]);
}

/// Defect 2: A pod attached after its endpoints had arrived did not become a backend interface.
#[test]
fn pod_serves_in_any_order_of_its_endpoints_and_interface() {
    let events = [
        this_node(),
        web(),
        web_endpoints(&[of_pod("default/p1", "10.1.1.3")]),
        add_pod("default/p1", "tap1"),
    ];
    for order in orders(&events) {
        assert_eq!(interfaces(&mk_processor_with(order)).1, ["tap1"]);
    }
}

/// Defect 3: The redirection of a pod's address outlived the pod and affected the next one with that address.
#[test]
fn redirection_of_address_ends_with_its_pod() {
    let mut processor = mk_processor_with([
        web(),
        web_endpoints(&[at("10.1.1.3")]),
        put(mk_pod("default/old", &["10.1.1.3"])),
        put(mk_allocation(
            "default/old",
            &[mk_service_endpoint("eth1", "default", "10.5.0.1")],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.5.0.1:8080"]
    );
    processor.apply([
        delete_pod_object("default/old"),
        put(mk_pod("default/new", &["10.1.1.3"])),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.3:8080"]
    );
}

/// Defect 4: A custom allocation panicked while any service had no endpoints.
#[test]
fn allocation_may_come_while_services_have_no_endpoints() {
    let allocation = mk_allocation(
        "default/p1",
        &[mk_service_endpoint("eth1", "default", "10.5.0.1")],
    );
    let events = [
        web(),
        put(mk_pod("default/p1", &["10.1.1.3"])),
        put(allocation),
    ];
    for order in orders(&events) {
        assert!(backends(&mk_processor_with(order), "default/web").is_empty());
    }
}

/// Defect 5: By a mistake in operator precedence, interfaces without a network became frontends for pods of other nodes too;
/// and changes of a set were announced with the same old and new value.
#[test]
fn custom_interfaces_of_pods_of_other_nodes_are_ignored() {
    let allocation = |pod| put(mk_allocation(pod, &[mk_interface("eth1", "", "10.5.0.1")]));
    let mut processor = mk_processor_with([
        add_pod("default/p1", "tap1"),
        allocation("default/elsewhere"),
    ]);
    assert_eq!(interfaces(&processor).0, ["tap1"]);

    let change = processor
        .apply([allocation("default/p1")])
        .frontend_interfaces
        .unwrap();
    let names = |names: &[&str]| names.iter().map(|name| InterfaceName::new(*name)).collect();
    assert_eq!(
        (change.old, change.new),
        (names(&["tap1"]), names(&["default/p1/eth1", "tap1"]))
    );
}

/// Defect 6: A pod in two subsets was counted twice and always remained a backend.
#[test]
fn pod_in_two_subsets_stops_serving_with_last() {
    let subset = |port| mk_subset(&[of_pod("default/p1", "10.1.1.3")], &[port]);
    let service = mk_service(
        "default/web",
        &["10.96.0.1"],
        &["http:80/tcp", "tls:443/tcp"],
    );
    let both = mk_endpoints(
        "default/web",
        &[subset("http:8080/tcp"), subset("tls:8443/tcp")],
    );
    let one = mk_endpoints("default/web", &[subset("tls:8443/tcp")]);
    let none = mk_endpoints("default/web", &[]);
    let mut processor = mk_processor_with([
        this_node(),
        add_pod("default/p1", "tap1"),
        put(service),
        put(both),
    ]);
    assert_eq!(interfaces(&processor).1, ["tap1"]);
    processor.apply([put(one)]);
    assert_eq!(interfaces(&processor).1, ["tap1"]);
    processor.apply([put(none)]);
    assert!(interfaces(&processor).1.is_empty());
}

/// Defect 7: Every change of the endpoints, such as a new `resource_version` in a reference, updated the service everywhere.
#[test]
fn endpoint_differences_irrelevant_to_renderers_change_nothing() {
    let key = Key::parse("/vnf-agent/contiv-ksr/k8s/endpoints/web/namespace/default")
        .unwrap()
        .unwrap();
    let stored = |version: u32, addresses: [&str; 2]| {
        let addresses = addresses.map(|ip| {
            format!(
                r#"{{"ip":"{ip}","target_ref":{{"kind":"Pod","name":"p","resource_version":"{version}"}}}}"#
            )
        });
        let value = format!(
            r#"{{"endpoint_subsets":[{{"addresses":[{}],"ports":[{{"name":"http","port":8080}}]}}]}}"#,
            addresses.join(",")
        );
        Event::Put(wire::decode(&key, value.as_bytes(), 1).unwrap().unwrap())
    };
    let mut processor = mk_processor_with([web(), stored(1, ["10.1.1.3", "10.1.1.4"])]);
    assert_eq!(backends(&processor, "default/web").len(), 2);
    assert!(
        processor
            .apply([stored(2, ["10.1.1.3", "10.1.1.4"])])
            .is_empty(),
        "another version"
    );
    assert!(
        processor
            .apply([stored(2, ["10.1.1.4", "10.1.1.3"])])
            .is_empty(),
        "another order"
    );
}

/// Defect 8: A renderer that modified a set it was given modified the sets of the processor and of every other renderer.
#[test]
fn snapshot_changed_by_a_renderer_affects_no_other() {
    let processor = mk_processor_with([this_node(), add_pod("default/p1", "tap1"), web()]);
    let mut snapshot = processor.snapshot();
    snapshot.frontend_interfaces.clear();
    let service = std::sync::Arc::make_mut(
        snapshot
            .services
            .get_mut(&service_id("default/web"))
            .unwrap(),
    );
    service.cluster_ips = Addresses::new();
    assert_eq!(processor.snapshot().frontend_interfaces.len(), 1);
    assert_eq!(
        processor
            .service(&service_id("default/web"))
            .unwrap()
            .cluster_ips
            .len(),
        1
    );
}

/// Defect 9: Endpoint ports were matched by name alone, and SCTP became UDP.
#[test]
fn ports_match_by_protocol_too_and_sctp_stays_sctp() {
    let processor = mk_processor_with([
        put(mk_service(
            "default/web",
            &["10.96.0.1"],
            &["x:80/sctp", "x:80/udp"],
        )),
        put(mk_endpoints(
            "default/web",
            &[mk_subset(&[at("10.1.1.3")], &["x:8080/sctp", "x:9090/tcp"])],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/sctp -> 10.1.1.3:8080"]
    );
    let service = processor.service(&service_id("default/web")).unwrap();
    assert_eq!(service.ports[1].protocol, Protocol::Sctp);
}

/// Defect 10: The local policy for external traffic limited the cluster address to local backends as well.
#[test]
fn external_policy_local_does_not_affect_cluster_ips() {
    let service = Service {
        external_policy: TrafficPolicy::Local,
        ..mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])
    };
    let processor = mk_processor_with([
        this_node(),
        put(service),
        web_endpoints(&[at("10.1.1.3"), at("10.1.2.3")]),
    ]);
    let service = processor.service(&service_id("default/web")).unwrap();
    assert_eq!(service.internal_policy, TrafficPolicy::Cluster);
    assert_eq!(service.ports[0].cluster_backends().len(), 2);
    assert_eq!(service.ports[0].local_backends().len(), 1);
}

/// Defect 15: A value that could not be decoded was treated as a deletion.
#[test]
fn value_that_cannot_be_decoded_is_no_deletion() {
    let key = Key::parse("/vnf-agent/contiv-ksr/k8s/service/web/namespace/default")
        .unwrap()
        .unwrap();
    let good = br#"{"port":[{"name":"http","protocol":"TCP","port":80}],"cluster_ip":"10.96.0.1"}"#;
    let mut processor = mk_processor();
    processor.resync(mk_resync([wire::decode(&key, good, 1).unwrap().unwrap()]));
    let before = processor.snapshot();
    assert_eq!(before.services.len(), 1);

    for bad in [
        &b"{\"port\":"[..],
        b"",
        b"\xff\xfe",
        br#"{"port":[{"port":70000}]}"#,
        b"{\"name\":\"other\"}",
    ] {
        assert!(
            wire::decode(&key, bad, 2).is_err(),
            "{bad:?} makes no event at all"
        );
        let undecodable = [wire::object_key(&key).unwrap()].into();
        assert!(
            processor
                .resync(Resync {
                    objects: vec![],
                    undecodable
                })
                .is_empty()
        );
    }
    assert_eq!(processor.snapshot(), before);
}

/// Defect 16: Addresses of nodes that have no id leaked into the addresses on which node ports answer.
#[test]
fn addresses_of_other_nodes_are_never_node_port_addresses_here() {
    let processor = mk_processor_with([
        this_node(),
        put(mk_node("no-id", &["192.168.1.9"], &[])),
        put(mk_vpp_node(2, WORKER, &["192.168.16.2"])),
        put(mk_service(
            "default/web",
            &["10.96.0.1"],
            &["http:80:30080/tcp"],
        )),
    ]);
    assert_eq!(processor.snapshot().node.node_ips, ips(&["192.168.1.1"]));
}

/// Defect 17: A change of only the pod CIDR of a node was ignored.
#[test]
fn new_pod_range_of_this_node_is_seen() {
    let mut processor = mk_processor_with([this_node(), web(), web_endpoints(&[at("10.1.7.3")])]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.7.3:8080"]
    );
    let changes = processor.apply([put(mk_node(MASTER, &["192.168.1.1"], &["10.1.7.0/24"]))]);
    assert_eq!(changed(&changes), ["default/web"]);
    assert_eq!(
        changes.node.unwrap().pod_cidrs,
        ["10.1.7.0/24".parse().unwrap()].into()
    );
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.7.3:8080 local"]
    );
}

/// Contiv took a node port of 65536 + n for n, and a service port likewise.
#[test]
fn numbers_that_are_no_ports_are_refused_and_not_cut_short() {
    let key = Key::parse("/vnf-agent/contiv-ksr/k8s/service/web/namespace/default")
        .unwrap()
        .unwrap();
    let error = wire::decode(
        &key,
        br#"{"port":[{"port":65616,"node_port":95616}],"cluster_ip":"10.96.0.1"}"#,
        1,
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("spec.ports[0].port: 65616")
            && error.contains("spec.ports[0].nodePort: 95616"),
        "{error}"
    );
}

/// Entries of the processor's map of services were never removed, so that recreated services had old backends.
#[test]
fn service_created_again_has_only_current_backends() {
    let mut processor = mk_processor_with([web(), web_endpoints(&[at("10.1.1.3")])]);
    processor.apply([
        delete_service("default/web"),
        delete_endpoints("default/web"),
    ]);
    processor.apply([put(Service {
        service_type: ServiceType::NodePort,
        ..mk_service("default/web", &["10.96.0.2"], &["http:80:30080/tcp"])
    })]);
    assert!(backends(&processor, "default/web").is_empty());
    assert!(
        processor
            .service(&service_id("default/web"))
            .unwrap()
            .frontends()
            .contains(&Frontend::NodePort {
                protocol: Protocol::Tcp,
                port: 30080
            })
    );
}
