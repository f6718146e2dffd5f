//! Which backends are watched, and how.

use std::collections::BTreeMap;

use contiv_model::{FailoverMode, Protocol, TrafficPolicy};
use contiv_node::message::Watch;

use crate::node::{
    READY, TERMINATING, TestNode, endpoint, ready_slice, service, service_with, slice,
};

const SECOND_CHANCE: Watch = Watch {
    is_chosen: true,
    has_second_chance: true,
};
const CHOSEN: Watch = Watch {
    is_chosen: true,
    has_second_chance: false,
};
const OUT: Watch = Watch {
    is_chosen: false,
    has_second_chance: false,
};

#[track_caller]
fn assert_watched(node: &TestNode, expected: &[(&str, Watch)]) {
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(backend, watch)| (endpoint(backend), *watch))
        .collect();
    assert_eq!(node.watches, expected);
}

#[test]
fn backends_have_a_second_chance_while_another_works() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.put([ready_slice("web", &["6:1"])]);
    assert_watched(
        &node,
        &[("1", SECOND_CHANCE), ("2", SECOND_CHANCE), ("6:1", CHOSEN)],
    );
    node.refuse(&["1"]);
    assert_watched(&node, &[("1", OUT), ("2", CHOSEN), ("6:1", CHOSEN)]);
    node.put([slice("web", &[("1", READY), ("2", TERMINATING)])]);
    assert_watched(&node, &[("1", CHOSEN), ("2", OUT), ("6:1", CHOSEN)]);
}

#[test]
fn terminating_backends_have_no_second_chance() {
    let mut node = TestNode::with_web(&[]);
    node.put([slice("web", &[("1", TERMINATING), ("2", TERMINATING)])]);
    assert_watched(&node, &[("1", CHOSEN), ("2", CHOSEN)]);
}

#[test]
fn every_service_that_chooses_a_backend_must_give_a_second_chance() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.put([
        service("seen", Some(FailoverMode::Observe)),
        ready_slice("seen", &["2", "3"]),
        service("off", Some(FailoverMode::Off)),
        ready_slice("off", &["1", "9"]),
    ]);
    assert_watched(&node, &[("1", SECOND_CHANCE), ("2", CHOSEN), ("3", CHOSEN)]);
    node.delete_service("seen");
    assert_watched(&node, &[("1", SECOND_CHANCE), ("2", SECOND_CHANCE)]);
}

#[test]
fn policy_local_needs_another_backend_on_this_node() {
    let mut node = TestNode::new(FailoverMode::On);
    node.put([
        service_with("web", |service| {
            service.external_policy = TrafficPolicy::Local;
        }),
        ready_slice("web", &["1*", "2"]),
    ]);
    assert_watched(&node, &[("1", CHOSEN), ("2", SECOND_CHANCE)]);
    node.put([ready_slice("web", &["1*", "2", "3*"])]);
    assert_watched(
        &node,
        &[
            ("1", SECOND_CHANCE),
            ("2", SECOND_CHANCE),
            ("3", SECOND_CHANCE),
        ],
    );
}

#[test]
fn only_tcp_that_nftables_carries_is_watched() {
    let mut node = TestNode::new(FailoverMode::On);
    node.put([
        service_with("udp", |service| {
            service.ports.retain(|port| port.protocol == Protocol::Udp);
        }),
        ready_slice("udp", &["1", "2"]),
    ]);
    assert_watched(&node, &[]);
    let routed = |node_port| {
        service_with("routed", move |service| {
            service.options.routed = Some(true);
            service.ports.truncate(1);
            service.ports[0].port = 8080;
            service.ports[0].node_port = node_port;
        })
    };
    node.put([routed(None), ready_slice("routed", &["3", "4"])]);
    // Until the renderer of routes has reported, nftables carries it too.
    let both = [("3", SECOND_CHANCE), ("4", SECOND_CHANCE)];
    assert_watched(&node, &both);
    node.finish_rendering();
    assert_watched(&node, &[]);
    node.put([routed(Some(30080))]);
    assert_watched(&node, &both);
}
