//! Finds the backends of a service in its endpoint slices or endpoints. Source: kube-proxy's `endpointslicecache.go`.

use std::{cmp::Reverse, collections::BTreeSet, net::IpAddr};

use super::{cache::Cache, placement::Placement};
use crate::{
    Backend, BackendState, PodId,
    object::{Conditions, EndpointAddress, EndpointPort, Service},
};

/// The backends of one service.
pub(super) struct Backends {
    /// Those of each port, in the order of the ports.
    pub(super) of_ports: Vec<Vec<Backend>>,
    /// The pods on this node among them.
    pub(super) local_pods: BTreeSet<PodId>,
}

/// An endpoint of a port before those of the same address and port are merged.
struct Candidate<'a> {
    ip: IpAddr,
    port: u16,
    conditions: Conditions,
    local: bool,
    host_network: bool,
    pod: Option<&'a PodId>,
}

/// Finds the backends of every port of a service. Where it has slices that a proxy can use, they win over endpoints.
pub(super) fn collect(spec: &Service, cache: &Cache, placement: &Placement, local_weight: u16) -> Backends {
    let mut candidates: Vec<Vec<Candidate<'_>>> = spec.ports.iter().map(|_| Vec::new()).collect();
    let mut slices = cache.usable_slices(&spec.id).peekable();
    if slices.peek().is_some() {
        for slice in slices {
            let endpoints = slice.endpoints.iter().map(|endpoint| (&endpoint.address, endpoint.conditions));
            add(&mut candidates, spec, endpoints, &slice.ports, cache, placement);
        }
    } else {
        let subsets = cache.endpoints.get(&spec.id).into_iter().flat_map(|endpoints| &endpoints.subsets);
        for subset in subsets {
            let endpoints = subset.addresses.iter().map(|address| (address, Conditions::READY));
            add(&mut candidates, spec, endpoints, &subset.ports, cache, placement);
        }
    }
    let mut local_pods = BTreeSet::new();
    let of_ports =
        candidates.into_iter().map(|candidates| merge(candidates, local_weight, &mut local_pods)).collect();
    Backends { of_ports, local_pods }
}

/// Adds the endpoints of one slice or subset to the service ports that its ports belong to.
fn add<'a>(
    candidates: &mut [Vec<Candidate<'a>>],
    spec: &Service,
    endpoints: impl Iterator<Item = (&'a EndpointAddress, Conditions)>,
    ports: &[EndpointPort],
    cache: &Cache,
    placement: &Placement,
) {
    // Each endpoint is placed once, however many ports it has.
    for (address, conditions) in endpoints {
        let place = placement.place(address);
        let of_host_network_pod = || {
            let pod = address.pod.as_ref().and_then(|pod| cache.pods.get(pod));
            pod.is_some_and(|pod| pod.host_network)
        };
        let host_network = place.on_node_address || of_host_network_pod();
        for port in ports {
            for (spec, candidates) in spec.ports.iter().zip(candidates.iter_mut()) {
                if spec.name == port.name && spec.protocol == port.protocol {
                    candidates.push(Candidate {
                        ip: place.ip,
                        port: port.port,
                        conditions,
                        local: place.local,
                        host_network,
                        pod: address.pod.as_ref(),
                    });
                }
            }
        }
    }
}

/// Merges candidates of the same address and port and drops those that are of no use. The result does not depend on the
/// order of the candidates.
fn merge(
    mut candidates: Vec<Candidate<'_>>,
    local_weight: u16,
    local_pods: &mut BTreeSet<PodId>,
) -> Vec<Backend> {
    candidates.sort_by_key(|candidate| (candidate.ip, candidate.port, Reverse(rank(candidate.conditions))));
    let mut backends = Vec::with_capacity(candidates.len());
    for same in candidates.chunk_by(|a, b| (a.ip, a.port) == (b.ip, b.port)) {
        let Some(best) = same.first() else { continue };
        let Some(state) = state(best.conditions) else { continue };
        let local = same.iter().any(|candidate| candidate.local);
        if local {
            local_pods.extend(same.iter().filter_map(|candidate| candidate.pod.cloned()));
        }
        backends.push(Backend {
            address: best.ip,
            port: best.port,
            local,
            host_network: same.iter().any(|candidate| candidate.host_network),
            in_topology: true,
            weight: if local { local_weight } else { 1 },
            state,
        });
    }
    backends
}

/// Which of two endpoints with the same address and port counts: kube-proxy takes the one that is not terminating, and
/// otherwise the last it sees. Here readiness decides what order decides there.
const fn rank(conditions: Conditions) -> (bool, bool, bool) {
    (!conditions.terminating, conditions.ready, conditions.serving)
}

/// What use an endpoint is (KEP-1669); none if it is of no use.
const fn state(conditions: Conditions) -> Option<BackendState> {
    if conditions.ready {
        Some(BackendState::Ready)
    } else if conditions.serving && conditions.terminating {
        Some(BackendState::Terminating)
    } else {
        None
    }
}
