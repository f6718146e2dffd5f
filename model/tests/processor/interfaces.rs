//! The interfaces of the pods on this node.

use std::collections::BTreeSet;

use contiv_model::{
    Event, InterfaceName, InterfacePattern, LocalInterface, NodeName, Processor, ProcessorConfig,
    object::Pod,
};

use crate::builders::*;

fn web_at(addresses: &[contiv_model::object::EndpointAddress]) -> [Event; 2] {
    let endpoints: Vec<_> = addresses.iter().cloned().map(ready).collect();
    [
        put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])),
        put(mk_slice(
            "default/web-1",
            "web",
            &endpoints,
            &["http:8080/tcp"],
        )),
    ]
}

fn this_node() -> Event {
    put(mk_node(MASTER, &["192.168.1.1"], &["10.1.1.0/24"]))
}

#[test]
fn attached_pods_are_clients_and_pods_behind_services_serve() {
    let mut processor = mk_processor_with([
        this_node(),
        add_pod("default/p1", "tap1"),
        add_pod("default/p2", "tap2"),
    ]);
    assert_eq!(
        interfaces(&processor),
        (vec!["tap1".into(), "tap2".into()], vec![])
    );

    let changes = processor.apply(web_at(&[
        of_pod("default/p1", "10.1.1.3"),
        of_pod("default/p9", "10.1.2.3"),
    ]));
    assert_eq!(interfaces(&processor).1, ["tap1"]);
    assert!(changes.frontend_interfaces.is_none() && changes.backend_interfaces.is_some());

    let changes = processor.apply([delete_service("default/web")]);
    assert_eq!(
        changes.backend_interfaces.unwrap().old,
        processor
            .snapshot()
            .frontend_interfaces
            .into_iter()
            .take(1)
            .collect()
    );
    assert!(interfaces(&processor).1.is_empty());
}

#[test]
fn pod_that_is_of_no_use_to_its_service_does_not_serve() {
    let endpoint = with(of_pod("default/p1", "10.1.1.3"), false, true, false);
    let processor = mk_processor_with([
        this_node(),
        add_pod("default/p1", "tap1"),
        put(mk_service("default/web", &["10.96.0.1"], &["http:80/tcp"])),
        put(mk_slice(
            "default/web-1",
            "web",
            &[endpoint],
            &["http:8080/tcp"],
        )),
    ]);
    assert!(interfaces(&processor).1.is_empty(), "not ready");
}

#[test]
fn pod_on_host_network_has_no_interface() {
    let pod = Pod {
        host_network: true,
        ..mk_pod("default/p1", &["192.168.1.1"])
    };
    let processor = mk_processor_with(
        [this_node(), put(pod)]
            .into_iter()
            .chain(web_at(&[of_pod("default/p1", "192.168.1.1")])),
    );
    assert_eq!(interfaces(&processor), (vec![], vec![]));
}

#[test]
fn custom_interfaces_in_pod_network_are_for_clients_too() {
    let allocation = mk_allocation(
        "default/p1",
        &[
            mk_interface("eth1", "default", "10.5.0.1"),
            mk_interface("eth2", "", "10.5.0.2"),
            mk_interface("eth3", "stub", "10.6.0.1"),
        ],
    );
    let processor = mk_processor_with([add_pod("default/p1", "tap1"), put(allocation)]);
    assert_eq!(
        interfaces(&processor).0,
        ["default/p1/eth1", "default/p1/eth2", "tap1"]
    );
}

#[test]
fn service_endpoint_interface_serves_instead_of_main_one() {
    let custom = [mk_service_endpoint("eth1", "default", "10.5.0.1")];
    let mut processor = mk_processor_with(
        [
            this_node(),
            add_pod("default/p1", "tap1"),
            put(mk_allocation("default/p1", &custom)),
        ]
        .into_iter()
        .chain(web_at(&[of_pod("default/p1", "10.1.1.3")])),
    );
    assert_eq!(
        interfaces(&processor).1,
        ["tap1"],
        "the pod's main address is not known yet"
    );

    processor.apply([put(mk_pod("default/p1", &["10.1.1.3"]))]);
    assert_eq!(
        interfaces(&processor),
        (
            vec!["default/p1/eth1".into(), "tap1".into()],
            vec!["default/p1/eth1".into()]
        )
    );

    processor.apply([delete_pod_object("default/p1")]);
    assert_eq!(interfaces(&processor).1, ["tap1"]);
}

#[test]
fn failed_attachment_of_a_pod_is_rolled_back() {
    let mut processor = mk_processor();
    let added = processor.apply([add_pod("default/p1", "tap1")]);
    assert_eq!(added.frontend_interfaces.unwrap().new.len(), 1);
    let reverted = processor.apply([Event::RevertAddPod(pod_id("default/p1"))]);
    assert!(reverted.frontend_interfaces.unwrap().new.is_empty());
    assert!(
        processor
            .apply([Event::RevertAddPod(pod_id("default/p1"))])
            .is_empty()
    );
}

#[test]
fn pod_that_is_attached_again_has_its_new_interface_only() {
    let processor =
        mk_processor_with([add_pod("default/p1", "tap1"), add_pod("default/p1", "tap2")]);
    assert_eq!(interfaces(&processor).0, ["tap2"]);
}

#[test]
fn pods_with_interfaces_of_one_name_are_two() {
    let allocation = |pod: &str| {
        put(mk_allocation(
            pod,
            &[mk_interface("eth1", "default", "10.5.0.1")],
        ))
    };
    let pods = ["default/p1", "default/p2"];
    // Both are on a bridge, and have an interface of the same name inside.
    let mut processor = mk_processor_with(
        pods.map(|pod| add_pod(pod, "cni0"))
            .into_iter()
            .chain(pods.map(allocation)),
    );
    assert_eq!(
        interfaces(&processor).0,
        ["cni0", "default/p1/eth1", "default/p2/eth1"]
    );
    processor.apply([delete_pod("default/p1")]);
    assert_eq!(
        interfaces(&processor).0,
        ["cni0", "default/p2/eth1"],
        "the other one is still there"
    );
    processor.apply([delete_pod("default/p2")]);
    assert_eq!(interfaces(&processor).0, [""; 0]);
}

/// The main interface has the node's address, which is its only difference from a pod's interface; the others are devices.
fn of_this_node() -> Event {
    let interface = |name: &str, addresses: &[&str], is_physical| {
        (
            InterfaceName::new(name),
            LocalInterface {
                addresses: ips(addresses),
                is_physical,
                ..LocalInterface::default()
            },
        )
    };
    Event::LocalInterfaces(
        [
            interface("br0", &["192.168.1.1"], false),
            interface("eth1", &["10.7.0.1"], true),
            interface("eth2", &[], true),
            interface("veth7", &["10.1.1.254"], false),
        ]
        .into(),
    )
}

#[test]
fn external_interfaces_are_frontends_and_main_one_a_backend() {
    let mut processor =
        mk_processor_with([this_node(), of_this_node(), add_pod("default/p1", "veth7")]);
    let expected = (
        vec!["br0".into(), "eth1".into(), "eth2".into(), "veth7".into()],
        vec!["br0".into()],
    );
    assert_eq!(interfaces(&processor), expected);
    // The node gets another address.
    processor.apply([put(mk_node(MASTER, &["10.7.0.1"], &[]))]);
    assert_eq!(
        interfaces(&processor),
        (
            vec!["eth1".into(), "eth2".into(), "veth7".into()],
            vec!["eth1".into()]
        )
    );

    let external_interfaces = ["br*".parse().unwrap()].into();
    let mut processor = Processor::new(ProcessorConfig {
        external_interfaces,
        ..ProcessorConfig::new(NodeName::new(MASTER))
    });
    processor.apply([this_node(), of_this_node()]);
    assert_eq!(
        interfaces(&processor),
        (vec!["br0".into()], vec!["br0".into()]),
        "as configured"
    );
}

#[test]
fn service_interfaces_follow_pods_and_interfaces_of_this_node() {
    let started = |settings: &[&str]| {
        let service_interfaces = settings.iter().map(|text| text.parse().unwrap()).collect();
        let config = ProcessorConfig::new(NodeName::new(MASTER));
        let mut processor = Processor::new(ProcessorConfig {
            service_interfaces,
            ..config
        });
        processor.apply([this_node(), of_this_node(), add_pod("default/p1", "veth7")]);
        processor
    };
    let serving = |processor: &Processor| processor.snapshot().node.service_interfaces;
    let names = |names: &[&str]| -> Option<BTreeSet<InterfacePattern>> {
        Some(names.iter().map(|name| name.parse().unwrap()).collect())
    };
    assert_eq!(serving(&started(&[])), None, "everywhere");
    assert_eq!(
        serving(&started(&["external"])),
        names(&["lo", "br0", "eth1", "eth2"])
    );
    assert_eq!(
        serving(&started(&["cni*", "pods"])),
        names(&["lo", "cni*", "veth7"])
    );
    let mut processor = started(&["pods"]);
    let changes = processor.apply([delete_pod("default/p1")]);
    assert_eq!(
        changes.node.unwrap().service_interfaces,
        names(&["lo"]),
        "a renderer learns of it"
    );
    let changes = processor.apply([add_pod("default/p1", "veth9")]);
    assert_eq!(
        changes.node.unwrap().service_interfaces,
        names(&["lo", "veth9"])
    );
    let reverted = processor.apply([Event::RevertAddPod(pod_id("default/p1"))]);
    assert_eq!(reverted.node.unwrap().service_interfaces, names(&["lo"]));
}

#[test]
fn snapshot_text_lists_its_services() {
    let mut processor =
        mk_processor_with([this_node(), of_this_node(), add_pod("default/p1", "veth7")]);
    processor.apply(web_at(&[of_pod("default/p1", "10.1.1.3")]));
    assert_eq!(
        processor.snapshot().to_string(),
        "services: [default/web], node ports at: [192.168.1.1], frontends: [br0, eth1, eth2, veth7], backends: [br0, veth7]"
    );
}
