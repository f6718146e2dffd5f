//! Which of the ready backends this node's traffic with policy Cluster is for. Source: kube-proxy's `topology.go`.

use super::placement::Placement;
use crate::{Backend, BackendState, object::Hints};

/// What the hints of an endpoint come to on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TopologyHint {
    node: Hint,
    zone: Hint,
}

/// What hints of one sort come to. In this order, so that of several the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hint {
    /// There are none.
    Absent,
    /// They name others.
    Elsewhere,
    /// They name this node, or its zone.
    Here,
}

impl Hint {
    fn new(is_absent: bool, is_here: bool) -> Self {
        match (is_absent, is_here) {
            (true, _) => Self::Absent,
            (false, true) => Self::Here,
            (false, false) => Self::Elsewhere,
        }
    }
}

impl TopologyHint {
    /// Without hints.
    pub(super) const NOT: Self = Self { node: Hint::Absent, zone: Hint::Absent };

    /// What these hints come to on this node.
    pub(super) fn new(hints: Option<&Hints>, placement: &Placement) -> Self {
        let Some(hints) = hints else { return Self::NOT };
        let is_for_zone = placement.zone.as_ref().is_some_and(|zone| hints.zones.contains(zone));
        Self {
            node: Hint::new(hints.nodes.is_empty(), hints.nodes.contains(&placement.node_name)),
            zone: Hint::new(hints.zones.is_empty(), is_for_zone),
        }
    }

    /// The hints of two endpoints with the same address and port, taken together.
    pub(super) fn and(self, other: Self) -> Self {
        Self { node: self.node.max(other.node), zone: self.zone.max(other.zone) }
    }
}

/// Sets [`Backend::in_topology`] of the backends of one port, sorted by address. Each family is decided for itself, by its
/// ready backends.
///
/// With `prefer_local` they are the local ones, if there are any. Otherwise hints decide, those for nodes before those for
/// zones, but only where all have them and one of them is for this node. So no family with ready backends is left without.
pub(super) fn steer(backends: &mut [(Backend, TopologyHint)], prefer_local: bool) {
    for family in backends.chunk_by_mut(|(a, _), (b, _)| a.address.is_ipv4() == b.address.is_ipv4()) {
        let Some(is_for_this_node) = mode(family, prefer_local) else { continue };
        for (backend, hinted) in family {
            backend.in_topology = backend.state != BackendState::Ready || is_for_this_node(backend, *hinted);
        }
    }
}

/// How backends are told that are for this node; none if all are.
fn mode(
    family: &[(Backend, TopologyHint)],
    prefer_local: bool,
) -> Option<fn(&Backend, TopologyHint) -> bool> {
    let ready = || family.iter().filter(|(backend, _)| backend.state == BackendState::Ready);
    let decides = |hint: fn(TopologyHint) -> Hint| {
        let mut hints = ready().map(|(_, hinted)| hint(*hinted));
        hints.clone().all(|hint| hint != Hint::Absent) && hints.any(|hint| hint == Hint::Here)
    };
    if prefer_local && ready().any(|(backend, _)| backend.local) {
        Some(|backend, _| backend.local)
    } else if decides(|hinted| hinted.node) {
        Some(|_, hinted| hinted.node == Hint::Here)
    } else if decides(|hinted| hinted.zone) {
        Some(|_, hinted| hinted.zone == Hint::Here)
    } else {
        None
    }
}
