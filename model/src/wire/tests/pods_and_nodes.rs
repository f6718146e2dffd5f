use super::*;

#[test]
fn host_network_pod_is_known_by_field_or_host_address() {
    let pod = |value| match read(Kind::Pod, value) {
        Object::Pod(pod) => pod,
        other => panic!("{other:?}"),
    };
    assert!(!pod(r#"{"ip_address":"10.1.1.3","host_ip_address":"192.168.1.1"}"#).host_network);
    assert!(pod(r#"{"ip_address":"192.168.1.1","host_ip_address":"192.168.1.1"}"#).host_network);
    assert!(pod(r#"{"host_network":true}"#).host_network);
    assert_eq!(
        pod(r#"{"ip_address":"10.1.1.3","ip_addresses":["10.1.1.3","fd00::3"]}"#).ips,
        ips(&["10.1.1.3", "fd00::3"])
    );
}

#[test]
fn pod_that_has_finished_has_no_addresses_any_more() {
    for (phase, expected) in [
        ("Running", ips(&["10.1.1.3"])),
        ("Succeeded", ips(&[])),
        ("Failed", ips(&[])),
    ] {
        let object = read(
            Kind::Pod,
            &format!(r#"{{"ip_address":"10.1.1.3","phase":"{phase}"}}"#),
        );
        let Object::Pod(pod) = object else {
            panic!("{object:?}")
        };
        assert_eq!(pod.ips, expected, "{phase}");
    }
}

#[test]
fn node_addresses_that_are_no_ip_addresses_are_ignored() {
    let object = read(
        Kind::Node,
        r#"{"pod_CIDR":" 10.1.1.0/24 ","pod_cidrs":["10.1.1.0/24","fd00:1::9/64"],"addresses":[
            {"type":"NodeInternalIP","address":"192.168.1.1"},{"type":3,"address":"fd00::1"},
            {"type":"NodeExternalIP","address":"203.0.113.1"},{"type":"NodeHostName","address":"web"},
            {"type":"NodeInternalDNS","address":"web.example.com"},{"address":"?"}]}"#,
    );
    let Object::Node(node) = object else {
        panic!("{object:?}")
    };
    assert_eq!(
        node.internal_ips,
        ips::<Vec<_>>(&["192.168.1.1", "fd00::1"])
    );
    assert_eq!(node.external_ips, ips::<Vec<_>>(&["203.0.113.1"]));
    let cidrs: Vec<String> = node.pod_cidrs.iter().map(ToString::to_string).collect();
    assert_eq!(cidrs, ["10.1.1.0/24", "fd00:1::/64"]);
}

#[test]
fn vpp_node_has_obsolete_address_too() {
    let object = read(
        Kind::VppNode,
        r#"{"name":"w","ip_address":"192.168.16.3","ip_addresses":["192.168.16.2/24"]}"#,
    );
    let Object::VppNode(node) = object else {
        panic!("{object:?}")
    };
    assert_eq!(
        (node.id, node.ips),
        (2, ips(&["192.168.16.2", "192.168.16.3"]))
    );
}

#[test]
fn interface_that_services_use_needs_address() {
    let value = |ip| {
        format!(
            r#"{{"custom_interfaces":[{{"name":"eth1","ip_address":"{ip}","service_endpoint":true}}]}}"#
        )
    };
    let object = read(Kind::IpAllocation, &value("10.5.0.1/24"));
    let Object::IpAllocation(allocation) = object else {
        panic!("{object:?}")
    };
    assert_eq!(
        allocation.service_endpoint().unwrap().ip,
        Some("10.5.0.1".parse().unwrap())
    );
    let problems = problems(Kind::IpAllocation, &value(""));
    assert!(
        problems[0].starts_with("spec.custom_interfaces[0].ip_address: "),
        "{problems:?}"
    );
}

#[test]
fn weight_of_pod_is_annotation() {
    let weight = |value: &str| match read(Kind::Pod, value) {
        Object::Pod(pod) => pod.weight,
        other => panic!("{other:?}"),
    };
    assert_eq!(weight("{}"), 1);
    assert_eq!(weight(r#"{"annotations":{"contiv.io/weight":"255"}}"#), 255);
    let problems = problems(Kind::Pod, r#"{"annotations":{"contiv.io/weight":"256"}}"#);
    assert!(
        problems[0].starts_with("metadata.annotations[contiv.io/weight]: \"256\""),
        "{problems:?}"
    );
}

#[test]
fn zone_of_node_is_label() {
    for (value, expected) in [
        ("{}", None),
        (r#"{"labels":{"topology.kubernetes.io/zone":""}}"#, None),
        (
            r#"{"labels":{"topology.kubernetes.io/zone":"z1"}}"#,
            Some("z1"),
        ),
    ] {
        let Object::Node(node) = read(Kind::Node, value) else {
            panic!("{value}")
        };
        assert_eq!(node.zone.as_deref(), expected);
    }
}
