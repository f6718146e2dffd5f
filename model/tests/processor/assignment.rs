//! Tests of the assignment of services to the renderer `route`.

use contiv_model::{
    Carrier, DirectRoutingBlocker, NodeName, Processor, ProcessorConfig,
    object::{Service, ServiceOptions},
};

use crate::builders::*;

/// A service with this address that requests routes.
fn asking(id: &str, cluster_ip: &str) -> Service {
    let options = ServiceOptions {
        routed: Some(true),
        ..ServiceOptions::default()
    };
    Service {
        options,
        ..mk_service(id, &[cluster_ip], &["http:80/tcp"])
    }
}

fn carrier(processor: &Processor, id: &str) -> Carrier {
    processor
        .service(&service_id(id))
        .unwrap()
        .assignment
        .addresses
}

#[test]
fn annotation_wins_over_configuration_which_is_for_others() {
    let config = |route_all| ProcessorConfig {
        route_runs: true,
        route_all,
        ..ProcessorConfig::new(NodeName::new(MASTER))
    };
    for (route_all, expected) in [(false, Carrier::Nftables), (true, Carrier::Route)] {
        let mut processor = Processor::new(config(route_all));
        let mut never = asking("a/never", "10.96.0.3");
        never.options.routed = Some(false);
        let silent = mk_service("a/silent", &["10.96.0.2"], &["http:80/tcp"]);
        processor.apply([
            put(asking("a/asking", "10.96.0.1")),
            put(silent),
            put(never),
        ]);
        assert_eq!(carrier(&processor, "a/asking"), Carrier::Route);
        assert_eq!(carrier(&processor, "a/silent"), expected);
        assert_eq!(carrier(&processor, "a/never"), Carrier::Nftables);
    }
}

#[test]
fn shared_address_is_translated_while_two_services_have_it() {
    let mut processor = mk_processor_with([put(asking("a/one", "10.96.0.1"))]);
    assert_eq!(carrier(&processor, "a/one"), Carrier::Route);
    let other = Service {
        external_ips: ips(&["10.96.0.1"]),
        ..mk_service("a/two", &["10.96.0.2"], &["tls:443/tcp"])
    };
    let changes = processor.apply([put(other)]);
    assert_eq!(
        changed(&changes),
        ["a/one", "a/two"],
        "also the one that was there already"
    );
    let one = processor
        .service(&service_id("a/one"))
        .unwrap()
        .assignment
        .clone();
    assert_eq!(one.addresses, Carrier::Nftables);
    assert_eq!(
        one.reason.as_deref(),
        Some(&DirectRoutingBlocker::SharedAddress(
            ip("10.96.0.1"),
            service_id("a/two")
        ))
    );
    let changes = processor.apply([delete_service("a/two")]);
    assert_eq!(changed(&changes), ["a/one", "a/two"]);
    assert_eq!(carrier(&processor, "a/one"), Carrier::Route);
}

#[test]
fn address_sharing_is_independent_of_earlier_port_changes() {
    let sharing = |id, port: &str| Service {
        external_ips: ips(&["10.96.0.1"]),
        ..mk_service(id, &[], &[port])
    };
    let mut processor = mk_processor_with([
        put(asking("a/one", "10.96.0.1")),
        put(sharing("a/two", "tls:443/tcp")),
        put(sharing("b/three", "tls:444/tcp")),
    ]);
    processor.apply([put(sharing("b/three", "ssh:22/tcp"))]);
    let reason = processor
        .service(&service_id("a/one"))
        .unwrap()
        .assignment
        .reason
        .clone();
    assert_eq!(
        reason.as_deref(),
        Some(&DirectRoutingBlocker::SharedAddress(
            ip("10.96.0.1"),
            service_id("a/two")
        ))
    );
}
