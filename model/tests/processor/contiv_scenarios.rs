//! The scenarios of Contiv's own tests of its nat44 renderer (`nat44_renderer_test.go`), by their numbers in the reference.
//! Fixture: this node is "master"; pods 1 and 2 are on it, pod 3 is on the worker.

use contiv_model::{
    Event, Frontend, NodeName, NodePortAddresses, ObjectKey, Processor, ProcessorConfig, Protocol,
    TrafficPolicy,
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

fn pods() -> [Event; 2] {
    [
        add_pod("default/pod1", "if1"),
        add_pod("default/pod2", "if2"),
    ]
}

fn mk_fixture() -> Processor {
    mk_processor_with(nodes().into_iter().chain(pods()))
}

fn config() -> ProcessorConfig {
    ProcessorConfig::new(NodeName::new(MASTER))
}

fn service1() -> Service {
    Service {
        external_ips: ips(&["20.20.20.20"]),
        ..mk_service("default/service1", &["10.96.0.1"], &["http:80/tcp"])
    }
}

fn endpoints1() -> Event {
    put(mk_endpoints(
        "default/service1",
        &[mk_subset(&[pod1(), pod2()], &["http:8080/tcp"])],
    ))
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
    assert_eq!(
        interfaces(&mk_fixture()),
        (vec!["if1".into(), "if2".into()], vec![])
    );
}

/// Scenario 4.
#[test]
fn endpoints_of_both_pods_make_both_serve_at_every_address() {
    let mut processor = mk_fixture();
    processor.apply([put(service1())]);
    processor.apply([endpoints1()]);
    assert_eq!(
        backends(&processor, "default/service1"),
        [
            "80/tcp -> 10.1.1.3:8080 local",
            "80/tcp -> 10.1.1.4:8080 local"
        ]
    );
    let address = |text| Frontend::Address {
        address: ip(text),
        protocol: Protocol::Tcp,
        port: 80,
    };
    let frontends = processor
        .service(&service_id("default/service1"))
        .unwrap()
        .frontends();
    assert_eq!(
        frontends,
        [address("10.96.0.1"), address("20.20.20.20")].into()
    );
    assert_eq!(interfaces(&processor).1, ["if1", "if2"]);
}

/// Scenario 5.
#[test]
fn backend_that_moves_to_subset_with_another_port_is_replaced() {
    let mut processor = mk_fixture();
    processor.apply([put(service1()), endpoints1()]);
    let moved = put(mk_endpoints(
        "default/service1",
        &[
            mk_subset(&[pod1()], &["http:8080/tcp"]),
            mk_subset(&[pod2()], &["http:9090/tcp"]),
        ],
    ));
    let changes = processor.apply([moved]);
    assert_eq!(
        backends(&processor, "default/service1"),
        [
            "80/tcp -> 10.1.1.3:8080 local",
            "80/tcp -> 10.1.1.4:9090 local"
        ]
    );
    assert!(changes.backend_interfaces.is_none());
    let change = &changes.services[&service_id("default/service1")];
    let frontends = [&change.old, &change.new].map(|it| it.as_ref().unwrap().frontends());
    assert_eq!(frontends[0], frontends[1], "clients still ask for the same");
}

/// Scenario 6.
#[test]
fn deleted_service_removes_its_frontends_and_frees_its_pods() {
    let mut processor = mk_fixture();
    processor.apply([put(service1()), endpoints1()]);
    let changes = processor.apply([delete_service("default/service1")]);
    assert!(
        changes.services[&service_id("default/service1")]
            .new
            .is_none()
    );
    assert_eq!(
        processor.services().count(),
        0,
        "its endpoints alone are no service"
    );
    assert_eq!(
        interfaces(&processor),
        (vec!["if1".into(), "if2".into()], vec![])
    );
}

/// Scenario 7, with a local weight of 2.
#[test]
fn two_services_with_several_ports_coexist() {
    let mut processor = Processor::new(ProcessorConfig {
        local_endpoint_weight: 2,
        ..config()
    });
    processor.apply(nodes().into_iter().chain(pods()));
    let web = Service {
        external_ips: ips(&["20.20.20.20"]),
        ..mk_service(
            "default/service1",
            &["10.96.0.1"],
            &["http:80/tcp", "https:443:30443/tcp"],
        )
    };
    let dns = mk_service(
        "another-ns/service2",
        &["10.96.0.10"],
        &["dns-tcp:53/tcp", "dns-udp:53/udp"],
    );
    processor.apply([put(web), put(dns)]);
    for id in ["default/service1", "another-ns/service2"] {
        assert!(backends(&processor, id).is_empty());
    }
    assert!(interfaces(&processor).1.is_empty());

    let web_pods = mk_subset(&[pod1(), pod2()], &["http:8080/tcp", "https:8443/tcp"]);
    let dns_pods = [
        mk_subset(&[pod1()], &["dns-tcp:10053/tcp", "dns-udp:10053/udp"]),
        mk_subset(&[pod3()], &["dns-tcp:53/tcp", "dns-udp:53/udp"]),
    ];
    processor.apply([
        put(mk_endpoints("default/service1", &[web_pods])),
        put(mk_endpoints("another-ns/service2", &dns_pods)),
    ]);
    assert_eq!(
        backends(&processor, "default/service1"),
        [
            "80/tcp -> 10.1.1.3:8080 local x2",
            "80/tcp -> 10.1.1.4:8080 local x2",
            "443/tcp -> 10.1.1.3:8443 local x2",
            "443/tcp -> 10.1.1.4:8443 local x2"
        ]
    );
    assert_eq!(
        backends(&processor, "another-ns/service2"),
        [
            "53/tcp -> 10.1.1.3:10053 local x2",
            "53/tcp -> 10.2.1.1:53",
            "53/udp -> 10.1.1.3:10053 local x2",
            "53/udp -> 10.2.1.1:53"
        ]
    );
    let address = |text, port| Frontend::Address {
        address: ip(text),
        protocol: Protocol::Tcp,
        port,
    };
    let expected = [
        address("10.96.0.1", 80),
        address("10.96.0.1", 443),
        address("20.20.20.20", 80),
        address("20.20.20.20", 443),
        Frontend::NodePort {
            protocol: Protocol::Tcp,
            port: 30443,
        },
    ];
    let service = processor.service(&service_id("default/service1")).unwrap();
    assert_eq!(service.frontends(), expected.into_iter().collect());
    assert_eq!(interfaces(&processor).1, ["if1", "if2"]);
    processor.apply([delete_service("default/service1")]);
    assert_eq!(
        interfaces(&processor).1,
        ["if1"],
        "it still serves the other one"
    );
}

/// Scenario 8. Here each node answers on its own addresses, so the worker's make no difference.
#[test]
fn node_ports_answer_on_addresses_this_node_has_at_moment() {
    let node_ips = |processor: &Processor| processor.snapshot().node.node_ips;
    let [master, vpp_master, worker, vpp_worker] = nodes();
    let mut processor = mk_processor_with([put(mk_service(
        "default/s",
        &["10.96.0.1"],
        &["http:80:30080/tcp"],
    ))]);
    assert!(node_ips(&processor).is_empty());
    processor.apply([master, vpp_master]);
    assert_eq!(node_ips(&processor), ips(&["10.0.0.1", "192.168.16.1"]));
    let changes = processor.apply([worker, vpp_worker]);
    assert!(changes.is_empty());
    processor.apply([put(mk_node(MASTER, &[], &["10.1.1.0/24"]))]);
    assert_eq!(node_ips(&processor), ips(&["192.168.16.1"]));
    processor.apply([Event::Delete(ObjectKey::VppNode(1))]);
    assert!(node_ips(&processor).is_empty());
}

/// Scenario 8, where node ports answer at the addresses of all nodes, as in Contiv.
#[test]
fn node_ports_of_cluster_follow_each_address_of_other_nodes() {
    let node_port_addresses = [NodePortAddresses::Cluster].into();
    let mut processor = Processor::new(ProcessorConfig {
        node_port_addresses,
        ..config()
    });
    let others = |events: Vec<Event>, processor: &mut Processor| {
        let changes = processor.apply(events);
        assert!(
            changes.services.is_empty(),
            "a node port has no address of its own"
        );
        let facts = changes.node.unwrap();
        (facts.node_ips, facts.other_node_ips)
    };
    processor.apply([put(mk_service(
        "default/s",
        &["10.96.0.1"],
        &["https:443:30443/tcp"],
    ))]);
    let [master, vpp_master, worker, vpp_worker] = nodes();
    let own = ips(&["10.0.0.1", "192.168.16.1"]);
    assert_eq!(
        others(vec![master, vpp_master], &mut processor),
        (own, ips(&[]))
    );
    let both = ips(&["10.0.0.2", "192.168.16.2"]);
    assert_eq!(others(vec![worker, vpp_worker], &mut processor).1, both);
    let without_address = vec![put(mk_node(WORKER, &[], &["10.1.2.0/24"]))];
    assert_eq!(
        others(without_address, &mut processor).1,
        ips(&["192.168.16.2"])
    );
    let gone = [
        ObjectKey::VppNode(2),
        ObjectKey::Node(NodeName::new(WORKER)),
    ]
    .map(Event::Delete);
    assert_eq!(
        others(gone.into(), &mut processor),
        (ips(&["10.0.0.1", "192.168.16.1"]), ips(&[]))
    );
}

/// Scenario 9.
#[test]
fn restart_keeps_only_what_is_still_stored() {
    let mut processor = mk_fixture();
    processor.apply([put(service1()), endpoints1()]);
    let mut restarted = mk_processor();
    restarted.apply([
        add_pod("default/pod1", "if1"),
        add_pod("default/pod2", "if2"),
    ]);
    let service2 = mk_service("default/service2", &["10.96.0.2"], &["http:80/tcp"]);
    let endpoints2 = mk_endpoints(
        "default/service2",
        &[mk_subset(&[pod2()], &["http:8080/tcp"])],
    );
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
    let endpoints2 = mk_endpoints(
        "default/service2",
        &[mk_subset(&[pod2()], &["http:8080/tcp"])],
    );
    let stored = nodes().into_iter().chain([put(service2), put(endpoints2)]);
    let changes = processor.resync(mk_resync(stored.map(object_of)));
    assert_eq!(changed(&changes), ["default/service1", "default/service2"]);
    assert!(
        changes.services[&service_id("default/service1")]
            .new
            .is_none()
    );
    assert_eq!(changes.backend_interfaces.unwrap().new.len(), 1);
    assert!(changes.node.is_none());
}

/// Scenario 15.
#[test]
fn pods_endpoints_and_ports_may_come_and_go_in_any_order() {
    let mut processor = mk_fixture();
    let everywhere = mk_subset(&[pod1(), pod2(), pod3()], &["http:8080/tcp"]);
    processor.apply([
        put(service1()),
        put(mk_endpoints("default/service1", &[everywhere])),
    ]);
    let expected = [
        "80/tcp -> 10.1.1.3:8080 local",
        "80/tcp -> 10.1.1.4:8080 local",
        "80/tcp -> 10.2.1.1:8080",
    ];
    assert_eq!(backends(&processor, "default/service1"), expected);

    processor.apply([delete_pod("default/pod2")]);
    assert_eq!(
        interfaces(&processor),
        (vec!["if1".into()], vec!["if1".into()])
    );
    assert_eq!(
        backends(&processor, "default/service1").len(),
        3,
        "the endpoints have not caught up"
    );

    let caught_up = [
        mk_subset(&[pod1()], &["http:8080/tcp", "https:8443/tcp"]),
        mk_subset(&[pod3()], &["http:8080/tcp", "https:443/tcp"]),
    ];
    processor.apply([put(mk_endpoints("default/service1", &caught_up))]);
    let expected = ["80/tcp -> 10.1.1.3:8080 local", "80/tcp -> 10.2.1.1:8080"];
    assert_eq!(
        backends(&processor, "default/service1"),
        expected,
        "no service port is called https"
    );

    let mut more = service1();
    more.ports.push(mk_service_port("https:443/tcp"));
    processor.apply([put(more)]);
    let https = ["443/tcp -> 10.1.1.3:8443 local", "443/tcp -> 10.2.1.1:443"];
    assert_eq!(
        backends(&processor, "default/service1"),
        [&expected[..], &https].concat()
    );

    let mut fewer = service1();
    fewer.ports = vec![mk_service_port("https:443/tcp")];
    processor.apply([put(fewer)]);
    assert_eq!(backends(&processor, "default/service1"), https);

    processor.apply([delete_pod("default/pod1")]);
    assert_eq!(interfaces(&processor), (vec![], vec![]));
    processor.apply([delete_endpoints("default/service1")]);
    assert!(backends(&processor, "default/service1").is_empty());
}

/// Scenario 17. Here the cluster address is not limited; see the defects.
#[test]
fn external_policy_local_does_not_apply_to_cluster_ips() {
    let mut processor = mk_fixture();
    let service = Service {
        external_policy: TrafficPolicy::Local,
        ..service1()
    };
    let endpoints = mk_endpoints(
        "default/service1",
        &[mk_subset(&[pod1(), pod3()], &["http:8080/tcp"])],
    );
    processor.apply([put(service), put(endpoints)]);
    let service = processor.service(&service_id("default/service1")).unwrap();
    assert_eq!(service.external_policy, TrafficPolicy::Local);
    let local: Vec<_> = service.ports[0]
        .local_backends()
        .iter()
        .map(|backend| backend.address)
        .collect();
    assert_eq!(local, [ip("10.1.1.3")]);
    assert_eq!(service.internal_policy, TrafficPolicy::Cluster);
    assert_eq!(service.ports[0].cluster_backends().len(), 2);
}

fn object_of(event: Event) -> Object {
    match event {
        Event::Put(object) => object,
        other => panic!("{other:?} puts no object"),
    }
}
