//! Which flows are stale. Pure: services before and after in, a judge of flows out.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_model::{ContivService, Protocol, ServiceChange};

use super::{
    flow::Flow,
    serving::{Backends, serving},
};
use crate::nftables::{Family, FrontendKey};

/// Frontends with flows that may be stale.
#[derive(Debug, Default)]
pub(super) struct StaleFlowFilter {
    frontends: BTreeMap<FrontendKey, StaleFlowCriteria>,
}

/// What tells the stale flows of one frontend from the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StaleFlowCriteria {
    /// Who serves the frontend: flows to anyone else are stale. None if the frontend is gone; then others may use its
    /// address, and only flows to backends that are known to be gone are stale.
    serving: Option<Backends>,
    /// Who served it once and may have flows yet.
    gone: Backends,
    /// Connections in use are deleted too.
    reset: bool,
}

impl StaleFlowCriteria {
    /// Which flows of its frontend must be looked at.
    const fn scope(&self, protocol: Protocol) -> Scope {
        if matches!(protocol, Protocol::Udp) || self.reset { Scope::All } else { Scope::Unanswered }
    }
}

/// Which flows of a family and protocol must be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// Only those that nobody has answered.
    Unanswered,
    /// All.
    All,
}

impl StaleFlowFilter {
    pub(super) fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// Adds the frontends that lost a backend, came, or went. They replace what was suspected of them before, but for the
    /// backends that were gone then.
    pub(super) fn add<'a>(&mut self, changes: impl Iterator<Item = &'a ServiceChange> + Clone) {
        let before = changes.clone().filter_map(|change| change.old.as_deref());
        let before: BTreeMap<_, _> = served(before).collect();
        let after: BTreeMap<_, _> = served(changes.filter_map(|change| change.new.as_deref())).collect();
        for (frontend, (had, reset)) in &before {
            if !after.contains_key(frontend) {
                let suspicion = self.frontends.entry(*frontend).or_default();
                suspicion.gone.extend(had);
                (suspicion.serving, suspicion.reset) = (None, *reset);
            }
        }
        for (frontend, (serving, reset)) in after {
            let had = before.get(&frontend).map(|(had, _)| had);
            // Where there was no backend before, there may be flows that were never translated.
            let lost_none = had.is_some_and(|had| !had.is_empty() && had.is_subset(&serving));
            if !lost_none || self.frontends.contains_key(&frontend) {
                let suspicion = self.frontends.entry(frontend).or_default();
                suspicion.gone.extend(had.into_iter().flatten());
                (suspicion.serving, suspicion.reset) = (Some(serving), reset);
            }
        }
    }

    /// Adds every frontend of these services.
    pub(super) fn add_all<'a>(&mut self, services: impl Iterator<Item = &'a ContivService>) {
        for (frontend, (serving, reset)) in served(services) {
            let suspicion = self.frontends.entry(frontend).or_default();
            (suspicion.serving, suspicion.reset) = (Some(serving), reset);
        }
    }

    /// Adds what a frontend was found programmed with, after everything was added that it is programmed with now.
    pub(super) fn add_found(&mut self, frontend: FrontendKey, had: Backends) {
        if !had.is_empty() {
            self.frontends.entry(frontend).or_default().gone.extend(had);
        }
    }

    /// Takes in what changed since: flows of a new backend can be met before the search for stale ones is over.
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

    /// Takes in what is about to be programmed: from now on flows to these backends can be right.
    pub(super) fn allow<'a>(&mut self, services: impl Iterator<Item = &'a ContivService>) {
        if self.is_empty() {
            return;
        }
        for (frontend, (backends, _)) in served(services) {
            if let Some(suspicion) = self.frontends.get_mut(&frontend) {
                suspicion.gone.retain(|backend| !backends.contains(backend));
                if let Some(serving) = &mut suspicion.serving {
                    serving.extend(backends);
                }
            }
        }
    }

    /// Which flows can be stale, by family and protocol.
    pub(super) fn scopes(&self) -> BTreeMap<(Family, Protocol), Scope> {
        let mut scopes = BTreeMap::new();
        for (frontend, suspicion) in &self.frontends {
            let scope = suspicion.scope(frontend.protocol);
            let widest = scopes.entry((frontend.family(), frontend.protocol)).or_insert(scope);
            *widest = scope.max(*widest);
        }
        scopes
    }

    /// Whether flows in use are among them. Others have a client that tries again after a second.
    pub(super) fn are_urgent(&self) -> bool {
        self.frontends.iter().any(|(frontend, suspicion)| suspicion.scope(frontend.protocol) == Scope::All)
    }

    /// Whether the next packet of this flow would go wrong. `node_ips` are the addresses on which node ports answer.
    ///
    /// A datagram has no peer to disappoint. Connections are left to end by themselves, unless the service says
    /// otherwise; but one that nobody has answered yet is no connection: its client tries again, and is to get through.
    pub(super) fn is_stale(&self, flow: &Flow<'_>, node_ips: &BTreeSet<IpAddr>) -> bool {
        let Some(suspicion) = self.of(flow, node_ips) else { return false };
        let wrong = match &suspicion.serving {
            Some(serving) => !serving.contains(&flow.backend),
            None => suspicion.gone.contains(&flow.backend),
        };
        let free = flow.protocol == Protocol::Udp || !flow.answered;
        wrong && (free || suspicion.reset && flow.is_translated())
    }

    /// The frontend that a flow came in by: first the very address, then the node ports, as in the rules.
    fn of(&self, flow: &Flow<'_>, node_ips: &BTreeSet<IpAddr>) -> Option<&StaleFlowCriteria> {
        let (address, port, protocol) = (flow.destination.ip(), flow.destination.port(), flow.protocol);
        let node_port = || {
            let key = FrontendKey::node_port(Family::of(&address), protocol, port);
            node_ips.contains(&address).then(|| self.frontends.get(&key)).flatten()
        };
        self.frontends.get(&FrontendKey { address, protocol, port }).or_else(node_port)
    }
}

/// The frontends of services, with their backends and whether connections are reset.
fn served<'a>(
    services: impl Iterator<Item = &'a ContivService>,
) -> impl Iterator<Item = (FrontendKey, (Backends, bool))> {
    services.flat_map(|service| {
        let reset = service.reset_connections;
        serving(service).into_iter().map(move |(frontend, backends)| (frontend, (backends, reset)))
    })
}

#[cfg(test)]
mod tests;
