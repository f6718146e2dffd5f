//! How the backends of a service are watched.

use std::{collections::BTreeMap, net::SocketAddr};

use contiv_model::{
    Backend, BackendState, Carrier, ContivService, FailoverMode, ServicePort, TrafficPolicy,
};

use super::decision::tcp_ports;
use crate::message::Watch;

/// True if attempts at backends of this service are counted: failover is not off, and nftables carries connections to it.
pub(super) fn is_watched(service: &ContivService) -> bool {
    let assignment = &service.assignment;
    let is_translated =
        assignment.addresses.translates() || assignment.node_ports.is_some_and(Carrier::translates);
    !service.failover.is_off() && is_translated
}

/// How the backends of one service are watched.
pub(super) fn watches_of(service: &ContivService) -> BTreeMap<SocketAddr, Watch> {
    let mut watches = BTreeMap::new();
    let is_useful = |backend: &&Backend| service.is_in_family_of(backend.address);
    let restricts = |policy| policy == TrafficPolicy::Local;
    let has_local = restricts(service.internal_policy) || restricts(service.external_policy);
    for port in tcp_ports(service) {
        for backend in port.backends.iter().filter(is_useful) {
            watches.entry(backend.endpoint()).or_insert(Watch {
                is_chosen: false,
                has_second_chance: false,
            });
        }
        let pools = [
            (port.cluster_backends(), false),
            (
                if has_local {
                    port.local_backends()
                } else {
                    Vec::new()
                },
                true,
            ),
        ];
        for (pool, is_local) in pools {
            for backend in pool.into_iter().filter(is_useful) {
                let has_other =
                    service.failover == FailoverMode::On && has_other(port, backend, is_local);
                let watch = Watch {
                    is_chosen: true,
                    has_second_chance: has_other,
                };
                watches
                    .entry(backend.endpoint())
                    .and_modify(|before| *before = union(*before, watch))
                    .or_insert(watch);
            }
        }
    }
    watches
}

/// True if another backend would take over from this ready one: it is ready, and in reach of the same traffic.
fn has_other(port: &ServicePort, backend: &Backend, is_local: bool) -> bool {
    let takes_over = |other: &Backend| {
        other.state == BackendState::Ready
            && other.address.is_ipv4() == backend.address.is_ipv4()
            && (other.local || !is_local)
            && other.endpoint() != backend.endpoint()
    };
    backend.state == BackendState::Ready && port.backends.iter().any(takes_over)
}

/// The watch of a backend for two reasons: it has a second chance if it has one wherever it is chosen.
pub(super) const fn union(one: Watch, other: Watch) -> Watch {
    Watch {
        is_chosen: one.is_chosen || other.is_chosen,
        has_second_chance: match (one.is_chosen, other.is_chosen) {
            (true, true) => one.has_second_chance && other.has_second_chance,
            (true, false) => one.has_second_chance,
            (false, _) => other.has_second_chance,
        },
    }
}
