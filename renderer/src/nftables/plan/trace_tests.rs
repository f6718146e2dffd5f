//! The plans and [`contiv_model::trace`], written apart from each other, say the same of every flow.
//!
//! What the fixed rules make of plans is said here once more, in the order of `skeleton.nft`.

mod services;

use std::collections::BTreeMap;

use contiv_model::{
    ClusterIpMasquerade, Flow, InterfaceName, NodeFacts, Snapshot, trace,
    trace::{Affinity, Candidate, Delivery, Verdict},
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use super::*;
use services::{flows, snapshot};

/// What becomes of a flow, in terms that both sides have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    /// Share of each backend, in lowest terms, and whether the source is hidden from it.
    Served(BTreeMap<SocketAddr, (u32, bool)>, Choice),
    Rejected,
    Dropped,
    Untouched,
}

/// All plans together.
struct Planned {
    node: NodeFacts,
    plan: ServicePlan,
}

impl Planned {
    fn of(snapshot: &Snapshot) -> Self {
        let mut together = ServicePlan::default();
        for service in snapshot.services.values() {
            let plan = plan(service);
            for (key, frontend) in plan.frontends {
                assert_eq!(together.frontends.insert(key, frontend), None, "{key} is planned twice");
            }
            together.cluster_ips.extend(plan.cluster_ips);
            together.hairpins.extend(plan.hairpins);
        }
        Self { node: snapshot.node.clone(), plan: together }
    }

    fn is_pod(&self, flow: &Flow) -> bool {
        let by_interface = |interface: &InterfaceName| {
            self.node.pod_interfaces.iter().any(|pattern| pattern.matches(&interface.0))
        };
        self.node.pod_cidrs.iter().any(|range| range.contains(flow.from()))
            || flow.interface().is_some_and(by_interface)
    }

    /// The rule for cluster IPs hides this client.
    fn is_hidden_from_cluster_ips(&self, flow: &Flow) -> bool {
        match self.node.cluster_ip_masquerade {
            ClusterIpMasquerade::AllButPods => !self.is_pod(flow),
            ClusterIpMasquerade::All => true,
            ClusterIpMasquerade::None => false,
        }
    }

    /// What the kernel calls `fib saddr type local`.
    fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback()
            || self.node.node_ips.contains(&address)
            || self.node.local_ips.contains(&address)
    }

    fn answer(&self, flow: &Flow) -> Answer {
        let (from, to, protocol, port) = (flow.from(), flow.to(), flow.protocol(), flow.port());
        let by_address = FrontendKey { address: to, protocol, port };
        let by_node_port = FrontendKey::node_port(Family::of(&to), protocol, port);
        let node_port = self.node.node_ips.contains(&to).then_some(by_node_port);
        let frontends = &self.plan.frontends;
        let by_address = frontends.get(&by_address).filter(|_| !to.is_unspecified());
        let Some(frontend) = by_address.or_else(|| frontends.get(&node_port?)) else {
            return if self.plan.cluster_ips.contains(&to) {
                Answer::Rejected
            } else if self.node.service_cidrs.iter().any(|range| range.contains(to)) {
                Answer::Dropped
            } else {
                Answer::Untouched
            };
        };
        if let Some(ranges) = &frontend.sources
            && !ranges.iter().any(|range| range.contains(from))
        {
            return Answer::Dropped;
        }
        let is_outside = !self.is_pod(flow) && !self.is_own(from);
        let shares = match (&frontend.outside, &frontend.serving) {
            (Outside::Drop, _) if is_outside => return Answer::Dropped,
            (Outside::Backends(shares), _) if is_outside => shares,
            (_, Serving::Backends(shares)) => shares,
            (_, Serving::Reject) => return Answer::Rejected,
            (_, Serving::Drop) => return Answer::Dropped,
        };
        let of_backend = |(backend, slots): (&SocketAddr, &u32)| {
            let is_hidden = self.is_masqueraded(flow, *backend, frontend.masquerade);
            (*backend, (*slots, is_hidden))
        };
        Answer::Served(shares.iter().map(of_backend).collect(), frontend.choice)
    }

    fn is_masqueraded(&self, flow: &Flow, backend: SocketAddr, masquerade: Masquerade) -> bool {
        let is_hairpin = flow.from() == backend.ip() && self.plan.hairpins.contains(&backend.ip());
        is_hairpin
            || masquerade == Masquerade::Always
            || self.is_hidden_from_cluster_ips(flow) && self.plan.cluster_ips.contains(&flow.to())
            || !self.is_pod(flow) && self.is_own(flow.from()) && masquerade == Masquerade::Own
    }
}

fn traced(snapshot: &Snapshot, flow: &Flow) -> Answer {
    let Delivery { candidates, masquerade, affinity, .. } = match trace(snapshot, flow).verdict {
        Verdict::Backends(delivery) => delivery,
        Verdict::Rejected(_) => return Answer::Rejected,
        Verdict::Dropped(_) => return Answer::Dropped,
        Verdict::Untouched => return Answer::Untouched,
    };
    let choice = match affinity {
        Affinity::None => Choice::Random,
        Affinity::Timeout { seconds } => Choice::Sticky(seconds),
        Affinity::ClientAddress => Choice::Client,
    };
    let total: f64 = candidates.iter().map(|candidate| candidate.share).sum();
    assert!((total - 100.0).abs() < 1e-9, "shares are percents: {candidates:?}");
    let weights = candidates.iter().map(|candidate| u32::from(candidate.weight));
    let divisor = weights.reduce(greatest_common_divisor).unwrap_or(1);
    let of_candidate = |candidate: &Candidate| {
        let is_hidden = candidate.hairpin || masquerade.is_hidden();
        (candidate.endpoint(), (u32::from(candidate.weight) / divisor, is_hidden))
    };
    Answer::Served(candidates.iter().map(of_candidate).collect(), choice)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_plans_and_the_trace_agree_on_every_flow(snapshot in snapshot()) {
        let planned = Planned::of(&snapshot);
        for flow in flows() {
            prop_assert_eq!(planned.answer(&flow), traced(&snapshot, &flow), "{}", trace(&snapshot, &flow));
        }
    }
}

#[test]
fn the_random_services_lead_to_every_answer() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..200 {
        let snapshot = snapshot().new_tree(&mut runner).unwrap().current();
        for flow in flows() {
            let words: &[&str] = match traced(&snapshot, &flow) {
                Answer::Served(backends, choice) => &[
                    match choice {
                        Choice::Random => "random",
                        Choice::Sticky(_) => "sticky",
                        Choice::Client => "by client",
                    },
                    match backends.values().filter(|(_, is_hidden)| *is_hidden).count() {
                        0 => "kept",
                        hidden if hidden == backends.len() => "hidden",
                        _ => "hidden for a hairpin",
                    },
                ],
                Answer::Rejected => &["rejected"],
                Answer::Dropped => &["dropped"],
                Answer::Untouched => &["untouched"],
            };
            for word in words {
                *seen.entry(word).or_default() += 1;
            }
        }
    }
    for word in [
        "random",
        "sticky",
        "by client",
        "kept",
        "hidden",
        "hidden for a hairpin",
        "rejected",
        "dropped",
        "untouched",
    ] {
        assert!(seen.get(word).is_some_and(|&count| count >= 20), "{word} is rare: {seen:?}");
    }
}
