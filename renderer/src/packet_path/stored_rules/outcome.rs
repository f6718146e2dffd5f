//! One way of a connection through rules with random choices, and the next one.

use std::{collections::BTreeMap, net::IpAddr};

use contiv_model::{InterfaceName, NodeFacts, trace::Affinity};

use super::sets::StoredSets;
use crate::packet_path::{
    AddressKind, Network, PathError, Route, RouteQuery,
    lookups::{RuleLookups, SetElement},
    ruleset::{Data, RecentList, SetRef},
};

/// The interface to all other machines. It is none of pods.
pub(super) const UPLINK: &str = "uplink";

/// One way through the rules: all random choices in the order in which they are met.
pub(super) struct Outcome<'a> {
    sets: &'a StoredSets,
    choices: Vec<Choice>,
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
struct Choice {
    chosen: u32,
    count: u32,
}

impl<'a> Outcome<'a> {
    /// The first way.
    pub(super) const fn new(sets: &'a StoredSets, keeps_in_maps: bool) -> Self {
        Self {
            sets,
            keeps_in_maps,
            choices: Vec::new(),
            met: 0,
            affinity: Affinity::None,
            recent: BTreeMap::new(),
        }
    }

    /// Goes over to the next way; false after the last one.
    pub(super) fn advance(&mut self) -> bool {
        (self.met, self.affinity) = (0, Affinity::None);
        self.recent.clear();
        while let Some(mut last) = self.choices.pop() {
            last.chosen += 1;
            if last.chosen < last.count {
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
        Ok(stored.find(key)?.cloned())
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
            self.choices.push(Choice { chosen: 0, count });
        }
        let choice = self.choices.get(self.met)?;
        self.met += 1;
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
