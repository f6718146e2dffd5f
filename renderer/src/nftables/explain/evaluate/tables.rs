//! The source of the elements.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use crate::nftables::{
    desired::element::{FrontendKey, Key, Value},
    layout::{BaseChain, Family, Set, SetKind},
};

/// The result of a lookup in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetLookup {
    /// No element.
    Nothing,
    /// An element with this value.
    Value(Value),
    /// An element with a value that the agent never writes.
    Foreign,
}

/// The sets and maps of a table, and the addresses of its node.
pub(crate) trait Tables {
    /// Why a lookup failed.
    type Error;

    /// The element for a key. An address also matches the range that contains it, and a client its source range.
    fn look_up(&mut self, set: Set, key: Key) -> Result<SetLookup, Self::Error>;

    /// True if the table has the chain.
    fn has_chain(&mut self, chain: BaseChain) -> Result<bool, Self::Error>;

    /// True if the kernel counts the address as one of this node: `fib … type local`.
    fn is_local_address(&self, address: IpAddr) -> bool;

    /// The backends in the first slots of a frontend, with their number of slots; none for empty slots.
    fn slots(
        &mut self,
        backends: Set,
        frontend: FrontendKey,
        count: u32,
    ) -> Result<BTreeMap<Option<SocketAddr>, u32>, Self::Error> {
        let mut slots = BTreeMap::new();
        for slot in 0..count {
            let backend = match self.look_up(backends, Key::Slot(frontend, slot))? {
                SetLookup::Value(Value::Backend(backend)) => Some(backend.into()),
                SetLookup::Value(_) | SetLookup::Nothing | SetLookup::Foreign => None,
            };
            *slots.entry(backend).or_default() += 1;
        }
        Ok(slots)
    }
}

/// Lookups in the sets of one family. Records the first foreign element.
pub(super) struct Lookup<'a, T> {
    tables: &'a mut T,
    family: Family,
    foreign: Option<Set>,
}

impl<'a, T: Tables> Lookup<'a, T> {
    pub(super) const fn new(tables: &'a mut T, family: Family) -> Self {
        Self {
            tables,
            family,
            foreign: None,
        }
    }

    pub(super) const fn family(&self) -> Family {
        self.family
    }

    /// The first set with a foreign element.
    pub(super) const fn foreign(&self) -> Option<Set> {
        self.foreign
    }

    pub(super) fn value(&mut self, kind: SetKind, key: Key) -> Result<Option<Value>, T::Error> {
        let set = Set::new(kind, self.family);
        Ok(match self.tables.look_up(set, key)? {
            SetLookup::Nothing => None,
            SetLookup::Value(value) => Some(value),
            SetLookup::Foreign => {
                self.foreign.get_or_insert(set);
                None
            }
        })
    }

    pub(super) fn has(&mut self, kind: SetKind, key: Key) -> Result<bool, T::Error> {
        self.value(kind, key).map(|value| value.is_some())
    }

    pub(super) fn has_chain(&mut self, chain: BaseChain) -> Result<bool, T::Error> {
        self.tables.has_chain(chain)
    }

    pub(super) fn is_local_address(&self, address: IpAddr) -> bool {
        self.tables.is_local_address(address)
    }

    pub(super) fn slots(
        &mut self,
        backends: Set,
        key: FrontendKey,
        count: u32,
    ) -> Result<BTreeMap<Option<SocketAddr>, u32>, T::Error> {
        self.tables.slots(backends, key, count)
    }
}
