//! The table of `docs/builders/nft-layout.md`, row by row.

mod trace;

use contiv_model::{Addresses, BackendState, Protocol, ServiceId};

use super::*;

fn backend(address: &str, local: bool, state: BackendState) -> Backend {
    let address = address.parse().unwrap();
    Backend {
        local,
        state,
        ..Backend::new(SocketAddr::new(address, 8080))
    }
}

fn ready(address: &str, local: bool) -> Backend {
    backend(address, local, BackendState::Ready)
}

fn service(
    internal: TrafficPolicy,
    external: TrafficPolicy,
    backends: Vec<Backend>,
) -> ContivService {
    ContivService {
        external_policy: external,
        internal_policy: internal,
        cluster_ips: Addresses::from(["10.96.0.1".parse().unwrap()]),
        external_ips: Addresses::from(["203.0.113.1".parse().unwrap()]),
        ports: vec![ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "http".into(),
            node_port: Some(30080),
            backends,
        }],
        ..ContivService::new(ServiceId::new("default", "web"))
    }
}

fn key(address: &str, port: u16) -> FrontendKey {
    FrontendKey {
        address: address.parse().unwrap(),
        protocol: Protocol::Tcp,
        port,
    }
}

fn equal_shares(addresses: &[&str]) -> Shares {
    addresses
        .iter()
        .map(|address| (SocketAddr::new(address.parse().unwrap(), 8080), 1))
        .collect()
}

/// The plans for the cluster address and for the external one, which must also be the plan of the node port.
fn plans(service: &ContivService) -> (FrontendPlan, FrontendPlan) {
    let plan = plan(service);
    let external = plan.frontends[&key("203.0.113.1", 80)].clone();
    assert_eq!(
        plan.frontends[&key("0.0.0.0", 30080)],
        external,
        "node ports follow the external policy"
    );
    assert_eq!(plan.frontends.len(), 3);
    (plan.frontends[&key("10.96.0.1", 80)].clone(), external)
}

/// A plan of a service without affinity and without source ranges.
fn expected(
    serving: ConnectionAction,
    external_clients: ExternalClients,
    masquerade: Masquerade,
) -> FrontendPlan {
    FrontendPlan {
        serving,
        external_clients,
        masquerade,
        choice: Choice::Random,
        sources: None,
    }
}

const LOCAL: &str = "10.244.1.10";
const REMOTE: &str = "10.244.2.10";

#[test]
fn policy_cluster_reaches_all_backends_and_masquerades_external() {
    let backends = vec![ready(LOCAL, true), ready(REMOTE, false)];
    let (cluster, external) = plans(&service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Cluster,
        backends,
    ));
    let serving = ConnectionAction::Backends(equal_shares(&[LOCAL, REMOTE]));
    assert_eq!(
        cluster,
        expected(
            serving.clone(),
            ExternalClients::Same,
            Masquerade::ClusterIp
        )
    );
    assert_eq!(
        external,
        expected(serving, ExternalClients::Same, Masquerade::Always)
    );
}

#[test]
fn external_local_keeps_external_clients_local_unmasqueraded() {
    let backends = vec![ready(LOCAL, true), ready(REMOTE, false)];
    let (cluster, external) = plans(&service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Local,
        backends,
    ));
    let serving = ConnectionAction::Backends(equal_shares(&[LOCAL, REMOTE]));
    assert_eq!(cluster.serving, serving);
    let external_clients = ExternalClients::Backends(equal_shares(&[LOCAL]));
    assert_eq!(
        external,
        expected(serving, external_clients, Masquerade::Local)
    );
}

#[test]
fn external_local_without_local_backend_drops_external_only() {
    let (_, external) = plans(&service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Local,
        vec![ready(REMOTE, false)],
    ));
    let serving = ConnectionAction::Backends(equal_shares(&[REMOTE]));
    assert_eq!(
        external,
        expected(serving, ExternalClients::Drop, Masquerade::Local)
    );
}

#[test]
fn internal_local_cluster_ip_reaches_only_local_backends() {
    let backends = vec![ready(LOCAL, true), ready(REMOTE, false)];
    let (cluster, external) = plans(&service(
        TrafficPolicy::Local,
        TrafficPolicy::Cluster,
        backends,
    ));
    assert_eq!(
        cluster.serving,
        ConnectionAction::Backends(equal_shares(&[LOCAL]))
    );
    assert_eq!(
        external.serving,
        ConnectionAction::Backends(equal_shares(&[LOCAL, REMOTE]))
    );
}

#[test]
fn internal_local_without_local_backend_drops_the_cluster_ip() {
    let (cluster, _) = plans(&service(
        TrafficPolicy::Local,
        TrafficPolicy::Cluster,
        vec![ready(REMOTE, false)],
    ));
    assert_eq!(cluster.serving, ConnectionAction::Drop);
}

#[test]
fn service_without_backends_rejects_under_every_policy() {
    for internal in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
        for external in [TrafficPolicy::Cluster, TrafficPolicy::Local] {
            let (cluster, external) = plans(&service(internal, external, vec![]));
            assert_eq!(
                (cluster.serving, cluster.external_clients),
                (ConnectionAction::Reject, ExternalClients::Same)
            );
            assert_eq!(
                (external.serving, external.external_clients),
                (ConnectionAction::Reject, ExternalClients::Same)
            );
        }
    }
}

#[test]
fn terminating_backends_serve_without_ready_ones_per_scope() {
    let backends = vec![
        backend(LOCAL, true, BackendState::Terminating),
        ready(REMOTE, false),
    ];
    let (_, external) = plans(&service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Local,
        backends,
    ));
    assert_eq!(
        external.serving,
        ConnectionAction::Backends(equal_shares(&[REMOTE]))
    );
    assert_eq!(
        external.external_clients,
        ExternalClients::Backends(equal_shares(&[LOCAL]))
    );
}

#[test]
fn service_answers_only_in_families_of_its_cluster_addresses() {
    let mut v6 = service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Cluster,
        vec![ready(LOCAL, true)],
    );
    v6.cluster_ips = Addresses::from(["fd00:10:96::1".parse().unwrap()]);
    let plan = plan(&v6);
    let keys: Vec<String> = plan.frontends.keys().map(ToString::to_string).collect();
    assert_eq!(keys, [":: . tcp . 30080", "fd00:10:96::1 . tcp . 80"]);
    assert!(
        plan.frontends
            .values()
            .all(|frontend| frontend.serving == ConnectionAction::Reject),
        "no backend is IPv6"
    );
}

#[test]
fn service_without_cluster_address_answers_in_both_families() {
    let mut bare = service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Cluster,
        vec![ready(LOCAL, true)],
    );
    bare.cluster_ips = Addresses::new();
    let keys: Vec<String> = plan(&bare)
        .frontends
        .keys()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        keys,
        [
            "0.0.0.0 . tcp . 30080",
            "203.0.113.1 . tcp . 80",
            ":: . tcp . 30080"
        ]
    );
}

#[test]
fn address_that_older_service_holds_is_left_out() {
    let mut loser = service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Cluster,
        vec![ready(LOCAL, true)],
    );
    let lost = Frontend::NodePort {
        protocol: Protocol::Tcp,
        port: 30080,
    };
    loser.lost.insert(lost, ServiceId::new("default", "older"));
    let plan = plan(&loser);
    assert_eq!(
        plan.frontends.keys().copied().collect::<Vec<_>>(),
        [key("10.96.0.1", 80), key("203.0.113.1", 80)]
    );
}

#[test]
fn unspecified_address_never_becomes_a_frontend() {
    let mut odd = service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Cluster,
        vec![ready(LOCAL, true)],
    );
    odd.external_ips = Addresses::from(["0.0.0.0".parse().unwrap()]);
    assert!(!plan(&odd).frontends.contains_key(&key("0.0.0.0", 80)));
}

#[test]
fn affinity_has_a_timeout_unless_shared_or_by_client_address() {
    let choice = |timeout, shared, balance| {
        let mut sticky = service(
            TrafficPolicy::Cluster,
            TrafficPolicy::Cluster,
            vec![ready(LOCAL, true)],
        );
        (
            sticky.session_affinity_timeout,
            sticky.affinity_shared,
            sticky.balance,
        ) = (timeout, shared, balance);
        plans(&sticky).0.choice
    };
    assert_eq!(choice(0, false, Balance::Random), Choice::Random);
    assert_eq!(
        choice(0, true, Balance::Random),
        Choice::Random,
        "there is nothing to share"
    );
    assert_eq!(choice(600, false, Balance::Random), Choice::Sticky(600));
    assert_eq!(choice(600, true, Balance::Random), Choice::Client);
    assert_eq!(choice(600, false, Balance::ClientAddress), Choice::Client);
}

#[test]
fn source_ranges_cover_load_balancers_and_optionally_node_ports() {
    let mut guarded = service(
        TrafficPolicy::Cluster,
        TrafficPolicy::Cluster,
        vec![ready(LOCAL, true)],
    );
    guarded.external_ips.insert("203.0.113.2".parse().unwrap());
    guarded.load_balancer_ips = Addresses::from(["203.0.113.2".parse().unwrap()]);
    let v4: IpNetwork = "192.0.2.0/24".parse().unwrap();
    guarded.source_ranges = BTreeSet::from([v4, "2001:db8::/32".parse().unwrap()]);
    let sources = |guarded: &ContivService| -> Vec<(String, Option<BTreeSet<IpNetwork>>)> {
        let frontends = plan(guarded).frontends;
        frontends
            .into_iter()
            .map(|(key, plan)| (key.to_string(), plan.sources))
            .collect()
    };
    let allowed = Some(BTreeSet::from([v4]));
    let mut expected = vec![
        ("0.0.0.0 . tcp . 30080".to_owned(), None),
        ("10.96.0.1 . tcp . 80".to_owned(), None),
        ("203.0.113.1 . tcp . 80".to_owned(), None),
        ("203.0.113.2 . tcp . 80".to_owned(), allowed.clone()),
    ];
    assert_eq!(sources(&guarded), expected);
    guarded.source_ranges_on_node_ports = true;
    expected[0].1 = allowed;
    assert_eq!(sources(&guarded), expected);
    guarded.source_ranges.insert("0.0.0.0/0".parse().unwrap());
    assert!(
        sources(&guarded)
            .iter()
            .all(|(_, sources)| sources.is_none()),
        "a range of length 0 is everyone"
    );
}

#[test]
fn weights_become_smallest_numbers_of_slots_in_same_proportion() {
    let weighted = |weights: &[u16]| {
        let backends: Vec<Backend> = (1..)
            .zip(weights)
            .map(|(number, weight)| Backend {
                weight: *weight,
                ..ready(&format!("10.0.0.{number}"), false)
            })
            .collect();
        shares(backends.iter(), EVERYONE)
            .into_iter()
            .map(|(_, share)| share)
            .collect::<Vec<u32>>()
    };
    assert_eq!(weighted(&[3]), [1], "it has no one to share with");
    assert_eq!(weighted(&[1, 1, 1]), [1, 1, 1]);
    assert_eq!(weighted(&[20, 10, 30]), [2, 1, 3]);
    assert_eq!(weighted(&[0, 2]), [1, 2], "a weight of zero counts as one");
    let large = weighted(&[u16::MAX, u16::MAX - 1, 1]);
    assert!(
        large.iter().sum::<u32>() <= MAX_SLOTS + 3 && large[2] == 1,
        "{large:?}"
    );
}
