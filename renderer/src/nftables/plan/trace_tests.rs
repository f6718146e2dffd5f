//! The plans and [`contiv_model::trace`], written apart from each other, say the same of every flow.
//!
//! What the fixed rules make of plans is said here once more, in the order of `skeleton.nft`.

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{
    BackendState, Flow, NodeFacts, Protocol, ServiceId, Snapshot, trace,
    trace::{Affinity, Candidate, Delivery, Verdict},
};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{select, subsequence},
    strategy::ValueTree,
    test_runner::TestRunner,
};

use super::*;

const PORTS: [u16; 2] = [80, 81];
const NODE_PORTS: [u16; 2] = [30080, 30081];
const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];
const CLUSTER_IPS: [&str; 4] = ["10.96.0.1", "10.96.0.2", "fd00:96::1", "fd00:96::2"];
const NODE_IPS: [&str; 2] = ["192.168.0.1", "fd00:a::1"];
const EXTERNAL_IPS: [&str; 6] =
    ["203.0.113.1", "203.0.113.2", "192.168.0.1", "2001:db8:1::1", "2001:db8:1::2", "fd00:a::1"];
const LOCAL_BACKENDS: [&str; 4] = ["10.244.1.1", "10.244.1.2", "fd00:1::1", "fd00:1::2"];
const REMOTE_BACKENDS: [&str; 4] = ["10.244.2.1", "10.244.2.2", "fd00:2::1", "fd00:2::2"];
const POD_CIDRS: [&str; 2] = ["10.244.1.0/24", "fd00:1::/64"];
const SERVICE_CIDRS: [&str; 2] = ["10.96.0.0/16", "fd00:96::/112"];
const SOURCE_RANGES: [&str; 4] = ["192.0.2.0/24", "10.244.1.0/30", "2001:db8:2::/48", "0.0.0.0/0"];
/// Local pods, among them backends; the node; and others, of whom some are in the source ranges.
const CLIENTS: [&str; 13] = [
    "10.244.1.1",
    "10.244.1.9",
    "192.168.0.1",
    "127.0.0.1",
    "10.244.2.1",
    "192.0.2.9",
    "198.51.100.7",
    "fd00:1::1",
    "fd00:1::9",
    "fd00:a::1",
    "::1",
    "fd00:2::1",
    "2001:db8:2::9",
];
const NOBODY: [&str; 4] = ["10.96.0.9", "198.51.100.1", "fd00:96::9", "0.0.0.0"];

fn all<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Some of these; often none or all.
fn some<T>(texts: &[&str]) -> impl Strategy<Value = BTreeSet<T>> + use<T>
where
    T: std::str::FromStr<Err: std::fmt::Debug> + Clone + std::fmt::Debug + Ord + 'static,
{
    let all: Vec<T> = all(texts);
    subsequence(all.clone(), 0..=all.len()).prop_map(BTreeSet::from_iter)
}

fn node() -> impl Strategy<Value = NodeFacts> {
    (some(&NODE_IPS), some(&POD_CIDRS), some(&SERVICE_CIDRS))
        .prop_map(|(node_ips, pod_cidrs, service_cidrs)| NodeFacts { node_ips, pod_cidrs, service_cidrs })
}

fn backend() -> impl Strategy<Value = Backend> {
    let addresses: Vec<IpAddr> = all(&[LOCAL_BACKENDS, REMOTE_BACKENDS].concat());
    (select(addresses), 8080..8082_u16, any::<bool>(), 0..4_u16, any::<bool>()).prop_map(
        |(address, port, in_topology, weight, is_ready)| Backend {
            local: LOCAL_BACKENDS.contains(&address.to_string().as_str()),
            in_topology,
            weight,
            state: if is_ready { BackendState::Ready } else { BackendState::Terminating },
            ..Backend::new(SocketAddr::new(address, port))
        },
    )
}

/// As the model makes them: each endpoint once, and topology leaves some ready one of each family.
fn backends() -> impl Strategy<Value = Vec<Backend>> {
    vec(backend(), 0..5).prop_map(|mut backends| {
        backends.sort();
        backends.dedup_by_key(|backend| backend.endpoint());
        for ipv4 in [true, false] {
            let is_ready =
                |backend: &Backend| backend.address.is_ipv4() == ipv4 && backend.state == BackendState::Ready;
            if !backends.iter().any(|backend| is_ready(backend) && backend.in_topology) {
                backends.iter_mut().filter(|backend| is_ready(backend)).for_each(|it| it.in_topology = true);
            }
        }
        backends
    })
}

fn port() -> impl Strategy<Value = ServicePort> {
    (select(&PORTS[..]), select(&PROTOCOLS[..]), option::of(select(&NODE_PORTS[..])), backends()).prop_map(
        |(port, protocol, node_port, backends)| ServicePort {
            port,
            protocol,
            name: "".into(),
            node_port,
            backends,
        },
    )
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    select(&[TrafficPolicy::Cluster, TrafficPolicy::Local][..])
}

fn service() -> impl Strategy<Value = ContivService> {
    let addresses = (some::<IpAddr>(&CLUSTER_IPS), some::<IpAddr>(&EXTERNAL_IPS), any::<bool>());
    let balance = select(&[Balance::Random, Balance::ClientAddress][..]);
    let choice = (prop_oneof![Just(0), 1..9_u32], any::<bool>(), balance);
    let sources = (some::<IpAddr>(&EXTERNAL_IPS), some(&SOURCE_RANGES), any::<bool>());
    (addresses, (policy(), policy()), choice, sources, vec(port(), 1..3)).prop_map(
        |((cluster_ips, mut external_ips, are_external_too), policies, choice, sources, mut ports)| {
            if are_external_too {
                external_ips.extend(&cluster_ips);
            }
            // No two ports of a service have one number.
            ports.sort();
            ports.dedup_by_key(|port| (port.port, port.protocol));
            ports.dedup_by(|one, other| {
                one.node_port.is_some() && (one.node_port, one.protocol) == (other.node_port, other.protocol)
            });
            ContivService {
                internal_policy: policies.0,
                external_policy: policies.1,
                session_affinity_timeout: choice.0,
                affinity_shared: choice.1,
                balance: choice.2,
                load_balancer_ips: sources.0.intersection(&external_ips).copied().collect(),
                source_ranges: sources.1,
                source_ranges_on_node_ports: sources.2,
                cluster_ips,
                external_ips,
                ports,
                ..ContivService::new(ServiceId::new("default", "web"))
            }
        },
    )
}

/// Services that compete for few addresses; as in the model the older one has what both want.
fn snapshot() -> impl Strategy<Value = Snapshot> {
    (node(), vec(service(), 1..4)).prop_map(|(node, services)| {
        let mut holders: BTreeMap<Frontend, ServiceId> = BTreeMap::new();
        let mut snapshot = Snapshot { node, ..Snapshot::default() };
        for (number, mut service) in services.into_iter().enumerate() {
            service.id = ServiceId::new("default", format!("web{number}"));
            for frontend in service.frontends() {
                let holder = holders.entry(frontend).or_insert_with(|| service.id.clone());
                if *holder != service.id {
                    service.lost.insert(frontend, holder.clone());
                }
            }
            snapshot.services.insert(service.id.clone(), Arc::new(service));
        }
        snapshot
    })
}

/// Every flow between the addresses above.
fn flows() -> Vec<Flow> {
    let to: BTreeSet<IpAddr> =
        all(&[&CLUSTER_IPS[..], &NODE_IPS, &EXTERNAL_IPS, &NOBODY].concat()).into_iter().collect();
    let to: Vec<SocketAddr> = to
        .into_iter()
        .flat_map(|address| [PORTS, NODE_PORTS].concat().into_iter().map(move |port| (address, port).into()))
        .collect();
    let mut flows = Vec::new();
    for from in all::<IpAddr>(&CLIENTS) {
        for to in &to {
            flows.extend(PROTOCOLS.into_iter().filter_map(|protocol| Flow::new(from, *to, protocol).ok()));
        }
    }
    flows
}

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

    fn is_pod(&self, address: IpAddr) -> bool {
        self.node.pod_cidrs.iter().any(|range| range.contains(address))
    }

    /// What the kernel calls `fib saddr type local`.
    fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.node.node_ips.contains(&address)
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
        let is_outside = !self.is_pod(from) && !self.is_own(from);
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
            || !self.is_pod(flow.from()) && self.plan.cluster_ips.contains(&flow.to())
            || self.is_own(flow.from()) && masquerade == Masquerade::Own
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
