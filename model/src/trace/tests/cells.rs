//! Source, frontend, policy: kube-proxy's table (`TestInternalExternalMasquerade`).

use super::*;
use crate::{
    ClusterIpMasquerade, InterfaceName,
    TrafficPolicy::{Cluster, Local},
};

/// Client, frontend; then the result with both policies Cluster, with external policy Local, and with internal policy Local: A
/// is all backends, L those on this node, m masqueraded.
type Row = (&'static str, &'static str, [&'static str; 3]);

const CELLS: [Row; 9] = [
    (POD, CLUSTER_IP, ["A", "A", "L"]),
    (POD, NODE_PORT, ["A m", "A", "A m"]),
    (POD, LOAD_BALANCER, ["A m", "A", "A m"]),
    (NODE, CLUSTER_IP, ["A m", "A m", "L m"]),
    (NODE, NODE_PORT, ["A m", "A m", "A m"]),
    (NODE, LOAD_BALANCER, ["A m", "A m", "A m"]),
    (EXTERNAL, CLUSTER_IP, ["A m", "A m", "L m"]),
    (EXTERNAL, NODE_PORT, ["A m", "L", "A m"]),
    (EXTERNAL, LOAD_BALANCER, ["A m", "L", "A m"]),
];

/// The differences without known pod ranges. Every client but the node itself is external then: pods reach only local backends
/// through external policy Local, as in kube-proxy without a detector. Unlike in kube-proxy, all traffic to a cluster IP is
/// masqueraded, so that connections from outside work (`docs/builders/nft-layout.md`).
const CELLS_WITHOUT_POD_RANGES: [Row; 9] = [
    (POD, CLUSTER_IP, ["A m", "A m", "L m"]),
    (POD, NODE_PORT, ["A m", "L", "A m"]),
    (POD, LOAD_BALANCER, ["A m", "L", "A m"]),
    (NODE, CLUSTER_IP, ["A m", "A m", "L m"]),
    (NODE, NODE_PORT, ["A m", "A m", "A m"]),
    (NODE, LOAD_BALANCER, ["A m", "A m", "A m"]),
    (EXTERNAL, CLUSTER_IP, ["A m", "A m", "L m"]),
    (EXTERNAL, NODE_PORT, ["A m", "L", "A m"]),
    (EXTERNAL, LOAD_BALANCER, ["A m", "L", "A m"]),
];

fn flow_from(from: &str) -> Flow {
    Flow::new(ip(from), CLUSTER_IP.parse().unwrap(), Protocol::Tcp).unwrap()
}

fn cell(snapshot: &Snapshot, from: &str, to: &str) -> String {
    let Verdict::Backends(delivery) = traced(snapshot, from, to).verdict else {
        panic!("{from} to {to}")
    };
    let backends = match endpoints(&delivery).as_slice() {
        [one] if one == LOCAL => "L",
        [_, _] => "A",
        other => panic!("{from} to {to}: {other:?}"),
    };
    format!(
        "{backends}{}",
        if delivery.masquerade.is_hidden() {
            " m"
        } else {
            ""
        }
    )
}

/// The differences without detection of pods. Source: the overrides of the same test.
const CELLS_WITHOUT_DETECTION: [Row; 9] = [
    (POD, CLUSTER_IP, ["A", "A", "L"]),
    (POD, NODE_PORT, ["A m", "L", "A m"]),
    (POD, LOAD_BALANCER, ["A m", "L", "A m"]),
    (NODE, CLUSTER_IP, ["A", "A", "L"]),
    (NODE, NODE_PORT, ["A m", "A m", "A m"]),
    (NODE, LOAD_BALANCER, ["A m", "A m", "A m"]),
    (EXTERNAL, CLUSTER_IP, ["A", "A", "L"]),
    (EXTERNAL, NODE_PORT, ["A m", "L", "A m"]),
    (EXTERNAL, LOAD_BALANCER, ["A m", "L", "A m"]),
];

/// The differences with masquerade-all. Source: the overrides of the same test.
const CELLS_WITH_MASQUERADE_ALL: [Row; 9] = [
    (POD, CLUSTER_IP, ["A m", "A m", "L m"]),
    (POD, NODE_PORT, ["A m", "A", "A m"]),
    (POD, LOAD_BALANCER, ["A m", "A", "A m"]),
    (NODE, CLUSTER_IP, ["A m", "A m", "L m"]),
    (NODE, NODE_PORT, ["A m", "A m", "A m"]),
    (NODE, LOAD_BALANCER, ["A m", "A m", "A m"]),
    (EXTERNAL, CLUSTER_IP, ["A m", "A m", "L m"]),
    (EXTERNAL, NODE_PORT, ["A m", "L", "A m"]),
    (EXTERNAL, LOAD_BALANCER, ["A m", "L", "A m"]),
];

fn check(rows: &[Row], pods: &[IpNetwork]) {
    let pod_cidrs: BTreeSet<IpNetwork> = pods.iter().copied().collect();
    check_node(rows, |node| node.pod_cidrs.clone_from(&pod_cidrs));
}

fn check_node(rows: &[Row], change: impl Fn(&mut NodeFacts)) {
    for &(from, to, expected) in rows {
        let cells =
            [(Cluster, Cluster), (Cluster, Local), (Local, Cluster)].map(|(internal, external)| {
                let service = ContivService {
                    internal_policy: internal,
                    external_policy: external,
                    ..web(vec![local_backend(), remote_backend()])
                };
                let mut snapshot = snapshot_of(vec![service]);
                change(&mut snapshot.node);
                cell(&snapshot, from, to)
            });
        assert_eq!(cells, expected, "{from} to {to}");
    }
}

#[test]
fn each_of_27_cells_is_as_in_table_of_kube_proxy() {
    check(&CELLS, &[range("10.244.1.0/24")]);
}

#[test]
fn pods_without_ranges_count_as_outside_and_are_masqueraded() {
    check(&CELLS_WITHOUT_POD_RANGES, &[]);
    // Ranges of the other family do not matter.
    check(&CELLS_WITHOUT_POD_RANGES, &[range("fd00:10:244:1::/64")]);
}

#[test]
fn without_detection_cluster_ip_traffic_is_not_masqueraded() {
    check_node(&CELLS_WITHOUT_DETECTION, |node| {
        node.pod_cidrs.clear();
        node.cluster_ip_masquerade = ClusterIpMasquerade::None;
    });
}

#[test]
fn masquerade_all_hides_pods_behind_cluster_ips_too() {
    check_node(&CELLS_WITH_MASQUERADE_ALL, |node| {
        node.cluster_ip_masquerade = ClusterIpMasquerade::All;
    });
}

#[test]
fn pods_are_recognized_by_their_incoming_interface() {
    let mut node = NodeFacts {
        pod_interfaces: BTreeSet::from(["veth*".parse().unwrap(), "cni0".parse().unwrap()]),
        ..snapshot_of(vec![]).node
    };
    node.pod_cidrs.clear();
    let from = |from: &str, interface: Option<&str>| {
        let flow = flow_from(from);
        interface.map_or(flow.clone(), |name| {
            flow.by_interface(InterfaceName::new(name))
        })
    };
    for (flow, client, detection) in [
        (
            from(POD, Some("veth12")),
            Client::LocalPod,
            Detection::Known,
        ),
        (
            from(EXTERNAL, Some("cni0")),
            Client::LocalPod,
            Detection::Known,
        ),
        (from(POD, Some("eth0")), Client::External, Detection::Known),
        (from(POD, None), Client::External, Detection::NeedsInterface),
        (from(NODE, None), Client::Node, Detection::NeedsInterface),
    ] {
        assert_eq!(
            (Client::of(&flow, &node), Detection::of(&flow, &node)),
            (client, detection),
            "{flow}"
        );
    }
}

#[test]
fn external_ip_is_served_like_load_balancer_address() {
    for external_policy in [Cluster, Local] {
        let service = ContivService {
            external_policy,
            ..web(vec![local_backend(), remote_backend()])
        };
        for from in [POD, NODE, EXTERNAL] {
            let by = |to| delivery(service.clone(), from, to);
            assert_eq!(
                by(EXTERNAL_IP),
                by(LOAD_BALANCER),
                "{from} {external_policy:?}"
            );
        }
    }
}

#[test]
fn client_class_prefers_pod_ranges_to_node_addresses() {
    let mut snapshot = snapshot_of(vec![]);
    snapshot.node.node_ips.insert(ip("10.244.1.1"));
    for (from, expected) in [
        ("127.0.0.1", Client::Node),
        (NODE, Client::Node),
        ("10.244.1.1", Client::LocalPod),
    ] {
        assert_eq!(
            Client::of(&flow_from(from), &snapshot.node),
            expected,
            "{from}"
        );
    }
    let elsewhere = flow_from("10.244.2.5");
    assert_eq!(
        Client::of(&elsewhere, &snapshot.node),
        Client::External,
        "a pod of another node"
    );
    snapshot.node.local_ips.insert(ip("10.244.2.5"));
    assert_eq!(
        Client::of(&elsewhere, &snapshot.node),
        Client::Node,
        "an address of one of its interfaces"
    );
}

#[test]
fn hairpin_needs_a_local_backend_that_connects_to_itself() {
    let client = "10.244.1.10";
    let to_itself = delivery(
        web(vec![local_backend(), remote_backend()]),
        client,
        CLUSTER_IP,
    );
    let hairpins = |delivery: &Delivery| {
        delivery
            .candidates
            .iter()
            .map(|it| it.hairpin)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (hairpins(&to_itself), to_itself.masquerade),
        (vec![true, false], Masquerade::KeptForPod)
    );
    let elsewhere = delivery(
        web(vec![local_backend(), remote_backend()]),
        "10.244.2.10",
        CLUSTER_IP,
    );
    assert_eq!(
        hairpins(&elsewhere),
        [false, false],
        "another node's backend comes back here in any case"
    );
}
