//! The processor's answers to queries of users: stored objects and nodes.

use contiv_model::{ServiceId, object::ObjectKind};
use serde_json::{Value, json};

use crate::builders::*;

#[test]
fn objects_are_listed_by_type_in_order_of_their_ids() {
    let processor = mk_processor_with([
        put(mk_service("b/web", &["10.96.0.1"], &["http:80:30080/tcp"])),
        put(mk_service("a/web", &["10.96.0.2"], &["http:80/tcp"])),
        put(mk_endpoints(
            "a/web",
            &[mk_subset(&[of_pod("a/p", "10.1.1.3")], &["http:8080/tcp"])],
        )),
        put(mk_slice(
            "a/web-1",
            "web",
            &[ready(on(MASTER, "10.1.1.3"))],
            &["http:8080/tcp"],
        )),
        put(mk_pod("a/p", &["10.1.1.3"])),
        put(mk_node(MASTER, &["192.168.1.1"], &["10.1.1.0/24"])),
        put(mk_vpp_node(1, MASTER, &["192.168.16.1"])),
        put(mk_allocation(
            "a/p",
            &[mk_service_endpoint("eth1", "default", "10.5.0.1")],
        )),
    ]);
    for kind in ObjectKind::ALL {
        let objects = processor.objects(kind);
        assert!(!objects.is_empty(), "{kind}");
        assert!(objects.iter().all(|object| object.kind() == kind), "{kind}");
        assert!(
            objects.is_sorted_by_key(contiv_model::Object::key),
            "{kind}"
        );
    }
    let slices = serde_json::to_value(processor.objects(ObjectKind::EndpointSlice)).unwrap();
    assert_eq!(
        slices,
        json!([{
            "id": "a/web-1",
            "service": "a/web",
            "address_type": "IPv4",
            "endpoints": [{
                "ip": "10.1.1.3",
                "node_name": "master",
                "conditions": { "ready": true, "serving": true, "terminating": false }
            }],
            "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }]
        }])
    );
}

#[test]
fn nodes_are_shown_with_the_data_of_all_their_objects() {
    let processor = mk_processor_with([
        // Its Kubernetes node is not stored yet.
        put(mk_vpp_node(7, "late", &["192.168.16.7"])),
        put(mk_vpp_node(1, MASTER, &["192.168.16.1"])),
        put(mk_node(MASTER, &["192.168.1.1"], &["10.1.1.0/24"])),
    ]);
    let nodes: Value = serde_json::to_value(processor.nodes()).unwrap();
    assert_eq!(
        nodes,
        json!([
            {
                "name": "late",
                "this_node": false,
                "vpp_node_ids": [7],
                "ips": ["192.168.16.7"],
                "pod_cidrs": []
            },
            {
                "name": "master",
                "this_node": true,
                "vpp_node_ids": [1],
                "ips": ["192.168.1.1", "192.168.16.1"],
                "pod_cidrs": ["10.1.1.0/24"]
            }
        ])
    );
}

#[test]
fn endpoints_of_a_service_have_the_places_that_objects_name() {
    let processor = mk_processor_with([
        put(mk_service("a/web", &["10.96.0.2"], &["http:80/tcp"])),
        put(mk_slice(
            "a/web-1",
            "web",
            &[
                ready(on(MASTER, "10.1.1.3")),
                ready(on("unknown", "10.1.2.3")),
                ready(at("10.1.3.3")),
            ],
            &["http:8080/tcp"],
        )),
        put(mk_slice(
            "a/other-1",
            "other",
            &[ready(on(MASTER, "10.1.1.4"))],
            &["http:8080/tcp"],
        )),
        put(mk_node_in("eu-a", MASTER)),
    ]);
    let places = processor.endpoint_places(&ServiceId::new("a", "web"));
    let shown: Vec<_> = places
        .iter()
        .map(|(address, place)| {
            (
                address.to_string(),
                place.node.to_string(),
                place.zone.as_deref(),
            )
        })
        .collect();
    let expected = [
        ("10.1.1.3".to_owned(), MASTER.to_owned(), Some("eu-a")),
        ("10.1.2.3".to_owned(), "unknown".to_owned(), None),
    ];
    assert_eq!(shown, expected);
}
