//! An invalid address is left out and reported, as in Contiv, and the rest of the object is used. Where no address is
//! left, the object is refused, so that it keeps its last good state.

use super::*;
use crate::{
    InterfaceName,
    object::{EndpointSlice, Endpoints, IpAllocation, Node, Pod, Service, VppNode},
};

/// The object, of whose fields this one, and no other, is left out.
#[track_caller]
fn without(field: &str, kind: Kind, value: &str) -> Object {
    let (object, warnings) = read_all(kind, value);
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}")
    };
    assert!(warning.starts_with(&format!("{field}: ")), "{warning}");
    assert!(
        warning.ends_with("; it is left out") || warning.ends_with("; it is ignored"),
        "{warning}"
    );
    object
}

#[track_caller]
fn service_without(field: &str, value: &str) -> Service {
    let Object::Service(service) = without(field, Kind::Service, value) else {
        panic!("{value}")
    };
    *service
}

/// The object is refused because of these fields.
#[track_caller]
fn is_refused(kind: Kind, value: &str, fields: &[&str]) {
    let problems = problems(kind, value);
    let named = problems
        .iter()
        .map(|problem| problem.split(": ").next().unwrap_or_default());
    assert!(named.eq(fields.iter().copied()), "{problems:?}");
}

#[test]
fn invalid_cluster_address_is_dropped_and_other_addresses_kept() {
    let service = service_without(
        "spec.clusterIP",
        r#"{"cluster_ip":"10.96.0.300","external_ips":["192.0.2.1"]}"#,
    );
    assert_eq!(
        (service.cluster_ips, service.external_ips),
        (ips(&[]), ips(&["192.0.2.1"]))
    );
    let service = service_without(
        "spec.clusterIP",
        r#"{"cluster_ip":"x","service_type":"NodePort","port":[{"port":80,"node_port":30080}]}"#,
    );
    assert_eq!(service.ports[0].node_port, Some(30080));
    is_refused(
        Kind::Service,
        r#"{"cluster_ip":"x","port":[{"port":80}]}"#,
        &["spec.clusterIP"],
    );
}

#[test]
fn bad_address_of_many_cluster_addresses_is_left_out() {
    let value = r#"{"cluster_ip":"10.96.0.1","cluster_ips":["10.96.0.1","fd00::g"]}"#;
    assert_eq!(
        service_without("spec.clusterIPs[1]", value).cluster_ips,
        ips(&["10.96.0.1"])
    );
    let value = r#"{"cluster_ip":"10.96.0.1","cluster_ips":["10.96.0.1","10.96.0.2","fd00::1"]}"#;
    let service = service_without("spec.clusterIPs[1]", value);
    assert_eq!(
        service.cluster_ips,
        ips(&["10.96.0.1", "fd00::1"]),
        "the first of a family counts"
    );
    is_refused(
        Kind::Service,
        r#"{"cluster_ips":["x","127.0.0.1"]}"#,
        &["spec.clusterIPs[0]", "spec.clusterIPs[1]"],
    );
}

#[test]
fn bad_external_address_is_left_out() {
    let value =
        r#"{"cluster_ip":"10.96.0.1","external_ips":["192.0.2.1","192.0.2.256","127.0.0.1"]}"#;
    let (object, warnings) = read_all(Kind::Service, value);
    let Object::Service(service) = object else {
        panic!("{object:?}")
    };
    assert_eq!(service.external_ips, ips(&["192.0.2.1"]));
    assert!(
        warnings[0].starts_with("spec.externalIPs[1]: ")
            && warnings[1].starts_with("spec.externalIPs[2]: ")
    );
    let service = service_without(
        "spec.externalIPs[0]",
        r#"{"cluster_ip":"10.96.0.1","external_ips":["x"]}"#,
    );
    assert_eq!(
        (service.cluster_ips, service.external_ips),
        (ips(&["10.96.0.1"]), ips(&[]))
    );
    is_refused(
        Kind::Service,
        r#"{"external_ips":["x"]}"#,
        &["spec.externalIPs[0]"],
    );
}

#[test]
fn bad_load_balancer_address_is_left_out() {
    let of_type = |fields: &str| {
        format!(r#"{{"service_type":"LoadBalancer","cluster_ip":"10.96.0.1",{fields}}}"#)
    };
    let value = of_type(r#""lb_ingress_ips":["192.0.2.1","x"]"#);
    assert_eq!(
        service_without("status.loadBalancer.ingress[1].ip", &value).load_balancer_ips,
        ips(&["192.0.2.1"])
    );
    let value =
        of_type(r#""load_balancer_ingress":[{"ip":"x"},{"ip":"192.0.2.1","ip_mode":"VIP"}]"#);
    let service = service_without("status.loadBalancer.ingress[0].ip", &value);
    assert_eq!(service.load_balancer_ips, ips(&["192.0.2.1"]));
}

#[test]
fn bad_source_range_is_ignored_only_with_another_of_its_family() {
    let of_ranges = |ranges: &str| {
        format!(
            r#"{{"service_type":"LoadBalancer","cluster_ip":"10.96.0.1","loadbalancer_source_ranges":[{ranges}]}}"#
        )
    };
    let service = service_without(
        "spec.loadBalancerSourceRanges[0]",
        &of_ranges(r#""10.0.0.0/99","10.0.0.0/8""#),
    );
    assert_eq!(
        service.source_ranges,
        ["10.0.0.0/8".parse().unwrap()].into()
    );
    let service = service_without(
        "spec.loadBalancerSourceRanges[1]",
        &of_ranges(r#""fd00::/8","fd01::/x""#),
    );
    assert_eq!(service.source_ranges, ["fd00::/8".parse().unwrap()].into());
    // Without it everyone of that family could connect.
    for ranges in [
        r#""10.0.0.0/99""#,
        r#""10.0.0.0/99","fd00::/8""#,
        r#""x","fd00::/8""#,
    ] {
        is_refused(
            Kind::Service,
            &of_ranges(ranges),
            &["spec.loadBalancerSourceRanges[0]"],
        );
    }
}

#[test]
fn bad_address_of_endpoints_is_left_out() {
    let value = r#"{"endpoint_subsets":[{"addresses":[{"ip":"10.1.1.3"},{"ip":"10.1.1"}],"ports":[{"port":80}]},
        {"addresses":[{"ip":"10.1.1.4"}],"ports":[{"port":81}]}]}"#;
    let object = without("subsets[0].addresses[1].ip", Kind::Endpoints, value);
    let Object::Endpoints(Endpoints { subsets, .. }) = object else {
        panic!("{object:?}")
    };
    let left = subsets
        .iter()
        .map(|subset| subset.addresses.iter().map(|it| it.ip).collect::<Vec<_>>());
    assert!(left.eq([ips::<Vec<_>>(&["10.1.1.3"]), ips(&["10.1.1.4"])]));
    // They are not those of a service without endpoints.
    let value = r#"{"endpoint_subsets":[{"addresses":[{"ip":"x"},{"ip":"127.0.0.1"}],"ports":[{"port":80}]}]}"#;
    let fields = ["subsets[0].addresses[0].ip", "subsets[0].addresses[1].ip"];
    is_refused(Kind::Endpoints, value, &fields);
}

#[test]
fn bad_address_of_slice_is_left_out() {
    let of = |bad: &str| {
        format!(
            r#"{{"address_type":"IPv4","endpoints":[{bad},{{"addresses":["10.1.1.3"]}}],"ports":[]}}"#
        )
    };
    for (bad, field) in [
        (r#"{"addresses":["10.1.1"]}"#, "endpoints[0].addresses[0]"),
        (
            r#"{"addresses":["169.254.1.1"]}"#,
            "endpoints[0].addresses[0]",
        ),
        (r#"{"addresses":["fd00::1"]}"#, "endpoints[0].addresses[0]"),
        (r#"{"addresses":[]}"#, "endpoints[0].addresses"),
    ] {
        let object = without(field, Kind::EndpointSlice, &of(bad));
        let Object::EndpointSlice(EndpointSlice { endpoints, .. }) = object else {
            panic!("{object:?}")
        };
        assert_eq!(
            endpoints.iter().map(|it| it.address.ip).collect::<Vec<_>>(),
            ips::<Vec<_>>(&["10.1.1.3"])
        );
    }
    let value = r#"{"address_type":"IPv6","endpoints":[{"addresses":["10.1.1.3"]}]}"#;
    is_refused(Kind::EndpointSlice, value, &["endpoints[0].addresses[0]"]);
}

#[test]
fn bad_address_of_node_is_left_out() {
    let node = |field: &str, value: &str| match without(field, Kind::Node, value) {
        Object::Node(Node {
            internal_ips,
            external_ips,
            pod_cidrs,
            ..
        }) => {
            let pod_cidrs: Vec<String> = pod_cidrs.iter().map(ToString::to_string).collect();
            (internal_ips, external_ips, pod_cidrs)
        }
        other => panic!("{other:?}"),
    };
    let addresses = |one: &str, other: &str, cidrs: &str| {
        format!(
            r#"{{"addresses":[{{"type":"NodeInternalIP","address":"{one}"}},
                {{"type":"NodeExternalIP","address":"{other}"}}],{cidrs}}}"#
        )
    };
    let (good, ranges) = (
        r#""pod_CIDR":"10.1.1.0/24""#,
        vec!["10.1.1.0/24".to_owned()],
    );
    let found = node(
        "status.addresses[0].address",
        &addresses("192.168.1", "203.0.113.1", good),
    );
    assert_eq!(found, (vec![], ips(&["203.0.113.1"]), ranges.clone()));
    let found = node(
        "status.addresses[1].address",
        &addresses("192.168.1.1", "x", good),
    );
    assert_eq!(found, (ips(&["192.168.1.1"]), vec![], ranges.clone()));
    let found = node(
        "spec.podCIDR",
        &addresses("192.168.1.1", "203.0.113.1", r#""pod_CIDR":"10.1.1.0""#),
    );
    assert_eq!(
        found,
        (ips(&["192.168.1.1"]), ips(&["203.0.113.1"]), vec![])
    );
    let bad = r#""pod_cidrs":["10.1.1.0/24","fd00::/x"]"#;
    let found = node(
        "spec.podCIDRs[1]",
        &addresses("192.168.1.1", "203.0.113.1", bad),
    );
    assert_eq!(
        found,
        (ips(&["192.168.1.1"]), ips(&["203.0.113.1"]), ranges)
    );
    let fields = [
        "status.addresses[0].address",
        "status.addresses[1].address",
        "spec.podCIDR",
    ];
    is_refused(
        Kind::Node,
        &addresses("x", "y", r#""pod_CIDR":"z""#),
        &fields,
    );
}

#[test]
fn bad_address_of_pod_is_left_out() {
    let pod = |field: &str, value: &str| match without(field, Kind::Pod, value) {
        Object::Pod(Pod {
            ips, host_network, ..
        }) => (ips, host_network),
        other => panic!("{other:?}"),
    };
    let found = pod(
        "status.podIP",
        r#"{"ip_address":"10.1.1","ip_addresses":["10.1.1.3"]}"#,
    );
    assert_eq!(found, (ips(&["10.1.1.3"]), false));
    let found = pod(
        "status.podIPs[1].ip",
        r#"{"ip_address":"10.1.1.3","ip_addresses":["10.1.1.3","fd00::x"]}"#,
    );
    assert_eq!(found, (ips(&["10.1.1.3"]), false));
    let found = pod(
        "status.hostIP",
        r#"{"ip_address":"10.1.1.3","host_ip_address":"x","host_network":true}"#,
    );
    assert_eq!(found, (ips(&["10.1.1.3"]), true));
    is_refused(Kind::Pod, r#"{"ip_address":"x"}"#, &["status.podIP"]);
}

#[test]
fn bad_address_of_vpp_node_is_left_out() {
    for (field, value) in [
        (
            "spec.ip_addresses[0]",
            r#"{"name":"w","ip_addresses":["192.168.16.2/99","192.168.16.3/24"]}"#,
        ),
        (
            "spec.ip_address",
            r#"{"name":"w","ip_address":"x","ip_addresses":["192.168.16.3/24"]}"#,
        ),
    ] {
        let object = without(field, Kind::VppNode, value);
        let Object::VppNode(VppNode { ips: left, .. }) = object else {
            panic!("{object:?}")
        };
        assert_eq!(left, ips(&["192.168.16.3"]));
    }
    is_refused(
        Kind::VppNode,
        r#"{"name":"w","ip_addresses":["x"]}"#,
        &["spec.ip_addresses[0]"],
    );
}

#[test]
fn bad_allocation_address_is_ignored_unless_services_need_it() {
    let of = |service_endpoint: bool| {
        format!(
            r#"{{"custom_interfaces":[{{"name":"eth1","network":"n","ip_address":"10.5.0","service_endpoint":{service_endpoint}}}]}}"#
        )
    };
    let object = without(
        "spec.custom_interfaces[0].ip_address",
        Kind::IpAllocation,
        &of(false),
    );
    let Object::IpAllocation(IpAllocation { interfaces, .. }) = object else {
        panic!("{object:?}")
    };
    assert_eq!(
        (interfaces[0].name.clone(), interfaces[0].ip),
        (InterfaceName::new("eth1"), None)
    );
    is_refused(
        Kind::IpAllocation,
        &of(true),
        &["spec.custom_interfaces[0].ip_address"],
    );
}
