//! Which backends of a service are out.

use std::{collections::BTreeSet, net::SocketAddr};

use contiv_model::{Backend, ContivService, Protocol, ServicePort};

use super::suspect::{Suspect, SuspectedBackends};
use crate::message::FailureCause;

/// What holds for a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// The backends that are out.
    pub(super) out: BTreeSet<SocketAddr>,
    /// Set if too many are silent: how many are, and of how many.
    pub(super) cut_off: Option<(usize, usize)>,
}

/// The ports of a service whose backends are watched.
pub(super) fn tcp_ports(service: &ContivService) -> impl Iterator<Item = &ServicePort> {
    service
        .ports
        .iter()
        .filter(|port| port.protocol == Protocol::Tcp)
}

/// The TCP backends of a service that the store says are ready.
pub(super) fn ready_backends(service: &ContivService) -> BTreeSet<SocketAddr> {
    groups(service).into_iter().flatten().collect()
}

/// The ready backends of each TCP port and family.
fn groups(service: &ContivService) -> Vec<BTreeSet<SocketAddr>> {
    let of_family = |port: &ServicePort, ipv4: bool| {
        let ready = port
            .backends
            .iter()
            .filter(move |backend| backend.state.is_ready() && backend.address.is_ipv4() == ipv4);
        ready.map(Backend::endpoint).collect()
    };
    tcp_ports(service)
        .flat_map(|port| [of_family(port, true), of_family(port, false)])
        .filter(|group: &BTreeSet<SocketAddr>| !group.is_empty())
        .collect()
}

/// How many other ready backends work, where the fewest do: of each port and family of this one.
pub(super) fn others_that_work(
    service: &ContivService,
    backend: &SocketAddr,
    out: &BTreeSet<SocketAddr>,
) -> usize {
    groups(service)
        .iter()
        .filter(|group| group.contains(backend))
        .map(|group| {
            group
                .iter()
                .filter(|it| *it != backend && !out.contains(it))
                .count()
        })
        .min()
        .unwrap_or(0)
}

/// Decides which backends of a service are out, as far as suspects are concerned.
///
/// Those that were suspected first leave first. The last one of a port and family stays. If more than half of a port and family are
/// silent, this node may be cut off, and none is out for silence. A single one says nothing about the node: it stays as the last.
pub(super) fn decide(service: &ContivService, suspects: &SuspectedBackends) -> Decision {
    if suspects.is_empty() {
        return Decision::default();
    }
    let mut groups = groups(service);
    let ready: BTreeSet<SocketAddr> = groups.iter().flatten().copied().collect();
    let mut candidates: Vec<(SocketAddr, &Suspect)> = ready
        .iter()
        .filter_map(|backend| Some((*backend, suspects.get(backend)?)))
        .collect();
    if candidates.is_empty() {
        return Decision::default();
    }
    candidates.sort_by_key(|(backend, suspect)| (suspect.since.instant, *backend));
    let is_silent = |backend: &&SocketAddr| {
        suspects
            .get(backend)
            .is_some_and(|suspect| suspect.cause == FailureCause::Silent)
    };
    let counts = groups
        .iter()
        .map(|group| (group.iter().filter(is_silent).count(), group.len()));
    let cut_off = counts
        .filter(|(silent, all)| *silent > 1 && silent * 2 > *all)
        .max();
    let mut out = BTreeSet::new();
    for (backend, suspect) in candidates {
        if suspect.cause == FailureCause::Silent && cut_off.is_some() {
            continue;
        }
        let is_last = groups
            .iter()
            .any(|group| group.len() == 1 && group.contains(&backend));
        if !is_last {
            for group in &mut groups {
                group.remove(&backend);
            }
            out.insert(backend);
        }
    }
    Decision { out, cut_off }
}
