//! Several services that claim the same frontend.

use contiv_model::{
    Frontend, Processor, Protocol,
    object::{Seniority, Service},
};

use crate::builders::*;

/// A service that claims node port 30080 and has its own cluster address.
fn claimant(id: &str, cluster_ip: &str, created: Option<i64>, revision: i64) -> Service {
    Service {
        seniority: Seniority::new(created, revision),
        ..mk_service(id, &[cluster_ip], &["http:80:30080/tcp"])
    }
}

const NODE_PORT: Frontend = Frontend::NodePort {
    protocol: Protocol::Tcp,
    port: 30080,
};

/// The service that holds the node port according to this service's conflict; none if it holds the port itself.
fn holder(processor: &Processor, id: &str) -> Option<String> {
    processor
        .service(&service_id(id))
        .unwrap()
        .lost
        .get(&NODE_PORT)
        .map(ToString::to_string)
}

#[test]
fn older_service_holds_frontend_and_other_names_it() {
    let processor = mk_processor_with([
        put(claimant("a/young", "10.96.0.1", Some(20), 1)),
        put(claimant("b/old", "10.96.0.2", Some(10), 2)),
    ]);
    assert_eq!(holder(&processor, "a/young").as_deref(), Some("b/old"));
    assert_eq!(holder(&processor, "b/old"), None);
    assert_eq!(
        processor
            .service(&service_id("a/young"))
            .unwrap()
            .lost
            .len(),
        1,
        "its cluster address is its own"
    );
}

#[test]
fn age_is_creation_time_then_revision_then_id() {
    let wins = |older: Service, younger: Service| {
        let (old, young) = (older.id.to_string(), younger.id.to_string());
        for order in [[older.clone(), younger.clone()], [younger, older]] {
            let processor = mk_processor_with(order.map(put));
            assert_eq!(holder(&processor, &young).as_deref(), Some(&*old));
            assert_eq!(holder(&processor, &old), None);
        }
    };
    wins(
        claimant("z/a", "10.96.0.1", Some(1), 9),
        claimant("a/a", "10.96.0.2", Some(2), 1),
    );
    wins(
        claimant("z/a", "10.96.0.1", Some(9), 9),
        claimant("a/a", "10.96.0.2", None, 1),
    );
    wins(
        claimant("z/a", "10.96.0.1", None, 1),
        claimant("a/a", "10.96.0.2", None, 2),
    );
    wins(
        claimant("a/a", "10.96.0.1", Some(1), 1),
        claimant("a/b", "10.96.0.2", Some(1), 1),
    );
}

#[test]
fn loser_takes_over_when_holder_goes_and_both_are_in_change() {
    let mut processor = mk_processor_with([
        put(claimant("a/one", "10.96.0.1", Some(10), 1)),
        put(claimant("a/two", "10.96.0.2", Some(20), 2)),
        put(claimant("a/three", "10.96.0.3", Some(30), 3)),
    ]);
    assert_eq!(holder(&processor, "a/three").as_deref(), Some("a/one"));

    let changes = processor.apply([delete_service("a/one")]);
    assert_eq!(changed(&changes), ["a/one", "a/three", "a/two"]);
    assert_eq!(holder(&processor, "a/two"), None);
    assert_eq!(holder(&processor, "a/three").as_deref(), Some("a/two"));
}

#[test]
fn older_service_that_comes_late_takes_frontend_away() {
    let mut processor = mk_processor_with([put(claimant("a/young", "10.96.0.1", Some(20), 1))]);
    let changes = processor.apply([put(claimant("a/old", "10.96.0.2", Some(10), 2))]);
    assert_eq!(changed(&changes), ["a/old", "a/young"]);
    assert_eq!(holder(&processor, "a/young").as_deref(), Some("a/old"));
}

#[test]
fn further_loser_does_not_touch_those_that_lost_already() {
    let mut processor = mk_processor_with([
        put(claimant("a/one", "10.96.0.1", Some(10), 1)),
        put(claimant("a/two", "10.96.0.2", Some(20), 2)),
    ]);
    let changes = processor.apply([put(claimant("a/three", "10.96.0.3", Some(30), 3))]);
    assert_eq!(changed(&changes), ["a/three"]);
}

#[test]
fn frontend_is_free_when_its_holder_drops_it_or_is_not_rendered() {
    let old = claimant("a/old", "10.96.0.1", Some(10), 1);
    let young = claimant("a/young", "10.96.0.2", Some(20), 2);
    let without_node_port = Service {
        ports: vec![mk_service_port("http:80/tcp")],
        ..old.clone()
    };
    for given_up in [
        without_node_port,
        Service {
            headless: true,
            ..old.clone()
        },
    ] {
        let mut processor = mk_processor_with([put(old.clone()), put(young.clone())]);
        assert_eq!(holder(&processor, "a/young").as_deref(), Some("a/old"));
        processor.apply([put(given_up)]);
        assert_eq!(holder(&processor, "a/young"), None);
    }
}

#[test]
fn cluster_and_external_addresses_compete_per_port_and_protocol() {
    let old = mk_service("a/old", &["10.96.0.1"], &["http:80/tcp"]);
    let young = Service {
        external_ips: ips(&["10.96.0.1"]),
        seniority: Seniority::new(None, 9),
        ..mk_service(
            "a/young",
            &["10.96.0.2"],
            &["http:80/tcp", "http3:80/udp", "tls:443/tcp"],
        )
    };
    let processor = mk_processor_with([put(young), put(old)]);
    let lost = &processor.service(&service_id("a/young")).unwrap().lost;
    let expected = Frontend::Address {
        address: ip("10.96.0.1"),
        protocol: Protocol::Tcp,
        port: 80,
    };
    assert_eq!(lost.keys().collect::<Vec<_>>(), [&expected]);
}

#[test]
fn frontend_changing_hands_twice_in_a_batch_changes_nothing() {
    let old = claimant("a/old", "10.96.0.1", Some(10), 1);
    let mut processor = mk_processor_with([
        put(old.clone()),
        put(claimant("a/young", "10.96.0.2", Some(20), 2)),
    ]);
    assert!(
        processor
            .apply([delete_service("a/old"), put(old)])
            .is_empty()
    );
}
