//! The content of slices.

use crate::{
    family::Family,
    service::{Service, Target},
    slice::{HEADLESS_LABEL, MANAGED_BY, MANAGED_BY_LABEL, OWNER_ANNOTATION, SERVICE_NAME_LABEL},
    test_support::{Slices, map, port, service, target, workload, workload_port},
};

#[test]
fn slice_is_made_for_each_family_of_service() {
    let dual = workload("w", &["192.0.2.1", "2001:db8::1"]);
    for (families, expected) in [
        (&[Family::Ipv4][..], &[("IPv4", "192.0.2.1")][..]),
        (&[Family::Ipv6], &[("IPv6", "2001:db8::1")]),
        (
            &Family::ALL,
            &[("IPv4", "192.0.2.1"), ("IPv6", "2001:db8::1")],
        ),
    ] {
        let mut service = service();
        service.families = families.to_vec();
        let mut slices = Slices::default();
        assert_eq!(
            slices.sync(&service, std::slice::from_ref(&dual)),
            [expected.len(), 0, 0]
        );
        let mut found: Vec<_> = slices
            .endpoints()
            .map(|(s, e)| (s.address_type.as_str(), e.addresses[0].as_str()))
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

#[test]
fn endpoint_names_its_workload_and_condition() {
    let mut vm = workload("w", &["192.0.2.1"]);
    vm.labels
        .insert("topology.kubernetes.io/zone".to_owned(), "z1".to_owned());
    vm.is_ready = false;
    let mut slices = Slices::default();
    slices.sync(&service(), &[vm]);
    let slice = slices.only();
    assert_eq!(
        (slice.namespace.as_str(), slice.service_name.as_str()),
        ("shop", "web")
    );
    assert!(
        slice.name.starts_with("contiv-external-web-"),
        "{}",
        slice.name
    );
    assert_eq!(slice.annotations, map(&[(OWNER_ANNOTATION, "7")]));
    let [endpoint] = slice.endpoints.as_slice() else {
        panic!("{slice:?}")
    };
    let conditions = endpoint.conditions.unwrap();
    assert_eq!(
        [conditions.ready, conditions.serving, conditions.terminating],
        [Some(false); 3],
        "what is not ready is written too"
    );
    let target = endpoint.target_ref.as_ref().unwrap();
    assert_eq!(
        (
            target.kind.as_str(),
            target.namespace.as_str(),
            target.name.as_str(),
            target.uid.as_str()
        ),
        ("ExternalWorkload", "shop", "w", "1000")
    );
    assert_eq!(
        (endpoint.zone.as_str(), endpoint.host_name.as_str()),
        ("z1", "")
    );
    assert_eq!(
        (endpoint.node_name.as_str(), endpoint.hints.as_ref()),
        ("", None)
    );
    let [port] = slice.ports.as_slice() else {
        panic!("{slice:?}")
    };
    assert_eq!(
        (port.name.as_deref(), port.port, port.protocol.as_str()),
        (Some("http"), Some(8080), "TCP")
    );
}

#[test]
fn headless_service_slices_are_labelled_and_name_endpoints() {
    let mut service = service();
    service.is_headless = true;
    service.ports.clear();
    let mut slices = Slices::default();
    slices.sync(&service, &[workload("w", &["192.0.2.1"])]);
    let slice = slices.only();
    assert_eq!(
        slice.labels.get(HEADLESS_LABEL).map(String::as_str),
        Some("")
    );
    assert_eq!(slice.endpoints[0].host_name, "w");
    assert_eq!(slice.ports, []);
    service.is_headless = false;
    assert_eq!(
        slices.sync(&service, &[workload("w", &["192.0.2.1"])]),
        [0, 1, 0]
    );
    assert!(
        !slices.only().labels.contains_key(HEADLESS_LABEL)
            && slices.only().endpoints[0].host_name.is_empty()
    );
}

#[test]
fn service_labels_are_copied_except_reserved_ones() {
    let mut service = service();
    service.labels = map(&[
        ("a", "b"),
        (SERVICE_NAME_LABEL, "other"),
        (MANAGED_BY_LABEL, "other"),
        (HEADLESS_LABEL, "other"),
    ]);
    let mut slices = Slices::default();
    slices.sync(&service, &[workload("w", &["192.0.2.1"])]);
    let expected = map(&[
        ("a", "b"),
        (SERVICE_NAME_LABEL, "web"),
        (MANAGED_BY_LABEL, MANAGED_BY),
    ]);
    assert_eq!(slices.only().labels, expected);
}

#[test]
fn port_is_found_by_name_or_number_and_protocol_if_documented() {
    let vm = |ports: &[(&str, i32, &str)]| {
        let mut vm = workload("w", &["192.0.2.1"]);
        vm.ports = ports
            .iter()
            .map(|(name, port, protocol)| crate::workload::WorkloadPort {
                protocol: (*protocol).to_owned(),
                ..workload_port(name, *port)
            })
            .collect();
        vm
    };
    let (name, number) = (Target::Name("http".to_owned()), Target::Number(8080));
    for (target, ports, expected) in [
        (&name, &[("http", 9090, "TCP")][..], Some(9090)),
        (&name, &[("http", 9090, "UDP")], None),
        (
            &name,
            &[("http", 1, "UDP"), ("http", 9090, "TCP")],
            Some(9090),
        ),
        (&name, &[], None),
        (&number, &[("", 8080, "TCP")], Some(8080)),
        (&number, &[("", 8080, "UDP")], None),
        (&number, &[("http", 9090, "TCP")], None),
    ] {
        let mut service = service();
        service.ports = vec![port("", target.clone())];
        let mut slices = Slices::default();
        slices.sync(&service, &[vm(ports)]);
        let slice = slices.only();
        let found: Vec<_> = slice
            .ports
            .iter()
            .map(|port| (port.name.as_deref(), port.port))
            .collect();
        assert_eq!(
            found,
            expected
                .map(|port| (Some(""), Some(port)))
                .into_iter()
                .collect::<Vec<_>>()
        );
        assert_eq!(
            slice.endpoints.len(),
            1,
            "the endpoint is there even if its port is not"
        );
    }
}

/// linkerd's table of workloads behind a service of three protocols.
#[test]
fn slices_list_ports_for_the_workloads_that_have_them() {
    let three = [
        ("tcp", 80, "TCP"),
        ("udp", 161, "UDP"),
        ("sctp", 3456, "SCTP"),
    ];
    let mut web = service();
    web.ports = three
        .map(|(name, number, protocol)| crate::service::ServicePort {
            protocol: protocol.to_owned(),
            ..port(name, Target::Number(number))
        })
        .to_vec();
    let vm = |name: &str, ips: &[&str]| {
        let mut vm = workload(name, ips);
        vm.ports = three
            .map(|(name, number, protocol)| crate::workload::WorkloadPort {
                protocol: protocol.to_owned(),
                ..workload_port(name, number)
            })
            .to_vec();
        vm
    };
    let mut not_ready = vm("b", &["192.0.2.2", "2001:db8::2"]);
    not_ready.is_ready = false;
    let workloads = [vm("a", &["192.0.2.1"]), not_ready];
    for (family, expected) in [
        (
            Family::Ipv4,
            &[("192.0.2.1", true), ("192.0.2.2", false)][..],
        ),
        (Family::Ipv6, &[("2001:db8::2", false)]),
    ] {
        web.families = vec![family];
        let mut slices = Slices::default();
        assert_eq!(slices.sync(&web, &workloads), [1, 0, 0]);
        let slice = slices.only();
        let mut ports: Vec<_> = slice
            .ports
            .iter()
            .map(|port| {
                (
                    port.name.as_deref().unwrap(),
                    port.port.unwrap(),
                    port.protocol.as_str(),
                )
            })
            .collect();
        ports.sort_by_key(|(_, number, _)| *number);
        assert_eq!(ports, three);
        let endpoints: Vec<_> = slice
            .endpoints
            .iter()
            .map(|endpoint| {
                (
                    endpoint.addresses[0].as_str(),
                    endpoint.conditions.unwrap().ready.unwrap(),
                )
            })
            .collect();
        assert_eq!(endpoints, expected);
    }
}

#[test]
fn workloads_without_an_address_of_the_family_have_no_slice() {
    let mut slices = Slices::default();
    assert_eq!(slices.sync(&service(), &[]), [0, 0, 0]);
    assert_eq!(slices.sync(&service(), &[workload("none", &[])]), [0, 0, 0]);
    assert_eq!(
        slices.sync(&service(), &[workload("six", &["2001:db8::1"])]),
        [0, 0, 0]
    );
    slices.sync(&service(), &[workload("w", &["192.0.2.1"])]);
    assert_eq!(
        slices.sync(&service(), &[workload("w", &["2001:db8::1"])]),
        [0, 0, 1]
    );
}

#[test]
fn slice_goes_with_the_last_workload() {
    let mut slices = Slices::default();
    slices.sync(&service(), &[workload("w", &["192.0.2.1"])]);
    assert_eq!(slices.sync(&service(), &[]), [0, 0, 1]);
}

/// The endpoint stays, in the same slice: it is the port that it does not have.
#[test]
fn slice_has_no_port_that_no_workload_has() {
    let mut slices = Slices::default();
    slices.sync(&service(), &[workload("w", &["192.0.2.1"])]);
    let mut changed = service();
    changed.ports = vec![port("http", Target::Number(9090))];
    assert_eq!(
        slices.sync(&changed, &[workload("w", &["192.0.2.1"])]),
        [0, 1, 0]
    );
    assert_eq!(
        (slices.only().ports.len(), slices.only().endpoints.len()),
        (0, 1)
    );
}

#[test]
fn two_workloads_with_one_address_are_both_kept() {
    let mut slices = Slices::default();
    slices.sync(
        &service(),
        &[workload("a", &["192.0.2.1"]), workload("b", &["192.0.2.1"])],
    );
    let names: Vec<_> = slices
        .endpoints()
        .map(|(_, endpoint)| target(endpoint))
        .collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn foreign_services_are_not_changed() {
    let workloads = [workload("w", &["192.0.2.1"])];
    let mut slices = Slices::default();
    slices.sync(&service(), &workloads);
    for change in [
        |service: &mut Service| service.selector.clear(),
        |service: &mut Service| service.is_external_name = true,
        |service: &mut Service| "kube-system".clone_into(&mut service.namespace),
    ] {
        let mut other = service();
        change(&mut other);
        assert_eq!(slices.plan(&other, &workloads), []);
        assert_eq!(Slices::default().plan(&other, &workloads), []);
    }
}

#[test]
fn inputs_of_the_plan_stay_as_they_are() {
    let (mut service, workloads) = (
        service(),
        [workload("a", &["192.0.2.1"]), workload("b", &["192.0.2.2"])],
    );
    let mut slices = Slices::default();
    slices.sync(&service, &workloads);
    service.ports = vec![port("http", Target::Number(8080))];
    service.labels.clear();
    let before = (service.clone(), workloads.clone(), slices.clone());
    assert!(!slices.plan(&service, &workloads).is_empty());
    assert_eq!((service, workloads, slices), before);
}
