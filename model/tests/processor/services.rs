//! Tests of the services that are rendered, and their properties.

use contiv_model::{
    Balance, ContivService, Frontend, NodeName, Processor, ProcessorConfig, Protocol,
    TrafficPolicy,
    object::{Node, Service, ServiceOptions, ServiceType},
};

use crate::builders::*;

/// The rendered service with this configuration.
fn rendered(service: Service, config: ProcessorConfig) -> ContivService {
    let id = service.id.clone();
    let mut processor = Processor::new(config);
    processor.apply([put(service)]);
    ContivService::clone(processor.service(&id).unwrap())
}

fn config() -> ProcessorConfig {
    ProcessorConfig::new(NodeName::new(MASTER))
}

fn is_rendered(service: Service) -> bool {
    let id = service.id.clone();
    mk_processor_with([put(service)]).service(&id).is_some()
}

#[test]
fn service_without_any_endpoints_is_rendered_without_backends() {
    let processor = mk_processor_with([put(mk_service(
        "default/web",
        &["10.96.0.1"],
        &["http:80/tcp"],
    ))]);
    let service = processor.service(&service_id("default/web")).unwrap();
    assert_eq!(service.ports.len(), 1);
    assert!(service.ports[0].backends.is_empty());
}

#[test]
fn headless_alias_and_foreign_proxy_services_are_not_rendered() {
    let service = || mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"]);
    assert!(is_rendered(service()));
    assert!(!is_rendered(Service {
        headless: true,
        ..service()
    }));
    assert!(!is_rendered(Service {
        service_type: ServiceType::ExternalName,
        ..service()
    }));
    assert!(!is_rendered(Service {
        proxy_name: Some("other".into()),
        ..service()
    }));
}

#[test]
fn named_proxy_serves_only_services_with_its_label() {
    let labelled = |name: Option<&str>| {
        let proxy_name = name.map(Into::into);
        Service {
            proxy_name,
            ..mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])
        }
    };
    for (label, expected) in [
        (None, false),
        (Some("contiv"), true),
        (Some("other"), false),
    ] {
        let name = Some("contiv".into());
        let mut processor = Processor::new(ProcessorConfig {
            service_proxy_name: name,
            ..config()
        });
        processor.apply([put(labelled(label))]);
        assert_eq!(
            processor.service(&service_id("default/web")).is_some(),
            expected,
            "{label:?}"
        );
    }
}

#[test]
fn service_without_cluster_ip_is_rendered_with_other_frontends() {
    assert!(!is_rendered(mk_service(
        "default/web",
        &[],
        &["http:80/tcp"]
    )));
    assert!(is_rendered(mk_service(
        "default/web",
        &[],
        &["http:80:30080/tcp"]
    )));
    let external_ips = ips(&["192.0.2.1"]);
    assert!(is_rendered(Service {
        external_ips,
        ..mk_service("default/web", &[], &["http:80/tcp"])
    }));
}

#[test]
fn service_that_becomes_headless_is_removed() {
    let service = mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"]);
    let mut processor = mk_processor_with([put(service.clone())]);
    let changes = processor.apply([put(Service {
        headless: true,
        ..service
    })]);
    assert!(changes.services[&service_id("default/web")].new.is_none());
}

#[test]
fn load_balancer_addresses_are_external_addresses() {
    let service = Service {
        service_type: ServiceType::LoadBalancer,
        external_ips: ips(&["192.0.2.1"]),
        load_balancer_ips: ips(&["192.0.2.2", "2001:db8::2"]),
        ..mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])
    };
    let processor = mk_processor_with([put(service)]);
    let service = processor.service(&service_id("default/web")).unwrap();
    assert_eq!(
        service.external_ips,
        ips(&["192.0.2.1", "192.0.2.2", "2001:db8::2"])
    );
    assert_eq!(
        service.load_balancer_ips,
        ips(&["192.0.2.2", "2001:db8::2"])
    );
}

#[test]
fn frontends_are_all_addresses_and_node_ports_each_once() {
    let service = Service {
        external_ips: ips(&["192.0.2.1", "10.96.0.1"]),
        ..mk_service(
            "default/web",
            &["10.96.0.1"],
            &["http:80:30080/tcp", "dns:53/udp"],
        )
    };
    let processor = mk_processor_with([put(service)]);
    let service = processor.service(&service_id("default/web")).unwrap();
    let address = |address: &str, protocol, port| Frontend::Address {
        address: ip(address),
        protocol,
        port,
    };
    let expected = [
        address("10.96.0.1", Protocol::Tcp, 80),
        address("10.96.0.1", Protocol::Udp, 53),
        address("192.0.2.1", Protocol::Tcp, 80),
        address("192.0.2.1", Protocol::Udp, 53),
        Frontend::NodePort {
            protocol: Protocol::Tcp,
            port: 30080,
        },
    ];
    assert_eq!(service.frontends(), expected.into_iter().collect());
    assert!(
        service.lost.is_empty(),
        "a service does not compete with itself"
    );
}

#[test]
fn contivs_reading_of_local_policy_is_switch() {
    let service = Service {
        external_policy: TrafficPolicy::Local,
        ..mk_service("default/web", &["10.96.0.1"], &["http:80:30080/tcp"])
    };
    for (contiv_local_policy, expected) in [
        (false, TrafficPolicy::Cluster),
        (true, TrafficPolicy::Local),
    ] {
        let config = ProcessorConfig {
            contiv_local_policy,
            ..ProcessorConfig::new(NodeName::new(MASTER))
        };
        let mut processor = Processor::new(config);
        processor.apply([put(service.clone())]);
        let rendered = processor.service(&service.id).unwrap();
        assert_eq!(
            (rendered.external_policy, rendered.internal_policy),
            (TrafficPolicy::Local, expected)
        );
    }
}

#[test]
fn internal_policy_of_its_own_is_kept() {
    let service = Service {
        internal_policy: TrafficPolicy::Local,
        session_affinity_timeout: 600,
        ..mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])
    };
    let processor = mk_processor_with([put(service)]);
    let service = processor.service(&service_id("default/web")).unwrap();
    assert_eq!(service.internal_policy, TrafficPolicy::Local);
    assert_eq!(service.external_policy, TrafficPolicy::Cluster);
    assert_eq!(service.session_affinity_timeout, 600);
}

#[test]
fn range_of_all_addresses_lifts_restriction_of_its_family() {
    for (given, expected) in [
        (
            &["10.0.0.0/8", "fd00::/8"][..],
            &["10.0.0.0/8", "fd00::/8"][..],
        ),
        (&["10.0.0.0/8", "0.0.0.0/0", "fd00::/8"], &["fd00::/8"]),
        (&["10.0.0.0/8", "::/0"], &["10.0.0.0/8"]),
        (&["0.0.0.0/0", "::/0"], &[]),
    ] {
        let service = Service {
            source_ranges: ranges(given),
            ..mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])
        };
        assert_eq!(
            rendered(service, config()).source_ranges,
            ranges(expected),
            "{given:?}"
        );
    }
}

#[test]
fn source_ranges_with_this_node_allow_the_load_balancer_address() {
    let service = Service {
        source_ranges: ranges(&["192.168.0.0/16", "fd00::/8"]),
        load_balancer_ips: ips(&["203.0.113.1", "2001:db8::1"]),
        ..mk_service("default/web", &["10.96.0.1", "fd09::1"], &["http:80/tcp"])
    };
    let mut processor = mk_processor_with([put(service)]);
    let source_ranges = |processor: &Processor| {
        processor
            .service(&service_id("default/web"))
            .unwrap()
            .source_ranges
            .clone()
    };
    assert_eq!(
        source_ranges(&processor),
        ranges(&["192.168.0.0/16", "fd00::/8"])
    );
    // The node's IPv6 address is in none of the ranges.
    let changes = processor.apply([put(mk_node(MASTER, &["192.168.1.1", "2001:db8::7"], &[]))]);
    assert_eq!(changed(&changes), ["default/web"]);
    assert_eq!(
        source_ranges(&processor),
        ranges(&["192.168.0.0/16", "fd00::/8", "203.0.113.1/32"])
    );
    // External addresses beside internal ones, and second addresses, are not primary addresses.
    processor.apply([put(Node {
        external_ips: vec![ip("192.168.7.7")],
        ..mk_node(MASTER, &["10.0.0.1", "192.168.1.1"], &[])
    })]);
    assert_eq!(
        source_ranges(&processor),
        ranges(&["192.168.0.0/16", "fd00::/8"])
    );
}

#[test]
fn source_ranges_restrict_node_ports_only_if_configured() {
    for (configured, given, expected) in [
        (false, "10.0.0.0/8", false),
        (true, "10.0.0.0/8", true),
        (true, "0.0.0.0/0", false),
    ] {
        let service = Service {
            source_ranges: ranges(&[given]),
            ..mk_service("default/web", &["10.96.0.1"], &["http:80:30080/tcp"])
        };
        let config = ProcessorConfig {
            source_ranges_on_node_ports: configured,
            ..config()
        };
        assert_eq!(
            rendered(service, config).source_ranges_on_node_ports,
            expected,
            "{configured} {given}"
        );
    }
}

#[test]
fn service_options_reach_renderers_and_shared_affinity_too() {
    let service = |session_affinity_timeout| Service {
        session_affinity_timeout,
        health_check_node_port: Some(32000),
        options: ServiceOptions {
            affinity_shared: true,
            balance: Balance::ClientAddress,
            prefer_local: false,
            reset_connections: true,
            routed: None,
            failover: None,
        },
        ..mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])
    };
    for (timeout, expected) in [(0, false), (600, true)] {
        let rendered = rendered(service(timeout), config());
        assert_eq!(rendered.affinity_shared, expected);
        assert_eq!(
            (rendered.balance, rendered.reset_connections),
            (Balance::ClientAddress, true)
        );
        assert_eq!(rendered.health_check_node_port, Some(32000));
    }
}

#[test]
fn service_ranges_of_configuration_are_facts_about_node() {
    let service_cidrs = ranges(&["10.96.0.0/12", "fd00:10:96::/108"]);
    let processor = Processor::new(ProcessorConfig {
        service_cidrs: service_cidrs.clone(),
        ..config()
    });
    assert_eq!(processor.snapshot().node.service_cidrs, service_cidrs);
}
