//! Local or not, host network or not, redirected or not; and the facts about this node for renderers.

use contiv_model::{
    Event, NodeName, ObjectKey, Processor, ProcessorConfig,
    object::{Pod, Service},
};

use crate::builders::*;

fn web() -> Service {
    mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])
}

fn nodes() -> [Event; 3] {
    [
        put(mk_node(MASTER, &["192.168.1.1"], &["10.1.1.0/24"])),
        put(mk_node(WORKER, &["192.168.1.2"], &["10.1.2.0/24"])),
        put(mk_vpp_node(2, WORKER, &["192.168.16.2"])),
    ]
}

fn slice(addresses: &[contiv_model::object::EndpointAddress]) -> Event {
    let endpoints: Vec<_> = addresses.iter().cloned().map(ready).collect();
    put(mk_slice(
        "default/web-1",
        "web",
        &endpoints,
        &["http:8080/tcp"],
    ))
}

#[test]
fn node_name_of_endpoint_decides_where_it_is_if_there_is_one() {
    let processor = mk_processor_with(nodes().into_iter().chain([
        put(web()),
        // The ranges contradict the names.
        slice(&[
            on(MASTER, "10.1.2.3"),
            on(WORKER, "10.1.1.3"),
            at("10.1.1.4"),
            at("10.1.2.4"),
        ]),
    ]));
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "80/tcp -> 10.1.1.3:8080",
            "80/tcp -> 10.1.1.4:8080 local",
            "80/tcp -> 10.1.2.3:8080 local",
            "80/tcp -> 10.1.2.4:8080"
        ]
    );
}

#[test]
fn node_address_is_host_network_and_on_this_node_local_too() {
    let processor = mk_processor_with(nodes().into_iter().chain([
        put(web()),
        slice(&[
            at("192.168.1.1"),
            at("192.168.1.2"),
            at("192.168.16.2"),
            at("198.51.100.1"),
        ]),
    ]));
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "80/tcp -> 192.168.1.1:8080 local host-network",
            "80/tcp -> 192.168.1.2:8080 host-network",
            "80/tcp -> 192.168.16.2:8080 host-network",
            // Neither a node nor a pod: an endpoint outside the cluster, which Contiv took for host network.
            "80/tcp -> 198.51.100.1:8080"
        ]
    );
}

#[test]
fn host_network_field_counts_and_its_change_is_seen() {
    let pod = Pod {
        host_network: true,
        ..mk_pod("default/p", &["192.168.1.9"])
    };
    let mut processor =
        mk_processor_with([put(web()), slice(&[of_pod("default/p", "192.168.1.9")])]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 192.168.1.9:8080"]
    );

    assert_eq!(
        changed(&processor.apply([put(pod.clone())])),
        ["default/web"]
    );
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 192.168.1.9:8080 host-network"]
    );

    assert_eq!(
        changed(&processor.apply([put(Pod {
            host_network: false,
            ..pod
        })])),
        ["default/web"]
    );
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 192.168.1.9:8080"]
    );
}

#[test]
fn endpoints_of_older_form_learn_of_their_pods_too() {
    let subset = mk_subset(&[of_pod("default/p", "192.168.1.9")], &["http:8080/tcp"]);
    let mut processor =
        mk_processor_with([put(web()), put(mk_endpoints("default/web", &[subset]))]);
    processor.apply([put(Pod {
        host_network: true,
        ..mk_pod("default/p", &["192.168.1.9"])
    })]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 192.168.1.9:8080 host-network"]
    );
}

#[test]
fn local_backends_have_configured_weight() {
    for (weight, expected) in [
        (3, "80/tcp -> 10.1.1.3:8080 local x3"),
        (0, "80/tcp -> 10.1.1.3:8080 local"),
    ] {
        let config = ProcessorConfig {
            local_endpoint_weight: weight,
            ..ProcessorConfig::new(NodeName::new(MASTER))
        };
        let mut processor = Processor::new(config);
        processor.apply(
            nodes()
                .into_iter()
                .chain([put(web()), slice(&[at("10.1.1.3"), at("10.1.2.3")])]),
        );
        assert_eq!(
            backends(&processor, "default/web"),
            [expected, "80/tcp -> 10.1.2.3:8080"]
        );
    }
}

#[test]
fn facts_are_those_of_this_node_from_both_its_records() {
    let mut processor = mk_processor_with(nodes());
    let changes = processor.apply([put(mk_vpp_node(1, MASTER, &["192.168.16.1"]))]);
    let facts = processor.snapshot().node;
    assert_eq!(facts.node_ips, ips(&["192.168.1.1", "192.168.16.1"]));
    assert_eq!(facts.pod_cidrs, ["10.1.1.0/24".parse().unwrap()].into());
    assert_eq!(changes.node, Some(facts));
}

#[test]
fn configuration_replaces_stored_facts_of_this_node() {
    let mut processor = Processor::new(ProcessorConfig {
        node_ips: ips(&["203.0.113.1"]),
        pod_cidrs: ["10.7.0.0/16".parse().unwrap()].into(),
        ..ProcessorConfig::new(NodeName::new(MASTER))
    });
    processor.apply(nodes());
    let facts = processor.snapshot().node;
    assert_eq!(facts.node_ips, ips(&["203.0.113.1"]));
    assert_eq!(facts.pod_cidrs, ["10.7.0.0/16".parse().unwrap()].into());

    // An endpoint at an address of this node is local, whether or not node ports answer there.
    processor.apply([
        put(web()),
        slice(&[
            at("192.168.1.1"),
            at("203.0.113.1"),
            at("10.7.1.1"),
            at("10.1.1.3"),
        ]),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "80/tcp -> 10.1.1.3:8080 local",
            "80/tcp -> 10.7.1.1:8080",
            "80/tcp -> 192.168.1.1:8080 local host-network",
            "80/tcp -> 203.0.113.1:8080 local host-network"
        ]
    );
}

#[test]
fn cluster_range_as_pod_cidrs_makes_no_endpoint_local() {
    let cluster_range = ProcessorConfig {
        pod_cidrs: ["10.1.0.0/16".parse().unwrap()].into(),
        ..ProcessorConfig::new(NodeName::new(MASTER))
    };
    let mut processor = Processor::new(cluster_range.clone());
    processor.apply(nodes().into_iter().chain([
        put(web()),
        slice(&[
            at("10.1.1.3"),
            at("10.1.2.3"),
            on(WORKER, "10.1.2.4"),
            on(MASTER, "10.1.2.5"),
        ]),
    ]));
    let expected = [
        "80/tcp -> 10.1.1.3:8080 local",
        "80/tcp -> 10.1.2.3:8080",
        "80/tcp -> 10.1.2.4:8080",
        "80/tcp -> 10.1.2.5:8080 local",
    ];
    assert_eq!(backends(&processor, "default/web"), expected);
    assert_eq!(
        processor.snapshot().node.pod_cidrs,
        cluster_range.pod_cidrs,
        "it decides which clients are pods"
    );

    // A Node object without pod CIDRs does not change where its pods are.
    processor.apply([put(mk_node(MASTER, &["192.168.1.1"], &[]))]);
    assert_eq!(
        backends(&processor, "default/web")[0],
        "80/tcp -> 10.1.1.3:8080"
    );
}

#[test]
fn pod_cidrs_without_node_object_make_endpoints_local() {
    let mut processor = Processor::new(ProcessorConfig {
        pod_cidrs: ["10.7.0.0/16".parse().unwrap()].into(),
        ..ProcessorConfig::new(NodeName::new(MASTER))
    });
    processor.apply([
        put(web()),
        slice(&[at("10.7.1.1"), at("10.8.1.1"), on(WORKER, "10.7.1.2")]),
    ]);
    let expected = [
        "80/tcp -> 10.7.1.1:8080 local",
        "80/tcp -> 10.7.1.2:8080",
        "80/tcp -> 10.8.1.1:8080",
    ];
    assert_eq!(backends(&processor, "default/web"), expected);
}

#[test]
fn node_change_touches_only_services_with_endpoints_there() {
    let mut processor = mk_processor_with([
        put(web()),
        slice(&[at("192.168.1.2")]),
        put(mk_service("default/api", &["10.96.0.2"], &["http:80/tcp"])),
        put(mk_slice(
            "default/api-1",
            "api",
            &[ready(at("10.1.9.9"))],
            &["http:80/tcp"],
        )),
    ]);
    let changes = processor.apply(nodes());
    assert_eq!(changed(&changes), ["default/web"]);
    let changes = processor.apply([Event::Delete(ObjectKey::Node(NodeName::new(WORKER)))]);
    assert_eq!(changed(&changes), ["default/web"]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 192.168.1.2:8080"]
    );
}

#[test]
fn address_moving_to_this_node_makes_its_endpoints_local() {
    let mut processor = mk_processor_with(
        nodes()
            .into_iter()
            .chain([put(web()), slice(&[at("192.168.1.2")])]),
    );
    let moved = [
        put(mk_node(WORKER, &[], &[])),
        put(mk_node(
            MASTER,
            &["192.168.1.1", "192.168.1.2"],
            &["10.1.1.0/24"],
        )),
    ];
    assert_eq!(changed(&processor.apply(moved)), ["default/web"]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 192.168.1.2:8080 local host-network"]
    );
}

#[test]
fn services_reach_pod_through_its_service_endpoint_interface() {
    let allocation = mk_allocation(
        "default/p",
        &[
            mk_interface("eth1", "default", "10.5.0.1"),
            mk_service_endpoint("eth2", "default", "10.5.0.2"),
        ],
    );
    let processor = mk_processor_with(nodes().into_iter().chain([
        put(web()),
        slice(&[of_pod("default/p", "10.1.1.3"), at("10.1.1.4")]),
        put(allocation),
        put(mk_pod("default/p", &["10.1.1.3", "fd00:1::3"])),
    ]));
    // Its node is that of its main address, independent of the network of the custom one.
    assert_eq!(
        backends(&processor, "default/web"),
        [
            "80/tcp -> 10.1.1.4:8080 local",
            "80/tcp -> 10.5.0.2:8080 local"
        ]
    );
}

#[test]
fn endpoint_without_pod_reference_is_redirected_by_address() {
    let processor = mk_processor_with([
        put(web()),
        slice(&[at("10.1.1.3"), at("10.1.1.4")]),
        put(mk_pod("default/p", &["10.1.1.3"])),
        put(mk_allocation(
            "default/p",
            &[mk_service_endpoint("eth1", "default", "10.5.0.1")],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.4:8080", "80/tcp -> 10.5.0.1:8080"]
    );
}

#[test]
fn endpoint_of_another_pod_at_reused_address_is_not_redirected() {
    let processor = mk_processor_with([
        put(web()),
        slice(&[of_pod("default/new", "10.1.1.3")]),
        put(mk_pod("default/old", &["10.1.1.3"])),
        put(mk_pod("default/new", &["10.1.1.3"])),
        put(mk_allocation(
            "default/old",
            &[mk_service_endpoint("eth1", "default", "10.5.0.1")],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.3:8080"]
    );
}

#[test]
fn allocation_that_is_deleted_or_changed_takes_effect_at_once() {
    let allocation = |ip| {
        put(mk_allocation(
            "default/p",
            &[mk_service_endpoint("eth1", "default", ip)],
        ))
    };
    let mut processor = mk_processor_with([
        put(web()),
        slice(&[of_pod("default/p", "10.1.1.3")]),
        put(mk_pod("default/p", &["10.1.1.3"])),
        allocation("10.5.0.1"),
    ]);
    assert_eq!(
        changed(&processor.apply([allocation("10.5.0.2")])),
        ["default/web"]
    );
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.5.0.2:8080"]
    );
    processor.apply([Event::Delete(ObjectKey::IpAllocation(pod_id("default/p")))]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.3:8080"]
    );
}
