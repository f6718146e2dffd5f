//! Plans the dataplane of a service. Pure: takes a service, returns ordered values.
//!
//! The choice of backends for each kind of traffic follows kube-proxy; `docs/builders/nft-layout.md` has the table.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use contiv_model::{
    Addresses, Backend, Balance, ContivService, Frontend, ServicePort, TrafficPolicy,
};
use ipnetwork::IpNetwork;

use super::element::FrontendKey;
use crate::nftables::layout::{Family, LearnChain, MAX_EXTERNAL_SLOTS, MAX_SLOTS};

/// Backends with their number of slots. Sorted, each backend once.
pub(crate) type Shares = Vec<(SocketAddr, u32)>;

/// If a frontend would need more slots, they are scaled down: that rounds the weights, but keeps all backends.
const SCALED_SLOTS: u32 = 16_384;
/// The limit for the slots of external clients, who have only the backends of this node.
const SCALED_EXTERNAL_SLOTS: u32 = 4096;

/// The plan of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServicePlan {
    pub(crate) frontends: BTreeMap<FrontendKey, FrontendPlan>,
    /// Addresses that are cluster IPs of this service.
    pub(crate) cluster_ips: Addresses,
    /// Addresses of local backends: connections from one to itself must be masqueraded.
    pub(crate) hairpins: BTreeSet<IpAddr>,
}

/// The plan of one frontend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrontendPlan {
    pub(crate) serving: ConnectionAction,
    pub(crate) external_clients: ExternalClients,
    pub(crate) masquerade: Masquerade,
    pub(crate) choice: Choice,
    /// Source ranges; none if everyone may connect.
    pub(crate) sources: Option<BTreeSet<IpNetwork>>,
}

/// How a backend is chosen for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// At random.
    Random,
    /// At random, then the same until so many seconds after the last connection.
    Sticky(u32),
    /// By the client's address.
    Client,
}

/// The action for a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionAction {
    /// It goes to one of these; never empty.
    Backends(Shares),
    /// It is rejected at once: no backend anywhere.
    Reject,
    /// It is dropped: there are backends, but none that the policy allows.
    Drop,
    /// It is left unchanged: routes lead to backends.
    Pass,
}

/// How external clients are served differently: those other than this node and its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExternalClients {
    /// No difference.
    Same,
    /// They reach only these; never empty.
    Backends(Shares),
    /// They are dropped, so that a load balancer's client tries again elsewhere.
    Drop,
}

/// The connections that are masqueraded, beyond the rule for cluster IPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Masquerade {
    /// The rule for cluster IPs decides.
    ClusterIp,
    /// Every connection: replies must return through this node.
    Always,
    /// Only connections from this node itself.
    Local,
}

/// Plans `service`.
pub(crate) fn plan(service: &ContivService) -> ServicePlan {
    let frontends = all_frontends(service)
        .map(|(port, key, external)| (key, frontend_plan(service, port, key, external)))
        .collect();
    ServicePlan {
        frontends,
        cluster_ips: cluster_ips(service).collect(),
        hairpins: hairpins(service),
    }
}

/// The frontends of `service`, without their plans.
pub(crate) fn keys(service: &ContivService) -> impl Iterator<Item = FrontendKey> {
    all_frontends(service).map(|(_, key, _)| key)
}

/// Addresses that are cluster IPs of this service.
pub(crate) fn cluster_ips(service: &ContivService) -> impl Iterator<Item = IpAddr> {
    let translates = service.assignment.addresses.translates();
    service
        .cluster_ips
        .iter()
        .copied()
        .filter(move |_| translates)
}

/// Addresses of this service that routes carry.
pub(crate) fn routed(service: &ContivService) -> impl Iterator<Item = IpAddr> {
    let translates = service.assignment.addresses.translates();
    service
        .addresses()
        .filter(move |address| !translates && !address.is_unspecified())
}

/// Addresses of local backends.
pub(crate) fn hairpins(service: &ContivService) -> BTreeSet<IpAddr> {
    let backends = service.ports.iter().flat_map(|port| &port.backends);
    backends
        .filter(|backend| backend.local)
        .map(|backend| backend.address)
        .collect()
}

/// The frontends of all ports, except those held by another service: the port, the key, and whether the external policy
/// applies. Of several with one key the last counts.
fn all_frontends(
    service: &ContivService,
) -> impl Iterator<Item = (&ServicePort, FrontendKey, bool)> {
    // As in Kubernetes, a service has the families of its cluster IPs, and so do its other addresses. A service without any, as
    // it may exist without Kubernetes, has both.
    let lives_in = |family: Family| {
        let ips = &service.cluster_ips;
        ips.is_empty() || ips.iter().any(|address| Family::of(address) == family)
    };
    service.ports.iter().flat_map(move |port| {
        let all = frontends(service, port, lives_in).into_iter();
        all.filter(|(frontend, ..)| !service.lost.contains_key(frontend))
            .map(move |(_, key, external)| (port, key, external))
    })
}

/// The frontends of one port: the kind, the key, and whether the external policy applies.
fn frontends(
    service: &ContivService,
    port: &ServicePort,
    lives_in: impl Fn(Family) -> bool,
) -> Vec<(Frontend, FrontendKey, bool)> {
    let protocol = port.protocol;
    let at = |address: IpAddr, external| {
        let frontend = Frontend::Address {
            address,
            protocol,
            port: port.port,
        };
        (
            frontend,
            FrontendKey {
                address,
                protocol,
                port: port.port,
            },
            external,
        )
    };
    let external_ips = service
        .external_ips
        .iter()
        .filter(|address| lives_in(Family::of(address)));
    let mut all: Vec<_> = external_ips.map(|address| at(*address, true)).collect();
    if let Some(node_port) = port.node_port {
        let frontend = Frontend::NodePort {
            protocol,
            port: node_port,
        };
        let families = Family::ALL.into_iter().filter(|family| lives_in(*family));
        all.extend(families.map(|family| {
            (
                frontend,
                FrontendKey::node_port(family, protocol, node_port),
                true,
            )
        }));
    }
    // Last, so that an address of both kinds is served as a cluster IP.
    all.extend(
        service
            .cluster_ips
            .iter()
            .map(|address| at(*address, false)),
    );
    // As a key the unspecified address represents node ports; as a service address it is meaningless.
    all.retain(
        |(frontend, ..)| !matches!(frontend, Frontend::Address { address, .. } if address.is_unspecified()),
    );
    all
}

fn frontend_plan(
    service: &ContivService,
    port: &ServicePort,
    key: FrontendKey,
    external: bool,
) -> FrontendPlan {
    if !key.is_node_port() && !service.assignment.addresses.translates() {
        return FrontendPlan {
            serving: ConnectionAction::Pass,
            external_clients: ExternalClients::Same,
            masquerade: Masquerade::ClusterIp,
            choice: Choice::Random,
            sources: None,
        };
    }
    let family = key.family();
    let of_family = |backends: Vec<&Backend>, limits| {
        shares(
            backends
                .into_iter()
                .filter(|backend| Family::of(&backend.address) == family),
            limits,
        )
    };
    let everywhere = of_family(port.cluster_backends(), EVERYONE);
    let here = |limits| of_family(port.local_backends(), limits);
    let serve = |shares: Shares| {
        if shares.is_empty() {
            ConnectionAction::Reject
        } else {
            ConnectionAction::Backends(shares)
        }
    };
    let policies = (external, service.internal_policy, service.external_policy);
    let (serving, external_clients, masquerade) = match policies {
        (false, TrafficPolicy::Cluster, _) => (
            serve(everywhere),
            ExternalClients::Same,
            Masquerade::ClusterIp,
        ),
        (false, TrafficPolicy::Local, _) => {
            let here = here(EVERYONE);
            let none_here = here.is_empty() && !everywhere.is_empty();
            (
                if none_here {
                    ConnectionAction::Drop
                } else {
                    serve(here)
                },
                ExternalClients::Same,
                Masquerade::ClusterIp,
            )
        }
        (true, _, TrafficPolicy::Cluster) => {
            (serve(everywhere), ExternalClients::Same, Masquerade::Always)
        }
        (true, _, TrafficPolicy::Local) => {
            let here = here(EXTERNAL);
            let external_clients = match (here.is_empty(), everywhere.is_empty()) {
                (_, true) => ExternalClients::Same,
                (true, false) => ExternalClients::Drop,
                (false, false) => ExternalClients::Backends(here),
            };
            (serve(everywhere), external_clients, Masquerade::Local)
        }
    };
    FrontendPlan {
        serving,
        external_clients,
        masquerade,
        choice: choice(service),
        sources: sources(service, key),
    }
}

/// Affinity shared between the ports of a service needs no affinity entries: a client draws the same slot on each of them.
fn choice(service: &ContivService) -> Choice {
    match (
        service.balance,
        service.session_affinity_timeout,
        service.affinity_shared,
    ) {
        (Balance::ClientAddress, ..) | (_, 1.., true) => Choice::Client,
        (Balance::Random, 0, _) => Choice::Random,
        (Balance::Random, timeout, false) => Choice::Sticky(timeout.min(LearnChain::MAX_TIMEOUT)),
    }
}

/// The ranges apply to load-balancer addresses, and to node ports if configured. Source: KEP-3866 and kube-proxy, which also
/// admits everyone if no range is of the family.
fn sources(service: &ContivService, key: FrontendKey) -> Option<BTreeSet<IpNetwork>> {
    let restricted = if key.is_node_port() {
        service.source_ranges_on_node_ports
    } else {
        service.load_balancer_ips.contains(&key.address)
    };
    if !restricted {
        return None;
    }
    let of_family = |range: &&IpNetwork| Family::of(&range.ip()) == key.family();
    let ranges: BTreeSet<IpNetwork> = service
        .source_ranges
        .iter()
        .filter(of_family)
        .copied()
        .collect();
    let everyone = ranges.is_empty() || ranges.iter().any(|range| range.prefix() == 0);
    (!everyone).then_some(ranges)
}

/// How many slots backends get together.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Weights are scaled down to so many, but each backend keeps a slot.
    scaled: u32,
    /// Backends beyond so many get no slot.
    most: u32,
}

const EVERYONE: Limits = Limits {
    scaled: SCALED_SLOTS,
    most: MAX_SLOTS,
};
const EXTERNAL: Limits = Limits {
    scaled: SCALED_EXTERNAL_SLOTS,
    most: MAX_EXTERNAL_SLOTS,
};

/// Slots in proportion to the weights, as few as possible.
fn shares<'a>(backends: impl Iterator<Item = &'a Backend>, limits: Limits) -> Shares {
    let mut shares: Shares = backends
        .map(|backend| (backend.endpoint(), u32::from(backend.weight.max(1))))
        .collect();
    // Those from the processor are sorted and unique already.
    shares.sort_unstable();
    shares.dedup_by_key(|(backend, _)| *backend);
    // Scaled slots and one for each backend are not more than that either.
    shares.truncate((limits.most - limits.scaled) as usize);
    let divisor = shares
        .iter()
        .map(|(_, weight)| *weight)
        .reduce(greatest_common_divisor)
        .unwrap_or(1);
    let total: u64 = shares
        .iter()
        .map(|(_, weight)| u64::from(weight / divisor))
        .sum();
    let limit = u64::from(limits.scaled);
    for (_, share) in &mut shares {
        let slots = u64::from(*share / divisor);
        let scaled = if total > limit {
            slots * limit / total
        } else {
            slots
        };
        *share = u32::try_from(scaled).unwrap_or(u32::MAX).max(1);
    }
    shares
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests;
