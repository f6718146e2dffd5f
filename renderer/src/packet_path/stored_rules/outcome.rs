//! One way of a connection through rules with random choices, and the next one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_model::{InterfaceName, NodeFacts, trace::Affinity};

use super::sets::{StoredSet, StoredSets};
use crate::packet_path::{
    AddressKind, Network, PathError, Route, RouteQuery,
    lookups::{RuleLookups, SetElement},
    ruleset::{Data, RecentList, SetRef},
};

/// The length of a random number.
const CHOICE_BYTES: usize = 4;
/// The interface to all other machines. It is none of pods.
pub(super) const UPLINK: &str = "uplink";

/// One way through the rules: all random choices in the order in which they are met.
pub(super) struct Outcome<'a> {
    sets: &'a StoredSets,
    choices: Vec<Choice<'a>>,
    /// The last choice was not looked up yet.
    is_undecided: bool,
    /// How many of them were met in this walk.
    met: usize,
    /// Only maps keep the backends of clients: other sets that rules fill are none of affinity.
    keeps_in_maps: bool,
    /// The affinity that the walk has begun.
    affinity: Affinity,
    /// The seconds for which the match `recent` looks, by its list.
    recent: BTreeMap<String, u32>,
}

/// A random choice.
struct Choice<'a> {
    chosen: u32,
    count: u32,
    /// The set where it was looked up, with the key that it ends.
    lookup: Option<(&'a StoredSet, Vec<u8>)>,
    /// What was found there. Where it is the same again, the way is: one backend may have a thousand slots.
    found: BTreeSet<Option<Data>>,
}

impl Choice<'_> {
    /// Goes over to the next one by which something else is found; false after the last one.
    fn advance(&mut self) -> bool {
        loop {
            self.chosen += 1;
            if self.chosen >= self.count {
                return false;
            }
            let Some((set, key)) = &mut self.lookup else {
                return true;
            };
            key.truncate(key.len().saturating_sub(CHOICE_BYTES));
            key.extend(self.chosen.to_ne_bytes());
            let found = set.find(key).ok().flatten();
            if !self
                .found
                .contains(&found.map(|element| element.data.clone()))
            {
                return true;
            }
        }
    }
}

impl<'a> Outcome<'a> {
    /// The first way.
    pub(super) const fn new(sets: &'a StoredSets, keeps_in_maps: bool) -> Self {
        Self {
            sets,
            keeps_in_maps,
            choices: Vec::new(),
            is_undecided: false,
            met: 0,
            affinity: Affinity::None,
            recent: BTreeMap::new(),
        }
    }

    /// Goes over to the next way; false after the last one.
    pub(super) fn advance(&mut self) -> bool {
        (self.met, self.affinity) = (0, Affinity::None);
        self.is_undecided = false;
        self.recent.clear();
        while let Some(mut last) = self.choices.pop() {
            if last.advance() {
                self.choices.push(last);
                return true;
            }
        }
        false
    }

    /// How the client keeps its backend.
    pub(super) const fn affinity(&self) -> Affinity {
        self.affinity
    }
}

impl RuleLookups for Outcome<'_> {
    fn find_element(
        &mut self,
        set: SetRef<'_>,
        key: &[u8],
    ) -> Result<Option<SetElement>, PathError> {
        let stored = self.sets.get(set);
        let stored = stored.ok_or_else(|| PathError("it was not read".to_owned()))?;
        let found = stored.find(key)?;
        if std::mem::take(&mut self.is_undecided)
            && let Some(choice) = self.met.checked_sub(1)
            && let Some(choice) = self.choices.get_mut(choice)
            && stored.is_map
            && key.ends_with(&choice.chosen.to_ne_bytes())
        {
            choice.lookup = Some((stored, key.to_vec()));
            choice
                .found
                .insert(found.map(|element| element.data.clone()));
        }
        Ok(found.cloned())
    }

    fn list_elements(&mut self, set: SetRef<'_>) -> Result<Option<Vec<Data>>, PathError> {
        let stored = self.sets.get(set);
        let stored = stored.ok_or_else(|| PathError("it was not read".to_owned()))?;
        let data = stored.elements().map(|(_, it)| it.element.data.clone());
        Ok(Some(data.collect()))
    }

    fn interface_index(&mut self, _name: &InterfaceName) -> Option<u32> {
        None
    }

    fn interface_address(&mut self, _name: &InterfaceName, _is_v4: bool) -> Option<IpAddr> {
        None
    }

    fn choose(&mut self, count: u32) -> Option<u32> {
        if self.met == self.choices.len() {
            self.choices.push(Choice {
                chosen: 0,
                count,
                lookup: None,
                found: BTreeSet::new(),
            });
        }
        let choice = self.choices.get(self.met)?;
        self.met += 1;
        self.is_undecided = true;
        Some(choice.chosen)
    }

    fn choose_by_hash(&mut self, count: u32) -> Option<u32> {
        self.affinity = Affinity::ClientAddress;
        self.choose(count)
    }

    fn on_update(&mut self, set: SetRef<'_>, timeout: Option<u32>) {
        if let Some(stored) = self.sets.get(set)
            && (stored.is_map || !self.keeps_in_maps)
        {
            let seconds = timeout.unwrap_or(stored.timeout);
            self.affinity = Affinity::Timeout { seconds };
        }
    }

    fn is_recent(&mut self, list: &RecentList) -> Option<bool> {
        if list.adds {
            let seconds = self.recent.get(&list.name).copied().unwrap_or_default();
            self.affinity = Affinity::Timeout { seconds };
        } else {
            self.recent.insert(list.name.clone(), list.seconds);
        }
        Some(list.adds)
    }
}

/// The addresses of this node. All others are elsewhere, by an interface that does not matter.
pub(super) struct NodeNetwork<'a>(pub(super) &'a NodeFacts);

impl Network for NodeNetwork<'_> {
    fn route(&mut self, query: &RouteQuery) -> Result<Route, PathError> {
        Ok(if self.0.is_local_address(query.destination) {
            Route::Local
        } else {
            Route::Unicast {
                interface: InterfaceName::new(UPLINK),
                gateway: None,
                source: None,
                mtu: None,
            }
        })
    }

    fn address_kind(&mut self, address: IpAddr) -> Result<AddressKind, PathError> {
        Ok(if self.0.is_local_address(address) {
            AddressKind::Local
        } else {
            AddressKind::Unicast
        })
    }
}
