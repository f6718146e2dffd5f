//! Decides which service holds a frontend that several services ask for.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::multi_index::{MinValue, MultiIndex};
use crate::{Frontend, Protocol, ServiceId, object::Seniority};

/// A service that asks for frontends. The smallest claimant of a frontend holds it: the oldest, then the smallest id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claimant {
    pub(super) seniority: Seniority,
    pub(super) service: ServiceId,
}

impl MinValue for Claimant {
    fn min_value() -> Self {
        Self {
            seniority: Seniority::OLDEST,
            service: ServiceId::min_value(),
        }
    }
}

/// All frontends with the services that ask for them.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims {
    claims: MultiIndex<Frontend, Claimant>,
    /// Frontends whose claimants have changed since the last [`Claims::take_affected`], with their previous holder.
    before: BTreeMap<Frontend, Option<ServiceId>>,
}

impl Claims {
    /// Builds the index from all claims.
    pub(super) fn of(claims: impl Iterator<Item = (Claimant, BTreeSet<Frontend>)>) -> Self {
        let pairs = claims.flat_map(|(claimant, frontends)| {
            frontends
                .into_iter()
                .map(move |frontend| (frontend, claimant.clone()))
        });
        Self {
            claims: pairs.collect(),
            before: BTreeMap::new(),
        }
    }

    /// Replaces the claims of one service.
    pub(super) fn replace(
        &mut self,
        old: Option<(Claimant, BTreeSet<Frontend>)>,
        new: Option<(Claimant, BTreeSet<Frontend>)>,
    ) {
        if old == new {
            return;
        }
        for frontend in old.iter().chain(&new).flat_map(|(_, frontends)| frontends) {
            if !self.before.contains_key(frontend) {
                self.before
                    .insert(*frontend, self.holder(frontend).cloned());
            }
        }
        if let Some((claimant, frontends)) = old {
            for frontend in frontends {
                self.claims.remove(frontend, claimant.clone());
            }
        }
        if let Some((claimant, frontends)) = new {
            for frontend in frontends {
                self.claims.insert(frontend, claimant.clone());
            }
        }
    }

    /// The services that claim a frontend whose holder has changed since the last call, except those that claimed a free
    /// frontend: they have called [`Claims::replace`] themselves.
    pub(super) fn take_affected(&mut self) -> BTreeSet<ServiceId> {
        let before = std::mem::take(&mut self.before);
        let changed = before.iter().filter(|(frontend, before)| {
            before.is_some() && self.holder(frontend) != before.as_ref()
        });
        changed
            .flat_map(|(frontend, _)| self.claims.values(frontend))
            .map(|c| c.service.clone())
            .collect()
    }

    /// The frontends among these that another service holds, with that service.
    pub(super) fn lost(
        &self,
        service: &ServiceId,
        frontends: &BTreeSet<Frontend>,
    ) -> BTreeMap<Frontend, ServiceId> {
        let lost = frontends.iter().filter_map(|frontend| {
            let holder = self.holder(frontend).filter(|holder| *holder != service)?;
            Some((*frontend, holder.clone()))
        });
        lost.collect()
    }

    /// For every service, the frontends that another service holds, with that service.
    pub(super) fn all_lost(&self) -> BTreeMap<ServiceId, BTreeMap<Frontend, ServiceId>> {
        let mut lost: BTreeMap<ServiceId, BTreeMap<Frontend, ServiceId>> = BTreeMap::new();
        let mut holding: Option<(&Frontend, &ServiceId)> = None;
        for (frontend, claimant) in self.claims.pairs() {
            match holding {
                Some((held, holder)) if held == frontend => {
                    lost.entry(claimant.service.clone())
                        .or_default()
                        .insert(*frontend, holder.clone());
                }
                _ => holding = Some((frontend, &claimant.service)),
            }
        }
        lost
    }

    /// The services that ask for any port of an address.
    pub(super) fn at(&self, address: IpAddr) -> impl Iterator<Item = &Claimant> {
        let first = Frontend::Address {
            address,
            protocol: Protocol::Tcp,
            port: 0,
        };
        let is_there = move |frontend: &Frontend| matches!(frontend, Frontend::Address { address: found, .. } if *found == address);
        self.claims
            .pairs_from(first)
            .take_while(move |(frontend, _)| is_there(frontend))
            .map(|(_, who)| who)
    }

    /// The service that holds a frontend.
    pub(super) fn holder(&self, frontend: &Frontend) -> Option<&ServiceId> {
        self.claims
            .values(frontend)
            .next()
            .map(|claimant| &claimant.service)
    }
}
