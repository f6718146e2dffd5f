//! The possible outcomes of a connection: a branch for each backend that a rule may choose.

use std::net::SocketAddr;

use crate::nftables::layout::{Field, Flag, Set, SetKind};

/// A possible outcome of a connection.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "they change independently")]
pub(super) struct Branch {
    /// How many slots lead to it.
    pub(super) slots: u32,
    /// The client is remembered, so the connection takes this one instead of all others.
    pub(super) is_remembered: bool,
    /// The map of remembered clients was asked.
    pub(super) asks_memory: bool,
    /// How a slot was drawn.
    pub(super) drawn_by: Option<Field>,
    /// For how many seconds its backend is remembered.
    pub(super) timeout: Option<u32>,
    /// The current destination of the packet.
    pub(super) to: SocketAddr,
    pub(super) is_translated: bool,
    pub(super) is_masqueraded: bool,
    /// The packet has left by loopback, and comes in again.
    pub(super) is_by_loopback: bool,
    pub(super) priority: u32,
    decisive: Option<DecisiveSet>,
}

/// The set that decides if the packet is refused.
#[derive(Debug, Clone, Copy)]
struct DecisiveSet {
    set: Set,
    /// It decides because the packet is not in it. Later lookups only determine whether a service is concerned.
    is_final: bool,
}

impl Branch {
    /// Before any rule.
    pub(super) const fn to(to: SocketAddr) -> Self {
        Self {
            slots: 1,
            is_remembered: false,
            asks_memory: false,
            drawn_by: None,
            timeout: None,
            to,
            is_translated: false,
            is_masqueraded: false,
            is_by_loopback: false,
            priority: 0,
            decisive: None,
        }
    }

    /// The branch, translated to a backend that `slots` slots lead to.
    pub(super) fn translated(&self, to: SocketAddr, slots: u32) -> Self {
        Self {
            to,
            slots,
            is_translated: true,
            ..self.clone()
        }
    }

    /// The branch, translated to the backend in the affinity entry of the client.
    pub(super) fn remembered(&self, to: SocketAddr) -> Self {
        Self {
            is_remembered: true,
            ..self.translated(to, self.slots)
        }
    }

    /// True if the flag of the connection is set: it is a new one.
    pub(super) const fn has(&self, flag: Flag) -> bool {
        match flag {
            Flag::StateNew => true,
            Flag::StatusDnat => self.is_translated,
            Flag::StateInvalid | Flag::StatusConfirmed | Flag::StatusAssured => false,
        }
    }

    /// At the begin of a base chain.
    pub(super) const fn enters_chain(&mut self) {
        self.decisive = None;
    }

    /// Records that a rule looked a set up. `refuses`: the rule matches because the set does not have the packet.
    pub(super) const fn record_lookup(&mut self, set: Set, refuses: bool) {
        let is_final = matches!(self.decisive, Some(DecisiveSet { is_final: true, .. }));
        if can_decide(set.kind) && !is_final {
            self.decisive = Some(DecisiveSet {
                set,
                is_final: refuses,
            });
        }
    }

    /// The set that decides if the packet is refused now.
    pub(super) fn decisive_set(&self) -> String {
        self.decisive
            .map_or_else(String::new, |decisive| decisive.set.name())
    }
}

/// True for sets whose elements, or the lack of one, refuse packets; others only distinguish clients or destinations.
const fn can_decide(kind: SetKind) -> bool {
    matches!(
        kind,
        SetKind::Services
            | SetKind::BackendsExternal
            | SetKind::NoEndpoints
            | SetKind::NoLocalEndpoints
            | SetKind::ClusterIps
            | SetKind::ServiceCidrs
            | SetKind::SourceRanges
            | SetKind::Loopback
            | SetKind::ServiceInterfaces
    )
}
