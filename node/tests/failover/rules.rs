//! Each rule by an example.

use std::time::Duration;

use contiv_model::FailoverMode;
use contiv_node::{Input, message::FailureCause};

use crate::node::{READY, TERMINATING, TestNode, endpoint, ready_slice, service, slice};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn refused_backend_leaves_at_once_and_comes_back_with_an_answer() {
    let mut node = TestNode::with_web(&["1", "2", "3", "4"]);
    node.refuse(&["2", "9"]);
    assert_eq!(node.out("web"), ["2"]);
    node.wait(1200 * MILLISECOND);
    node.answer("2", true);
    assert!(node.out("web").is_empty());
    assert_eq!(
        node.history(),
        [
            "default/web: backend 10.1.0.2:8080 refused a connection; 3 others work",
            "default/web: backend 10.1.0.2:8080 answers again after 1.2 s",
        ]
    );
    assert_eq!((node.left, node.returned), (vec![FailureCause::Refused], 1));
}

#[test]
fn last_working_backend_of_a_family_stays_until_another_answers() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.put([ready_slice("web", &["6:1"])]);
    node.refuse(&["1", "6:1"]);
    assert_eq!(node.out("web"), ["1"], "the only one of IPv6 stays");
    node.refuse(&["2"]);
    assert_eq!(node.out("web"), ["1"]);
    node.wait(SECOND);
    node.answer("1", true);
    assert_eq!(node.out("web"), ["2"], "it refused before");
    assert_eq!(
        node.history().last().unwrap(),
        "default/web: backend 10.1.0.2:8080 refused a connection; 1 other works; \
         default/web: backend 10.1.0.1:8080 answers again after 1.0 s"
    );
}

#[test]
fn backend_whose_others_are_gone_is_chosen_again() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.refuse(&["1"]);
    node.put([ready_slice("web", &["1"])]);
    assert!(node.out("web").is_empty());
    assert_eq!(
        node.history().last().unwrap(),
        "default/web: backend 10.1.0.1:8080 is chosen again: no other works"
    );
    node.put([ready_slice("web", &["1", "3"])]);
    assert_eq!(node.out("web"), ["1"], "it has not answered yet");
}

/// The times of all probes so far, in milliseconds.
fn probes(node: &TestNode) -> Vec<u128> {
    node.probes.iter().map(|(at, _)| at.as_millis()).collect()
}

/// Waits for the next probe and answers it.
fn answer_next(node: &mut TestNode, is_answered: bool) {
    for _ in 0..500 {
        if node.running.is_empty() {
            node.wait(10 * MILLISECOND);
        }
    }
    node.answer("1", is_answered);
}

#[test]
fn probes_follow_after_one_two_and_then_three_seconds() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.refuse(&["1"]);
    for _ in 0..4 {
        answer_next(&mut node, false);
    }
    assert_eq!(probes(&node), [1000, 3000, 6000, 9000]);
    assert_eq!(node.out("web"), ["1"]);
    node.wait(60 * SECOND);
    assert_eq!(node.probes.len(), 5, "none begins while one has no answer");
}

#[test]
fn probes_of_nodes_are_spread_by_a_quarter() {
    for (random, first) in [(0.0, 750), (1.0, 1250)] {
        let mut node = TestNode::with_web(&["1", "2"]);
        node.random = random;
        node.refuse(&["1"]);
        node.wait(2 * SECOND);
        assert_eq!(probes(&node), [first]);
    }
}

#[test]
fn relapse_within_ten_seconds_doubles_the_time_before_the_first_probe() {
    let mut node = TestNode::with_web(&["1", "2"]);
    let mut delays = Vec::new();
    for pause in [1, 10, 9, 9, 11] {
        let left = node.clock.as_millis();
        node.refuse(&["1"]);
        answer_next(&mut node, true);
        delays.push(probes(&node).last().unwrap() - left);
        node.wait(pause * SECOND);
    }
    let left = node.clock.as_millis();
    node.refuse(&["1"]);
    answer_next(&mut node, true);
    delays.push(probes(&node).last().unwrap() - left);
    assert_eq!(delays, [1000, 2000, 3000, 3000, 3000, 1000]);
}

#[test]
fn backend_that_no_probe_reaches_is_tried_after_five_minutes() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.refuse(&["1"]);
    node.wait(299 * SECOND);
    assert_eq!(node.out("web"), ["1"]);
    node.wait(SECOND);
    assert!(node.out("web").is_empty());
    assert_eq!(
        node.history().last().unwrap(),
        "default/web: backend 10.1.0.1:8080 is tried again after 300 s"
    );
    node.answer("1", true);
    node.refuse(&["1"]);
    assert_eq!(node.out("web"), ["1"]);
}

#[test]
fn answer_to_an_earlier_probe_brings_nothing_back() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.refuse(&["1"]);
    node.wait(SECOND);
    node.put([ready_slice("web", &["2"])]);
    node.put([ready_slice("web", &["1", "2"])]);
    node.refuse(&["1"]);
    node.answer("1", true);
    assert_eq!(node.out("web"), ["1"]);
}

#[test]
fn half_of_the_backends_may_leave_for_silence() {
    let mut node = TestNode::with_web(&["1", "2", "3", "4", "5"]);
    node.silent(&["1", "2"]);
    assert_eq!(node.out("web"), ["1", "2"]);
    assert_eq!(
        node.history(),
        [
            "default/web: backend 10.1.0.1:8080 does not answer; 3 others work; \
             default/web: backend 10.1.0.2:8080 does not answer; 3 others work"
        ]
    );
    assert_eq!(node.left, [FailureCause::Silent, FailureCause::Silent]);
}

#[test]
fn more_silence_means_that_the_node_is_cut_off_and_nothing_leaves() {
    let mut node = TestNode::with_web(&["1", "2", "3", "4"]);
    node.silent(&["1", "2"]);
    // They are not tried, so they are not silent; but they have not answered either.
    node.silent(&[]);
    assert_eq!(node.out("web"), ["1", "2"]);
    node.silent(&["3"]);
    assert!(node.out("web").is_empty());
    let expected =
        "default/web: this node may be cut off: 3 of 4 backends do not answer; none leaves";
    assert!(node.history().contains(&expected.to_owned()));
    assert_eq!(node.status().cut_off.len(), 1);
    node.silent(&["1", "3"]);
    node.silent(&["1", "2", "3"]);
    node.silent(&["1", "2", "3", "4"]);
    assert!(node.out("web").is_empty());
    let count = |node: &TestNode| {
        let history = node.history();
        history
            .iter()
            .filter(|event| event.contains("may be cut off: ") && event.contains("none leaves"))
            .count()
    };
    assert_eq!(count(&node), 1, "{:?}", node.history());
    // Two answer: this node is connected.
    node.silent(&["1", "2"]);
    assert_eq!(node.out("web"), ["1", "2"]);
    assert!(node.status().cut_off.is_empty());
    assert_eq!(count(&node), 1);
}

#[test]
fn refused_backend_leaves_even_if_the_node_seems_cut_off() {
    let mut node = TestNode::with_web(&["1", "2", "3", "4"]);
    node.silent(&["1", "2", "3"]);
    node.refuse(&["4"]);
    assert_eq!(node.out("web"), ["4"]);
    // What refuses is reached, so it is not silent. The last that failed stays.
    node.wait(Duration::from_millis(1));
    node.refuse(&["3"]);
    assert_eq!(node.out("web"), ["1", "2", "3"]);
    assert!(node.status().cut_off.is_empty());
}

#[test]
fn single_silent_backend_stays_without_a_word() {
    let mut node = TestNode::with_web(&["1"]);
    node.silent(&["1"]);
    assert!(node.out("web").is_empty());
    assert!(node.history().is_empty());
    node.put([ready_slice("web", &["1", "2"])]);
    assert_eq!(node.out("web"), ["1"]);
}

#[test]
fn observed_service_only_records_what_would_happen() {
    let mut node = TestNode::new(FailoverMode::Observe);
    node.put([service("web", None), ready_slice("web", &["1", "2"])]);
    node.refuse(&["1"]);
    node.refuse(&["1"]);
    assert!(node.out("web").is_empty());
    node.wait(SECOND);
    node.answer("1", true);
    assert_eq!(
        node.history(),
        [
            "default/web: backend 10.1.0.1:8080 refused a connection; 1 other works; would leave (observe)",
            "default/web: backend 10.1.0.1:8080 answers again after 1.0 s (observe)",
        ]
    );
    assert!(node.left.is_empty() && node.returned == 0);
    assert_eq!(node.status().out, 0);
    node.refuse(&["1"]);
    node.put([service("web", Some(FailoverMode::On))]);
    assert_eq!(node.out("web"), ["1"]);
    node.put([service("web", Some(FailoverMode::Observe))]);
    assert!(node.out("web").is_empty());
}

#[test]
fn backend_of_which_the_store_says_something_new_starts_anew() {
    for conditions in [None, Some(TERMINATING)] {
        let mut node = TestNode::with_web(&["1", "2", "3"]);
        node.refuse(&["1"]);
        let others = [("2", READY), ("3", READY)];
        let of_store: Vec<_> = conditions
            .map(|conditions| ("1", conditions))
            .into_iter()
            .chain(others)
            .collect();
        node.put([slice("web", &of_store)]);
        node.put([ready_slice("web", &["1", "2", "3"])]);
        assert!(node.out("web").is_empty());
        node.wait(10 * SECOND);
        assert!(node.probes.is_empty());
    }
    let mut node = TestNode::with_web(&["1", "2", "3"]);
    node.refuse(&["1"]);
    node.put([ready_slice("web", &["1", "2"])]);
    assert_eq!(node.out("web"), ["1"], "that was about another one");
}

#[test]
fn service_without_failover_gets_its_backends_back() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.refuse(&["1"]);
    node.put([service("web", Some(FailoverMode::Off))]);
    assert!(node.out("web").is_empty());
    assert!(node.watches.is_empty());
    node.put([service("web", None)]);
    assert!(node.out("web").is_empty(), "nothing was kept");
    node.refuse(&["1"]);
    node.delete_service("web");
    assert!(node.watches.is_empty());
    node.put([service("web", None)]);
    assert!(node.out("web").is_empty());
    assert_eq!(node.core.status().failover.unwrap().out, 0);
}

#[test]
fn without_the_kernel_everything_comes_back_and_it_is_said_once() {
    let mut node = TestNode::with_web(&["1", "2", "3"]);
    node.refuse(&["1"]);
    for _ in 0..2 {
        node.input(Input::FailoverState(Err("no module".to_owned())));
    }
    node.refuse(&["2"]);
    node.silent(&["3"]);
    assert!(node.out("web").is_empty());
    assert_eq!(node.status().error.as_deref(), Some("no module"));
    node.input(Input::FailoverState(Ok(())));
    assert_eq!(node.status().error, None);
    assert_eq!(
        node.history()[1..],
        [
            "failover does not work: no module",
            "default/web: backend 10.1.0.1:8080 is chosen again: failover does not work",
            "failover works again",
        ]
    );
    node.refuse(&["2"]);
    assert_eq!(node.out("web"), ["2"]);
}

#[test]
fn backend_leaves_every_service_and_one_probe_serves_all() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.put([
        service("api", None),
        ready_slice("api", &["1", "3"]),
        service("one", None),
        ready_slice("one", &["1"]),
        service("off", Some(FailoverMode::Off)),
        ready_slice("off", &["1", "2"]),
    ]);
    node.refuse(&["1"]);
    let out = |node: &TestNode| ["web", "api", "one", "off"].map(|name| node.out(name).len());
    assert_eq!(out(&node), [1, 1, 0, 0]);
    assert_eq!(node.status().out, 2);
    let [first, second] = &node.status().backends[..] else {
        panic!("{:?}", node.status())
    };
    assert_eq!(first.backend, endpoint("1"));
    assert_eq!(second.cause, FailureCause::Refused);
    node.wait(SECOND);
    assert_eq!(node.probes.len(), 1);
    node.answer("1", true);
    assert_eq!(out(&node), [0; 4]);
}

#[test]
fn backend_of_a_new_service_is_known_to_refuse() {
    let mut node = TestNode::with_web(&["1", "2"]);
    node.refuse(&["1"]);
    node.put([service("api", None), ready_slice("api", &["1", "3"])]);
    assert_eq!(node.out("api"), ["1"]);
}
