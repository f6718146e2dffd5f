//! Checks that no active object goes back to an older revision: the address of an endpoint is never used twice, so an endpoint
//! that the agent has stopped using, and that the store did not have any more at the agent's revision, must not come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use contiv_node::Core;

use crate::cluster::{Cluster, Endpoint};

/// The endpoints that the agent has used, by number.
#[derive(Debug, Default)]
pub(crate) struct UsedEndpoints {
    /// Those that the store has.
    stored: BTreeSet<u32>,
    /// The revisions at which the store lost the others.
    removed: BTreeMap<u32, i64>,
    /// Those in use.
    active: BTreeSet<u32>,
    /// Those that the running agent has stopped using, although its revision has them: they are not ready, for example.
    inactive: BTreeSet<u32>,
    /// Those that must not come back.
    gone: BTreeSet<u32>,
    /// Older states are allowed until the agent has applied the whole store again.
    is_void: bool,
}

impl UsedEndpoints {
    /// The disk lost unsynced data.
    pub(crate) fn forget(&mut self) {
        *self = Self {
            stored: mem::take(&mut self.stored),
            is_void: true,
            ..Self::default()
        };
    }

    /// The store was restored from a backup. The agent may keep what it had of an object whose restored value is invalid, so
    /// what the backup does not have does not count as removed.
    pub(crate) fn was_restored(&mut self, cluster: &Cluster) {
        *self = Self {
            stored: cluster.endpoints(),
            is_void: true,
            ..Self::default()
        };
    }

    /// The agent stopped. It may start with an older state than that of the store, but not with an older one than its own.
    pub(crate) fn agent_stopped(&mut self) {
        self.active.clear();
        self.inactive.clear();
    }

    /// Clients have written, up to this revision.
    pub(crate) fn was_written(&mut self, cluster: &Cluster, revision: i64) {
        let stored = cluster.endpoints();
        self.removed.extend(
            self.stored
                .difference(&stored)
                .map(|endpoint| (*endpoint, revision)),
        );
        self.stored = stored;
    }

    /// Compares the active services of an agent at this revision. `has_all`: the agent has applied the whole store.
    pub(crate) fn check(
        &mut self,
        core: &Core,
        revision: i64,
        has_all: bool,
    ) -> Result<(), String> {
        self.is_void &= !has_all;
        if self.is_void {
            return Ok(());
        }
        let services = core.services();
        let backends = services
            .iter()
            .flat_map(|service| service.ports.iter().flat_map(|port| &port.backends));
        let active: BTreeSet<u32> = backends
            .map(|backend| Endpoint::number_of(backend.address))
            .collect();
        if active == self.active && self.inactive.is_empty() {
            return Ok(());
        }
        if let Some(endpoint) = active.intersection(&self.gone).next() {
            return Err(format!(
                "endpoint {endpoint} is used again, which the store no longer has"
            ));
        }
        let unused = mem::take(&mut self.inactive)
            .into_iter()
            .chain(mem::take(&mut self.active));
        for endpoint in unused.filter(|endpoint| !active.contains(endpoint)) {
            let is_removed = self
                .removed
                .get(&endpoint)
                .is_some_and(|removed| *removed <= revision);
            if is_removed {
                self.gone.insert(endpoint)
            } else {
                self.inactive.insert(endpoint)
            };
        }
        self.active = active;
        Ok(())
    }
}
