//! Source, frontend, policy: kube-proxy's table (`TestInternalExternalMasquerade`).

use super::*;
use crate::TrafficPolicy::{Cluster, Local};

/// Client, frontend; then with both policies Cluster, with external policy Local, with internal policy Local: A is all
/// backends, L those on this node, m masqueraded.
type Row = (&'static str, &'static str, [&'static str; 3]);

const CELLS: [Row; 9] = [
    (POD, CLUSTER_IP, ["A", "A", "L"]),
    (POD, NODE_PORT, ["A m", "A", "A m"]),
    (POD, LOAD_BALANCER, ["A m", "A", "A m"]),
    (NODE, CLUSTER_IP, ["A m", "A m", "L m"]),
    (NODE, NODE_PORT, ["A m", "A m", "A m"]),
    (NODE, LOAD_BALANCER, ["A m", "A m", "A m"]),
    (OUTSIDE, CLUSTER_IP, ["A m", "A m", "L m"]),
    (OUTSIDE, NODE_PORT, ["A m", "L", "A m"]),
    (OUTSIDE, LOAD_BALANCER, ["A m", "L", "A m"]),
];

/// What is different where no pod range is known. Every client but the node itself is outside then: pods reach only
/// local backends by external policy Local, as in kube-proxy without a detector; and, unlike there, all that goes to a
/// cluster IP is masqueraded, so that connections from outside work (`docs/nft-layout.md`).
const CELLS_WITHOUT_POD_RANGES: [Row; 9] = [
    (POD, CLUSTER_IP, ["A m", "A m", "L m"]),
    (POD, NODE_PORT, ["A m", "L", "A m"]),
    (POD, LOAD_BALANCER, ["A m", "L", "A m"]),
    (NODE, CLUSTER_IP, ["A m", "A m", "L m"]),
    (NODE, NODE_PORT, ["A m", "A m", "A m"]),
    (NODE, LOAD_BALANCER, ["A m", "A m", "A m"]),
    (OUTSIDE, CLUSTER_IP, ["A m", "A m", "L m"]),
    (OUTSIDE, NODE_PORT, ["A m", "L", "A m"]),
    (OUTSIDE, LOAD_BALANCER, ["A m", "L", "A m"]),
];

fn cell(snapshot: &Snapshot, from: &str, to: &str) -> String {
    let Verdict::Backends(delivery) = traced(snapshot, from, to).verdict else { panic!("{from} to {to}") };
    let backends = match endpoints(&delivery).as_slice() {
        [one] if one == HERE => "L",
        [_, _] => "A",
        other => panic!("{from} to {to}: {other:?}"),
    };
    format!("{backends}{}", if delivery.masquerade.is_hidden() { " m" } else { "" })
}

fn check(rows: &[Row], pods: &[IpNetwork]) {
    for &(from, to, expected) in rows {
        let cells = [(Cluster, Cluster), (Cluster, Local), (Local, Cluster)].map(|(internal, external)| {
            let service = ContivService {
                internal_policy: internal,
                external_policy: external,
                ..web(vec![here(), there()])
            };
            let mut snapshot = snapshot_of(vec![service]);
            snapshot.node.pod_cidrs = pods.iter().copied().collect();
            cell(&snapshot, from, to)
        });
        assert_eq!(cells, expected, "{from} to {to}");
    }
}

#[test]
fn each_of_the_27_cells_is_as_in_the_table_of_kube_proxy() {
    check(&CELLS, &[range("10.244.1.0/24")]);
}

#[test]
fn without_pod_ranges_pods_count_as_outside_and_cluster_ips_are_masqueraded_for_all() {
    check(&CELLS_WITHOUT_POD_RANGES, &[]);
    // Ranges of the other family say nothing of this one.
    check(&CELLS_WITHOUT_POD_RANGES, &[range("fd00:10:244:1::/64")]);
}

#[test]
fn an_external_ip_is_served_like_a_load_balancer_address() {
    for external_policy in [Cluster, Local] {
        let service = ContivService { external_policy, ..web(vec![here(), there()]) };
        for from in [POD, NODE, OUTSIDE] {
            let by = |to| delivery(service.clone(), from, to);
            assert_eq!(by(EXTERNAL_IP), by(LOAD_BALANCER), "{from} {external_policy:?}");
        }
    }
}

#[test]
fn loopback_counts_as_this_node_and_an_address_of_the_node_in_a_pod_range_as_a_pod() {
    let mut snapshot = snapshot_of(vec![]);
    snapshot.node.node_ips.insert(ip("10.244.1.1"));
    for (from, expected) in
        [("127.0.0.1", Client::Node), (NODE, Client::Node), ("10.244.1.1", Client::LocalPod)]
    {
        assert_eq!(Client::of(ip(from), &snapshot.node), expected, "{from}");
    }
    assert_eq!(Client::of(ip("10.244.2.5"), &snapshot.node), Client::Outside, "a pod of another node");
}

#[test]
fn only_a_local_backend_that_connects_to_itself_is_a_hairpin() {
    let client = "10.244.1.10";
    let to_itself = delivery(web(vec![here(), there()]), client, CLUSTER_IP);
    let hairpins = |delivery: &Delivery| delivery.candidates.iter().map(|it| it.hairpin).collect::<Vec<_>>();
    assert_eq!((hairpins(&to_itself), to_itself.masquerade), (vec![true, false], Masquerade::KeptForPod));
    let elsewhere = delivery(web(vec![here(), there()]), "10.244.2.10", CLUSTER_IP);
    assert_eq!(hairpins(&elsewhere), [false, false], "another node's backend comes back here in any case");
}
