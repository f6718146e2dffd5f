use super::*;
use crate::{
    Balance, FailoverMode, TrafficPolicy,
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
    assert_eq!(
        (service.ports[0].port, service.ports[0].node_port),
        (80, Some(30080))
    );
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
    assert_eq!(
        timeout(r#"{"session_affinity":"ClientIP","session_affinity_timeout":60}"#),
        60
    );
    assert_eq!(
        timeout(r#"{"session_affinity":"None","session_affinity_timeout":60}"#),
        0
    );
}

#[test]
fn ingress_addresses_need_a_load_balancer_in_vip_mode() {
    let ingress = r#""lb_ingress_ips":["","192.0.2.1"]"#;
    let read = |rest: &str| service(&format!("{{{ingress}{rest}}}")).load_balancer_ips;
    assert_eq!(
        read(r#","service_type":"LoadBalancer""#),
        ips(&["192.0.2.1"])
    );
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
        service(&value)
            .source_ranges
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
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
    let read =
        |annotations: &str| service(&format!(r#"{{"annotations":{{{annotations}}}}}"#)).options;
    let default = ServiceOptions::default();
    assert_eq!(
        read(r#""example.com/balance":"x","contiv.io/other":"x""#),
        default
    );
    for (annotation, expected) in [
        (r#""contiv.io/session-affinity-scope":"port""#, default),
        (
            r#""contiv.io/session-affinity-scope":"service""#,
            ServiceOptions {
                affinity_shared: true,
                ..default
            },
        ),
        (
            r#""contiv.io/balance":"client-address""#,
            ServiceOptions {
                balance: Balance::ClientAddress,
                ..default
            },
        ),
        (
            r#""contiv.io/prefer-local":"true""#,
            ServiceOptions {
                prefer_local: true,
                ..default
            },
        ),
        (
            r#""contiv.io/reset-connections":"true""#,
            ServiceOptions {
                reset_connections: true,
                ..default
            },
        ),
        (
            r#""contiv.io/failover":"off""#,
            ServiceOptions {
                failover: Some(FailoverMode::Off),
                ..default
            },
        ),
        (
            r#""contiv.io/failover":"observe""#,
            ServiceOptions {
                failover: Some(FailoverMode::Observe),
                ..default
            },
        ),
        (
            r#""contiv.io/failover":"on""#,
            ServiceOptions {
                failover: Some(FailoverMode::On),
                ..default
            },
        ),
    ] {
        assert_eq!(read(annotation), expected, "{annotation}");
    }
    assert_eq!(
        FailoverMode::ALL.map(FailoverMode::name),
        contiv_proto::annotation::FAILOVER.values
    );
}

#[test]
fn invalid_annotations_ranges_and_health_check_ports_are_named() {
    let problems = problems(
        Kind::Service,
        r#"{"annotations":{"contiv.io/balance":"least-conn","contiv.io/prefer-local":"1","contiv.io/failover":"1"},
            "loadbalancer_source_ranges":["fd00::/8","10.0.0.1"],"health_check_node_port":-1}"#,
    );
    for (field, hint) in [
        (
            "metadata.annotations[contiv.io/balance]: ",
            "neither random nor client-address",
        ),
        (
            "metadata.annotations[contiv.io/prefer-local]: ",
            "neither false nor true",
        ),
        (
            "metadata.annotations[contiv.io/failover]: ",
            "none of off, observe, on",
        ),
        ("spec.loadBalancerSourceRanges[1]: ", "address range"),
        ("spec.healthCheckNodePort: ", "1 to 65535"),
    ] {
        let found = problems.iter().find(|problem| problem.starts_with(field));
        assert!(
            found.is_some_and(|problem| problem.contains(hint)),
            "{field}: {problems:#?}"
        );
    }
    assert_eq!(problems.len(), 5, "{problems:#?}");
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
    let service = service(
        r#"{"service_type":"ExternalName","external_name":"example.com","port":[{"port":0}]}"#,
    );
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
        ("spec.ports[0].port: ", "1 to 65535"),
        ("spec.ports[0].name: ", "hyphens"),
        ("spec.ports[1].nodePort: ", "1 to 65535"),
        ("spec.clusterIP: ", "as in 10.0.0.1"),
        ("spec.clusterIPs[1]: ", "at most one"),
        ("spec.externalIPs[0]: ", "loopback"),
    ] {
        let found = problems.iter().find(|problem| problem.starts_with(field));
        assert!(
            found.is_some_and(|problem| problem.contains(hint)),
            "{field}: {problems:#?}"
        );
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
    let Object::Service(service) = object else {
        panic!("{object:?}")
    };
    assert_eq!(service.cluster_ips, ips(&["10.96.0.1"]));
    assert_eq!(
        service
            .ports
            .iter()
            .map(|port| port.port)
            .collect::<Vec<_>>(),
        [81]
    );
    assert_eq!(
        (service.service_type, service.session_affinity_timeout),
        (ServiceType::ClusterIp, 0)
    );
    let policies = (service.external_policy, service.internal_policy);
    assert_eq!(policies, (TrafficPolicy::Cluster, TrafficPolicy::Cluster));
    for (field, hint) in [
        ("spec.ports[0].protocol: ", "TCP, UDP or SCTP"),
        (
            "spec.type: ",
            "ClusterIP, NodePort, LoadBalancer, ExternalName",
        ),
        ("spec.sessionAffinity: ", "None, ClientIP"),
        ("spec.externalTrafficPolicy: ", "Cluster, Local"),
        ("spec.internalTrafficPolicy: ", "Cluster, Local"),
        ("spec.ipFamilies[1]: ", "IPv4, IPv6"),
        ("status.loadBalancer.ingress[0].ipMode: ", "VIP, Proxy"),
    ] {
        let found = warnings.iter().find(|warning| warning.starts_with(field));
        assert!(
            found.is_some_and(|warning| warning.contains(hint)),
            "{field}: {warnings:#?}"
        );
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
    let Object::Service(service) = object else {
        panic!("{object:?}")
    };
    assert_eq!(service.load_balancer_ips, ips(&["192.0.2.2"]));
}

#[test]
fn addresses_with_leading_zeros_are_read_in_decimal() {
    let (object, warnings) = read_all(
        Kind::Service,
        r#"{"service_type":"LoadBalancer","cluster_ip":"172.30.0.041","external_ips":["192.000.002.010"],
            "loadbalancer_source_ranges":["203.0.113.000/025"],"lb_ingress_ips":["198.051.100.1"]}"#,
    );
    let Object::Service(service) = object else {
        panic!("{object:?}")
    };
    assert_eq!(service.cluster_ips, ips(&["172.30.0.41"]));
    assert_eq!(service.external_ips, ips(&["192.0.2.10"]));
    assert_eq!(service.load_balancer_ips, ips(&["198.51.100.1"]));
    assert_eq!(
        service.source_ranges,
        ["203.0.113.0/25".parse().unwrap()].into()
    );
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    assert!(
        problems(Kind::Service, r#"{"cluster_ip":"172.30.0.0999"}"#)[0]
            .contains("\"172.30.0.0999\"")
    );
}

#[test]
fn port_cannot_be_twice_in_one_service() {
    let twice = r#"{"service_type":"NodePort","port":[{"port":80,"node_port":30080},{"port":80,"protocol":"UDP","node_port":30080},
        {"port":80,"name":"b"},{"port":81,"name":"c","node_port":30080}]}"#;
    let problems = problems(Kind::Service, twice);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("spec.ports[2].port: 80/tcp")
            && problems[0].contains("spec.ports[0]"),
        "{problems:?}"
    );
    assert!(
        problems[1].starts_with("spec.ports[3].nodePort: 30080/tcp"),
        "{problems:?}"
    );
}

/// The service, and the warnings of it.
fn warned(value: &str) -> (Service, Vec<String>) {
    let Decoded {
        object, findings, ..
    } = decode_all(&key_of(Kind::Service), value.as_bytes(), 7).unwrap();
    let Some(Object::Service(service)) = object else {
        panic!("{object:?}")
    };
    assert_eq!(findings.invalid, [], "{value}");
    (
        *service,
        findings.warnings.iter().map(ToString::to_string).collect(),
    )
}

#[test]
fn node_port_of_cluster_ip_service_is_not_used() {
    for (service_type, is_used) in [
        (r#""ClusterIP""#, false),
        (r#""""#, false),
        (r#""ExternalName""#, false),
        (r#""NodePort""#, true),
        (r#""LoadBalancer""#, true),
    ] {
        let value = format!(
            r#"{{"service_type":{service_type},"port":[{{"port":80}},{{"port":81,"node_port":30081}}]}}"#
        );
        let (service, warnings) = warned(&value);
        assert_eq!(
            service.ports.iter().any(|port| port.node_port.is_some()),
            is_used,
            "{value}"
        );
        let is_warned = warnings
            .iter()
            .any(|it| it.starts_with("spec.ports[1].nodePort: it has no effect: "));
        assert_eq!(
            (warnings.len(), is_warned),
            (usize::from(!is_used), !is_used),
            "{value}: {warnings:?}"
        );
    }
}

#[test]
fn fields_of_other_service_types_have_a_warning_each() {
    let all = r#""port":[{"port":80,"node_port":30080}],"external_ips":["192.0.2.1"],"session_affinity":"ClientIP",
        "external_traffic_policy":"Local","internal_traffic_policy":"Local","health_check_node_port":32000,
        "loadbalancer_source_ranges":["10.0.0.0/8"],"load_balancer_class":"x","loadbalancer_ip":"192.0.2.2",
        "load_balancer_ingress":[{"ip":"192.0.2.2"}]"#;
    let of_balancers = [
        "spec.healthCheckNodePort",
        "spec.loadBalancerSourceRanges",
        "spec.loadBalancerClass",
        "spec.loadBalancerIP",
        "status.loadBalancer.ingress",
    ];
    let of_proxies = [
        "spec.externalIPs",
        "spec.sessionAffinity",
        "spec.internalTrafficPolicy",
        "spec.ports[0].nodePort",
        "spec.externalTrafficPolicy",
    ];
    let node_port = ["spec.ports[0].nodePort"];
    for (head, expected) in [
        (
            r#""cluster_ip":"10.96.0.1","service_type":"LoadBalancer""#,
            [].as_slice(),
        ),
        (
            r#""cluster_ip":"10.96.0.1","service_type":"NodePort""#,
            &of_balancers,
        ),
        (
            r#""cluster_ip":"10.96.0.1","service_type":"ClusterIP""#,
            &[&node_port[..], &of_balancers].concat(),
        ),
        (
            r#""cluster_ip":"None""#,
            &[&of_proxies[..], &of_balancers].concat(),
        ),
        (
            r#""cluster_ip":"None","service_type":"NodePort""#,
            &[&of_proxies[..], &of_balancers].concat(),
        ),
        (
            r#""cluster_ip":"10.96.0.1","service_type":"ExternalName""#,
            &[&["spec.clusterIP"], &of_proxies[..], &of_balancers].concat(),
        ),
    ] {
        let (_, warnings) = warned(&format!("{{{head},{all}}}"));
        let fields: Vec<&str> = warnings
            .iter()
            .filter_map(|it| it.split(": ").next())
            .collect();
        assert_eq!(fields, expected, "{head}");
    }
}

#[test]
fn fields_without_their_companion_have_a_warning() {
    for (value, expected) in [
        (
            r#"{"cluster_ip":"10.96.0.1","external_traffic_policy":"Local"}"#,
            "spec.externalTrafficPolicy: ",
        ),
        (
            r#"{"service_type":"LoadBalancer","health_check_node_port":32000}"#,
            "spec.healthCheckNodePort: ",
        ),
        (
            r#"{"cluster_ip":"10.96.0.1","session_affinity_timeout":60}"#,
            "spec.sessionAffinityConfig: ",
        ),
    ] {
        let (_, warnings) = warned(value);
        assert!(
            warnings.len() == 1 && warnings[0].starts_with(expected),
            "{value}: {warnings:?}"
        );
    }
}

#[test]
fn fields_that_a_type_has_are_no_warning() {
    for value in [
        r#"{"cluster_ip":"10.96.0.1","external_ips":["192.0.2.1"],"external_traffic_policy":"Local"}"#,
        r#"{"cluster_ip":"10.96.0.1","external_traffic_policy":"Cluster","internal_traffic_policy":"Cluster"}"#,
        r#"{"cluster_ip":"None","session_affinity":"None","internal_traffic_policy":"Cluster","port":[{"port":80}]}"#,
        r#"{"service_type":"ExternalName","external_name":"example.com","port":[{"port":80}]}"#,
        r#"{"service_type":"NodePort","external_traffic_policy":"Local","port":[{"port":80,"node_port":30080}]}"#,
        r#"{"lb_ingress_ips":[""],"load_balancer_ingress":[{"hostname":"lb.example.com"}]}"#,
    ] {
        assert_eq!(warned(value).1, [""; 0], "{value}");
    }
}

/// A family without source ranges is open, as with kube-proxy.
#[test]
fn ranges_of_one_family_leave_the_other_open_with_a_warning() {
    let of = |ranges: &str, addresses: &str| {
        let value = format!(
            r#"{{"service_type":"LoadBalancer","cluster_ip":"10.96.0.1","loadbalancer_source_ranges":[{ranges}],
                "lb_ingress_ips":[{addresses}]}}"#
        );
        warned(&value).1
    };
    let both = r#""192.0.2.1","2001:db8::1""#;
    let [warning] = &of(r#""10.0.0.0/8""#, both)[..] else {
        panic!("no warning")
    };
    assert!(
        warning.starts_with("spec.loadBalancerSourceRanges: none of the ranges is IPv6")
            && warning.contains("2001:db8::1"),
        "{warning}"
    );
    assert!(of(r#""fd00::/8""#, both)[0].contains("192.0.2.1"));
    for (ranges, addresses) in [
        (r#""10.0.0.0/8","fd00::/8""#, both),
        (r#""10.0.0.0/8""#, r#""192.0.2.1""#),
        ("", both),
        (r#""0.0.0.0/0""#, both),
    ] {
        assert_eq!(of(ranges, addresses), [""; 0], "{ranges} {addresses}");
    }
}
