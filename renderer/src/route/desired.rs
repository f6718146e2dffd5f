//! The routes that all services together need, updated incrementally. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contiv_model::{ChangeSet, ContivService, NodeFacts, ServiceId, Snapshot};

use super::{
    options::RouteOptions,
    plan::{Destination, destinations, source},
};

/// The desired destinations with their services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Desired {
    options: RouteOptions,
    services: BTreeMap<ServiceId, Arc<ContivService>>,
    node: NodeFacts,
    /// Sets are never empty.
    owners: BTreeMap<Destination, BTreeSet<ServiceId>>,
}

impl Desired {
    /// The destinations of a snapshot.
    pub(super) fn new(snapshot: &Snapshot, options: RouteOptions) -> Self {
        let services = snapshot.services.clone();
        let mut desired = Self {
            options,
            services,
            node: snapshot.node.clone(),
            owners: BTreeMap::new(),
        };
        for (id, service) in &snapshot.services {
            desired.claim(id, service);
        }
        desired
    }

    /// Applies changes and returns the destinations that may have been added or removed.
    pub(super) fn update(&mut self, changes: &ChangeSet) -> BTreeSet<Destination> {
        if let Some(node) = &changes.node {
            let mut snapshot = Snapshot {
                services: std::mem::take(&mut self.services),
                ..Snapshot::default()
            };
            snapshot.apply(changes);
            snapshot.node.clone_from(node);
            let before = std::mem::replace(self, Self::new(&snapshot, self.options));
            return before
                .owners
                .into_keys()
                .chain(self.owners.keys().copied())
                .collect();
        }
        let mut affected = BTreeSet::new();
        for (id, change) in &changes.services {
            let before = self.services.remove(id);
            affected.extend(
                before
                    .into_iter()
                    .flat_map(|service| self.release(id, &service)),
            );
            if let Some(service) = &change.new {
                affected.extend(self.claim(id, service));
                self.services.insert(id.clone(), Arc::clone(service));
            }
        }
        affected
    }

    /// All desired destinations.
    pub(super) fn destinations(&self) -> impl Iterator<Item = Destination> {
        self.owners.keys().copied()
    }

    /// The services of a destination; empty if it is not desired.
    pub(super) fn owners(&self, destination: Destination) -> impl Iterator<Item = &ServiceId> {
        self.owners.get(&destination).into_iter().flatten()
    }

    /// True if any service needs it.
    pub(super) fn contains(&self, destination: Destination) -> bool {
        self.owners.contains_key(&destination)
    }

    /// The source address of this node's own connections; none without an address of the family.
    pub(super) fn source(&self, ipv4: bool) -> Option<IpAddr> {
        source(&self.node, ipv4)
    }

    /// The source addresses for IPv4 and IPv6.
    pub(super) fn sources(&self) -> [Option<IpAddr>; 2] {
        [self.source(true), self.source(false)]
    }

    /// Facts about this node.
    pub(super) const fn node(&self) -> &NodeFacts {
        &self.node
    }

    /// The snapshot after all changes.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            services: self.services.clone(),
            node: self.node.clone(),
            ..Snapshot::default()
        }
    }

    /// How many services there are.
    pub(super) fn services(&self) -> usize {
        self.services.len()
    }

    fn claim(&mut self, id: &ServiceId, service: &ContivService) -> BTreeSet<Destination> {
        let destinations = destinations(service, &self.node, &self.options);
        for destination in &destinations {
            self.owners
                .entry(*destination)
                .or_default()
                .insert(id.clone());
        }
        destinations
    }

    fn release(&mut self, id: &ServiceId, service: &ContivService) -> BTreeSet<Destination> {
        let released = destinations(service, &self.node, &self.options);
        for destination in &released {
            if let Some(owners) = self.owners.get_mut(destination) {
                owners.remove(id);
                if owners.is_empty() {
                    self.owners.remove(destination);
                }
            }
        }
        released
    }
}

#[cfg(test)]
mod tests;
