//! The scenarios of Contiv's own tests of its nat44 renderer (`nat44_renderer_test.go`), by their numbers in the reference.
//! Fixture: this node is "master"; pods 1 and 2 are on it, pod 3 is on the worker.

use contiv_model::{
    Event, Frontend, Processor, Protocol, TrafficPolicy,
    object::{EndpointAddress, Object, Service},
};

use crate::builders::*;

fn pod1() -> EndpointAddress {
    of_pod("default/pod1", "10.1.1.3")
}

fn pod2() -> EndpointAddress {
    of_pod("default/pod2", "10.1.1.4")
}

fn pod3() -> EndpointAddress {
    of_pod("default/pod3", "10.2.1.1")
}

fn nodes() -> [Event; 4] {
    [
        put(mk_node(MASTER, &["10.0.0.1"], &["10.1.1.0/24"])),
        put(mk_vpp_node(1, MASTER, &["192.168.16.1"])),
        put(mk_node(WORKER, &["10.0.0.2"], &["10.1.2.0/24"])),
        put(mk_vpp_node(2, WORKER, &["192.168.16.2"])),
    ]
}

fn mk_fixture() -> Processor {
    let pods = [add_pod("default/pod1", "if1"), add_pod("default/pod2", "if2")];
    mk_processor_with(nodes().into_iter().chain(pods))
}

fn service1() -> Service {
    Service {
        external_ips: ips(&["20.20.20.20"]),
        ..mk_service("default/service1", &["10.96.0.1"], &["http:80/tcp"])
    }
}

fn endpoints1() -> Event {
    put(mk_endpoints("default/service1", &[mk_subset(&[pod1(), pod2()], &["http:8080/tcp"])]))
}

/// Scenario 2. Here it does: a service without endpoints is rendered, to be rejected.
#[test]
fn metadata_without_endpoints_makes_service_without_backends() {
    let mut processor = mk_fixture();
    let changes = processor.apply([put(service1())]);
    assert_eq!(changed(&changes), ["default/service1"]);
    assert!(backends(&processor, "default/service1").is_empty());
    assert!(changes.backend_interfaces.is_none());
}

/// Scenario 3.
#[test]
fn added_pods_are_clients_only() {
    assert_eq!(interfaces(&mk_fixture()), (vec!["if1".into(), "if2".into()], vec![]));
}

/// Scenario 4.
#[test]
fn endpoints_of_both_pods_make_both_serve_at_every_address() {
    let mut processor = mk_fixture();
    processor.apply([put(service1())]);
    processor.apply([endpoints1()]);
    assert_eq!(
        backends(&processor, "default/service1"),
        ["80/tcp -> 10.1.1.3:8080 local", "80/tcp -> 10.1.1.4:8080 local"]
    );
    let address = |text| Frontend::Address { address: ip(text), protocol: Protocol::Tcp, port: 80 };
    let frontends = processor.service(&service_id("default/service1")).unwrap().frontends();
    assert_eq!(frontends, [address("10.96.0.1"), address("20.20.20.20")].into());
    assert_eq!(interfaces(&processor).1, ["if1", "if2"]);
}

/// Scenario 5.
#[test]
fn backend_that_moves_to_subset_with_another_port_is_replaced() {
    let mut processor = mk_fixture();
    processor.apply([put(service1()), endpoints1()]);
    let moved = put(mk_endpoints(
        "default/service1",
        &[mk_subset(&[pod1()], &["http:8080/tcp"]), mk_subset(&[pod2()], &["http:9090/tcp"])],
    ));
    let changes = processor.apply([moved]);
    assert_eq!(
        backends(&processor, "default/service1"),
        ["80/tcp -> 10.1.1.3:8080 local", "80/tcp -> 10.1.1.4:9090 local"]
    );
    assert!(changes.backend_interfaces.is_none());
}

/// Scenario 6.
#[test]
fn deleted_service_removes_its_frontends_and_frees_its_pods() {
    let mut processor = mk_fixture();
    processor.apply([put(service1()), endpoints1()]);
    let changes = processor.apply([delete_service("default/service1")]);
    assert!(changes.services[&service_id("default/service1")].new.is_none());
    assert_eq!(interfaces(&processor), (vec!["if1".into(), "if2".into()], vec![]));
}

/// Scenario 7.
#[test]
fn two_services_with_several_ports_coexist() {
    let dns = mk_service("kube-system/dns", &["10.96.0.10"], &["dns:53/udp", "dns-tcp:53/tcp"]);
    let dns_endpoints = mk_endpoints(
        "kube-system/dns",
        &[mk_subset(&[pod2(), pod3()], &["dns:10053/udp", "dns-tcp:10054/tcp"])],
    );
    let mut processor = mk_fixture();
    processor.apply([put(service1()), endpoints1(), put(dns), put(dns_endpoints)]);
    assert_eq!(
        backends(&processor, "kube-system/dns"),
        [
            "53/tcp -> 10.1.1.4:10054 local",
            "53/tcp -> 10.2.1.1:10054",
            "53/udp -> 10.1.1.4:10053 local",
            "53/udp -> 10.2.1.1:10053"
        ]
    );
    assert_eq!(interfaces(&processor).1, ["if1", "if2"]);
    processor.apply([delete_service("default/service1")]);
    assert_eq!(interfaces(&processor).1, ["if2"]);
}

/// Scenario 8. Here each node answers on its own addresses, so the worker's make no difference.
#[test]
fn node_ports_answer_on_addresses_this_node_has_at_moment() {
    let node_ips = |processor: &Processor| processor.snapshot().node.node_ips;
    let [master, vpp_master, worker, vpp_worker] = nodes();
    let mut processor =
        mk_processor_with([put(mk_service("default/s", &["10.96.0.1"], &["http:80:30080/tcp"]))]);
    assert!(node_ips(&processor).is_empty());
    processor.apply([master, vpp_master]);
    assert_eq!(node_ips(&processor), ips(&["10.0.0.1", "192.168.16.1"]));
    let changes = processor.apply([worker, vpp_worker]);
    assert!(changes.is_empty());
    processor.apply([put(mk_node(MASTER, &[], &["10.1.1.0/24"]))]);
    assert_eq!(node_ips(&processor), ips(&["192.168.16.1"]));
    processor.apply([Event::Delete(contiv_model::ObjectKey::VppNode(1))]);
    assert!(node_ips(&processor).is_empty());
}

/// Scenario 9.
#[test]
fn restart_keeps_only_what_is_still_stored() {
    let mut processor = mk_fixture();
    processor.apply([put(service1()), endpoints1()]);
    let mut restarted = mk_processor();
    restarted.apply([add_pod("default/pod1", "if1"), add_pod("default/pod2", "if2")]);
    let service2 = mk_service("default/service2", &["10.96.0.2"], &["http:80/tcp"]);
    let endpoints2 = mk_endpoints("default/service2", &[mk_subset(&[pod2()], &["http:8080/tcp"])]);
    let stored = nodes().into_iter().chain([put(service2), put(endpoints2)]);
    restarted.resync(mk_resync(stored.map(object_of)));
    assert_eq!(restarted.snapshot().services.len(), 1);
    assert_eq!(interfaces(&restarted).1, ["if2"]);
}

/// Scenario 10.
#[test]
fn resync_finds_services_added_and_removed_while_out_of_touch() {
    let mut processor = mk_fixture();
    processor.apply([put(service1()), endpoints1()]);
    let service2 = mk_service("default/service2", &["10.96.0.2"], &["http:80/tcp"]);
    let endpoints2 = mk_endpoints("default/service2", &[mk_subset(&[pod2()], &["http:8080/tcp"])]);
    let stored = nodes().into_iter().chain([put(service2), put(endpoints2)]);
    let changes = processor.resync(mk_resync(stored.map(object_of)));
    assert_eq!(changed(&changes), ["default/service1", "default/service2"]);
    assert!(changes.services[&service_id("default/service1")].new.is_none());
    assert_eq!(changes.backend_interfaces.unwrap().new.len(), 1);
    assert!(changes.node.is_none());
}

/// Scenario 15.
#[test]
fn pods_endpoints_and_ports_may_come_and_go_in_any_order() {
    let mut processor = mk_fixture();
    let endpoints = mk_subset(&[pod1(), pod2()], &["http:8080/tcp", "extra:9999/tcp"]);
    processor.apply([put(service1()), put(mk_endpoints("default/service1", &[endpoints]))]);
    assert_eq!(backends(&processor, "default/service1").len(), 2, "no service port is called extra");

    processor.apply([delete_pod("default/pod1")]);
    assert_eq!(interfaces(&processor), (vec!["if2".into()], vec!["if2".into()]));
    assert_eq!(backends(&processor, "default/service1").len(), 2, "the endpoints have not caught up");

    let mut more = service1();
    more.ports.push(mk_service_port("extra:9000/tcp"));
    processor.apply([put(more)]);
    assert_eq!(backends(&processor, "default/service1").len(), 4);

    processor.apply([delete_endpoints("default/service1")]);
    assert!(backends(&processor, "default/service1").is_empty());
    assert!(interfaces(&processor).1.is_empty());
}

/// Scenario 17. Here the cluster address is not limited; see the defects.
#[test]
fn local_policy_leaves_local_backends_to_external_traffic() {
    let mut processor = mk_fixture();
    let service = Service { external_policy: TrafficPolicy::Local, ..service1() };
    let endpoints = mk_endpoints("default/service1", &[mk_subset(&[pod1(), pod3()], &["http:8080/tcp"])]);
    processor.apply([put(service), put(endpoints)]);
    let service = processor.service(&service_id("default/service1")).unwrap();
    assert_eq!(service.external_policy, TrafficPolicy::Local);
    let local: Vec<_> = service.ports[0].local_backends().iter().map(|backend| backend.address).collect();
    assert_eq!(local, [ip("10.1.1.3")]);
}

fn object_of(event: Event) -> Object {
    match event {
        Event::Put(object) => object,
        other => panic!("{other:?} puts no object"),
    }
}
