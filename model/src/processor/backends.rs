//! Finds the backends of a service in its endpoint slices or endpoints. Source: kube-proxy's `endpointslicecache.go`.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use super::{
    cache::Cache,
    placement::Placement,
    sources::Sources,
    topology::{self, TopologyHint},
};
use crate::{
    Backend, BackendState, PodId, Protocol,
    object::{Conditions, EndpointAddress, EndpointPort, EndpointSlice, Service},
};

/// The backends of one service.
pub(super) struct Backends {
    /// The backends of each port, in the order of the ports.
    pub(super) of_ports: Vec<Vec<Backend>>,
    /// The pods of this node among them.
    pub(super) local_pods: BTreeSet<PodId>,
}

/// An endpoint with one of its ports, before those with the same address and port are merged.
struct Candidate<'a> {
    port: u16,
    endpoint: Endpoint<'a>,
}

/// An endpoint, independent of ports.
#[derive(Clone, Copy)]
struct Endpoint<'a> {
    ip: IpAddr,
    conditions: Conditions,
    hint: TopologyHint,
    local: bool,
    host_network: bool,
    /// The weight of its pod.
    weight: u8,
    pod: Option<&'a PodId>,
}

/// Finds the backends of every port of a service.
///
/// Slices that a proxy can use replace `Endpoints`, even if the slices are empty. Slices of external workloads do not: they do
/// not contain the pods, so they are added to whichever object does. Of TCP ports those ready ones that are in `failing` are
/// failing.
pub(super) fn collect<'a>(
    sources: Sources<'a, impl Iterator<Item = &'a EndpointSlice>>,
    cache: &Cache,
    placement: &Placement,
    local_weight: u16,
    failing: Option<&BTreeSet<SocketAddr>>,
) -> Backends {
    let Sources {
        service: spec,
        endpoints,
        slices,
    } = sources;
    let mut candidates: Vec<Vec<Candidate<'_>>> = spec.ports.iter().map(|_| Vec::new()).collect();
    let mut is_replaced = false;
    for slice in slices {
        is_replaced |= !slice.is_supplement;
        let endpoints = slice.endpoints.iter().map(|endpoint| {
            let hint = TopologyHint::new(endpoint.hints.as_deref(), placement);
            Endpoint::new(
                &endpoint.address,
                endpoint.conditions,
                hint,
                cache,
                placement,
            )
        });
        add(&mut candidates, spec, endpoints, &slice.ports);
    }
    if !is_replaced {
        for subset in endpoints
            .into_iter()
            .flat_map(|endpoints| &endpoints.subsets)
        {
            let endpoints = subset.addresses.iter().map(|address| {
                Endpoint::new(
                    address,
                    Conditions::READY,
                    TopologyHint::NOT,
                    cache,
                    placement,
                )
            });
            add(&mut candidates, spec, endpoints, &subset.ports);
        }
    }
    let mut local_pods = BTreeSet::new();
    let of_ports = candidates
        .into_iter()
        .zip(&spec.ports)
        .map(|(candidates, port)| {
            let mut merged = merge(candidates, local_weight, &mut local_pods);
            if let Some(failing) = failing.filter(|_| port.protocol == Protocol::Tcp) {
                for (backend, _) in &mut merged {
                    if backend.state == BackendState::Ready && failing.contains(&backend.endpoint())
                    {
                        backend.state = BackendState::Failing;
                    }
                }
            }
            topology::select_topology(&mut merged, spec.options.prefer_local);
            merged.into_iter().map(|(backend, _)| backend).collect()
        });
    Backends {
        of_ports: of_ports.collect(),
        local_pods,
    }
}

impl<'a> Endpoint<'a> {
    fn new(
        address: &'a EndpointAddress,
        conditions: Conditions,
        hint: TopologyHint,
        cache: &Cache,
        placement: &Placement,
    ) -> Self {
        let place = placement.place(address);
        let pod = address.pod.as_ref().and_then(|pod| cache.pods.get(pod));
        Self {
            ip: place.ip,
            conditions,
            hint,
            local: place.local,
            host_network: place.on_node_address || pod.is_some_and(|pod| pod.host_network),
            weight: pod.map_or(1, |pod| pod.weight),
            pod: address.pod.as_ref(),
        }
    }
}

/// Adds the endpoints of one slice or subset to the service ports with the same name and protocol.
fn add<'a>(
    candidates: &mut [Vec<Candidate<'a>>],
    spec: &Service,
    endpoints: impl Iterator<Item = Endpoint<'a>>,
    ports: &[EndpointPort],
) {
    // Each endpoint is evaluated once, however many ports it has.
    for endpoint in endpoints {
        for port in ports {
            for (service_port, candidates) in spec.ports.iter().zip(candidates.iter_mut()) {
                if service_port.name == port.name && service_port.protocol == port.protocol {
                    candidates.push(Candidate {
                        port: port.port,
                        endpoint,
                    });
                }
            }
        }
    }
}

/// Merges candidates with the same address and port and drops unusable ones. The result is sorted and does not depend on the
/// order of the candidates.
fn merge(
    mut candidates: Vec<Candidate<'_>>,
    local_weight: u16,
    local_pods: &mut BTreeSet<PodId>,
) -> Vec<(Backend, TopologyHint)> {
    let key = |Candidate { port, endpoint }: &Candidate<'_>| (endpoint.ip, *port);
    candidates
        .sort_by_key(|candidate| (key(candidate), Reverse(rank(candidate.endpoint.conditions))));
    let mut backends = Vec::with_capacity(candidates.len());
    for same in candidates.chunk_by(|a, b| key(a) == key(b)) {
        let Some(&Candidate {
            port,
            endpoint: best,
        }) = same.first()
        else {
            continue;
        };
        let Some(state) = state(best.conditions) else {
            continue;
        };
        let same = || same.iter().map(|candidate| candidate.endpoint);
        let local = same().any(|endpoint| endpoint.local);
        if local {
            local_pods.extend(same().filter_map(|endpoint| endpoint.pod.cloned()));
        }
        // Attributes of a terminating pod must not apply to the pod that has taken over its address.
        let best_ones =
            || same().filter(|endpoint| rank(endpoint.conditions) == rank(best.conditions));
        let pod_weight = best_ones().map(|endpoint| endpoint.weight).fold(1, u8::max);
        let backend = Backend {
            local,
            host_network: same().any(|endpoint| endpoint.host_network),
            weight: u16::from(pod_weight).saturating_mul(if local {
                local_weight.max(1)
            } else {
                1
            }),
            state,
            ..Backend::new(SocketAddr::new(best.ip, port))
        };
        backends.push((
            backend,
            best_ones()
                .map(|endpoint| endpoint.hint)
                .fold(TopologyHint::NOT, TopologyHint::merge),
        ));
    }
    backends
}

/// Decides which of two endpoints with the same address and port counts. kube-proxy takes the one that is not terminating, and
/// otherwise the last one it sees. Here readiness decides instead of the order.
const fn rank(conditions: Conditions) -> (bool, bool, bool) {
    (
        !conditions.terminating,
        conditions.ready,
        conditions.serving,
    )
}

/// The state of a backend (KEP-1669); none if it is not usable.
const fn state(conditions: Conditions) -> Option<BackendState> {
    if conditions.ready {
        Some(BackendState::Ready)
    } else if conditions.serving && conditions.terminating {
        Some(BackendState::Terminating)
    } else {
        None
    }
}
