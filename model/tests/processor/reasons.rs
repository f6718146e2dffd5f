//! Tests of the reasons that stored objects give for the outcome of a flow: one for each reason.

use contiv_model::{
    Event, Flow, NodeName, NodePortAddresses, NotServed, Processor, ProcessorConfig, Protocol,
    object::{AddressType, EndpointSlice, Service, ServiceType},
    trace::Reason,
};

use crate::builders::*;

const CLIENT: &str = "198.51.100.7";

fn web() -> Service {
    mk_service("shop/web", &["10.96.0.1"], &["http:80:30080/tcp"])
}

/// The master with an address, and the worker.
fn nodes() -> [Event; 2] {
    [
        put(mk_node(MASTER, &["192.168.1.1"], &[])),
        put(mk_node(WORKER, &["192.168.1.2"], &[])),
    ]
}

/// The reasons of a connection over TCP, as they are printed.
fn reasons_of(processor: &Processor, from: &str, to: &str) -> Vec<String> {
    let flow = Flow::new(ip(from), to.parse().unwrap(), Protocol::Tcp).unwrap();
    let trace = processor.trace(&flow);
    // They are read back from JSON.
    let read: Vec<Reason> =
        serde_json::from_value(serde_json::to_value(&trace.reasons).unwrap()).unwrap();
    assert_eq!(read, trace.reasons);
    for reason in &trace.reasons {
        assert!(
            trace.to_string().contains(&format!("why       {reason}\n")),
            "{trace}"
        );
    }
    trace.reasons.iter().map(ToString::to_string).collect()
}

/// The only reason of a connection to the service `web` among these objects.
fn reason_with(objects: impl IntoIterator<Item = Event>) -> String {
    let processor = mk_processor_with([put(web())].into_iter().chain(nodes()).chain(objects));
    let mut reasons = reasons_of(&processor, CLIENT, "10.96.0.1:80");
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

fn slice(endpoints: &[contiv_model::object::SliceEndpoint]) -> EndpointSlice {
    mk_slice("shop/web-1", "web", endpoints, &["http:8080/tcp"])
}

#[test]
fn service_without_slice_names_missing_label() {
    assert_eq!(
        reason_with([]),
        "no endpoint slice of namespace shop has the label kubernetes.io/service-name: web"
    );
}

#[test]
fn slice_without_label_is_named() {
    let endpoints = [ready(at("10.1.0.1"))];
    for service in [None, Some(service_id("shop/wbe"))] {
        let unlabelled = EndpointSlice {
            service,
            ..slice(&endpoints)
        };
        let reason = reason_with([put(unlabelled)]);
        assert!(reason.ends_with(
            "service-name: web; shop/web-1 has none or another, or is labelled service.kubernetes.io/headless"
        ), "{reason}");
    }
    // Those of other services, of other namespaces and with other names are not meant.
    let others = [
        put(mk_service("shop/web-api", &["10.96.0.2"], &["http:80/tcp"])),
        put(mk_slice(
            "shop/web-api-1",
            "web-api",
            &endpoints,
            &["http:8080/tcp"],
        )),
        put(EndpointSlice {
            service: None,
            ..mk_slice("other/web-1", "web", &endpoints, &["http:8080/tcp"])
        }),
        put(EndpointSlice {
            service: None,
            ..mk_slice("shop/webshop-1", "web", &endpoints, &["http:8080/tcp"])
        }),
    ];
    let reason = reason_with(others);
    assert!(reason.ends_with("service-name: web"), "{reason}");
}

#[test]
fn slices_of_host_names_are_no_endpoints_for_proxies() {
    let names = EndpointSlice {
        address_type: AddressType::Fqdn,
        ..slice(&[])
    };
    assert!(reason_with([put(names)]).contains("addressType FQDN"));
}

#[test]
fn slices_without_endpoints_point_at_selector() {
    assert!(
        reason_with([put(slice(&[]))])
            .starts_with("its 1 endpoint slice has no endpoints; look at its selector")
    );
    let endpoints = put(mk_endpoints(
        "shop/web",
        &[mk_subset(&[], &["http:8080/tcp"])],
    ));
    assert!(reason_with([endpoints]).starts_with("its Endpoints object has no ready address"));
}

#[test]
fn slice_without_the_port_names_the_ports_it_has() {
    let other = mk_slice(
        "shop/web-1",
        "web",
        &[ready(at("10.1.0.1"))],
        &["https:8443/tcp", "http:8080/udp"],
    );
    let reason = reason_with([put(other)]);
    assert!(
        reason.starts_with(
            "no endpoint slice has the port http (tcp); they have http (udp), https (tcp);"
        ),
        "{reason}"
    );
    let nothing = mk_slice("shop/web-1", "web", &[ready(at("10.1.0.1"))], &[]);
    assert!(reason_with([put(nothing)]).contains("they name no port at all"));
}

#[test]
fn endpoints_not_ready_point_at_probes() {
    let waiting = |address| with(at(address), false, false, false);
    let reason = reason_with([put(slice(&[waiting("10.1.0.1"), waiting("10.1.0.2")]))]);
    assert_eq!(
        reason,
        "no endpoint is ready, of 2; look at their readiness probes"
    );
    let ending = with(at("10.1.0.3"), false, false, true);
    let reason = reason_with([put(slice(&[waiting("10.1.0.1"), ending]))]);
    assert_eq!(
        reason,
        "no endpoint is ready: 1 is terminating, 1 not ready; look at their readiness probes"
    );
}

#[test]
fn endpoints_only_terminating_do_not_point_at_probes() {
    let reason = reason_with([put(slice(&[with(at("10.1.0.1"), false, false, true)]))]);
    assert_eq!(
        reason,
        "all endpoints are terminating and no longer serve: 1; look at why no new pods run"
    );
}

#[test]
fn endpoints_of_other_family_are_counted() {
    let v6 = with(at("fd01::1"), false, false, false);
    let v6 = EndpointSlice {
        address_type: AddressType::Ipv6,
        ..slice(&[v6])
    };
    assert!(reason_with([put(v6)]).starts_with("its 1 endpoint is of the other address family"));
}

#[test]
fn local_policy_tells_of_unready_endpoints_here() {
    let service = Service {
        internal_policy: contiv_model::TrafficPolicy::Local,
        ..web()
    };
    let objects = |here: &[contiv_model::object::SliceEndpoint]| {
        let mut endpoints = vec![ready(on(WORKER, "10.1.2.1"))];
        endpoints.extend_from_slice(here);
        mk_processor_with(
            [put(service.clone()), put(slice(&endpoints))]
                .into_iter()
                .chain(nodes()),
        )
    };
    let waiting = with(on(MASTER, "10.1.1.1"), false, false, false);
    assert_eq!(
        reasons_of(&objects(&[waiting]), CLIENT, "10.96.0.1:80"),
        ["on this node no endpoint is ready, of 1; look at their readiness probes"]
    );
    assert!(
        reasons_of(&objects(&[]), CLIENT, "10.96.0.1:80").is_empty(),
        "the policy is the reason"
    );
}

#[test]
fn address_of_service_not_served_says_why() {
    let other_proxy = Service {
        proxy_name: Some("cilium".into()),
        ..web()
    };
    let headless = Service {
        headless: true,
        cluster_ips: ips(&[]),
        external_ips: ips(&["10.96.0.1"]),
        ..web()
    };
    let alias = Service {
        service_type: ServiceType::ExternalName,
        ..headless.clone()
    };
    for (service, because) in [
        (other_proxy, NotServed::OtherProxy(Some("cilium".into()))),
        (
            Service {
                service_type: ServiceType::ClusterIp,
                ..headless
            },
            NotServed::Headless,
        ),
        (alias, NotServed::ExternalName),
    ] {
        let processor = mk_processor_with([put(service)]);
        let expected =
            format!("the address is that of shop/web, which is not served here: {because}");
        assert_eq!(reasons_of(&processor, CLIENT, "10.96.0.1:80"), [expected]);
    }
}

#[test]
fn address_of_service_with_other_ports_names_them() {
    let service = Service {
        external_ips: ips(&["203.0.113.9"]),
        ..web()
    };
    let processor = mk_processor_with([put(service)]);
    for to in ["10.96.0.1:81", "203.0.113.9:81"] {
        assert_eq!(
            reasons_of(&processor, CLIENT, to),
            ["shop/web has this address, but only with 80/tcp (http)"]
        );
    }
}

#[test]
fn external_address_of_other_family_is_explained() {
    let service = Service {
        external_ips: ips(&["2001:db8::9"]),
        ..web()
    };
    let processor = mk_processor_with([put(service)]);
    assert_eq!(
        reasons_of(&processor, "2001:db8::7", "[2001:db8::9]:80"),
        ["shop/web has this address, but no cluster IP of this family; look at its ipFamilies"]
    );
}

#[test]
fn node_port_at_other_address_names_serving_ones() {
    let mut processor = mk_processor_with([put(web())].into_iter().chain(nodes()));
    processor.apply([Event::LocalAddresses(ips(&[
        "192.168.1.1",
        "10.9.0.1",
        "fd09::1",
    ]))]);
    let only = "it is the node port of shop/web, which this node serves at 192.168.1.1 only (node-port-addresses)";
    for to in ["10.9.0.1:30080", "127.0.0.1:30080"] {
        assert_eq!(reasons_of(&processor, CLIENT, to), [only], "{to}");
    }
    let of_family = reasons_of(&processor, "fd09::7", "[fd09::1]:30080");
    assert!(
        of_family[0].contains("no address of this node and family serves node ports"),
        "{of_family:?}"
    );
    assert!(
        reasons_of(&processor, CLIENT, "8.8.8.8:30080").is_empty(),
        "no address of a node"
    );
    assert!(
        reasons_of(&processor, CLIENT, "10.9.0.1:30081").is_empty(),
        "no node port"
    );
}

#[test]
fn node_port_of_other_family_or_node_is_named() {
    let addresses = std::collections::BTreeSet::from([NodePortAddresses::All]);
    let config = ProcessorConfig {
        node_port_addresses: addresses,
        ..ProcessorConfig::new(NodeName::new(MASTER))
    };
    let mut processor = Processor::new(config);
    processor.apply(
        [
            put(web()),
            Event::LocalAddresses(ips(&["192.168.1.1", "fd09::1"])),
        ]
        .into_iter()
        .chain(nodes()),
    );
    assert_eq!(
        reasons_of(&processor, "fd09::7", "[fd09::1]:30080"),
        ["it is the node port of shop/web, which has no address of this family"]
    );
    assert_eq!(
        reasons_of(&processor, CLIENT, "192.168.1.2:30080"),
        ["it is the node port of shop/web at the node worker: the answer is that node's"]
    );
}

#[test]
fn flow_that_is_served_needs_no_reason() {
    let processor = mk_processor_with([put(web()), put(slice(&[ready(at("10.1.0.1"))]))]);
    assert!(reasons_of(&processor, CLIENT, "10.96.0.1:80").is_empty());
    assert!(reasons_of(&processor, CLIENT, "8.8.8.8:53").is_empty());
}
