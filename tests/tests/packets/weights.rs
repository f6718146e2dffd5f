//! The distribution of connections among backends.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
};

use contiv_model::{Backend, ChangeSet, ContivService, ServiceId, ServicePort, Snapshot};
use contiv_renderer::{Renderer, nftables::Nftables};
use contiv_tests::{
    agent::{Agent, AgentOptions},
    cluster::{Frontend, Manifests, Service, State, TARGET_PORT},
    lab::{Family, LabError, Protocol, Responder, Result, isolated},
};

const CONNECTIONS: usize = 400;

/// Checks the share of pod1, on this node, of all connections; pod3, on the other node, received all others. The bounds are six
/// standard deviations, exceeded by chance once in 10^8 runs.
fn share_of_the_local_backend(
    flags: &[&str],
    expected: std::ops::RangeInclusive<usize>,
    test: &str,
) -> Result<()> {
    isolated(test, |lab| {
        let _responders = Responder::start_all(lab.pods(), TARGET_PORT)?;
        let state = Manifests::new(lab)?;
        let web = Service::new("web", 80, &[lab.pod1.host, lab.pod3.host]);
        state.put(&web)?;
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let _agent = Agent::start(
            lab,
            &AgentOptions {
                flags,
                ..AgentOptions::with_store(state.url())
            },
        )?;
        for family in Family::BOTH {
            let address = web.address(lab, Frontend::ClusterIp, family);
            let answered = lab.pod2.distribution(Protocol::Tcp, address, CONNECTIONS)?;
            assert!(expected.contains(&answered["pod1"]), "{answered:?}");
        }
        Ok(())
    })
}

#[test]
fn equal_backends_get_equal_shares() -> Result<()> {
    share_of_the_local_backend(&[], 140..=260, "weights::equal_backends_get_equal_shares")
}

#[test]
fn local_backend_of_weight_three_gets_three_of_four_connections() -> Result<()> {
    let test = "weights::local_backend_of_weight_three_gets_three_of_four_connections";
    share_of_the_local_backend(&["--local-endpoint-weight=3"], 248..=352, test)
}

/// A service of the node with backends that do not exist, behind an interface without a peer that answers.
const MANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 77, 1)), 80);

/// Counts new connections to that service by backend, where translated packets leave.
const COUNTING: &str = "table inet counting {
    set reached { typeof ip daddr; size 1024; flags dynamic; counter; }
    chain leaving {
        type filter hook postrouting priority 300;
        ct state new ct original ip daddr 10.96.77.1 update @reached { ip daddr }
    }
}";

fn many(backends: u8) -> Snapshot {
    let backend = |number: u8| Backend {
        weight: weight(number),
        ..Backend::new((IpAddr::from([10, 244, 77, number]), 8080).into())
    };
    let port = ServicePort {
        port: MANY.port(),
        protocol: contiv_model::Protocol::Udp,
        name: "".into(),
        node_port: None,
        backends: (1..=backends).map(backend).collect(),
    };
    let mut service = ContivService::new(ServiceId::new("default", "many"));
    service.cluster_ips = [MANY.ip()].into();
    service.ports = vec![port];
    Snapshot {
        services: [(service.id.clone(), Arc::new(service))].into(),
        ..Snapshot::default()
    }
}

fn weight(number: u8) -> u16 {
    1 + u16::from(number % 3)
}

/// The connections of each backend, by the last byte of its address.
fn reached(listing: &str) -> BTreeMap<u8, u32> {
    let elements = listing
        .split_once("elements = {")
        .map_or("", |(_, elements)| elements);
    let element = |text: &str| {
        let (address, rest) = text.trim().split_once(" counter packets ")?;
        let address: Ipv4Addr = address.parse().ok()?;
        Some((address.octets()[3], rest.split(' ').next()?.parse().ok()?))
    };
    elements.split(',').filter_map(element).collect()
}

/// A bound that a chi-square statistic with so many degrees of freedom exceeds by chance less than once in 10^9 times: six standard
/// deviations, by the approximation of Wilson and Hilferty.
fn chi_square_bound(degrees: f64) -> f64 {
    let variance = 2.0 / (9.0 * degrees);
    degrees * (1.0 - variance + 6.0 * variance.sqrt()).powi(3)
}

/// A million connections with the kernel's own random numbers, while the service scales from 1 to 64 backends and back: each
/// datagram is a new connection. By the chi-square test their numbers are those of the weights, for every number of backends and
/// for all together, and no backend is six standard deviations off.
#[test]
fn million_connections_are_spread_by_weight_while_service_scales() -> Result<()> {
    const DATAGRAMS: u16 = 7875;
    const FIRST_PORT: u16 = 1024;
    isolated(
        "weights::million_connections_are_spread_by_weight_while_service_scales",
        |lab| {
            for command in [
                "ip link add many type veth peer name nobody",
                "ip link set many arp off up",
                "ip link set nobody up",
                "ip address add 10.244.77.254/24 dev many",
                "ip route add 10.96.77.1/32 dev many",
            ] {
                lab.node.exec(&command.split(' ').collect::<Vec<_>>())?;
            }
            lab.node.exec_with_input(&["nft", "-f", "-"], COUNTING)?;
            let failed = |error: &dyn ToString| LabError::Unexpected(error.to_string());
            let (mut renderer, mut state) = (Nftables::new(), many(1));
            lab.node
                .run(|| renderer.resync(&state).map_err(|error| failed(&error)))?;
            let (mut connections, mut all) = (0, (0.0, 0.0));
            for backends in (1..=64).chain((1..64).rev()) {
                let next = many(backends);
                let changes = ChangeSet::between(&state, &next);
                state = next;
                // The ports are used again, and a port with a known connection would be no new one.
                lab.node.exec(&["conntrack", "--flush"])?;
                lab.node.run(|| {
                    renderer.update(&changes).map_err(|error| failed(&error))?;
                    for port in FIRST_PORT..FIRST_PORT + DATAGRAMS {
                        let sent = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
                            .and_then(|it| it.send_to(b"x", MANY));
                        sent.map_err(|error| failed(&error))?;
                    }
                    Ok(())
                })?;
                let counts = reached(
                    &lab.node
                        .exec(&["nft", "list", "set", "inet", "counting", "reached"])?,
                );
                lab.node
                    .exec(&["nft", "flush", "set", "inet", "counting", "reached"])?;
                assert_eq!(
                    counts.values().sum::<u32>(),
                    u32::from(DATAGRAMS),
                    "{backends} backends: {counts:?}"
                );
                connections += u32::from(DATAGRAMS);
                let weights = || (1..=backends).map(|number| (number, f64::from(weight(number))));
                let total: f64 = weights().map(|(_, weight)| weight).sum();
                let mut statistic = 0.0;
                for (number, weight) in weights() {
                    let expected = f64::from(DATAGRAMS) * weight / total;
                    let found = f64::from(counts.get(&number).copied().unwrap_or_default());
                    let deviation = (expected * (1.0 - weight / total)).sqrt();
                    assert!(
                        (found - expected).abs() <= 6.0 * deviation,
                        "{number} of {backends}: {counts:?}"
                    );
                    statistic += (found - expected).powi(2) / expected;
                }
                let degrees = f64::from(backends - 1);
                if degrees > 0.0 {
                    let bound = chi_square_bound(degrees);
                    assert!(
                        statistic <= bound,
                        "{backends} backends: {statistic} > {bound}: {counts:?}"
                    );
                }
                all = (all.0 + statistic, all.1 + degrees);
            }
            let (statistic, degrees) = all;
            assert!(
                statistic <= chi_square_bound(degrees),
                "{statistic} with {degrees} degrees of freedom"
            );
            assert!(connections >= 1_000_000, "{connections}");
            Ok(())
        },
    )
}
