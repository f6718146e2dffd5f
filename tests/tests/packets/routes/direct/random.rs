//! Random changes of services that routes carry: after each, the kernel has the routes, groups and next hops that a fresh start
//! would make, and nothing else of ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use contiv_model::{
    Backend, BackendState, Carrier, ChangeSet, ContivService, Protocol, ServiceId, ServicePort,
    Snapshot,
};
use contiv_renderer::{
    Renderer, Report,
    route::{RouteOptions, Routes},
};
use contiv_tests::lab::{Family, Lab, LabError, Namespace, Result, isolated};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::Value;

use super::DIRECT;

/// Changes in a run; each is compared with the kernel.
const CHANGES: usize = 80;
/// Every so many changes a fresh renderer looks at what there is.
const RESTART_EVERY: usize = 5;
const SERVICES: usize = 4;
/// Addresses in each family, which move between the services.
const ADDRESSES: u8 = 6;
/// Backends on other machines, each reached through a router of its own.
const REMOTE: u8 = 4;

/// The next hop to a backend: the router or the pod itself.
type NextHop = IpAddr;

/// The number `last` in a range of each family.
fn in_range(family: Family, v4: [u8; 3], v6: u16, last: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(v4[0], v4[1], v4[2], last).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, v6, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

/// An address of services.
fn address(family: Family, number: u8) -> IpAddr {
    in_range(family, [10, 99, 0], 0x99, number)
}

/// A router on the network of the node.
fn router(lab: &Lab, family: Family, number: u8) -> IpAddr {
    match lab.client.host.address(family) {
        IpAddr::V4(of_client) => {
            let [a, b, c, _] = of_client.octets();
            Ipv4Addr::new(a, b, c, 100 + number).into()
        }
        IpAddr::V6(of_client) => {
            let mut segments = of_client.segments();
            segments[7] = 0x100 + u16::from(number);
            Ipv6Addr::from(segments).into()
        }
    }
}

/// The possible backends in a family, with the next hops to them; none for one on the node's own network.
fn backends(lab: &Lab, family: Family) -> Vec<(Backend, Option<NextHop>)> {
    let backend = |address: IpAddr, local| Backend {
        local,
        ..Backend::new((address, 8080).into())
    };
    let pods = [&lab.pod1, &lab.pod2].map(|pod| pod.host.address(family));
    let local = pods.map(|address| (backend(address, true), Some(address)));
    let remote = (1..=REMOTE).map(|number| {
        (
            backend(in_range(family, [10, 98, 0], 0x98, number), false),
            Some(router(lab, family, number)),
        )
    });
    let own = Backend {
        host_network: true,
        ..backend(lab.node.host.address(family), true)
    };
    local
        .into_iter()
        .chain(remote)
        .chain([(own, None)])
        .collect()
}

/// A service with some of these addresses and backends.
fn service(
    name: &str,
    addresses: BTreeSet<IpAddr>,
    lab: &Lab,
    random: &mut StdRng,
) -> ContivService {
    let mut chosen = Vec::new();
    for family in Family::BOTH {
        let all = backends(lab, family);
        let count = random.random_range(0..=all.len().min(4));
        for (backend, _) in all.sample(random, count) {
            let state = if random.random_bool(0.2) {
                BackendState::Terminating
            } else {
                BackendState::Ready
            };
            chosen.push(Backend {
                state,
                weight: random.random_range(1..4),
                ..backend.clone()
            });
        }
    }
    let port = ServicePort {
        port: 80,
        protocol: Protocol::Tcp,
        name: "".into(),
        node_port: None,
        backends: chosen,
    };
    let mut service = ContivService {
        external_ips: addresses.into_iter().collect(),
        ports: vec![port],
        ..ContivService::new(ServiceId::new("default", name))
    };
    service.assignment.addresses = Carrier::Route;
    service
}

/// What an address leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Unreachable,
    /// The node itself.
    Own,
    /// The next hops to backends, with their shares.
    NextHops(BTreeMap<NextHop, u64>),
}

/// The target of each address: the first of ready backends here, ready ones elsewhere, terminating ones here, and elsewhere.
fn expected(state: &Snapshot, lab: &Lab) -> BTreeMap<IpAddr, Target> {
    use BackendState::{Ready, Terminating};
    let mut targets = BTreeMap::new();
    for service in state.services.values() {
        for address in service.addresses() {
            let family = if address.is_ipv4() {
                Family::V4
            } else {
                Family::V6
            };
            let next_hops: BTreeMap<IpAddr, Option<NextHop>> = backends(lab, family)
                .into_iter()
                .map(|(backend, next_hop)| (backend.address, next_hop))
                .collect();
            let of = |state, local| {
                let all = service.ports[0].backends.iter();
                let chosen = all.filter(|backend| {
                    backend.state == state
                        && backend.local == local
                        && next_hops.contains_key(&backend.address)
                });
                chosen
                    .map(|backend| (next_hops[&backend.address], u64::from(backend.weight)))
                    .collect::<Vec<_>>()
            };
            let order = [
                (Ready, true),
                (Ready, false),
                (Terminating, true),
                (Terminating, false),
            ];
            let chosen = order
                .into_iter()
                .map(|(state, local)| of(state, local))
                .find(|all| !all.is_empty());
            let target = match chosen {
                None => Target::Unreachable,
                Some(all) if all.iter().any(|(next_hop, _)| next_hop.is_none()) => Target::Own,
                Some(all) => Target::NextHops(
                    all.into_iter()
                        .filter_map(|(next_hop, weight)| Some((next_hop?, weight)))
                        .collect(),
                ),
            };
            targets.insert(address, target);
        }
    }
    targets
}

fn unexpected(error: impl std::fmt::Display) -> LabError {
    LabError::Unexpected(error.to_string())
}

/// The objects that `ip` lists.
fn listed(node: &Namespace, arguments: &[&str]) -> Result<Vec<Value>> {
    let command: Vec<&str> = ["ip", "-j"].iter().chain(arguments).copied().collect();
    let text = node.exec(&command)?;
    let text = if text.trim().is_empty() { "[]" } else { &text };
    serde_json::from_str(text).map_err(unexpected)
}

fn ids(objects: &[Value]) -> Vec<u64> {
    objects
        .iter()
        .filter_map(|object| object["id"].as_u64())
        .collect()
}

/// The target of each address in the kernel.
///
/// # Errors
/// When a group is of no route, or a next hop of no group.
fn programmed(node: &Namespace) -> Result<BTreeMap<IpAddr, Target>> {
    let all = listed(node, &["nexthop", "show", "proto", "67"])?;
    let (groups, hops): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|object| object["group"].is_array());
    let next_hop = |id: u64| {
        let hop = hops.iter().find(|hop| hop["id"] == id);
        hop.and_then(|hop| hop["gateway"].as_str()?.parse::<IpAddr>().ok())
    };
    let (mut targets, mut used_groups, mut used_hops) =
        (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for family in ["-4", "-6"] {
        let all = listed(
            node,
            &[family, "route", "show", "table", "all", "proto", "67"],
        )?;
        for route in all.iter().filter(|route| {
            [DIRECT, "local"]
                .iter()
                .any(|table| route["table"] == *table)
        }) {
            let destination = route["dst"]
                .as_str()
                .and_then(|text| text.parse::<IpAddr>().ok());
            let target = match (route["nhid"].as_u64(), route["type"].as_str()) {
                (Some(id), _) => {
                    used_groups.insert(id);
                    let group = groups.iter().find(|group| group["id"] == id);
                    let members = group.and_then(|group| group["group"].as_array());
                    let mut next_hops = BTreeMap::new();
                    for member in members.into_iter().flatten() {
                        let id = member["id"].as_u64().unwrap_or_default();
                        used_hops.insert(id);
                        let next_hop =
                            next_hop(id).ok_or_else(|| unexpected(format!("no next hop {id}")))?;
                        // A resilient group has each next hop twice.
                        next_hops.insert(next_hop, member["weight"].as_u64().unwrap_or(1));
                    }
                    Target::NextHops(next_hops)
                }
                (None, Some("unreachable")) => Target::Unreachable,
                (None, Some("local")) => Target::Own,
                _ => return Err(unexpected(format!("an unexpected route: {route}"))),
            };
            let destination =
                destination.ok_or_else(|| unexpected(format!("no address: {route}")))?;
            if targets.insert(destination, target).is_some() {
                return Err(unexpected(format!("two routes to {destination}")));
            }
        }
    }
    for (what, all, used) in [
        ("groups", ids(&groups), used_groups),
        ("next hops", ids(&hops), used_hops),
    ] {
        let unused: Vec<u64> = all.into_iter().filter(|id| !used.contains(id)).collect();
        if !unused.is_empty() {
            return Err(unexpected(format!("{what} that nothing uses: {unused:?}")));
        }
    }
    Ok(targets)
}

/// Shares without what all have in common.
fn reduced(targets: BTreeMap<IpAddr, Target>) -> BTreeMap<IpAddr, Target> {
    let divisor = |next_hops: &BTreeMap<NextHop, u64>| {
        (1..=8)
            .rev()
            .find(|by| next_hops.values().all(|share| share % by == 0))
            .unwrap_or(1)
    };
    let reduce = |(address, target)| match target {
        Target::NextHops(next_hops) => {
            let by = divisor(&next_hops);
            (
                address,
                Target::NextHops(
                    next_hops
                        .into_iter()
                        .map(|(next_hop, share)| (next_hop, share / by))
                        .collect(),
                ),
            )
        }
        other => (address, other),
    };
    targets.into_iter().map(reduce).collect()
}

/// Gives the node a route to each backend on another machine.
fn add_routes(lab: &Lab) -> Result<()> {
    for family in Family::BOTH {
        for (backend, next_hop) in backends(lab, family)
            .into_iter()
            .filter(|(backend, _)| !backend.local)
        {
            let (to, via) = (
                backend.address.to_string(),
                next_hop.unwrap_or(backend.address).to_string(),
            );
            lab.node
                .exec(&["ip", "route", "add", &to, "via", &via, "dev", "eth0"])?;
        }
    }
    Ok(())
}

/// Replaces or removes one service. Its addresses may be those that others have now, which lose them by the same change.
fn change(state: &Snapshot, lab: &Lab, random: &mut StdRng) -> Snapshot {
    let mut next = state.clone();
    let name = format!("s{}", random.random_range(0..SERVICES));
    let id = ServiceId::new("default", &*name);
    if random.random_bool(0.2) {
        next.services.remove(&id);
        return next;
    }
    let count = random.random_range(0..5);
    let any = |random: &mut StdRng| {
        let family = if random.random_bool(0.5) {
            Family::V4
        } else {
            Family::V6
        };
        address(family, random.random_range(1..=ADDRESSES))
    };
    let addresses: BTreeSet<IpAddr> = (0..count).map(|_| any(random)).collect();
    for other in next.services.values_mut().filter(|other| other.id != id) {
        let kept = other
            .external_ips
            .iter()
            .copied()
            .filter(|address| !addresses.contains(address));
        let kept: BTreeSet<IpAddr> = kept.collect();
        if kept.len() < other.external_ips.len() {
            Arc::make_mut(other).external_ips = kept.into_iter().collect();
        }
    }
    next.services
        .insert(id, Arc::new(service(&name, addresses, lab, random)));
    next
}

/// What a renderer changed in the kernel.
const fn changed(report: &Report) -> (usize, usize) {
    (report.added, report.removed)
}

#[test]
fn random_changes_leave_only_what_a_fresh_start_makes() -> Result<()> {
    isolated(
        "routes::direct::random::random_changes_leave_only_what_a_fresh_start_makes",
        |lab| {
            add_routes(lab)?;
            let seed = std::env::var("CONTIV_FAULT_SEED")
                .ok()
                .and_then(|seed| seed.parse().ok())
                .unwrap_or(17);
            println!("CONTIV_FAULT_SEED={seed}");
            let mut random = StdRng::seed_from_u64(seed);
            let new = || Routes::new(RouteOptions::default());
            let mut state = Snapshot::default();
            state.node.local_ips = Family::BOTH
                .map(|family| lab.node.host.address(family))
                .into();
            let mut renderer = new();
            lab.node
                .run(|| renderer.resync(&state).map_err(unexpected))?;
            for number in 1..=CHANGES {
                let next = change(&state, lab, &mut random);
                let changes = ChangeSet::between(&state, &next);
                let report = lab
                    .node
                    .run(|| renderer.update(&changes).map_err(unexpected))?;
                assert_eq!(report.rejected, [], "change {number}");
                state = next;
                let found = programmed(&lab.node)
                    .map_err(|error| unexpected(format!("change {number}: {error}")))?;
                assert_eq!(
                    reduced(found),
                    reduced(expected(&state, lab)),
                    "change {number}: {changes:?}"
                );
                if number % RESTART_EVERY == 0 {
                    let mut fresh = new();
                    let report = lab.node.run(|| fresh.resync(&state).map_err(unexpected))?;
                    assert_eq!(
                        changed(&report),
                        (0, 0),
                        "a fresh start after change {number} changes nothing"
                    );
                    renderer = fresh;
                }
            }
            let nothing = Snapshot {
                services: BTreeMap::new(),
                ..state.clone()
            };
            let changes = ChangeSet::between(&state, &nothing);
            lab.node
                .run(|| renderer.update(&changes).map_err(unexpected))?;
            assert_eq!(
                programmed(&lab.node)?,
                BTreeMap::new(),
                "without services nothing is left"
            );
            Ok(())
        },
    )
}
