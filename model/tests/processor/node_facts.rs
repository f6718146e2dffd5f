//! The addresses at which node ports answer, the detection of pods, and masquerading.

use std::collections::BTreeSet;

use contiv_model::{
    ClusterIpMasquerade, Event, LocalDetect, NodeFacts, NodeName, NodePortAddresses, ObjectKey,
    Processor, ProcessorConfig, object::Node,
};

use crate::builders::*;

const LOCAL: [&str; 7] = [
    "127.0.0.1",
    "::1",
    "192.168.1.1",
    "10.0.0.7",
    "169.254.1.1",
    "fe80::1",
    "2001:db8::7",
];

fn config() -> ProcessorConfig {
    ProcessorConfig::new(NodeName::new(MASTER))
}

fn facts(config: ProcessorConfig) -> NodeFacts {
    let mut processor = Processor::new(config);
    processor.apply([
        put(mk_node(MASTER, &["192.168.1.1"], &["10.1.1.0/24"])),
        Event::LocalAddresses(ips(&LOCAL)),
    ]);
    processor.snapshot().node
}

#[test]
fn node_ports_answer_on_configured_addresses() {
    let within = |range: &str| NodePortAddresses::Within(range.parse().unwrap());
    let cases: [(&[NodePortAddresses], &[&str]); 8] = [
        (&[NodePortAddresses::Primary], &["192.168.1.1"]),
        (
            &[NodePortAddresses::All],
            &["192.168.1.1", "10.0.0.7", "2001:db8::7"],
        ),
        (
            &[within("10.0.0.0/8"), within("2001:db8::/32")],
            &["10.0.0.7", "2001:db8::7"],
        ),
        (
            &[within("10.0.0.0/8"), NodePortAddresses::Primary],
            &["192.168.1.1", "10.0.0.7"],
        ),
        (
            &[within("fe80::/10"), within("10.0.0.0/8")],
            &["10.0.0.7", "fe80::1"],
        ),
        (
            &[
                within("127.0.0.0/8"),
                within("203.0.113.0/24"),
                within("fd00::/8"),
            ],
            &[],
        ),
        (
            &[
                within("127.0.0.0/8"),
                within("10.0.0.0/8"),
                within("::1/128"),
                within("2001:db8::/32"),
            ],
            &["10.0.0.7", "2001:db8::7"],
        ),
        (
            &[within("10.0.0.0/8"), within("::/0")],
            &["10.0.0.7", "2001:db8::7"],
        ),
    ];
    for (addresses, expected) in cases {
        let node_port_addresses: BTreeSet<_> = addresses.iter().copied().collect();
        let facts = facts(ProcessorConfig {
            node_port_addresses,
            ..config()
        });
        assert_eq!(facts.node_ips, ips(expected), "{addresses:?}");
        assert_eq!(facts.local_ips, ips(&LOCAL));
    }
}

#[test]
fn pod_ranges_of_one_family_do_not_restrict_the_other() {
    for (range, expected) in [
        ("10.0.0.0/8", &["10.0.0.7", "2001:db8::7"][..]),
        ("203.0.113.0/24", &["2001:db8::7"]),
        ("fd00::/8", &["192.168.1.1", "10.0.0.7"]),
        ("fe80::/10", &["192.168.1.1", "10.0.0.7", "fe80::1"]),
    ] {
        let node_port_addresses = [NodePortAddresses::Within(range.parse().unwrap())].into();
        let facts = facts(ProcessorConfig {
            node_port_addresses,
            ..config()
        });
        assert_eq!(facts.node_ips, ips(expected), "{range}");
    }
}

#[test]
fn primary_is_first_internal_address_of_each_family() {
    let node = |internal: &[&str], external: &[&str]| Node {
        external_ips: external.iter().copied().map(ip).collect(),
        ..mk_node(MASTER, internal, &[])
    };
    for (internal, external, expected) in [
        (
            &["192.168.1.2", "192.168.1.1", "10.0.0.7"][..],
            &["203.0.113.1"][..],
            &["192.168.1.2"][..],
        ),
        (
            &["192.168.1.1", "fd00::1"],
            &["203.0.113.1", "2001:db8::1"],
            &["192.168.1.1", "fd00::1"],
        ),
        (
            &["192.168.1.1"],
            &["2001:db8::2", "2001:db8::1", "203.0.113.1"],
            &["192.168.1.1", "2001:db8::2"],
        ),
        (&[], &["203.0.113.1", "203.0.113.2"], &["203.0.113.1"]),
        (&[], &[], &[]),
    ] {
        let mut processor = Processor::new(config());
        processor.apply([put(node(internal, external))]);
        let facts = processor.snapshot().node;
        assert_eq!(
            (&facts.node_ips, &facts.primary_ips),
            (&ips(expected), &ips(expected)),
            "{internal:?}"
        );
    }
}

#[test]
fn node_ports_answer_on_loopback_only_on_demand() {
    let facts = facts(ProcessorConfig {
        node_ports_on_loopback: true,
        ..config()
    });
    assert_eq!(facts.node_ips, ips(&["192.168.1.1", "127.0.0.1"]));
}

#[test]
fn interface_address_changes_count_and_survive_a_resync() {
    let all = BTreeSet::from([NodePortAddresses::All]);
    let mut processor = Processor::new(ProcessorConfig {
        node_port_addresses: all,
        ..config()
    });
    processor.apply([Event::LocalAddresses(ips(&["10.0.0.7"]))]);
    let changes = processor.apply([Event::LocalAddresses(ips(&["10.0.0.7", "10.0.0.8"]))]);
    assert_eq!(
        changes.node.unwrap().node_ips,
        ips(&["10.0.0.7", "10.0.0.8"])
    );
    assert!(
        processor
            .apply([Event::LocalAddresses(ips(&["10.0.0.7", "10.0.0.8"]))])
            .is_empty()
    );
    processor.resync(mk_resync([]));
    assert_eq!(
        processor.snapshot().node.node_ips,
        ips(&["10.0.0.7", "10.0.0.8"])
    );
}

#[test]
fn pods_are_detected_by_range_interface_or_not_at_all() {
    let facts_with = |local_detect, masquerade_all| {
        facts(ProcessorConfig {
            local_detect,
            masquerade_all,
            ..config()
        })
    };
    let by_range = facts_with(LocalDetect::PodCidrs, false);
    assert_eq!(by_range.pod_cidrs, ["10.1.1.0/24".parse().unwrap()].into());
    assert_eq!(
        by_range.cluster_ip_masquerade,
        ClusterIpMasquerade::AllButPods
    );

    let interfaces = BTreeSet::from(["veth*".parse().unwrap()]);
    let by_interface = facts_with(LocalDetect::Interfaces(interfaces.clone()), false);
    assert_eq!(
        (by_interface.pod_cidrs, by_interface.pod_interfaces),
        (BTreeSet::new(), interfaces)
    );
    assert_eq!(
        by_interface.cluster_ip_masquerade,
        ClusterIpMasquerade::AllButPods
    );

    let not = facts_with(LocalDetect::None, false);
    assert_eq!(
        (not.pod_cidrs, not.pod_interfaces),
        (BTreeSet::new(), BTreeSet::new())
    );
    assert_eq!(not.cluster_ip_masquerade, ClusterIpMasquerade::None);

    for local_detect in [LocalDetect::PodCidrs, LocalDetect::None] {
        assert_eq!(
            facts_with(local_detect, true).cluster_ip_masquerade,
            ClusterIpMasquerade::All
        );
    }
}

#[test]
fn endpoint_in_a_pod_range_is_local_without_detection() {
    let mut processor = Processor::new(ProcessorConfig {
        local_detect: LocalDetect::None,
        ..config()
    });
    processor.apply([
        put(mk_node(MASTER, &["192.168.1.1"], &["10.1.1.0/24"])),
        put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])),
        put(mk_slice(
            "default/web-1",
            "web",
            &[ready(at("10.1.1.3"))],
            &["http:8080/tcp"],
        )),
    ]);
    assert_eq!(
        backends(&processor, "default/web"),
        ["80/tcp -> 10.1.1.3:8080 local"]
    );
}

#[test]
fn egress_masquerade_excludes_destinations_in_the_cluster() {
    let external_ips = vec![ip("203.0.113.9")];
    let nodes = || {
        let worker = Node {
            external_ips: external_ips.clone(),
            ..mk_node("worker", &["192.168.1.2"], &["10.1.2.0/24"])
        };
        [
            put(mk_node(
                MASTER,
                &["192.168.1.1"],
                &["10.1.1.0/24", "fd00:1::/64"],
            )),
            put(worker),
        ]
    };
    let mut processor = Processor::new(config());
    processor.apply(nodes());
    assert_eq!(
        processor.snapshot().node.non_masquerade_cidrs,
        None,
        "off by default"
    );

    let non_masquerade_cidrs = ["198.51.100.0/24".parse().unwrap()].into();
    let mut processor = Processor::new(ProcessorConfig {
        masquerade_egress: true,
        non_masquerade_cidrs,
        ..config()
    });
    let own = ["169.254.0.0/16", "fe80::/10", "198.51.100.0/24"];
    assert_eq!(
        processor.snapshot().node.non_masquerade_cidrs,
        Some(ranges(&own))
    );
    let changes = processor.apply(nodes());
    let inside = [
        "10.1.1.0/24",
        "fd00:1::/64",
        "10.1.2.0/24",
        "192.168.1.1/32",
        "192.168.1.2/32",
    ];
    let expected = Some(ranges(&[&own[..], &inside].concat()));
    assert_eq!(
        changes.node.unwrap().non_masquerade_cidrs,
        expected,
        "the external address may be translated"
    );
}

#[test]
fn node_ports_of_cluster_answer_for_other_nodes_too() {
    let node_port_addresses = [NodePortAddresses::Cluster].into();
    let mut processor = Processor::new(ProcessorConfig {
        node_port_addresses,
        ..config()
    });
    let worker = Node {
        external_ips: ips(&["203.0.113.9"]),
        ..mk_node("worker", &["192.168.1.2"], &[])
    };
    processor.apply([put(mk_node(MASTER, &["192.168.1.1"], &[])), put(worker)]);
    let facts = processor.snapshot().node;
    assert_eq!(
        facts.node_ips,
        ips(&["192.168.1.1"]),
        "health checks are served there"
    );
    assert_eq!(facts.other_node_ips, ips(&["192.168.1.2", "203.0.113.9"]));
    assert!(!facts.is_local_address(ip("192.168.1.2")));
    let changes = processor.apply([Event::Delete(ObjectKey::Node(NodeName::new("worker")))]);
    assert!(changes.node.unwrap().other_node_ips.is_empty());
    assert!(
        self::facts(config()).other_node_ips.is_empty(),
        "off by default"
    );
}
