//! Checks that no active object goes back to an older revision: the address of an endpoint is never used twice, so an endpoint
//! that the agent has stopped using, and that the store did not have any more at the agent's revision, must not come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use contiv_model::ContivService;
use contiv_node::Status;

use crate::cluster::{Cluster, Endpoint, SliceId};

/// What the store has of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SliceState {
    Valid,
    Invalid,
    Deleted,
}

/// The loss of an endpoint.
#[derive(Debug)]
struct Removal {
    slice: SliceId,
    revision: i64,
}

/// The endpoints that the agent has used, by number.
#[derive(Debug, Default)]
pub(crate) struct UsedEndpoints {
    /// Those that the store has, with their slices; of an invalid slice those of its last valid value.
    stored: BTreeMap<u32, SliceId>,
    /// The others, with the revisions at which the store lost them.
    removed: BTreeMap<u32, Removal>,
    /// The states of slices since the revisions at which they changed.
    slices: BTreeMap<SliceId, BTreeMap<i64, SliceState>>,
    /// The last revision of the running agent without held deletions: later ones may be held.
    unheld: i64,
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
            stored: endpoints_in(cluster),
            is_void: true,
            ..Self::default()
        };
    }

    /// The agent stopped. It may start with an older state than that of the store, but not with an older one than its own.
    pub(crate) fn agent_stopped(&mut self) {
        self.active.clear();
        self.services.clear();
        self.inactive.clear();
        self.unheld = 0;
    }

    /// Clients have written, up to this revision.
    pub(crate) fn was_written(&mut self, cluster: &Cluster, revision: i64) {
        let stored = endpoints_in(cluster);
        let lost = self.stored.iter();
        let lost = lost.filter(|(endpoint, _)| !stored.contains_key(endpoint));
        self.removed.extend(lost.map(|(endpoint, slice)| {
            let slice = *slice;
            (*endpoint, Removal { slice, revision })
        }));
        self.stored = stored;
        let deleted = self.slices.keys().map(|id| (*id, SliceState::Deleted));
        let mut states: BTreeMap<SliceId, SliceState> = deleted.collect();
        states.extend(cluster.slices().map(|(id, _, is_valid)| {
            let state = [SliceState::Invalid, SliceState::Valid][usize::from(is_valid)];
            (id, state)
        }));
        for (id, state) in states {
            let changes = self.slices.entry(id).or_default();
            if changes.values().next_back() != Some(&state) {
                changes.insert(revision, state);
            }
        }
    }

    /// Whether the agent may keep the slice of a removed endpoint as it was: while it holds its deletion, or while its value is
    /// invalid. It may not have seen all values before that one.
    fn is_kept(&self, removal: &Removal, status: &Status) -> bool {
        let changes = self.slices.get(&removal.slice);
        let last = changes.and_then(|changes| changes.range(..=status.revision).next_back());
        last.is_some_and(|(revision, state)| match state {
            SliceState::Valid => false,
            SliceState::Invalid => true,
            SliceState::Deleted => status.held_deletions.is_some() && *revision > self.unheld,
        })
    }

    /// Compares the active services of an agent with this status. `has_all`: the agent has applied the whole store.
    pub(crate) fn check(
        &mut self,
        services: &[Arc<ContivService>],
        status: &Status,
        has_all: bool,
    ) -> Result<(), String> {
        if status.held_deletions.is_none() && !status.from_mirror {
            self.unheld = status.revision;
        }
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
                "endpoint {endpoint} is used again at revision {}, which the store no longer has: {:?}",
                status.revision,
                self.removed.get(endpoint)
            ));
        }
        let unused = mem::take(&mut self.inactive)
            .into_iter()
            .chain(mem::take(&mut self.active));
        for endpoint in unused.filter(|endpoint| !active.contains(endpoint)) {
            let removal = self.removed.get(&endpoint);
            let removal = removal.filter(|removal| removal.revision <= status.revision);
            // A kept slice is in the mirror too, so also the next agent uses it until it has listed the store.
            if removal.is_some_and(|removal| !self.is_kept(removal, status)) {
                self.gone.insert(endpoint)
            } else {
                self.inactive.insert(endpoint)
            };
        }
        self.active = active;
        Ok(())
    }
}

fn endpoints_in(cluster: &Cluster) -> BTreeMap<u32, SliceId> {
    let slices = cluster.slices();
    let endpoints = slices.flat_map(|(id, slice, _)| {
        let endpoints = slice.endpoints.iter();
        endpoints.map(move |endpoint| (endpoint.number, id))
    });
    endpoints.collect()
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

    /// The slice of the endpoint.
    const SLICE: SliceId = (1, 0);

    fn held_deletions() -> HeldDeletions {
        HeldDeletions {
            since: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
            objects: 20,
        }
    }

    /// The result when an endpoint that the store lost at revision 5, where its slice got this state, is not used for a while, and
    /// then again by the next agent. Deletions are held from the agent's next revision after `unheld` on, if any.
    fn check_return(slice: SliceState, unheld: Option<i64>) -> Result<(), String> {
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
        let removal = Removal {
            slice: SLICE,
            revision: 5,
        };
        let mut used = UsedEndpoints {
            removed: BTreeMap::from([(ENDPOINT, removal)]),
            slices: BTreeMap::from([(SLICE, BTreeMap::from([(5, slice)]))]),
            ..UsedEndpoints::default()
        };
        status.revision = unheld.unwrap_or(4);
        used.check(&with, &status, false)?;
        status.revision = 6;
        status.held_deletions = unheld.map(|_| held_deletions());
        used.check(&with, &status, false)?;
        used.check(&[], &status, false)?;
        used.agent_stopped();
        used.check(&with, &status, false)
    }

    #[test]
    fn endpoint_comes_back_only_if_its_slice_is_kept() {
        use SliceState::{Deleted, Invalid, Valid};
        assert_eq!(check_return(Deleted, Some(4)), Ok(()));
        assert_eq!(check_return(Invalid, None), Ok(()));
        for (slice, unheld) in [
            (Deleted, None),
            // It was applied before deletions were held.
            (Deleted, Some(5)),
            // Only deletions are held, not changes of the slice.
            (Valid, Some(4)),
        ] {
            let returned = check_return(slice, unheld).unwrap_err();
            assert!(returned.contains("used again"), "{returned}");
        }
    }
}
