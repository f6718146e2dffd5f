//! Decides which flows are stale. Pure: takes services before and after a change, and judges flows.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_model::{ContivService, Protocol, ServiceChange};

use super::{backends::Backends, flow::Flow, serving::serving};
use crate::nftables::{Family, FrontendKey};

/// Frontends with flows that may be stale.
#[derive(Debug, Default)]
pub(crate) struct StaleFlowFilter {
    frontends: BTreeMap<FrontendKey, StaleFlowCriteria>,
}

/// How to recognize the stale flows of one frontend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StaleFlowCriteria {
    /// The backends of the frontend: flows to any other are stale. None if the frontend is gone; then other programs may use
    /// its address, and only flows to backends that are known to be gone are stale.
    serving: Option<Backends>,
    /// Former backends, which may have flows still.
    gone: Backends,
    /// Connections in use are deleted too.
    reset: bool,
}

impl StaleFlowCriteria {
    /// The flows of its frontend that must be examined.
    const fn scope(&self, protocol: Protocol) -> Scope {
        if matches!(protocol, Protocol::Udp) || self.reset {
            Scope::All
        } else {
            Scope::Unanswered
        }
    }
}

/// The flows of a family and protocol that must be examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// Only those in which nothing is established.
    Unanswered,
    /// All.
    All,
}

/// What becomes of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowVerdict {
    /// It stays.
    Right,
    /// Its next packet would go wrong: it is deleted.
    Stale,
    /// It is a connection to a former backend: it stays until it ends, or its client begins anew.
    Drained,
}

impl StaleFlowFilter {
    pub(super) fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// Adds the frontends that lost a backend, were added or removed. They replace earlier criteria, except for the backends
    /// that were gone then.
    pub(crate) fn add<'a>(&mut self, changes: impl Iterator<Item = &'a ServiceChange> + Clone) {
        let before = changes.clone().filter_map(|change| change.old.as_deref());
        let before: BTreeMap<_, _> = served(before).collect();
        let after: BTreeMap<_, _> =
            served(changes.filter_map(|change| change.new.as_deref())).collect();
        for (frontend, (had, reset)) in &before {
            if !after.contains_key(frontend) {
                let suspicion = self.frontends.entry(*frontend).or_default();
                suspicion.gone.extend(had);
                (suspicion.serving, suspicion.reset) = (None, *reset);
            }
        }
        let nothing = Backends::default();
        for (frontend, (serving, reset)) in after {
            let had = before.get(&frontend).map_or(&nothing, |(had, _)| had);
            // Without a backend before, there may be flows that were never translated.
            let lost_none = !had.is_empty() && had.is_subset(&serving);
            if !lost_none || self.frontends.contains_key(&frontend) {
                let suspicion = self.frontends.entry(frontend).or_default();
                suspicion.gone.extend(had);
                (suspicion.serving, suspicion.reset) = (Some(serving), reset);
            }
        }
    }

    /// Adds every frontend of these services.
    pub(crate) fn add_all<'a>(&mut self, services: impl Iterator<Item = &'a ContivService>) {
        for (frontend, (serving, reset)) in served(services) {
            let suspicion = self.frontends.entry(frontend).or_default();
            (suspicion.serving, suspicion.reset) = (Some(serving), reset);
        }
    }

    /// Adds the former backends of a frontend, after everything that is programmed now was added.
    pub(crate) fn add_found(&mut self, frontend: FrontendKey, had: &Backends) {
        if !had.is_empty() {
            self.frontends.entry(frontend).or_default().gone.extend(had);
        }
    }

    /// Applies changes made since then: flows of a new backend may be met before the search is over.
    pub(super) fn correct<'a>(&mut self, services: impl Iterator<Item = &'a ContivService>) {
        if self.is_empty() {
            return;
        }
        for (frontend, (backends, _)) in served(services) {
            if let Some(suspicion) = self.frontends.get_mut(&frontend) {
                suspicion.serving = Some(backends);
            }
        }
    }

    /// Allows backends that are about to be programmed: from now on flows to them can be right.
    pub(super) fn allow<'a>(&mut self, services: impl Iterator<Item = &'a ContivService>) {
        if self.is_empty() {
            return;
        }
        for (frontend, (backends, _)) in served(services) {
            if let Some(suspicion) = self.frontends.get_mut(&frontend) {
                suspicion.gone.remove_all(&backends);
                if let Some(serving) = &mut suspicion.serving {
                    serving.extend(&backends);
                }
            }
        }
    }

    /// The flows that can be stale, by family and protocol.
    pub(super) fn scopes(&self) -> BTreeMap<(Family, Protocol), Scope> {
        let mut scopes = BTreeMap::new();
        for (frontend, suspicion) in &self.frontends {
            let scope = suspicion.scope(frontend.protocol);
            let widest = scopes
                .entry((frontend.family(), frontend.protocol))
                .or_insert(scope);
            *widest = scope.max(*widest);
        }
        scopes
    }

    /// True if flows in use may be among them. The clients of all others try again after a second.
    pub(super) fn are_urgent(&self) -> bool {
        self.frontends
            .iter()
            .any(|(frontend, suspicion)| suspicion.scope(frontend.protocol) == Scope::All)
    }

    /// Judges a flow. `node_ips` are the addresses on which node ports answer.
    ///
    /// Datagram flows can be deleted at any time. Connections are left to end by themselves, unless the service asks for a
    /// reset; but one in which nothing is established is no connection yet: its client tries again and should succeed.
    pub(crate) fn judge(&self, flow: &Flow<'_>, node_ips: &BTreeSet<IpAddr>) -> FlowVerdict {
        let Some(suspicion) = self.of(flow, node_ips) else {
            // Whether an attempt on another port is refused is decided with its first packet, which was before the rules.
            let is_undecided = !flow.is_in_use && !flow.is_translated();
            return if is_undecided && self.has_frontend_of(flow.destination.ip()) {
                FlowVerdict::Stale
            } else {
                FlowVerdict::Right
            };
        };
        // Datagrams of the node to itself that were rejected were sent to port 0.
        let was_rejected = flow.backend.port() == 0;
        let wrong = match &suspicion.serving {
            Some(serving) => !serving.contains(&flow.backend),
            None => suspicion.gone.contains(&flow.backend) || was_rejected,
        };
        let free = flow.protocol == Protocol::Udp || !flow.is_in_use;
        match () {
            () if !wrong => FlowVerdict::Right,
            () if free || suspicion.reset && flow.is_translated() => FlowVerdict::Stale,
            () if flow.is_translated() => FlowVerdict::Drained,
            () => FlowVerdict::Right,
        }
    }

    /// Adds later criteria, which replace the earlier ones, except for the backends that were gone then.
    pub(super) fn extend(&mut self, later: Self) {
        for (frontend, later) in later.frontends {
            let criteria = self.frontends.entry(frontend).or_default();
            criteria.gone.extend(&later.gone);
            (criteria.serving, criteria.reset) = (later.serving, later.reset);
        }
    }

    /// Keeps only the frontends whose connections in use stay, and may be drained.
    pub(super) fn retain_draining(&mut self) {
        let drains = |frontend: &FrontendKey, criteria: &mut StaleFlowCriteria| {
            criteria.scope(frontend.protocol) == Scope::Unanswered
        };
        self.frontends.retain(drains);
    }

    fn has_frontend_of(&self, address: IpAddr) -> bool {
        let first = FrontendKey {
            address,
            protocol: Protocol::Tcp,
            port: 0,
        };
        let mut following = self.frontends.range(first..);
        following
            .next()
            .is_some_and(|(frontend, _)| frontend.address == address)
    }

    /// The frontend that a flow used: first its exact address, then the node ports, as in the rules.
    fn of(&self, flow: &Flow<'_>, node_ips: &BTreeSet<IpAddr>) -> Option<&StaleFlowCriteria> {
        let (address, port, protocol) = (
            flow.destination.ip(),
            flow.destination.port(),
            flow.protocol,
        );
        let node_port = || {
            let key = FrontendKey::node_port(Family::of(&address), protocol, port);
            node_ips
                .contains(&address)
                .then(|| self.frontends.get(&key))
                .flatten()
        };
        self.frontends
            .get(&FrontendKey {
                address,
                protocol,
                port,
            })
            .or_else(node_port)
    }
}

/// The frontends of services, with their backends and whether connections are reset.
fn served<'a>(
    services: impl Iterator<Item = &'a ContivService>,
) -> impl Iterator<Item = (FrontendKey, (Backends, bool))> {
    services.flat_map(|service| {
        let reset = service.reset_connections;
        serving(service)
            .into_iter()
            .map(move |(frontend, backends)| (frontend, (backends, reset)))
    })
}

#[cfg(test)]
mod tests;
