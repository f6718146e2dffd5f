//! Everything but the 27 cells: selected backends, rejected, dropped and untouched flows.

use super::*;
use crate::{
    Addresses, Balance, Frontend,
    TrafficPolicy::{Cluster, Local},
};

#[test]
fn frontends_without_backends_reject_under_every_policy() {
    for policy in [Cluster, Local] {
        let empty = ContivService {
            external_policy: policy,
            internal_policy: policy,
            ..web(vec![])
        };
        for from in [POD, NODE, EXTERNAL] {
            for to in [CLUSTER_IP, NODE_PORT, LOAD_BALANCER, EXTERNAL_IP] {
                let expected = Verdict::Rejected(RejectReason::NoBackends);
                assert_eq!(verdict(empty.clone(), from, to), expected, "{from} to {to}");
            }
        }
    }
}

#[test]
fn policy_local_without_local_backend_drops_only_its_traffic() {
    let internal = ContivService {
        internal_policy: Local,
        ..web(vec![remote_backend()])
    };
    let external = ContivService {
        external_policy: Local,
        ..web(vec![remote_backend()])
    };
    for from in [POD, NODE, EXTERNAL] {
        let dropped = Verdict::Dropped(DropReason::InternalPolicyLocal);
        assert_eq!(
            verdict(internal.clone(), from, CLUSTER_IP),
            dropped,
            "{from}"
        );
        assert_eq!(
            endpoints(&delivery(internal.clone(), from, NODE_PORT)),
            [REMOTE],
            "{from}"
        );
        assert_eq!(
            endpoints(&delivery(external.clone(), from, CLUSTER_IP)),
            [REMOTE],
            "{from}"
        );
    }
    for to in [NODE_PORT, LOAD_BALANCER, EXTERNAL_IP] {
        let dropped = Verdict::Dropped(DropReason::ExternalPolicyLocal);
        assert_eq!(verdict(external.clone(), EXTERNAL, to), dropped, "{to}");
        for from in [POD, NODE] {
            assert_eq!(
                endpoints(&delivery(external.clone(), from, to)),
                [REMOTE],
                "{from} to {to}"
            );
        }
    }
}

#[test]
fn terminating_backends_serve_without_ready_ones_per_scope() {
    let service = ContivService {
        external_policy: Local,
        ..web(vec![terminating(local_backend()), remote_backend()])
    };
    let outside = delivery(service.clone(), EXTERNAL, NODE_PORT);
    assert_eq!(
        (endpoints(&outside), outside.pool),
        (vec![LOCAL.to_owned()], Pool::Terminating)
    );
    let inside = delivery(service, POD, NODE_PORT);
    assert_eq!(
        (endpoints(&inside), inside.pool),
        (vec![REMOTE.to_owned()], Pool::Ready)
    );
    let last = delivery(
        web(vec![
            terminating(local_backend()),
            terminating(remote_backend()),
        ]),
        POD,
        CLUSTER_IP,
    );
    assert_eq!((last.candidates.len(), last.pool), (2, Pool::Terminating));
}

#[test]
fn failing_backends_are_left_out_and_named_unless_there_is_no_other() {
    let service = ContivService {
        external_policy: Local,
        ..web(vec![failing(local_backend()), remote_backend()])
    };
    let cluster = delivery(service.clone(), POD, CLUSTER_IP);
    assert_eq!(
        (endpoints(&cluster), cluster.pool, cluster.failing),
        (
            vec![REMOTE.to_owned()],
            Pool::Ready,
            [LOCAL.parse().unwrap()].into()
        )
    );
    let local = delivery(service, EXTERNAL, NODE_PORT);
    assert_eq!(
        (endpoints(&local), local.pool, local.failing.is_empty()),
        (vec![LOCAL.to_owned()], Pool::Failing, true)
    );
    let terminating = delivery(
        web(vec![
            failing(local_backend()),
            terminating(remote_backend()),
        ]),
        POD,
        CLUSTER_IP,
    );
    assert_eq!(
        (endpoints(&terminating), terminating.pool),
        (vec![REMOTE.to_owned()], Pool::Terminating)
    );
}

#[test]
fn topology_excludes_backends_except_with_policy_local() {
    let left_out = Backend {
        in_topology: false,
        ..local_backend()
    };
    let service = ContivService {
        external_policy: Local,
        ..web(vec![left_out, remote_backend()])
    };
    let cluster = delivery(service.clone(), POD, CLUSTER_IP);
    assert_eq!(
        (endpoints(&cluster), cluster.pool),
        (vec![REMOTE.to_owned()], Pool::Topology { left_out: 1 })
    );
    let local = delivery(service, EXTERNAL, NODE_PORT);
    assert_eq!(
        (endpoints(&local), local.pool),
        (vec![LOCAL.to_owned()], Pool::Ready)
    );
}

#[test]
fn backends_of_the_other_family_are_no_candidates() {
    let v6 = Backend::new("[fd00::1]:8080".parse().unwrap());
    let both = delivery(web(vec![remote_backend(), v6.clone()]), POD, CLUSTER_IP);
    assert_eq!(endpoints(&both), [REMOTE]);
    for internal_policy in [Cluster, Local] {
        let service = ContivService {
            internal_policy,
            ..web(vec![v6.clone()])
        };
        let expected = RejectReason::BackendsOfOtherFamily;
        assert!(
            expected
                .to_string()
                .starts_with("all backends are of the other address family")
        );
        assert_eq!(
            verdict(service, POD, CLUSTER_IP),
            Verdict::Rejected(expected)
        );
    }
}

#[test]
fn shares_follow_weights() {
    let service = web(vec![
        Backend {
            weight: 3,
            ..local_backend()
        },
        remote_backend(),
    ]);
    let shares: Vec<f64> = delivery(service, POD, CLUSTER_IP)
        .candidates
        .iter()
        .map(|candidate| candidate.share)
        .collect();
    assert_eq!(shares, [75.0, 25.0]);
}

#[test]
fn affinity_is_for_time_or_by_address_of_client() {
    let affinity = |session_affinity_timeout, affinity_shared, balance| {
        let service = ContivService {
            session_affinity_timeout,
            affinity_shared,
            balance,
            ..web(vec![local_backend()])
        };
        delivery(service, POD, CLUSTER_IP).affinity
    };
    assert_eq!(affinity(0, false, Balance::Random), Affinity::None);
    assert_eq!(
        affinity(600, false, Balance::Random),
        Affinity::Timeout { seconds: 600 }
    );
    assert_eq!(
        affinity(600, true, Balance::Random),
        Affinity::ClientAddress
    );
    assert_eq!(
        affinity(0, false, Balance::ClientAddress),
        Affinity::ClientAddress
    );
    assert_eq!(
        affinity(600, false, Balance::ClientAddress),
        Affinity::ClientAddress
    );
}

#[test]
fn source_ranges_apply_to_load_balancers_or_also_node_ports() {
    let ranges = BTreeSet::from([range("192.0.2.0/24"), range("2001:db8::/32")]);
    let mut guarded = ContivService {
        source_ranges: ranges,
        ..web(vec![local_backend()])
    };
    let forbidden = Verdict::Dropped(DropReason::SourceRanges(BTreeSet::from([range(
        "192.0.2.0/24",
    )])));
    let is_served = |verdict| matches!(verdict, Verdict::Backends(_));
    for to in [CLUSTER_IP, NODE_PORT, EXTERNAL_IP] {
        assert!(is_served(verdict(guarded.clone(), EXTERNAL, to)), "{to}");
    }
    assert_eq!(verdict(guarded.clone(), EXTERNAL, LOAD_BALANCER), forbidden);
    assert_eq!(
        verdict(guarded.clone(), POD, LOAD_BALANCER),
        forbidden,
        "pods are no exception"
    );
    assert!(is_served(verdict(
        guarded.clone(),
        "192.0.2.9",
        LOAD_BALANCER
    )));
    guarded.source_ranges_on_node_ports = true;
    assert_eq!(verdict(guarded.clone(), EXTERNAL, NODE_PORT), forbidden);
    guarded.ports[0].backends.clear();
    assert_eq!(
        verdict(guarded.clone(), EXTERNAL, NODE_PORT),
        forbidden,
        "before it could be rejected"
    );
    guarded.source_ranges = BTreeSet::from([range("2001:db8::/32")]);
    guarded.ports[0].backends.push(local_backend());
    assert!(
        is_served(verdict(guarded, EXTERNAL, LOAD_BALANCER)),
        "no range is of this family"
    );
}

#[test]
fn address_without_service_is_rejected_dropped_or_untouched() {
    let service = || web(vec![local_backend()]);
    let unknown_port = Verdict::Rejected(RejectReason::UnknownPort(ServiceId::new("shop", "web")));
    assert_eq!(verdict(service(), POD, "10.96.0.1:81"), unknown_port);
    let unallocated = Verdict::Dropped(DropReason::UnallocatedAddress(range("10.96.0.0/16")));
    assert_eq!(verdict(service(), POD, "10.96.0.9:80"), unallocated);
    for to in [
        "203.0.113.1:81",
        "198.51.100.1:80",
        "192.168.0.1:80",
        "192.168.0.2:30080",
        "0.0.0.0:80",
    ] {
        assert_eq!(verdict(service(), POD, to), Verdict::Untouched, "{to}");
    }
    let udp = Flow::new(ip(POD), CLUSTER_IP.parse().unwrap(), Protocol::Udp).unwrap();
    assert_eq!(
        trace(&snapshot_of(vec![service()]), &udp).verdict,
        unknown_port,
        "another protocol"
    );
}

#[test]
fn service_answers_only_in_families_of_its_cluster_ips() {
    let mut service = web(vec![local_backend()]);
    service.cluster_ips = Addresses::from([ip("fd00:10:96::1")]);
    for to in [NODE_PORT, LOAD_BALANCER] {
        assert_eq!(
            verdict(service.clone(), POD, to),
            Verdict::Untouched,
            "{to}"
        );
    }
    service.cluster_ips = Addresses::new();
    assert_eq!(
        endpoints(&delivery(service, POD, NODE_PORT)),
        [LOCAL],
        "without any it lives in both"
    );
}

#[test]
fn lost_claim_names_the_winner() {
    let frontend = Frontend::Address {
        address: ip("203.0.113.1"),
        protocol: Protocol::Tcp,
        port: 80,
    };
    let loser = ContivService {
        id: ServiceId::new("shop", "newer"),
        cluster_ips: Addresses::from([ip("10.96.0.2")]),
        lost: BTreeMap::from([(frontend, ServiceId::new("shop", "web"))]),
        ..web(vec![remote_backend()])
    };
    let claim = LostClaim {
        service: loser.id.clone(),
        frontend,
        holder: ServiceId::new("shop", "web"),
    };
    let mut winner = web(vec![local_backend()]);
    winner.ports[0].node_port = None;
    let both = traced(
        &snapshot_of(vec![loser.clone(), winner]),
        POD,
        LOAD_BALANCER,
    );
    assert_eq!(
        both.matched_port.map(|port| port.service),
        Some(ServiceId::new("shop", "web"))
    );
    assert_eq!(both.lost, vec![claim.clone()]);
    // The holder may not answer in this family.
    let alone = traced(&snapshot_of(vec![loser]), POD, LOAD_BALANCER);
    assert_eq!(
        (alone.verdict, alone.lost),
        (Verdict::Untouched, vec![claim])
    );
}

#[test]
fn cluster_ip_wins_over_external_ip_and_both_over_node_ports() {
    let mut service = web(vec![local_backend()]);
    service.external_ips.insert(ip("10.96.0.1"));
    service.external_ips.insert(ip(NODE));
    service.ports[0].node_port = Some(80);
    let snapshot = snapshot_of(vec![service]);
    let kind = |to| {
        traced(&snapshot, POD, to)
            .matched_port
            .map(|port| port.kind)
    };
    assert_eq!(kind(CLUSTER_IP), Some(FrontendKind::ClusterIp));
    assert_eq!(kind("192.168.0.1:80"), Some(FrontendKind::ExternalIp));
}

#[test]
fn flow_between_families_is_refused() {
    let error = Flow::new(ip("fd00::1"), CLUSTER_IP.parse().unwrap(), Protocol::Tcp).unwrap_err();
    assert!(error.to_string().contains("fd00::1"), "{error}");
}

#[test]
fn trace_is_read_back_from_its_json() {
    let mut loser = ContivService {
        id: ServiceId::new("shop", "loser"),
        ..web(vec![remote_backend()])
    };
    let frontend = Frontend::NodePort {
        protocol: Protocol::Tcp,
        port: 30080,
    };
    loser.lost.insert(frontend, ServiceId::new("shop", "web"));
    let ranges = BTreeSet::from([range("192.0.2.0/24")]);
    let restricted = ContivService {
        source_ranges: ranges,
        ..web(vec![local_backend(), terminating(remote_backend())])
    };
    let mut seen = BTreeSet::new();
    for service in [
        web(vec![local_backend(), remote_backend()]),
        web(vec![]),
        restricted,
        ContivService {
            external_policy: Local,
            ..web(vec![remote_backend()])
        },
    ] {
        let snapshot = snapshot_of(vec![service, loser.clone()]);
        for from in [POD, NODE, EXTERNAL] {
            for to in [
                CLUSTER_IP,
                NODE_PORT,
                LOAD_BALANCER,
                "10.96.0.1:81",
                "10.96.0.9:80",
                "192.0.2.1:80",
            ] {
                let trace = traced(&snapshot, from, to);
                let json = serde_json::to_string(&trace).unwrap();
                assert_eq!(
                    serde_json::from_str::<Trace>(&json).unwrap(),
                    trace,
                    "{json}"
                );
                let verdict = serde_json::to_value(&trace.verdict).unwrap();
                let kind = verdict
                    .as_object()
                    .and_then(|object| object.keys().next().cloned());
                seen.insert(kind.unwrap_or(verdict.to_string()));
            }
        }
    }
    assert_eq!(seen.len(), 4, "every kind of verdict: {seen:?}");
}
