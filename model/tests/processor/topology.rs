//! The backends selected for policy Cluster. Source: kube-proxy's `topology.go`, KEP-2433, KEP-3015.

use std::net::IpAddr;

use contiv_model::{
    Backend, NodeName, Processor, ProcessorConfig,
    object::{AddressType, EndpointSlice, Hints, Service, SliceEndpoint},
};
use proptest::{collection::btree_set, prelude::*, sample::select};

use crate::builders::*;

fn web() -> Service {
    mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])
}

/// A processor on a node in zone `z1`, with these endpoints behind a service.
fn with_endpoints(service: Service, endpoints: &[SliceEndpoint]) -> Processor {
    mk_processor_with([
        put(mk_node_in("z1", MASTER)),
        put(service),
        put(mk_slice(
            "default/web-1",
            "web",
            endpoints,
            &["http:8080/tcp"],
        )),
    ])
}

fn addresses(backends: &[&Backend]) -> Vec<String> {
    backends
        .iter()
        .map(|backend| backend.address.to_string())
        .collect()
}

/// The backends for traffic with policy Cluster.
fn cluster(processor: &Processor) -> Vec<String> {
    addresses(&processor.service(&service_id("default/web")).unwrap().ports[0].cluster_backends())
}

/// The backends for traffic with policy Local.
fn local(processor: &Processor) -> Vec<String> {
    addresses(&processor.service(&service_id("default/web")).unwrap().ports[0].local_backends())
}

#[test]
fn hints_for_zones_keep_traffic_in_zone_of_node() {
    let processor = with_endpoints(
        web(),
        &[
            meant_for(at("10.2.0.1"), &[], &["z1"]),
            meant_for(at("10.2.0.2"), &[], &["z2"]),
            meant_for(at("10.2.0.3"), &[], &["z1", "z2"]),
        ],
    );
    assert_eq!(cluster(&processor), ["10.2.0.1", "10.2.0.3"]);
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "80/tcp -> 10.2.0.1:8080",
            "80/tcp -> 10.2.0.2:8080 elsewhere",
            "80/tcp -> 10.2.0.3:8080"
        ]
    );
}

#[test]
fn hints_for_nodes_come_before_hints_for_zones() {
    let mine = meant_for(at("10.2.0.1"), &[MASTER], &["z2"]);
    let of_zone = meant_for(at("10.2.0.2"), &[WORKER], &["z1"]);
    assert_eq!(
        cluster(&with_endpoints(web(), &[mine, of_zone.clone()])),
        ["10.2.0.1"]
    );
    // Without hints for this node those for zones decide.
    let other = meant_for(at("10.2.0.3"), &[WORKER], &["z2"]);
    assert_eq!(
        cluster(&with_endpoints(web(), &[of_zone, other])),
        ["10.2.0.2"]
    );
}

#[test]
fn one_ready_endpoint_without_hints_makes_all_hints_meaningless() {
    let here = meant_for(at("10.2.0.1"), &[MASTER], &["z1"]);
    let elsewhere = meant_for(at("10.2.0.2"), &[WORKER], &["z2"]);
    let all = ["10.2.0.1", "10.2.0.2", "10.2.0.3"];
    assert_eq!(
        cluster(&with_endpoints(
            web(),
            &[here.clone(), elsewhere.clone(), ready(at("10.2.0.3"))]
        )),
        all
    );
    let not_ready = with(at("10.2.0.3"), false, true, true);
    assert_eq!(
        cluster(&with_endpoints(web(), &[here, elsewhere, not_ready])),
        ["10.2.0.1"]
    );
}

#[test]
fn hints_only_for_other_zones_are_ignored() {
    let processor = with_endpoints(
        web(),
        &[
            meant_for(at("10.2.0.1"), &[], &["z2"]),
            meant_for(at("10.2.0.2"), &[], &["z3"]),
        ],
    );
    assert_eq!(cluster(&processor), ["10.2.0.1", "10.2.0.2"]);
}

#[test]
fn terminating_endpoints_are_used_despite_hints() {
    let terminating = |address, zone| SliceEndpoint {
        hints: meant_for(at(address), &[], &[zone]).hints,
        ..with(at(address), false, true, true)
    };
    let going = [terminating("10.2.0.1", "z1"), terminating("10.2.0.2", "z2")];
    assert_eq!(
        cluster(&with_endpoints(web(), &going)),
        ["10.2.0.1", "10.2.0.2"]
    );
    // They do not decide either: the only ready one is elsewhere.
    let ready = meant_for(at("10.2.0.3"), &[], &["z2"]);
    assert_eq!(
        cluster(&with_endpoints(web(), &[going[0].clone(), ready])),
        ["10.2.0.3"]
    );
    // Nor does it show that the ready ones have been decided on.
    let ready = meant_for(at("10.2.0.3"), &[], &["z1"]);
    assert_eq!(
        backends(
            &with_endpoints(web(), &[going[1].clone(), ready]),
            "default/web"
        ),
        [
            "80/tcp -> 10.2.0.2:8080 terminating",
            "80/tcp -> 10.2.0.3:8080"
        ]
    );
}

#[test]
fn policy_local_does_not_ask_for_topology() {
    let processor = with_endpoints(
        web(),
        &[
            meant_for(on(MASTER, "10.2.0.1"), &[WORKER], &[]),
            meant_for(on(WORKER, "10.2.0.2"), &[MASTER], &[]),
        ],
    );
    assert_eq!(
        (cluster(&processor), local(&processor)),
        (vec!["10.2.0.2".into()], vec!["10.2.0.1".into()])
    );
}

#[test]
fn each_family_and_each_port_follows_its_own_hints() {
    let v6 = EndpointSlice {
        address_type: AddressType::Ipv6,
        ..mk_slice(
            "default/web-6",
            "web",
            &[ready(at("fd00:2::1")), ready(at("fd00:2::2"))],
            &["http:8080/tcp"],
        )
    };
    let v4 = [
        meant_for(at("10.2.0.1"), &[], &["z1"]),
        meant_for(at("10.2.0.2"), &[], &["z2"]),
    ];
    let mut processor = with_endpoints(web(), &v4);
    processor.apply([put(v6)]);
    assert_eq!(cluster(&processor), ["10.2.0.1", "fd00:2::1", "fd00:2::2"]);

    processor.apply([
        put(mk_service(
            "default/web",
            &["10.96.0.1"],
            &["http:80/tcp", "dns:53/udp"],
        )),
        put(mk_slice(
            "default/web-7",
            "web",
            &[ready(at("10.2.0.3"))],
            &["dns:53/udp"],
        )),
        put(mk_slice("default/web-8", "web", &v4, &["dns:53/udp"])),
    ]);
    let service = processor.service(&service_id("default/web")).unwrap();
    let chosen = service
        .ports
        .iter()
        .map(|port| (port.port, addresses(&port.cluster_backends())));
    let dns = vec!["10.2.0.1".into(), "10.2.0.2".into(), "10.2.0.3".into()];
    let web = vec!["10.2.0.1".into(), "fd00:2::1".into(), "fd00:2::2".into()];
    assert_eq!(chosen.collect::<Vec<_>>(), [(53, dns), (80, web)]);
}

#[test]
fn node_moving_zones_changes_only_services_with_hints() {
    let mut processor = with_endpoints(
        web(),
        &[
            meant_for(at("10.2.0.1"), &[], &["z1"]),
            meant_for(at("10.2.0.2"), &[], &["z2"]),
        ],
    );
    processor.apply([
        put(mk_service("default/api", &["10.96.0.2"], &["http:80/tcp"])),
        put(mk_slice(
            "default/api-1",
            "api",
            &[ready(at("10.2.0.3"))],
            &["http:8080/tcp"],
        )),
    ]);
    let changes = processor.apply([put(mk_node_in("z2", MASTER))]);
    assert_eq!(
        (changed(&changes), &changes.node),
        (vec!["default/web".to_owned()], &None)
    );
    assert_eq!(cluster(&processor), ["10.2.0.2"]);

    assert!(
        processor.apply([put(mk_node_in("z1", WORKER))]).is_empty(),
        "the zone of another node"
    );
    processor.apply([put(mk_node(MASTER, &[], &[]))]);
    assert_eq!(
        cluster(&processor),
        ["10.2.0.1", "10.2.0.2"],
        "the node is in no zone"
    );
}

#[test]
fn hints_count_as_soon_as_zone_of_node_is_known() {
    let endpoints = [
        meant_for(at("10.2.0.1"), &[], &["z1"]),
        meant_for(at("10.2.0.2"), &[], &["z2"]),
    ];
    let all = ["10.2.0.1", "10.2.0.2"];
    let mut processor = mk_processor_with([
        put(web()),
        put(mk_slice(
            "default/web-1",
            "web",
            &endpoints,
            &["http:8080/tcp"],
        )),
    ]);
    assert_eq!(cluster(&processor), all, "there is no Node object");
    let created = processor.apply([put(mk_node_in("z1", MASTER))]);
    assert_eq!(
        (changed(&created), cluster(&processor)),
        (vec!["default/web".to_owned()], vec!["10.2.0.1".into()])
    );
    processor.apply([put(mk_node(MASTER, &[], &[]))]);
    assert_eq!(cluster(&processor), all, "it has no zone");
    let labelled = processor.apply([put(mk_node_in("z2", MASTER))]);
    assert_eq!(
        (changed(&labelled), cluster(&processor)),
        (vec!["default/web".to_owned()], vec!["10.2.0.2".into()])
    );
}

#[test]
fn configured_zone_wins_over_that_of_node_object() {
    let config = ProcessorConfig {
        zone: Some("z2".into()),
        ..ProcessorConfig::new(NodeName::new(MASTER))
    };
    let mut processor = Processor::new(config);
    let endpoints = [
        meant_for(at("10.2.0.1"), &[], &["z1"]),
        meant_for(at("10.2.0.2"), &[], &["z2"]),
    ];
    processor.apply([
        put(mk_node_in("z1", MASTER)),
        put(web()),
        put(mk_slice(
            "default/web-1",
            "web",
            &endpoints,
            &["http:8080/tcp"],
        )),
    ]);
    assert_eq!(cluster(&processor), ["10.2.0.2"]);
}

#[test]
fn hints_of_duplicates_are_taken_together() {
    let of_one = meant_for(at("10.2.0.1"), &[], &["z2"]);
    let of_other = meant_for(at("10.2.0.1"), &[], &["z1"]);
    let elsewhere = meant_for(at("10.2.0.2"), &[], &["z2"]);
    for endpoints in [
        [of_one.clone(), of_other.clone(), elsewhere.clone()],
        [of_other, elsewhere, of_one],
    ] {
        assert_eq!(cluster(&with_endpoints(web(), &endpoints)), ["10.2.0.1"]);
    }
}

fn preferring_local() -> Service {
    let mut service = web();
    service.options.prefer_local = true;
    service
}

#[test]
fn prefer_local_uses_other_nodes_only_without_local_backends() {
    let here = ready(on(MASTER, "10.2.0.1"));
    let there = ready(on(WORKER, "10.2.0.2"));
    let going = with(on(MASTER, "10.2.0.3"), false, true, true);
    let endpoints = [here, there.clone(), going.clone()];
    assert_eq!(
        cluster(&with_endpoints(web(), &endpoints)),
        ["10.2.0.1", "10.2.0.2"]
    );
    assert_eq!(
        cluster(&with_endpoints(preferring_local(), &endpoints)),
        ["10.2.0.1"]
    );
    // A terminating backend is no reason to stay.
    assert_eq!(
        cluster(&with_endpoints(preferring_local(), &[there, going])),
        ["10.2.0.2"]
    );
}

#[test]
fn prefer_local_has_no_effect_without_local_backends() {
    let processor = with_endpoints(preferring_local(), &[ready(on(WORKER, "10.2.0.2"))]);
    let service = processor.service(&service_id("default/web")).unwrap();
    let before = with_endpoints(web(), &[ready(on(WORKER, "10.2.0.2"))]);
    assert_eq!(before.service(&service_id("default/web")), Some(service));
}

#[test]
fn hints_decide_for_prefer_local_without_local_backends() {
    let processor = with_endpoints(
        preferring_local(),
        &[
            meant_for(on(WORKER, "10.2.0.1"), &[], &["z1"]),
            meant_for(on(WORKER, "10.2.0.2"), &[], &["z2"]),
        ],
    );
    assert_eq!(cluster(&processor), ["10.2.0.1"]);
}

/// `CategorizeEndpoints` and `topologyModeFromHints` of Kubernetes 1.36, statement by statement, for the endpoints of one
/// family. Returns the cluster endpoints.
fn categorize(endpoints: &[SliceEndpoint], node: &str, zone: &str) -> Vec<IpAddr> {
    let no_hints = Hints::default();
    let of = |endpoint: &SliceEndpoint| endpoint.hints.as_deref().unwrap_or(&no_hints).clone();
    let has_node = |hints: &Hints| hints.nodes.contains(&NodeName::new(node));
    let has_zone = |hints: &Hints| hints.zones.contains(zone);
    let (mut has_endpoint_for_node, mut all_have_node_hints) = (false, true);
    let (mut has_endpoint_for_zone, mut all_have_zone_hints) = (false, true);
    for endpoint in endpoints {
        if !endpoint.conditions.ready {
            continue;
        }
        let hints = of(endpoint);
        if hints.nodes.is_empty() {
            all_have_node_hints = false;
        } else if has_node(&hints) {
            has_endpoint_for_node = true;
        }
        if hints.zones.is_empty() {
            all_have_zone_hints = false;
        } else if has_zone(&hints) {
            has_endpoint_for_zone = true;
        }
    }
    let is_available = |endpoint: &&SliceEndpoint| {
        if all_have_node_hints && has_endpoint_for_node {
            has_node(&of(endpoint))
        } else if all_have_zone_hints && has_endpoint_for_zone {
            has_zone(&of(endpoint))
        } else {
            true
        }
    };
    let ready: Vec<IpAddr> = endpoints
        .iter()
        .filter(|endpoint| endpoint.conditions.ready)
        .filter(is_available)
        .map(|endpoint| endpoint.address.ip)
        .collect();
    if !ready.is_empty() {
        return ready;
    }
    let is_last_resort =
        |endpoint: &&SliceEndpoint| endpoint.conditions.serving && endpoint.conditions.terminating;
    endpoints
        .iter()
        .filter(is_last_resort)
        .map(|endpoint| endpoint.address.ip)
        .collect()
}

/// Up to five endpoints with different addresses, most of them ready and with hints.
fn endpoints(addresses: &'static [&'static str]) -> impl Strategy<Value = Vec<SliceEndpoint>> {
    let hints = || {
        (
            btree_set(select(&[MASTER, WORKER][..]), 0..3),
            btree_set(select(&["z1", "z2"][..]), 0..3),
        )
            .prop_map(|(nodes, zones)| {
                (
                    nodes.into_iter().collect::<Vec<_>>(),
                    zones.into_iter().collect::<Vec<_>>(),
                )
            })
    };
    let conditions = (prop::bool::weighted(0.7), any::<bool>(), any::<bool>());
    prop::sample::subsequence(addresses, 0..=addresses.len()).prop_flat_map(move |addresses| {
        addresses
            .into_iter()
            .map(|address| {
                (hints(), conditions).prop_map(
                    move |((nodes, zones), (ready, serving, terminating))| SliceEndpoint {
                        hints: meant_for(at(address), &nodes, &zones).hints,
                        ..with(at(address), ready, serving, terminating)
                    },
                )
            })
            .collect::<Vec<_>>()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn endpoints_are_chosen_as_by_kube_proxy_per_family(
        v4 in endpoints(&["10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4", "10.2.0.5"]),
        v6 in endpoints(&["fd00:2::1", "fd00:2::2", "fd00:2::3"]),
    ) {
        let slice = EndpointSlice {
            address_type: AddressType::Ipv6,
            ..mk_slice("default/web-6", "web", &v6, &["http:8080/tcp"])
        };
        let mut processor = with_endpoints(web(), &v4);
        processor.apply([put(slice)]);
        let expected = [categorize(&v4, MASTER, "z1"), categorize(&v6, MASTER, "z1")].concat();
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        prop_assert_eq!(cluster(&processor), expected);
    }
}
