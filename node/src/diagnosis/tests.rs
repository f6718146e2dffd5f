//! Each kind of evidence gives its cause, and what works is not blamed.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use contiv_model::{
    Backend, ContivService, Flow, InterfaceName, NodeFacts, Protocol, ServiceId, ServicePort,
    Snapshot,
    trace::{Verdict, trace},
};
use contiv_renderer::packet_path::{
    ChainRef, Doubt, DownLink, Hook, KnownFlow, Link, LinkState, Listener, Listening, Neighbour,
    NeighbourState, NextHop, OwnVerdict, ProbeResult, Route, RuleRef, StopKind, TcpState,
    TrafficFilters, Walk, WalkEnd, WalkStep,
};
use contiv_renderer::shared_tables::{Loss, SharedTable, TableUse};
use jiff::Timestamp;

use super::*;
use crate::{Caveat, Explanation};

const CLIENT: &str = "10.244.1.5";
const FRONTEND: &str = "10.96.0.10:80";
const BACKENDS: [&str; 2] = ["10.244.2.7:8080", "10.244.2.8:8080"];

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn flow() -> Flow {
    Flow::new(CLIENT.parse().unwrap(), address(FRONTEND), Protocol::Tcp).unwrap()
}

fn explanation(backends: &[&str]) -> Explanation {
    let port = ServicePort {
        port: 80,
        protocol: Protocol::Tcp,
        name: "http".into(),
        node_port: None,
        backends: backends
            .iter()
            .map(|backend| Backend::new(address(backend)))
            .collect(),
    };
    let service = ContivService {
        cluster_ips: [address(FRONTEND).ip()].into(),
        ports: vec![port],
        ..ContivService::new(ServiceId::new("shop", "web"))
    };
    let snapshot = Snapshot {
        services: [(service.id.clone(), Arc::new(service))].into(),
        node: NodeFacts::default(),
        ..Snapshot::default()
    };
    Explanation {
        trace: trace(&snapshot, &flow()),
        former: None,
        caveats: Vec::new(),
    }
}

fn rule(chain: &str) -> RuleRef {
    RuleRef {
        base: ChainRef {
            table: "ip filter".to_owned(),
            chain: chain.to_owned(),
            hook: Hook::Forward,
            priority: 0,
        },
        chain: chain.to_owned(),
        handle: Some(7),
        comment: String::new(),
    }
}

fn link(name: &str) -> Link {
    Link {
        index: 2,
        name: InterfaceName::new(name),
        is_up: true,
        has_carrier: true,
        state: LinkState::Up,
        is_loopback: false,
        mtu: 1500,
        master: None,
        kind: Some("veth".to_owned()),
        has_xdp: false,
        linked: None,
    }
}

fn walk(end: WalkEnd) -> Walk {
    Walk {
        steps: Vec::new(),
        connection_mark: 0,
        doubts: Vec::new(),
        end,
    }
}

fn sent(to: &str) -> WalkEnd {
    sent_by("eth0", to)
}

fn sent_by(interface: &str, to: &str) -> WalkEnd {
    WalkEnd::Sent {
        interface: InterfaceName::new(interface),
        gateway: None,
        source: address("10.244.1.5:40000"),
        destination: address(to),
    }
}

/// A way on which nothing is wrong.
fn path(backend: &str) -> PathEvidence {
    PathEvidence {
        own: OwnVerdict::Translated {
            backend: address(backend),
            is_masqueraded: false,
        },
        first: walk(sent(backend)),
        answer: Some(walk(sent_by("veth1", "10.244.1.5:40000"))),
        link: Some(link("eth0")),
        neighbour: None,
        next_hops: Vec::new(),
        sizes: None,
        listening: None,
        is_source_own: true,
        source_ports_used: None,
        probe: None,
    }
}

fn neighbour(state: NeighbourState, age: u32) -> Neighbour {
    Neighbour {
        state,
        link_address: None,
        age,
        probes: 0,
    }
}

/// A connection on whose way nothing is wrong.
fn healthy() -> Evidence {
    Evidence {
        target: Target::Flow(flow()),
        agent: AgentState::Runs { revision: 17 },
        explanation: Some(explanation(&BACKENDS)),
        kernel: Ok(KernelEvidence {
            paths: BACKENDS.map(path).into(),
            client_link: Some(link("veth1")),
            ..KernelEvidence::default()
        }),
    }
}

/// An attempt, so many seconds ago.
fn attempt_at(server: &str, state: TcpState, is_answered: bool, age: u32) -> Attempt {
    let flow = flow_to(server, state, is_answered);
    Attempt {
        flow,
        age,
        is_unacknowledged: false,
    }
}

fn attempt(server: &str, state: TcpState, is_answered: bool) -> Attempt {
    attempt_at(server, state, is_answered, 0)
}

fn flow_to(server: &str, state: TcpState, is_answered: bool) -> KnownFlow {
    KnownFlow {
        protocol: Protocol::Tcp,
        client: address("10.244.1.5:50000"),
        destination: address(FRONTEND),
        server: address(server),
        seen_source: address("10.244.1.5:50000"),
        is_answered,
        is_assured: false,
        is_destination_translated: true,
        is_source_translated: false,
        tcp_state: Some(state),
        seconds_left: Some(100),
        mark: 0,
        zone: 0,
    }
}

/// Changes what the kernel shows.
fn with(change: impl FnOnce(&mut KernelEvidence)) -> Evidence {
    let mut evidence = healthy();
    if let Ok(kernel) = &mut evidence.kernel {
        change(kernel);
    }
    evidence
}

/// Changes each way.
fn with_paths(change: impl Fn(&mut PathEvidence)) -> Evidence {
    with(|kernel| kernel.paths.iter_mut().for_each(change))
}

fn cause(evidence: &Evidence) -> Option<Cause> {
    diagnose(evidence).cause.map(|cause| cause.code)
}

#[test]
fn connection_on_whose_way_nothing_is_wrong_has_no_cause() {
    let diagnosis = diagnose(&healthy());
    assert_eq!(diagnosis.cause, None, "{diagnosis}");
    assert!(diagnosis.others.is_empty(), "{diagnosis}");
    let steps: Vec<StepName> = diagnosis.steps.iter().map(|step| step.name).collect();
    assert!(steps.is_sorted(), "the order of the way: {steps:?}");
    assert!(
        diagnosis.to_string().contains("NO CAUSE FOUND"),
        "{diagnosis}"
    );
}

#[test]
fn what_stops_the_first_packet_is_the_cause() {
    let stopped = |kind| {
        with_paths(move |path| {
            path.first = walk(WalkEnd::Stopped {
                by: rule("FORWARD"),
                kind,
            });
            path.answer = None;
        })
    };
    let routed = |route: Route| {
        with_paths(move |path| {
            path.first = walk(WalkEnd::NotRouted(route.clone()));
            path.answer = None;
        })
    };
    let step = |step: WalkStep| with_paths(move |path| path.first.steps.push(step.clone()));
    for (evidence, expected) in [
        (stopped(StopKind::Drops), Cause::RuleDrops),
        (stopped(StopKind::Rejects), Cause::RuleRejects),
        (stopped(StopKind::Queues), Cause::RuleQueues),
        (routed(Route::Unreachable), Cause::NoRoute),
        (routed(Route::Blackhole), Cause::RouteDiscards),
        (routed(Route::InvalidSource), Cause::ReversePath),
        (
            step(WalkStep::Untracked(rule("PREROUTING"))),
            Cause::RuleUntracks,
        ),
        (
            step(WalkStep::DestinationChanged {
                by: rule("PREROUTING"),
                to: address("10.0.0.1:80"),
            }),
            Cause::RuleTranslates,
        ),
        (
            with(|kernel| kernel.table = TableEvidence::Missing),
            Cause::TableMissing,
        ),
        (
            with(|kernel| kernel.table = TableEvidence::Differs(vec!["one".to_owned()])),
            Cause::TableDiffers,
        ),
        (
            with(|kernel| {
                kernel.settings.push(WrongSetting {
                    code: Cause::ForwardingOff,
                    text: "off".to_owned(),
                    advice: "on".to_owned(),
                });
            }),
            Cause::ForwardingOff,
        ),
        (
            with(|kernel| kernel.client_route = Some(Route::Unreachable)),
            Cause::NoRouteBack,
        ),
    ] {
        let diagnosis = diagnose(&evidence);
        assert_eq!(
            diagnosis.cause.as_ref().map(|cause| cause.code),
            Some(expected),
            "{diagnosis}"
        );
    }
}

#[test]
fn what_stops_the_answer_is_the_cause() {
    for (end, expected) in [
        (
            WalkEnd::Stopped {
                by: rule("FORWARD"),
                kind: StopKind::Drops,
            },
            Cause::RuleStopsAnswer,
        ),
        (
            WalkEnd::NotRouted(Route::InvalidSource),
            Cause::AnswerReversePath,
        ),
        (WalkEnd::NotRouted(Route::Unreachable), Cause::NoRouteBack),
    ] {
        let evidence = with_paths(|path| path.answer = Some(walk(end.clone())));
        assert_eq!(cause(&evidence), Some(expected));
    }
}

#[test]
fn answer_that_leaves_elsewhere_may_be_the_cause() {
    let mut evidence = with_paths(|path| path.answer = Some(walk(sent("10.244.1.5:40000"))));
    assert_eq!(cause(&evidence), Some(Cause::NoRouteBack));
    if let Ok(kernel) = &mut evidence.kernel {
        kernel
            .attempts
            .push(attempt(BACKENDS[0], TcpState::SynReceived, true));
    }
    assert_eq!(
        cause(&evidence),
        Some(Cause::NoRouteBack),
        "an answer that the client may not have got"
    );
    if let Ok(kernel) = &mut evidence.kernel {
        kernel
            .attempts
            .push(attempt(BACKENDS[0], TcpState::Established, true));
    }
    assert_eq!(cause(&evidence), None, "routes may differ");
}

#[test]
fn one_bad_way_of_two_is_named_with_its_part() {
    let evidence = with(|kernel| {
        kernel.paths[1].first.end = WalkEnd::NotRouted(Route::Unreachable);
        kernel.paths[1].answer = None;
    });
    let found = diagnose(&evidence).cause.unwrap();
    assert_eq!(found.code, Cause::NoRoute);
    assert!(found.text.contains("(1 of 2 backends)"), "{}", found.text);
}

#[test]
fn links_neighbours_and_tables_are_causes() {
    let failed = neighbour(NeighbourState::Failed, 2);
    for (evidence, expected) in [
        (
            with_paths(|path| {
                if let Some(link) = &mut path.link {
                    link.has_carrier = false;
                }
            }),
            Cause::LinkDown,
        ),
        (
            with_paths(|path| {
                path.neighbour = Some((address(BACKENDS[0]).ip(), failed.clone()));
            }),
            Cause::NeighbourFailed,
        ),
        (
            with_paths(|path| path.source_ports_used = Some(64_512)),
            Cause::SourcePortsUsedUp,
        ),
        (
            with_paths(|path| {
                path.listening = Some(Listening::Nowhere);
                path.first.end = WalkEnd::Local {
                    source: address("10.244.1.5:40000"),
                    destination: address(BACKENDS[0]),
                };
            }),
            Cause::BackendAddressTaken,
        ),
    ] {
        assert_eq!(cause(&evidence), Some(expected));
    }
}

#[test]
fn attempts_tell_of_the_backend() {
    // A client that only looked whether somebody answers, and reset the connection.
    let checked = attempt(BACKENDS[0], TcpState::Close, true);
    let unanswered = attempt(BACKENDS[0], TcpState::SynSent, false);
    let answered = attempt(BACKENDS[0], TcpState::TimeWait, true);
    let stale = attempt("10.244.9.9:8080", TcpState::SynSent, false);
    let of = |attempts: &[&Attempt]| {
        let attempts = attempts.iter().map(|it| (*it).clone()).collect();
        with(|kernel| kernel.attempts = attempts)
    };
    assert_eq!(cause(&of(&[&checked])), None);
    assert_eq!(cause(&of(&[&unanswered])), Some(Cause::BackendSilent));
    assert_eq!(cause(&of(&[&stale])), Some(Cause::StaleFlow));
    assert_eq!(cause(&of(&[&stale, &answered])), None);
    assert_eq!(cause(&of(&[&answered])), None);
    // The same backend has answered another attempt.
    assert_eq!(cause(&of(&[&unanswered, &answered])), None);
    let earlier = attempt_at(BACKENDS[0], TcpState::TimeWait, true, 5);
    assert_eq!(
        cause(&of(&[&unanswered, &earlier])),
        Some(Cause::BackendSilent)
    );
    let mut evidence = of(&[&unanswered]);
    if let Ok(kernel) = &mut evidence.kernel {
        let mut stray = flow_to(BACKENDS[0], TcpState::SynSent, false);
        stray.client = address("10.244.2.99:8080");
        stray.destination = address("10.244.1.5:50000");
        kernel.flows_to_client.push(stray);
    }
    assert_eq!(cause(&evidence), Some(Cause::AnswersFromElsewhere));
    let probed = with_paths(|path| path.probe = Some(ProbeResult::Refused));
    assert_eq!(cause(&probed), Some(Cause::BackendRefuses));
}

#[test]
fn local_listener_is_looked_at() {
    let listening = |listening: Listening| {
        let mut evidence = with_paths(|path| {
            path.listening = Some(listening.clone());
            path.first.end = WalkEnd::Local {
                source: address("10.244.1.5:40000"),
                destination: address(BACKENDS[0]),
            };
        });
        if let Some(explanation) = &mut evidence.explanation
            && let Verdict::Backends(delivery) = &mut explanation.trace.verdict
        {
            delivery
                .candidates
                .iter_mut()
                .for_each(|candidate| candidate.local = true);
        }
        cause(&evidence)
    };
    assert_eq!(listening(Listening::Nowhere), Some(Cause::BackendRefuses));
    let loopback = vec!["127.0.0.1".parse().unwrap()];
    assert_eq!(
        listening(Listening::Elsewhere(loopback)),
        Some(Cause::ListensElsewhere)
    );
}

#[test]
fn what_cannot_be_evaluated_counts_only_while_nothing_was_answered() {
    let doubt = Doubt {
        rule: rule("FORWARD"),
        condition: "match recent of iptables".to_owned(),
        effect: "drop".to_owned(),
        is_harmful: true,
    };
    let mut evidence = with_paths(|path| path.first.doubts.push(doubt.clone()));
    let found = diagnose(&evidence).cause.unwrap();
    assert_eq!(
        (found.code, found.certainty),
        (Cause::RuleUnclear, Certainty::Possible)
    );
    if let Ok(kernel) = &mut evidence.kernel {
        kernel
            .attempts
            .push(attempt(BACKENDS[0], TcpState::Established, true));
    }
    assert_eq!(cause(&evidence), None);
}

#[test]
fn filters_beside_nftables_count_only_where_packets_are_lost() {
    let filtered = |dropped, attempts: &[Attempt]| {
        with(|kernel| {
            let ingress = vec!["bpf".to_owned()];
            let filters = TrafficFilters {
                ingress,
                dropped,
                ..TrafficFilters::default()
            };
            kernel.filters.push((InterfaceName::new("eth0"), filters));
            kernel.attempts = attempts.to_vec();
        })
    };
    let lost = attempt(BACKENDS[0], TcpState::SynSent, false);
    assert_eq!(cause(&filtered(0, &[lost])), Some(Cause::FilterUnclear));
    assert_eq!(cause(&filtered(3, &[])), Some(Cause::FilterUnclear));
    let idle = diagnose(&filtered(0, &[]));
    assert_eq!(idle.cause, None, "{idle}");
    assert!(
        idle.to_string().contains("eth0 has filters of tc"),
        "{idle}"
    );
}

#[test]
fn rules_of_bridges_count_only_for_packets_that_pass_one() {
    let mut of_bridge = rule("forward");
    of_bridge.base.table = "bridge filter".to_owned();
    let doubt = Doubt {
        rule: of_bridge,
        condition: "rules of bridges are not evaluated".to_owned(),
        effect: "anything".to_owned(),
        is_harmful: true,
    };
    let mut evidence = with_paths(|path| path.first.doubts.push(doubt.clone()));
    assert_eq!(cause(&evidence), None);
    if let Ok(kernel) = &mut evidence.kernel
        && let Some(link) = &mut kernel.client_link
    {
        link.kind = Some("bridge".to_owned());
    }
    assert_eq!(cause(&evidence), Some(Cause::RuleUnclear));
}

#[test]
fn kernel_that_cannot_be_read_gives_no_all_clear() {
    let mut evidence = healthy();
    evidence.kernel = Err("run it as root".to_owned());
    let unknown = diagnose(&evidence);
    assert_eq!(unknown.cause, None);
    assert!(!unknown.is_good());
    let text = unknown.to_string();
    assert!(
        text.contains("NOT KNOWN") && text.contains("run it as root"),
        "{text}"
    );
    // What the objects say is known all the same.
    evidence.explanation = Some(explanation(&[]));
    assert_eq!(cause(&evidence), Some(Cause::NoEndpoints));
    // Without the agent nothing is.
    evidence.explanation = None;
    evidence.agent = AgentState::Manifests;
    assert_eq!(diagnose(&evidence).cause, None);
    assert!(diagnose(&healthy()).is_good());
}

#[test]
fn interface_is_blamed_only_if_it_leads_there() {
    let down = |networks: &[&str], is_only_one| {
        let networks = networks.iter().map(|it| it.parse().unwrap()).collect();
        with(|kernel| {
            kernel.links_down.push(DownLink {
                name: InterfaceName::new("eno2"),
                networks,
                is_of_pod: false,
                is_only_one,
            });
            for path in &mut kernel.paths {
                path.first.end = WalkEnd::NotRouted(Route::Unreachable);
                path.answer = None;
            }
        })
    };
    assert_eq!(
        cause(&down(&["10.244.2.1/24"], false)),
        Some(Cause::LinkDown)
    );
    assert_eq!(
        cause(&down(&["192.168.9.1/24"], true)),
        Some(Cause::LinkDown)
    );
    let other = diagnose(&down(&["192.168.9.1/24"], false)).cause.unwrap();
    assert_eq!(other.code, Cause::NoRoute);
    assert!(other.text.contains("eno2"), "{}", other.text);
    let without_ipv6 = with(|kernel| {
        kernel.client_route = Some(Route::Unreachable);
        kernel.without_ipv6.push(InterfaceName::new("eth1"));
    });
    let found = diagnose(&without_ipv6).cause.unwrap();
    assert_eq!(found.code, Cause::Ipv6Off);
    assert!(
        found.text.contains("no route to the client"),
        "{}",
        found.text
    );
}

#[test]
fn reverse_path_of_a_client_whose_place_is_a_guess_is_possible() {
    let evidence = |is_client_guessed| {
        with(|kernel| {
            kernel.is_client_guessed = is_client_guessed;
            for path in &mut kernel.paths {
                path.first.end = WalkEnd::NotRouted(Route::InvalidSource);
                path.answer = None;
            }
        })
    };
    for (is_guess, expected) in [(false, Certainty::Certain), (true, Certainty::Possible)] {
        let found = diagnose(&evidence(is_guess)).cause.unwrap();
        assert_eq!(
            (found.code, found.certainty),
            (Cause::ReversePath, expected)
        );
    }
}

#[test]
fn old_failure_of_a_neighbour_is_not_a_failure_now() {
    let failed = |state, age| {
        let neighbour = neighbour(state, age);
        let evidence = with_paths(move |path| {
            path.neighbour = Some((address(BACKENDS[0]).ip(), neighbour.clone()));
        });
        diagnose(&evidence).cause.unwrap().certainty
    };
    assert_eq!(failed(NeighbourState::Failed, 2), Certainty::Observed);
    assert_eq!(failed(NeighbourState::Failed, 600), Certainty::Possible);
    assert_eq!(failed(NeighbourState::Incomplete, 0), Certainty::Possible);
}

#[test]
fn further_address_of_this_node_is_not_one_that_somebody_took() {
    let at_home = |listening: Option<Listening>| {
        let evidence = with_paths(|path| {
            path.listening = listening.clone();
            path.first.end = WalkEnd::Local {
                source: address("10.244.1.5:40000"),
                destination: address(BACKENDS[0]),
            };
        });
        let cause = diagnose(&evidence).cause;
        cause.map(|cause| (cause.code, cause.certainty))
    };
    let listener = Listener {
        address: address("0.0.0.0:8080"),
        is_v6_only: false,
        interface: 0,
        waiting: 0,
        limit: 128,
    };
    assert_eq!(at_home(Some(Listening::Here(listener))), None);
    assert_eq!(
        at_home(Some(Listening::Nowhere)),
        Some((Cause::BackendAddressTaken, Certainty::Certain))
    );
    assert_eq!(
        at_home(None),
        Some((Cause::BackendAddressTaken, Certainty::Possible))
    );
}

#[test]
fn silence_over_udp_may_be_what_the_protocol_does() {
    let mut one_way = attempt(BACKENDS[0], TcpState::None, false);
    one_way.flow.protocol = Protocol::Udp;
    one_way.flow.tcp_state = None;
    let found = diagnose(&with(|kernel| kernel.attempts.push(one_way)));
    let cause = found.cause.unwrap();
    assert_eq!(
        (cause.code, cause.certainty),
        (Cause::BackendSilent, Certainty::Possible)
    );
}

#[test]
fn probe_does_not_outweigh_what_the_client_met() {
    let probed = |outcome: ProbeResult, answered: bool| {
        with(|kernel| {
            for path in &mut kernel.paths {
                path.probe = Some(outcome.clone());
            }
            if answered {
                let answers = BACKENDS.map(|it| attempt(it, TcpState::Established, true));
                kernel.attempts.extend(answers);
            }
        })
    };
    let silent = ProbeResult::Silent;
    assert_eq!(
        cause(&probed(silent.clone(), false)),
        Some(Cause::BackendSilent)
    );
    assert_eq!(
        cause(&probed(silent, true)),
        None,
        "a policy may let clients in"
    );
    assert_eq!(
        cause(&probed(ProbeResult::Refused, true)),
        Some(Cause::BackendRefuses)
    );
    let untried = with_paths(|path| path.probe = Some(ProbeResult::Failed("EMFILE".to_owned())));
    let diagnosis = diagnose(&untried);
    assert_eq!(diagnosis.cause, None, "{diagnosis}");
    assert!(diagnosis.to_string().contains("EMFILE"), "{diagnosis}");
}

#[test]
fn surest_harm_of_the_ways_is_named_with_its_own_certainty() {
    let unsure = walk(WalkEnd::Stopped {
        by: rule("FORWARD"),
        kind: StopKind::Drops,
    });
    let mut unsure = unsure;
    unsure.doubts.push(Doubt {
        rule: rule("FORWARD"),
        condition: "match recent of iptables".to_owned(),
        effect: "accept".to_owned(),
        is_harmful: false,
    });
    let evidence = with(|kernel| {
        kernel.paths[0].answer = Some(unsure);
        kernel.paths[1].answer = Some(walk(WalkEnd::NotRouted(Route::Unreachable)));
    });
    let found = diagnose(&evidence).cause.unwrap();
    assert_eq!(
        (found.code, found.certainty),
        (Cause::NoRouteBack, Certainty::Certain)
    );
}

#[test]
fn old_state_is_the_cause_of_what_follows_from_it() {
    let down = Caveat::StoreDown {
        since: Timestamp::UNIX_EPOCH,
        reason: "timeout".to_owned(),
        revision: 17,
    };
    let aged = |mut evidence: Evidence| {
        if let Some(explanation) = &mut evidence.explanation {
            explanation.caveats.push(down.clone());
        }
        cause(&evidence)
    };
    let works = || {
        with(|kernel| {
            kernel
                .attempts
                .push(attempt(BACKENDS[0], TcpState::Established, true));
        })
    };
    assert_eq!(aged(works()), None, "it works by the old state");
    assert_eq!(aged(healthy()), Some(Cause::StoreDown), "nobody knows");
    let silent = with(|kernel| {
        kernel
            .attempts
            .push(attempt(BACKENDS[0], TcpState::SynSent, false));
    });
    assert_eq!(aged(silent), Some(Cause::StoreDown));
    let dropped = with_paths(|path| {
        path.first.end = WalkEnd::Stopped {
            by: rule("FORWARD"),
            kind: StopKind::Drops,
        };
    });
    assert_eq!(aged(dropped), Some(Cause::RuleDrops), "not of the store");
}

#[test]
fn service_without_backends_is_the_cause() {
    let mut evidence = healthy();
    evidence.explanation = Some(explanation(&[]));
    if let Ok(kernel) = &mut evidence.kernel {
        kernel.paths.truncate(1);
        kernel.paths[0].own = OwnVerdict::Rejected;
        kernel.paths[0].first = walk(WalkEnd::OwnTable);
        kernel.paths[0].answer = None;
    }
    assert_eq!(cause(&evidence), Some(Cause::NoEndpoints));
    evidence.target = Target::NoService(Cause::Headless, "headless".to_owned());
    assert_eq!(cause(&evidence), Some(Cause::Headless));
}

#[test]
fn stopped_agent_is_the_cause_only_of_what_the_table_lacks() {
    let stopped = |mut evidence: Evidence| {
        evidence.agent = AgentState::Stopped {
            advice: "start it".to_owned(),
        };
        evidence.explanation = None;
        cause(&evidence)
    };
    let works = with(|kernel| {
        kernel
            .attempts
            .push(attempt(BACKENDS[0], TcpState::Established, true));
    });
    assert_eq!(stopped(works), None, "the table serves on");
    let untouched = with_paths(|path| path.own = OwnVerdict::Untouched);
    assert_eq!(stopped(untouched), Some(Cause::AgentStopped));
    let missing = with(|kernel| kernel.table = TableEvidence::Missing);
    assert_eq!(stopped(missing), Some(Cause::AgentStopped));
}

/// Sizes of a way on which all packets fit.
fn sizes() -> PacketSizes {
    PacketSizes {
        client: 1500,
        server: 1500,
        to_server: 1500,
        to_client: 1500,
        outer: None,
        error_to_client: None,
        error_to_server: Some(walk(sent("10.244.2.7:0"))),
        error_from_beyond: None,
    }
}

fn dropped() -> Walk {
    walk(WalkEnd::Stopped {
        by: rule("OUTPUT"),
        kind: StopKind::Drops,
    })
}

#[test]
fn packets_that_do_not_fit_are_the_cause_if_errors_are_lost() {
    let judged = |change: &dyn Fn(&mut PathEvidence, &mut PacketSizes)| {
        diagnose(&with_paths(|path| {
            let mut sizes = sizes();
            change(path, &mut sizes);
            path.sizes = Some(sizes);
        }))
    };
    let code = |diagnosis: &Diagnosis| diagnosis.cause.as_ref().map(|it| it.code);
    assert_eq!(code(&judged(&|_, _| ())), None);
    let relies = judged(&|_, sizes| sizes.to_client = 1000);
    assert_eq!(relies.cause, None, "{relies}");
    assert!(relies.to_string().contains("1000 fit"), "{relies}");
    let lost = judged(&|_, sizes| {
        sizes.to_client = 1000;
        sizes.error_to_server = Some(dropped());
    });
    let cause = lost.cause.unwrap();
    assert_eq!(
        (cause.code, cause.certainty),
        (Cause::MtuTooSmall, Certainty::Certain)
    );
    assert!(cause.text.contains("OUTPUT"), "{}", cause.text);
    // The client tells the server what it takes, or a rule does.
    let announced = judged(&|_, sizes| {
        (sizes.client, sizes.to_client) = (1000, 1000);
        sizes.error_to_server = Some(dropped());
    });
    assert_eq!(code(&announced), None, "{announced}");
    let clamped = judged(&|path, sizes| {
        sizes.to_client = 1000;
        sizes.error_to_server = Some(dropped());
        let clamps = WalkStep::SegmentsClamped(rule("FORWARD"));
        path.first.steps.push(clamps);
    });
    assert_eq!(code(&clamped), None, "{clamped}");
}

#[test]
fn stalled_connection_is_the_cause_with_what_may_explain_it() {
    let stalled = |age| {
        let mut attempt = attempt_at(BACKENDS[0], TcpState::Established, true, age);
        attempt.is_unacknowledged = true;
        with(|kernel| {
            kernel.attempts.push(attempt);
            for path in &mut kernel.paths {
                path.sizes = Some(PacketSizes {
                    error_from_beyond: Some(dropped()),
                    outer: Some((InterfaceName::new("eno1"), 1500)),
                    ..sizes()
                });
            }
        })
    };
    let found = diagnose(&stalled(3)).cause.unwrap();
    assert_eq!(
        (found.code, found.certainty),
        (Cause::MtuTooSmall, Certainty::Observed)
    );
    for part in ["eno1", "OUTPUT", "port 50000"] {
        assert!(found.text.contains(part), "{}", found.text);
    }
    assert_eq!(cause(&stalled(1)), None, "it is on its way");
    assert_eq!(cause(&stalled(200)), None, "it may be idle");
    // A rule that nobody can evaluate says more.
    let mut evidence = stalled(3);
    if let Ok(kernel) = &mut evidence.kernel {
        kernel.paths[0].first.doubts.push(Doubt {
            rule: rule("FORWARD"),
            condition: "match length of iptables".to_owned(),
            effect: "drop".to_owned(),
            is_harmful: true,
        });
    }
    assert_eq!(cause(&evidence), Some(Cause::RuleUnclear));
    // So does a probe.
    let mut evidence = stalled(3);
    if let Ok(kernel) = &mut evidence.kernel {
        for path in &mut kernel.paths {
            path.probe = Some(ProbeResult::Silent);
        }
    }
    assert_eq!(cause(&evidence), Some(Cause::BackendSilent));
}

#[test]
fn next_hop_that_is_not_there_counts_only_if_it_may_be_chosen() {
    let gateways = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
    let judged = |chosen: usize, by_ports: bool| {
        let mut evidence = with_paths(|path| {
            path.first.end = WalkEnd::Sent {
                interface: InterfaceName::new("eth0"),
                gateway: Some(gateways[chosen]),
                source: address("10.244.1.5:40000"),
                destination: address(BACKENDS[0]),
            };
            path.next_hops = [NeighbourState::Reachable, NeighbourState::Failed]
                .into_iter()
                .zip(gateways)
                .map(|(state, gateway)| NextHopEvidence {
                    hop: NextHop {
                        interface: InterfaceName::new("eth0"),
                        gateway: Some(gateway),
                        is_link_down: false,
                    },
                    neighbour: Some(neighbour(state, 2)),
                })
                .collect();
        });
        if let Ok(kernel) = &mut evidence.kernel {
            kernel.chooses_by_ports = by_ports;
        }
        diagnose(&evidence).cause
    };
    assert_eq!(judged(0, false), None);
    for (chosen, by_ports) in [(1, false), (0, true), (1, true)] {
        let found = judged(chosen, by_ports).unwrap();
        assert_eq!(
            (found.code, found.certainty),
            (Cause::NeighbourFailed, Certainty::Observed)
        );
        assert!(found.text.contains("1 of 2 next hops"), "{}", found.text);
    }
}

#[test]
fn full_table_of_neighbours_counts_only_for_one_that_is_not_known() {
    let full = |entries, losses: &[(Loss, u64)], knows: bool| {
        let mut evidence = with(|kernel| {
            kernel.neighbours = Some(TableUse {
                table: SharedTable::Arp,
                entries,
                limit: 1024,
                losses: losses.to_vec(),
            });
        });
        if let (Ok(kernel), true) = (&mut evidence.kernel, knows) {
            for path in &mut kernel.paths {
                let known = neighbour(NeighbourState::Reachable, 1);
                path.neighbour = Some((address(BACKENDS[0]).ip(), known));
            }
        }
        cause(&evidence)
    };
    let lost = [(Loss::Full, 3)];
    assert_eq!(full(1024, &lost, false), Some(Cause::NeighboursFull));
    assert_eq!(full(1024, &lost, true), None);
    assert_eq!(full(1023, &lost, false), None);
    assert_eq!(full(5000, &[(Loss::Full, 0)], false), None, "fixed ones");
}

#[test]
fn redirected_packets_count_only_if_none_of_the_client_has_come() {
    let redirected = |attempts: &[Attempt]| {
        with(|kernel| {
            let filters = TrafficFilters {
                ingress: vec!["u32".to_owned()],
                redirected: 4,
                ..TrafficFilters::default()
            };
            kernel.filters.push((InterfaceName::new("eth0"), filters));
            kernel.attempts = attempts.to_vec();
        })
    };
    assert_eq!(cause(&redirected(&[])), Some(Cause::FilterUnclear));
    let old = attempt_at(BACKENDS[0], TcpState::Established, true, 100);
    assert_eq!(cause(&redirected(&[old])), None);
}
