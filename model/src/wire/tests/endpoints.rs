use super::*;
use crate::{
    Protocol,
    object::{AddressType, Conditions, Endpoints},
};

#[test]
fn endpoints_as_contiv_stores_them_are_read() {
    let object = read(
        Kind::Endpoints,
        r#"{"endpoint_subsets":[{"addresses":[{"ip":"10.1.2.8","node_name":"w1","target_ref":{"kind":"Pod",
            "name":"nginx-x"}},{"ip":"10.1.2.9","target_ref":{"kind":"Node","name":"w1"}}],
            "not_ready_addresses":[{"ip":"10.1.2.10"}],
            "ports":[{"name":"http","port":8080,"protocol":"TCP"},{"name":"s","port":1,"protocol":"sctp"}]}]}"#,
    );
    let Object::Endpoints(Endpoints { id, subsets }) = object else {
        panic!("{object:?}")
    };
    assert_eq!(id, ServiceId::new("default", "web"));
    let [nginx, other] = subsets[0].addresses.as_slice() else {
        panic!("not ready ones are left out")
    };
    assert_eq!(nginx.node_name, Some(NodeName::new("w1")));
    assert_eq!(
        nginx.pod,
        Some(PodId::new("default", "nginx-x")),
        "the namespace is that of the endpoints"
    );
    assert_eq!((&other.node_name, &other.pod), (&None, &None));
    assert_eq!(subsets[0].ports[1].protocol, Protocol::Sctp);
}

#[test]
fn invalid_endpoints_are_named() {
    let problems = problems(
        Kind::Endpoints,
        r#"{"endpoint_subsets":[{},{"addresses":[{"ip":"10.1.2.8"},{"ip":""}],"ports":[{"port":0}]}]}"#,
    );
    assert!(
        problems[0].starts_with("subsets[1].addresses[1].ip: \"\""),
        "{problems:?}"
    );
    assert!(
        problems[1].starts_with("subsets[1].ports[0].port: 0"),
        "{problems:?}"
    );
}

#[test]
fn slice_is_read_as_kube_proxy_reads_it() {
    let object = read(
        Kind::EndpointSlice,
        r#"{"labels":{"kubernetes.io/service-name":"web"},"address_type":"IPv4","endpoints":[
            {"addresses":["10.1.2.8","ignored"]},
            {"addresses":["10.1.2.9"],"conditions":{"ready":false,"terminating":true}}],
            "ports":[{"name":"","port":80},{"port":81},{"name":"all"},{"name":"zero","port":0}]}"#,
    );
    let Object::EndpointSlice(slice) = object else {
        panic!("{object:?}")
    };
    assert_eq!(slice.service, Some(ServiceId::new("default", "web")));
    assert_eq!(slice.endpoints[0].conditions, Conditions::READY);
    assert_eq!(
        slice.endpoints[1].conditions,
        Conditions {
            ready: false,
            serving: true,
            terminating: true
        }
    );
    assert_eq!(
        slice.ports.len(),
        1,
        "those without a name or number are ignored"
    );
    assert_eq!(
        (&*slice.ports[0].name, slice.ports[0].protocol),
        ("", Protocol::Tcp)
    );
}

#[test]
fn hints_are_read() {
    let object = read(
        Kind::EndpointSlice,
        r#"{"address_type":"IPv4","endpoints":[{"addresses":["10.1.2.8"],"zone":"z9"},
            {"addresses":["10.1.2.9"],"hints":{"for_zones":["z2","z1"],"for_nodes":["w1"]}}]}"#,
    );
    let Object::EndpointSlice(slice) = object else {
        panic!("{object:?}")
    };
    assert!(
        slice.endpoints[0].hints.is_none(),
        "the zone of an endpoint is not a hint"
    );
    let hints = slice.endpoints[1].hints.as_ref().unwrap();
    assert!(hints.zones.iter().map(AsRef::as_ref).eq(["z1", "z2"]));
    assert!(hints.nodes.iter().eq([&NodeName::new("w1")]));
}

#[test]
fn slice_that_is_not_for_proxies_belongs_to_no_service() {
    let service = |value| match read(Kind::EndpointSlice, value) {
        Object::EndpointSlice(slice) => slice.service,
        other => panic!("{other:?}"),
    };
    assert!(service(r#"{"address_type":"IPv4","service_name":"web"}"#).is_some());
    assert!(service(r#"{"address_type":"IPv4"}"#).is_none());
    let headless = r#"{"address_type":"IPv4","service_name":"web","labels":{"service.kubernetes.io/headless":""}}"#;
    assert!(service(headless).is_none());
}

#[test]
fn endpoints_that_are_not_for_proxies_have_no_subsets() {
    let subsets = |labels: &str| {
        let value = format!(
            r#"{{"labels":{labels},"endpoint_subsets":[{{"addresses":[{{"ip":"10.1.2.8"}}],"ports":[{{"port":80}}]}}]}}"#
        );
        match read(Kind::Endpoints, &value) {
            Object::Endpoints(endpoints) => endpoints.subsets.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(subsets("{}"), 1);
    assert_eq!(subsets(r#"{"service.kubernetes.io/headless":""}"#), 0);
}

/// As in kube-proxy since 1.35: the label is looked for in slices alone.
#[test]
fn service_labelled_headless_is_not_headless() {
    let value = r#"{"cluster_ip":"10.96.0.1","labels":{"service.kubernetes.io/headless":""}}"#;
    let Object::Service(service) = read(Kind::Service, value) else {
        panic!("no service")
    };
    assert!(!service.headless && service.proxy_name.is_none() && service.cluster_ips.len() == 1);
}

#[test]
fn slice_of_host_names_has_no_endpoints_or_ports() {
    let object = read(
        Kind::EndpointSlice,
        r#"{"service_name":"web","address_type":"FQDN","endpoints":[{"addresses":["example.com"]}],
            "ports":[{"name":"http","port":80}]}"#,
    );
    let Object::EndpointSlice(slice) = object else {
        panic!("{object:?}")
    };
    assert_eq!(slice.address_type, AddressType::Fqdn);
    assert!(slice.endpoints.is_empty() && slice.ports.is_empty());
}

#[test]
fn invalid_slices_are_named() {
    let problems = problems(
        Kind::EndpointSlice,
        r#"{"address_type":"IPv4","endpoints":[{},{"addresses":["fd00::1"]},{"addresses":["x"]}],
            "ports":[{"name":"a","port":-1},{"name":"b","port":1,"protocol":"?"}]}"#,
    );
    let fields = problems
        .iter()
        .map(|problem| problem.split(": ").next().unwrap());
    let expected = [
        "endpoints[0].addresses",
        "endpoints[1].addresses[0]",
        "endpoints[2].addresses[0]",
        "ports[0].port",
    ];
    assert!(fields.eq(expected), "{problems:#?}");
}

#[test]
fn slice_with_unknown_values_keeps_rest() {
    let ports = r#""ports":[{"name":"a","port":1,"protocol":"?"},{"name":"b","port":2}]"#;
    let (object, warnings) = read_all(
        Kind::EndpointSlice,
        &format!(
            r#"{{"address_type":"IPv4","endpoints":[{{"addresses":["10.001.0.07"]}}],{ports}}}"#
        ),
    );
    let Object::EndpointSlice(slice) = object else {
        panic!("{object:?}")
    };
    assert_eq!(
        slice.endpoints[0].address.ip,
        "10.1.0.7".parse::<IpAddr>().unwrap()
    );
    assert_eq!(
        slice.ports.iter().map(|port| port.port).collect::<Vec<_>>(),
        [2]
    );
    assert!(
        warnings[0].starts_with("endpoints[0].addresses[0]: \"10.001.0.07\" has leading zeros")
    );
    assert!(
        warnings[1].starts_with("ports[0].protocol: \"?\" is not a known protocol"),
        "{warnings:?}"
    );

    let (object, warnings) = read_all(Kind::EndpointSlice, r#"{"address_type":"IPv5"}"#);
    let Object::EndpointSlice(slice) = object else {
        panic!("{object:?}")
    };
    assert_eq!(
        slice.address_type,
        AddressType::Fqdn,
        "of no use to a proxy"
    );
    assert!(warnings[0].contains("IPv4, IPv6, FQDN"), "{warnings:?}");

    let ports = r#""ports":[{"port":1,"protocol":"?"},{"port":2}]"#;
    let addresses = r#""addresses":[{"ip":"10.001.0.07"}]"#;
    let (object, warnings) = read_all(
        Kind::Endpoints,
        &format!(r#"{{"endpoint_subsets":[{{{addresses},{ports}}}]}}"#),
    );
    let Object::Endpoints(endpoints) = object else {
        panic!("{object:?}")
    };
    assert_eq!(
        (endpoints.subsets[0].ports.len(), warnings.len()),
        (1, 2),
        "{warnings:?}"
    );
}

#[test]
fn slices_of_external_workloads_are_supplements() {
    for (manager, expected) in [
        ("contiv-external-workloads", true),
        ("linkerd-external-workloads-controller", true),
        ("endpointslice-controller.k8s.io", false),
        ("endpointslicemirroring-controller.k8s.io", false),
        ("", false),
    ] {
        let labels =
            format!(r#""labels":{{"endpointslice.kubernetes.io/managed-by":"{manager}"}}"#);
        let object = read(
            Kind::EndpointSlice,
            &format!(r#"{{{labels},"address_type":"IPv4"}}"#),
        );
        let Object::EndpointSlice(slice) = object else {
            panic!("{object:?}")
        };
        assert_eq!(slice.is_supplement, expected, "{manager}");
    }
}
