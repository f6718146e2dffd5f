use super::*;
use crate::{
    Balance, TrafficPolicy,
    object::{Seniority, Service, ServiceOptions, ServiceType},
};

fn service(value: &str) -> Service {
    match read(Kind::Service, value) {
        Object::Service(service) => *service,
        other => panic!("{other:?}"),
    }
}

#[test]
fn service_as_contiv_stores_it_is_read() {
    let service = service(
        r#"{"name":"web","namespace":"default","port":[{"name":"http","protocol":"TCP","port":80,
            "target_port":{"int_val":8080},"node_port":30080}],"selector":{"app":"nginx"},
            "cluster_ip":"10.104.58.114","service_type":"NodePort","session_affinity":"None",
            "external_traffic_policy":"Local","annotations":{}}"#,
    );
    assert_eq!(service.id, ServiceId::new("default", "web"));
    assert_eq!(service.service_type, ServiceType::NodePort);
    assert_eq!(service.cluster_ips, ips(&["10.104.58.114"]));
    assert_eq!(service.external_policy, TrafficPolicy::Local);
    assert_eq!(service.internal_policy, TrafficPolicy::Cluster);
    assert_eq!(service.session_affinity_timeout, 0);
    assert_eq!((service.ports[0].port, service.ports[0].node_port), (80, Some(30080)));
    assert_eq!(service.seniority, Seniority::new(None, 7));
}

#[test]
fn headless_services_have_the_address_none() {
    assert!(service(r#"{"cluster_ip":"None"}"#).headless);
    assert!(service(r#"{"cluster_ips":["None"]}"#).headless);
    assert!(!service("{}").headless);
}

#[test]
fn client_affinity_lasts_three_hours_by_default() {
    let timeout = |value| service(value).session_affinity_timeout;
    assert_eq!(timeout(r#"{"session_affinity":"ClientIP"}"#), 10_800);
    assert_eq!(timeout(r#"{"session_affinity":"ClientIP","session_affinity_timeout":60}"#), 60);
    assert_eq!(timeout(r#"{"session_affinity":"None","session_affinity_timeout":60}"#), 0);
}

#[test]
fn ingress_addresses_need_a_load_balancer_in_vip_mode() {
    let ingress = r#""lb_ingress_ips":["","192.0.2.1"]"#;
    let read = |rest: &str| service(&format!("{{{ingress}{rest}}}")).load_balancer_ips;
    assert_eq!(read(r#","service_type":"LoadBalancer""#), ips(&["192.0.2.1"]));
    assert_eq!(read(r#","service_type":"NodePort""#), ips(&[]));
    // The newer form replaces the older one, which has no mode.
    let newer = r#","service_type":"LoadBalancer","load_balancer_ingress":[{"ip":"192.0.2.2","ip_mode":"VIP"},
        {"ip":"192.0.2.3"},{"ip":"192.0.2.4","ip_mode":"Proxy"},{"hostname":"lb.example.com"}]"#;
    assert_eq!(read(newer), ips(&["192.0.2.2", "192.0.2.3"]));
}

#[test]
fn source_ranges_need_a_load_balancer_and_are_trimmed() {
    let read = |service_type: &str| {
        let value = format!(
            r#"{{"service_type":"{service_type}","loadbalancer_source_ranges":[" 10.0.0.7/8 ","fd00::/8\n"]}}"#
        );
        service(&value).source_ranges.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(read("LoadBalancer"), ["10.0.0.0/8", "fd00::/8"]);
    assert!(read("NodePort").is_empty());
}

#[test]
fn health_check_port_needs_load_balancer_and_external_local() {
    let read = |service_type: &str, policy: &str, port: u16| {
        let value = format!(
            r#"{{"service_type":"{service_type}","external_traffic_policy":"{policy}","health_check_node_port":{port}}}"#
        );
        service(&value).health_check_node_port
    };
    assert_eq!(read("LoadBalancer", "Local", 32000), Some(32000));
    assert_eq!(read("LoadBalancer", "Local", 0), None);
    assert_eq!(read("LoadBalancer", "Cluster", 32000), None);
    assert_eq!(read("NodePort", "Local", 32000), None);
}

#[test]
fn options_are_annotations_and_others_mean_nothing() {
    let read = |annotations: &str| service(&format!(r#"{{"annotations":{{{annotations}}}}}"#)).options;
    let default = ServiceOptions::default();
    assert_eq!(read(r#""example.com/balance":"x","contiv.io/other":"x""#), default);
    for (annotation, expected) in [
        (r#""contiv.io/session-affinity-scope":"port""#, default),
        (
            r#""contiv.io/session-affinity-scope":"service""#,
            ServiceOptions { affinity_shared: true, ..default },
        ),
        (
            r#""contiv.io/balance":"client-address""#,
            ServiceOptions { balance: Balance::ClientAddress, ..default },
        ),
        (r#""contiv.io/prefer-local":"true""#, ServiceOptions { prefer_local: true, ..default }),
        (r#""contiv.io/reset-connections":"true""#, ServiceOptions { reset_connections: true, ..default }),
    ] {
        assert_eq!(read(annotation), expected, "{annotation}");
    }
}

#[test]
fn invalid_annotations_ranges_and_health_check_ports_are_named() {
    let problems = problems(
        Kind::Service,
        r#"{"annotations":{"contiv.io/balance":"least-conn","contiv.io/prefer-local":"1"},
            "loadbalancer_source_ranges":["fd00::/8","10.0.0.1"],"health_check_node_port":-1}"#,
    );
    for (field, hint) in [
        ("annotations[contiv.io/balance]: ", "neither random nor client-address"),
        ("annotations[contiv.io/prefer-local]: ", "neither false nor true"),
        ("loadbalancer_source_ranges[1]: ", "address range"),
        ("health_check_node_port: ", "1 to 65535"),
    ] {
        let found = problems.iter().find(|problem| problem.starts_with(field));
        assert!(found.is_some_and(|problem| problem.contains(hint)), "{field}: {problems:#?}");
    }
    assert_eq!(problems.len(), 4, "{problems:#?}");
}

#[test]
fn service_of_another_proxy_and_its_age_are_recognised() {
    let service = service(
        r#"{"labels":{"service.kubernetes.io/service-proxy-name":"x"},"creation_timestamp":"1700000000"}"#,
    );
    assert_eq!(service.proxy_name.as_deref(), Some("x"));
    assert_eq!(service.seniority, Seniority::new(Some(1_700_000_000), 7));
}

#[test]
fn alias_may_have_ports_that_mean_nothing() {
    let service =
        service(r#"{"service_type":"ExternalName","external_name":"example.com","port":[{"port":0}]}"#);
    assert!(service.ports.is_empty());
}

#[test]
fn invalid_service_fields_are_named_with_valid_values() {
    let problems = problems(
        Kind::Service,
        r#"{"port":[{"port":70000,"name":"a b"},{"port":81,"node_port":-1}],
            "cluster_ip":"10.96.0.300","cluster_ips":["10.96.0.1","10.96.0.2"],"external_ips":["127.0.0.1"]}"#,
    );
    for (field, hint) in [
        ("port[0].port: ", "1 to 65535"),
        ("port[0].name: ", "hyphens"),
        ("port[1].node_port: ", "1 to 65535"),
        ("cluster_ip: ", "10.1.2.3"),
        ("cluster_ips[1]: ", "at most one"),
        ("external_ips[0]: ", "loopback"),
    ] {
        let found = problems.iter().find(|problem| problem.starts_with(field));
        assert!(found.is_some_and(|problem| problem.contains(hint)), "{field}: {problems:#?}");
    }
    assert_eq!(problems.len(), 6, "{problems:#?}");
}

#[test]
fn service_with_unknown_values_keeps_rest() {
    let (object, warnings) = read_all(
        Kind::Service,
        r#"{"port":[{"port":80,"protocol":"ICMP"},{"port":81,"name":"a","node_port":30081}],"cluster_ip":"10.96.0.1",
            "service_type":"Foo","session_affinity":"Cookie","external_traffic_policy":"local",
            "internal_traffic_policy":"X","ip_families":["IPv4","IPv5"],
            "load_balancer_ingress":[{"ip":"192.0.2.1","ip_mode":"Q"}]}"#,
    );
    let Object::Service(service) = object else { panic!("{object:?}") };
    assert_eq!(service.cluster_ips, ips(&["10.96.0.1"]));
    assert_eq!(service.ports.iter().map(|port| port.port).collect::<Vec<_>>(), [81]);
    assert_eq!((service.service_type, service.session_affinity_timeout), (ServiceType::ClusterIp, 0));
    let policies = (service.external_policy, service.internal_policy);
    assert_eq!(policies, (TrafficPolicy::Cluster, TrafficPolicy::Cluster));
    for (field, hint) in [
        ("port[0].protocol: ", "TCP, UDP or SCTP"),
        ("service_type: ", "ClusterIP, NodePort, LoadBalancer, ExternalName"),
        ("session_affinity: ", "None, ClientIP"),
        ("external_traffic_policy: ", "Cluster, Local"),
        ("internal_traffic_policy: ", "Cluster, Local"),
        ("ip_families[1]: ", "IPv4, IPv6"),
        ("load_balancer_ingress[0].ip_mode: ", "VIP, Proxy"),
    ] {
        let found = warnings.iter().find(|warning| warning.starts_with(field));
        assert!(found.is_some_and(|warning| warning.contains(hint)), "{field}: {warnings:#?}");
    }
    assert_eq!(warnings.len(), 7, "{warnings:#?}");
}

#[test]
fn address_of_unknown_mode_is_left_to_load_balancer() {
    let (object, _) = read_all(
        Kind::Service,
        r#"{"service_type":"LoadBalancer","load_balancer_ingress":[{"ip":"192.0.2.1","ip_mode":"Q"},
            {"ip":"192.0.2.2"}]}"#,
    );
    let Object::Service(service) = object else { panic!("{object:?}") };
    assert_eq!(service.load_balancer_ips, ips(&["192.0.2.2"]));
}

#[test]
fn addresses_with_leading_zeros_are_read_in_decimal() {
    let (object, warnings) = read_all(
        Kind::Service,
        r#"{"service_type":"LoadBalancer","cluster_ip":"172.30.0.041","external_ips":["192.000.002.010"],
            "loadbalancer_source_ranges":["203.0.113.000/025"],"lb_ingress_ips":["198.051.100.1"]}"#,
    );
    let Object::Service(service) = object else { panic!("{object:?}") };
    assert_eq!(service.cluster_ips, ips(&["172.30.0.41"]));
    assert_eq!(service.external_ips, ips(&["192.0.2.10"]));
    assert_eq!(service.load_balancer_ips, ips(&["198.51.100.1"]));
    assert_eq!(service.source_ranges, ["203.0.113.0/25".parse().unwrap()].into());
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    assert!(problems(Kind::Service, r#"{"cluster_ip":"172.30.0.0999"}"#)[0].contains("\"172.30.0.0999\""));
}

#[test]
fn port_cannot_be_twice_in_one_service() {
    let twice = r#"{"port":[{"port":80,"node_port":30080},{"port":80,"protocol":"UDP","node_port":30080},
        {"port":80,"name":"b"},{"port":81,"name":"c","node_port":30080}]}"#;
    let problems = problems(Kind::Service, twice);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("port[2].port: 80/tcp") && problems[0].contains("port[0]"),
        "{problems:?}"
    );
    assert!(problems[1].starts_with("port[3].node_port: 30080/tcp"), "{problems:?}");
}
