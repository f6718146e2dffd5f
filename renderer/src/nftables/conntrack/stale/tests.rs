use std::{net::SocketAddr, sync::Arc};

use contiv_model::{
    Addresses, Backend, BackendState, Carrier, Frontend, ServiceId, ServicePort, TrafficPolicy,
};
use proptest::prelude::*;

use super::*;
use crate::nftables::conntrack::flow::Identity;

const NODE_IP: &str = "172.31.0.1";

fn service(protocol: Protocol, backends: &[&str]) -> ContivService {
    ContivService {
        cluster_ips: Addresses::from(["10.96.0.1".parse().unwrap()]),
        external_ips: Addresses::from(["192.0.2.1".parse().unwrap()]),
        ports: vec![ServicePort {
            port: 53,
            protocol,
            name: "".into(),
            node_port: Some(30_053),
            backends: backends
                .iter()
                .map(|backend| Backend::new(backend.parse().unwrap()))
                .collect(),
        }],
        ..ContivService::new(ServiceId::new("default", "dns"))
    }
}

fn change(old: Option<&ContivService>, new: Option<&ContivService>) -> ServiceChange {
    let arc = |service: Option<&ContivService>| service.cloned().map(Arc::new);
    ServiceChange {
        old: arc(old),
        new: arc(new),
    }
}

fn filter(changes: &[ServiceChange]) -> StaleFlowFilter {
    let mut filter = StaleFlowFilter::default();
    filter.add(changes.iter());
    filter
}

fn flow(protocol: Protocol, destination: &str, backend: &str, is_in_use: bool) -> Flow<'static> {
    let [destination, backend] =
        [destination, backend].map(|end| end.parse::<SocketAddr>().unwrap());
    Flow {
        protocol,
        destination,
        backend,
        is_in_use,
        identity: Identity {
            tuple: &[],
            id: &[],
        },
    }
}

fn stale(filter: &StaleFlowFilter, flow: &Flow<'_>) -> bool {
    judge(filter, flow) == FlowVerdict::Stale
}

fn judge(filter: &StaleFlowFilter, flow: &Flow<'_>) -> FlowVerdict {
    filter.judge(flow, &BTreeSet::from([NODE_IP.parse().unwrap()]))
}

fn stale_udp(filter: &StaleFlowFilter, destination: &str, backend: &str) -> bool {
    stale(filter, &flow(Protocol::Udp, destination, backend, true))
}

#[test]
fn renderer_change_keeps_flows_except_datagrams_to_translate() {
    let translated = service(Protocol::Udp, &["10.244.1.1:53"]);
    let mut routed = translated.clone();
    routed.assignment.addresses = Carrier::Route;
    assert!(
        filter(&[change(Some(&translated), Some(&routed))]).is_empty(),
        "all are right as they are"
    );
    let back = filter(&[change(Some(&routed), Some(&translated))]);
    assert!(
        stale_udp(&back, "10.96.0.1:53", "10.96.0.1:53"),
        "never translated"
    );
    assert!(!stale_udp(&back, "10.96.0.1:53", "10.244.1.1:53"));
    let mut without = routed.clone();
    without.ports[0].backends.clear();
    let gone = filter(&[change(Some(&routed), Some(&without))]);
    assert!(
        stale_udp(&gone, "10.96.0.1:53", "10.244.1.1:53"),
        "translated once, to a backend that is gone"
    );
    assert!(!stale_udp(&gone, "10.96.0.1:53", "10.96.0.1:53"));
}

#[test]
fn flows_of_a_removed_backend_are_stale_at_every_frontend() {
    let before = service(Protocol::Udp, &["10.244.1.1:53", "10.244.1.2:53"]);
    let after = service(Protocol::Udp, &["10.244.1.2:53"]);
    let filter = filter(&[change(Some(&before), Some(&after))]);
    for frontend in ["10.96.0.1:53", "192.0.2.1:53", "172.31.0.1:30053"] {
        assert!(stale_udp(&filter, frontend, "10.244.1.1:53"), "{frontend}");
        assert!(!stale_udp(&filter, frontend, "10.244.1.2:53"), "{frontend}");
    }
    for other in [
        "10.96.0.1:54",
        "10.96.0.2:53",
        "172.31.0.2:30053",
        "172.31.0.1:53",
        "10.96.0.1:30053",
    ] {
        assert!(
            !stale_udp(&filter, other, "10.244.1.1:53"),
            "{other} is no frontend"
        );
    }
    // The service has no IPv6 address, so its node port has none either.
    let v6 = flow(Protocol::Udp, "[fd00::1]:30053", "[fd00::1]:30053", true);
    let judgement = filter.judge(&v6, &BTreeSet::from(["fd00::1".parse().unwrap()]));
    assert_eq!(judgement, FlowVerdict::Right);
}

#[test]
fn change_without_removed_backend_makes_nothing_suspect() {
    let one = service(Protocol::Udp, &["10.244.1.1:53"]);
    let two = service(Protocol::Udp, &["10.244.1.1:53", "10.244.1.2:53"]);
    assert!(
        filter(&[change(Some(&one), Some(&two))]).is_empty(),
        "a new backend"
    );
    let mut terminating = two.clone();
    terminating.ports[0].backends[0].state = BackendState::Terminating;
    terminating.ports[0].backends[1].in_topology = false;
    terminating.internal_policy = TrafficPolicy::Local;
    assert!(
        filter(&[change(Some(&two), Some(&terminating))]).is_empty(),
        "all of them serve yet"
    );
    let nothing = service(Protocol::Udp, &[]);
    assert!(!stale_udp(
        &filter(&[change(Some(&nothing), None)]),
        "10.96.0.1:53",
        "10.96.0.1:53"
    ));
}

#[test]
fn first_backends_make_all_other_flows_stale() {
    let (none, one) = (
        service(Protocol::Udp, &[]),
        service(Protocol::Udp, &["10.244.1.1:53"]),
    );
    for filter in [
        filter(&[change(None, Some(&one))]),
        filter(&[change(Some(&none), Some(&one))]),
    ] {
        assert!(
            stale_udp(&filter, "10.96.0.1:53", "10.96.0.1:53"),
            "never translated"
        );
        assert!(!stale_udp(&filter, "10.96.0.1:53", "10.244.1.1:53"));
    }
    let last = filter(&[change(Some(&one), Some(&none))]);
    assert!(stale_udp(&last, "10.96.0.1:53", "10.244.1.1:53"));
}

#[test]
fn removed_frontend_keeps_flows_of_others_at_its_address() {
    let filter = filter(&[change(
        Some(&service(Protocol::Udp, &["10.244.1.1:53"])),
        None,
    )]);
    assert!(stale_udp(&filter, "10.96.0.1:53", "10.244.1.1:53"));
    assert!(
        !stale_udp(&filter, "10.96.0.1:53", "10.96.0.1:53"),
        "never translated, and right now"
    );
    assert!(
        !stale_udp(&filter, "192.0.2.1:53", "172.17.0.2:53"),
        "translated by another program"
    );
}

#[test]
fn frontend_passed_to_another_service_takes_its_backends() {
    let first = service(Protocol::Udp, &["10.244.1.1:53"]);
    let second = ContivService {
        id: ServiceId::new("default", "heir"),
        ..service(Protocol::Udp, &["10.244.1.2:53"])
    };
    let mut waiting = second.clone();
    waiting.lost = first
        .frontends()
        .into_iter()
        .map(|frontend| (frontend, first.id.clone()))
        .collect();
    assert!(
        waiting
            .lost
            .keys()
            .any(|frontend| matches!(frontend, Frontend::NodePort { .. }))
    );
    let (gone, heir) = (
        change(Some(&first), None),
        change(Some(&waiting), Some(&second)),
    );
    for changes in [[gone.clone(), heir.clone()], [heir, gone]] {
        let filter = filter(&changes);
        assert!(stale_udp(&filter, "10.96.0.1:53", "10.244.1.1:53"));
        assert!(!stale_udp(&filter, "10.96.0.1:53", "10.244.1.2:53"));
    }
}

#[test]
fn connections_in_use_are_stale_only_on_request_and_translated() {
    for protocol in [Protocol::Tcp, Protocol::Sctp] {
        for reset_connections in [false, true] {
            let new = ContivService {
                reset_connections,
                ..service(protocol, &["10.244.1.2:53"])
            };
            let filter = filter(&[change(
                Some(&service(protocol, &["10.244.1.1:53"])),
                Some(&new),
            )]);
            let is_stale = |backend, answered| {
                stale(&filter, &flow(protocol, "10.96.0.1:53", backend, answered))
            };
            assert_eq!(is_stale("10.244.1.1:53", true), reset_connections);
            assert!(
                is_stale("10.244.1.1:53", false),
                "an attempt that nobody answered"
            );
            assert!(
                is_stale("10.96.0.1:53", false),
                "an attempt from before the service"
            );
            assert!(
                !is_stale("10.96.0.1:53", true),
                "a connection to the address itself"
            );
            assert!(!is_stale("10.244.1.2:53", false));
            let scope = if reset_connections {
                Scope::All
            } else {
                Scope::Unanswered
            };
            assert_eq!(
                filter.scopes(),
                BTreeMap::from([((Family::V4, protocol), scope)])
            );
        }
    }
}

#[test]
fn connections_are_reset_if_the_last_change_asks_for_it() {
    let [first, second] =
        [["10.244.1.1:53"], ["10.244.1.2:53"]].map(|backends| service(Protocol::Tcp, &backends));
    let reset = |service: &ContivService| ContivService {
        reset_connections: true,
        ..service.clone()
    };
    for (before, after, expected) in [
        (reset(&first), second.clone(), FlowVerdict::Drained),
        (first.clone(), reset(&second), FlowVerdict::Stale),
    ] {
        // The frontend is gone for a moment, and comes back while its flows are still to be searched.
        let mut filter = filter(&[change(Some(&before), None)]);
        filter.add([change(None, Some(&after))].iter());
        assert_eq!(
            judge(
                &filter,
                &flow(Protocol::Tcp, "10.96.0.1:53", "10.244.1.1:53", true)
            ),
            expected
        );
    }
}

#[test]
fn connections_of_former_backends_are_drained_unless_they_are_reset() {
    for protocol in [Protocol::Tcp, Protocol::Sctp] {
        let former = service(protocol, &["10.244.1.1:53"]);
        let at = |filter: &StaleFlowFilter, backend| {
            judge(filter, &flow(protocol, "10.96.0.1:53", backend, true))
        };
        for new in [
            Some(service(protocol, &["10.244.1.2:53"])),
            Some(service(protocol, &[])),
            None,
        ] {
            let filter = filter(&[change(Some(&former), new.as_ref())]);
            assert_eq!(at(&filter, "10.244.1.1:53"), FlowVerdict::Drained);
            assert_eq!(
                at(&filter, "10.96.0.1:53"),
                FlowVerdict::Right,
                "never translated"
            );
            let attempt = flow(protocol, "10.96.0.1:53", "10.244.1.1:53", false);
            assert_eq!(judge(&filter, &attempt), FlowVerdict::Stale);
        }
        let gone = filter(&[change(Some(&former), None)]);
        assert_eq!(
            at(&gone, "10.244.1.9:53"),
            FlowVerdict::Right,
            "translated by another program"
        );
    }
}

#[test]
fn later_criteria_replace_earlier_ones_and_keep_former_backends() {
    let tcp = |backends: &[&str]| service(Protocol::Tcp, backends);
    let at = |filter: &StaleFlowFilter, backend| {
        judge(filter, &flow(Protocol::Tcp, "10.96.0.1:53", backend, true))
    };
    let [first, second, third] = ["10.244.1.1:53", "10.244.1.2:53", "10.244.1.3:53"];
    let mut survey = filter(&[change(Some(&tcp(&[first])), Some(&tcp(&[second])))]);
    let mut add = |old: &ContivService, new: Option<&ContivService>| {
        survey.extend(filter(&[change(Some(old), new)]));
        survey.retain_draining();
        (!survey.is_empty()).then(|| [first, second, third].map(|backend| at(&survey, backend)))
    };
    let (right, drained) = (FlowVerdict::Right, FlowVerdict::Drained);
    assert_eq!(
        add(&tcp(&[second]), Some(&tcp(&[third]))),
        Some([drained, drained, right])
    );
    assert_eq!(add(&tcp(&[third]), None), Some([drained; 3]));
    let reset = ContivService {
        reset_connections: true,
        ..tcp(&[third])
    };
    assert_eq!(
        add(&tcp(&[second]), Some(&reset)),
        None,
        "its connections were deleted"
    );
    assert_eq!(
        add(&service(Protocol::Udp, &[first]), None),
        None,
        "datagrams are never drained"
    );
}

#[test]
fn flows_in_use_are_urgent_and_unanswered_ones_are_not() {
    let change_of = |protocol, reset_connections| {
        let before = service(protocol, &["10.244.1.1:53", "10.244.1.2:53"]);
        let after = ContivService {
            reset_connections,
            ..service(protocol, &["10.244.1.2:53"])
        };
        change(Some(&before), Some(&after))
    };
    assert!(!filter(&[]).are_urgent());
    assert!(!filter(&[change_of(Protocol::Tcp, false)]).are_urgent());
    assert!(filter(&[change_of(Protocol::Tcp, true)]).are_urgent());
    assert!(filter(&[change_of(Protocol::Udp, false)]).are_urgent());
}

#[test]
fn backend_that_comes_during_search_is_right_at_once() {
    let two = service(Protocol::Udp, &["10.244.1.1:53", "10.244.1.2:53"]);
    let mut filter = filter(&[change(
        Some(&two),
        Some(&service(Protocol::Udp, &["10.244.1.2:53"])),
    )]);
    let third = service(Protocol::Udp, &["10.244.1.2:53", "10.244.1.3:53"]);
    assert!(stale_udp(&filter, "10.96.0.1:53", "10.244.1.3:53"));
    filter.correct(std::iter::once(&third));
    assert!(!stale_udp(&filter, "10.96.0.1:53", "10.244.1.3:53"));
    assert!(stale_udp(&filter, "10.96.0.1:53", "10.244.1.1:53"));
}

#[test]
fn backends_old_and_new_are_right_while_programming() {
    let [one, two] = ["10.244.1.1:53", "10.244.1.2:53"];
    let [first, second] = [[one], [two]].map(|backends| service(Protocol::Udp, &backends));
    let mut replaced = filter(&[change(
        Some(&service(Protocol::Udp, &["10.244.1.9:53"])),
        Some(&first),
    )]);
    replaced.allow(std::iter::once(&second));
    assert!(
        ![one, two]
            .iter()
            .any(|backend| stale_udp(&replaced, "10.96.0.1:53", backend))
    );
    assert!(stale_udp(&replaced, "10.96.0.1:53", "10.244.1.9:53"));
    let mut deleted = filter(&[change(Some(&first), None)]);
    assert!(stale_udp(&deleted, "10.96.0.1:53", one));
    deleted.allow(std::iter::once(&first));
    assert!(!stale_udp(&deleted, "10.96.0.1:53", one), "it comes back");
}

/// No service, or one with some of four backends.
fn backends() -> impl Strategy<Value = Option<BTreeSet<u8>>> {
    proptest::option::of(proptest::collection::btree_set(1..5u8, 0..4))
}

proptest! {
    /// However changes are merged, no flow to a backend of the last state is deleted, and every flow to a backend that was
    /// programmed before and no longer is, is deleted.
    #[test]
    fn merged_changes_find_all_stale_flows_and_no_valid_one(
        states in proptest::collection::vec(backends(), 2..6),
    ) {
        let named = |number: &u8| format!("10.244.1.{number}:53");
        let services: Vec<Option<ContivService>> = states
            .iter()
            .map(|state| {
                let names: Vec<String> = state.as_ref()?.iter().map(named).collect();
                Some(service(Protocol::Udp, &names.iter().map(String::as_str).collect::<Vec<_>>()))
            })
            .collect();
        let mut filter = StaleFlowFilter::default();
        for pair in services.windows(2) {
            filter.add([change(pair[0].as_ref(), pair[1].as_ref())].iter());
        }
        let last = states.last().cloned().flatten().unwrap_or_default();
        let ever: BTreeSet<u8> = states.iter().flatten().flatten().copied().collect();
        for number in &ever {
            for frontend in ["10.96.0.1:53", "172.31.0.1:30053"] {
                let found = stale_udp(&filter, frontend, &named(number));
                prop_assert_eq!(found, !last.contains(number), "backend {} at {}", number, frontend);
            }
        }
    }
}

#[test]
fn unanswered_flow_to_an_unknown_port_is_decided_anew() {
    let here = service(Protocol::Tcp, &["10.244.1.1:80"]);
    let filter = filter(&[change(None, Some(&here))]);
    let to = |destination, backend, is_in_use| {
        stale(
            &filter,
            &flow(Protocol::Tcp, destination, backend, is_in_use),
        )
    };
    assert!(to("10.96.0.1:99", "10.96.0.1:99", false));
    assert!(
        !to("10.96.0.1:99", "10.96.0.1:99", true),
        "somebody answered, so it is no service's"
    );
    assert!(
        !to("10.96.0.1:99", "10.244.1.1:80", false),
        "another program translates it"
    );
    assert!(
        !to("10.96.0.2:99", "10.96.0.2:99", false),
        "another address"
    );
    assert!(stale(
        &filter,
        &flow(Protocol::Udp, "10.96.0.1:53", "10.96.0.1:53", false)
    ));
}

#[test]
fn rejected_datagrams_of_the_node_are_stale_once_the_service_changes() {
    let empty = service(Protocol::Udp, &[]);
    let here = service(Protocol::Udp, &["10.244.1.1:53"]);
    for after in [Some(&here), None] {
        let filter = filter(&[change(Some(&empty), after)]);
        assert!(
            stale_udp(&filter, "172.31.0.1:30053", "172.31.0.1:0"),
            "{after:?}"
        );
    }
}
