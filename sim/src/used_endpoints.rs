//! Checks that no active object goes back to an older revision: the address of an endpoint is never used twice, so an endpoint
//! that the agent has stopped using, and that the store did not have any more at the agent's revision, must not come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use contiv_model::ContivService;
use contiv_node::Status;

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
    /// The services that use them.
    services: Vec<Arc<ContivService>>,
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
        self.services.clear();
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

    /// Compares the active services of an agent with this status. `has_all`: the agent has applied the whole store.
    pub(crate) fn check(
        &mut self,
        services: &[Arc<ContivService>],
        status: &Status,
        has_all: bool,
    ) -> Result<(), String> {
        self.is_void &= !has_all;
        if self.is_void {
            return Ok(());
        }
        let is_same = services.len() == self.services.len()
            && services
                .iter()
                .zip(&self.services)
                .all(|(new, known)| Arc::ptr_eq(new, known));
        if is_same && self.inactive.is_empty() {
            return Ok(());
        }
        let active = if is_same {
            self.active.clone()
        } else {
            endpoints_of(services)
        };
        services.clone_into(&mut self.services);
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
            // A held deletion is not in the mirror, so after a restart the object is used again until the store is listed.
            let is_removed = status.held_deletions.is_none()
                && self
                    .removed
                    .get(&endpoint)
                    .is_some_and(|removed| *removed <= status.revision);
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

fn endpoints_of(services: &[Arc<ContivService>]) -> BTreeSet<u32> {
    let ports = services.iter().flat_map(|service| &service.ports);
    let backends = ports.flat_map(|port| &port.backends);
    backends
        .map(|backend| Endpoint::number_of(backend.address))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use contiv_model::{Backend, Protocol, ServiceId, ServicePort};
    use contiv_node::{Core, HeldDeletions, message::Now};
    use jiff::Timestamp;

    use super::*;
    use crate::{cluster::Condition, config, local_addresses::LocalAddresses};

    const ENDPOINT: u32 = 7;

    /// The result when an endpoint that the store has lost is not used for a while, and then again by the next agent.
    fn check_return(held: Option<HeldDeletions>) -> Result<(), String> {
        let endpoint = Endpoint {
            number: ENDPOINT,
            condition: Condition::Ready,
            hint: None,
        };
        let port = ServicePort {
            port: 80,
            protocol: Protocol::Tcp,
            name: "".into(),
            node_port: None,
            backends: vec![Backend::new((endpoint.address(true), 8080).into())],
        };
        let with = [Arc::new(ContivService {
            ports: vec![port],
            ..ContivService::new(ServiceId::new("default", "s1"))
        })];
        let now = Now {
            instant: Instant::now(),
            time: Timestamp::UNIX_EPOCH,
            random: 0.5,
        };
        let config = config::core(&LocalAddresses::default(), &BTreeMap::new());
        let mut status = Core::new(config, now).status();
        status.revision = 5;
        status.held_deletions = held;
        let mut used = UsedEndpoints {
            removed: BTreeMap::from([(ENDPOINT, status.revision)]),
            ..UsedEndpoints::default()
        };
        used.check(&with, &status, false)?;
        used.check(&[], &status, false)?;
        used.agent_stopped();
        used.check(&with, &status, false)
    }

    #[test]
    fn endpoint_comes_back_only_if_its_deletion_was_held() {
        assert!(check_return(None).unwrap_err().contains("used again"));
        let held = HeldDeletions {
            since: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
            objects: 20,
        };
        assert_eq!(check_return(Some(held)), Ok(()));
    }
}
