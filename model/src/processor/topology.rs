//! Chooses the ready backends for this node's traffic with policy Cluster. Source: kube-proxy's `topology.go`.

use super::placement::Placement;
use crate::{Backend, BackendState, object::Hints};

/// The effect of an endpoint's hints on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TopologyHint {
    node: Hint,
    zone: Hint,
}

/// The effect of hints of one kind. Ordered: of several the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hint {
    /// No hints.
    Absent,
    /// Hints for others only.
    Elsewhere,
    /// Hints for this node, or for its zone.
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
    /// No hints.
    pub(super) const NOT: Self = Self {
        node: Hint::Absent,
        zone: Hint::Absent,
    };

    /// The effect of these hints on this node.
    pub(super) fn new(hints: Option<&Hints>, placement: &Placement) -> Self {
        let Some(hints) = hints else { return Self::NOT };
        let is_for_zone = placement
            .zone
            .as_ref()
            .is_some_and(|zone| hints.zones.contains(zone));
        Self {
            node: Hint::new(
                hints.nodes.is_empty(),
                hints.nodes.contains(&placement.node_name),
            ),
            zone: Hint::new(hints.zones.is_empty(), is_for_zone),
        }
    }

    /// Merges the hints of two endpoints with the same address and port.
    pub(super) fn merge(self, other: Self) -> Self {
        Self {
            node: self.node.max(other.node),
            zone: self.zone.max(other.zone),
        }
    }
}

/// Sets [`Backend::in_topology`] of the backends of one port, sorted by address. Each family is decided separately, by its
/// ready backends.
///
/// With `prefer_local` the local ones are chosen, if there are any. Otherwise hints decide, those for nodes before those for
/// zones, but only where all endpoints have them and at least one is for this node. So every family with ready backends keeps
/// at least one.
pub(super) fn select_topology(backends: &mut [(Backend, TopologyHint)], prefer_local: bool) {
    for family in backends.chunk_by_mut(|(a, _), (b, _)| a.address.is_ipv4() == b.address.is_ipv4())
    {
        let Some(is_for_this_node) = mode(family, prefer_local) else {
            continue;
        };
        for (backend, hint) in family {
            backend.in_topology =
                backend.state != BackendState::Ready || is_for_this_node(backend, *hint);
        }
    }
}

/// How the chosen backends are selected; none if all are chosen.
fn mode(
    family: &[(Backend, TopologyHint)],
    prefer_local: bool,
) -> Option<fn(&Backend, TopologyHint) -> bool> {
    let ready = || {
        family
            .iter()
            .filter(|(backend, _)| backend.state == BackendState::Ready)
    };
    let decides = |part: fn(TopologyHint) -> Hint| {
        let mut hints = ready().map(|(_, hint)| part(*hint));
        hints.clone().all(|hint| hint != Hint::Absent) && hints.any(|hint| hint == Hint::Here)
    };
    if prefer_local && ready().any(|(backend, _)| backend.local) {
        Some(|backend, _| backend.local)
    } else if decides(|hint| hint.node) {
        Some(|_, hint| hint.node == Hint::Here)
    } else if decides(|hint| hint.zone) {
        Some(|_, hint| hint.zone == Hint::Here)
    } else {
        None
    }
}
