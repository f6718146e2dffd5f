//! Rendered elements, without a kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::{IpAddr, SocketAddr},
};

use contiv_model::{NodeFacts, Protocol, Snapshot};

use super::{SetLookup, Tables};
use crate::nftables::{
    desired::{
        element::{FrontendKey, Key, Value},
        table::Table,
    },
    layout::{BaseChain, DemandChain, Family, Form, Set},
};

/// The elements for a snapshot.
#[derive(Debug, Default)]
pub(crate) struct RenderedTables {
    elements: BTreeMap<(Set, Key), Value>,
    chains: BTreeSet<DemandChain>,
    node: NodeFacts,
}

impl RenderedTables {
    /// All elements of an empty table.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let table = Table::new(snapshot);
        let elements = table.elements().into_iter();
        Self {
            elements: elements
                .map(|element| ((element.set, element.key), element.value))
                .collect(),
            chains: table.chains().collect(),
            node: snapshot.node.clone(),
        }
    }

    /// Replaces, adds, or without a value removes an element.
    pub(crate) fn change(&mut self, set: Set, key: Key, value: Option<Value>) {
        match value {
            Some(value) => self.elements.insert((set, key), value),
            None => self.elements.remove(&(set, key)),
        };
    }

    /// The value of the first element of a set whose key satisfies this.
    fn find(&self, set: Set, is_such: impl Fn(&Key) -> bool) -> Option<&Value> {
        // The smallest of all keys.
        let first = Key::Frontend(FrontendKey::node_port(Family::V4, Protocol::Tcp, 0));
        let elements = self
            .elements
            .range((set, first)..)
            .take_while(|((of, _), _)| *of == set);
        elements
            .into_iter()
            .find(|((_, key), _)| is_such(key))
            .map(|(_, value)| value)
    }
}

impl Tables for RenderedTables {
    type Error = Infallible;

    fn look_up(&mut self, set: Set, key: Key) -> Result<SetLookup, Infallible> {
        let value = match (set.kind.form(), key) {
            (Form::Ranges, Key::Address(address)) => {
                self.find(set, |key| matches!(key, Key::Range(range) if range.contains(address)))
            }
            (Form::Interfaces, Key::Interface(name)) => {
                self.find(set, |key| matches!(key, Key::Interface(pattern) if pattern.matches(name.stem())))
            }
            (Form::Sources, Key::Client(frontend, client)) => self.find(
                set,
                |key| matches!(key, Key::Source(of, range) if *of == frontend && range.contains(client)),
            ),
            _ => self.elements.get(&(set, key)),
        };
        Ok(value.map_or(SetLookup::Nothing, |value| SetLookup::Value(*value)))
    }

    fn has_chain(&mut self, chain: BaseChain) -> Result<bool, Infallible> {
        Ok(self.chains.contains(&DemandChain::Base(chain)))
    }

    fn is_local_address(&self, address: IpAddr) -> bool {
        self.node.is_local_address(address)
    }

    /// The same result as looking up each slot, but fast enough for a million flows.
    fn slots(
        &mut self,
        backends: Set,
        frontend: FrontendKey,
        count: u32,
    ) -> Result<BTreeMap<Option<SocketAddr>, u32>, Infallible> {
        let mut slots = BTreeMap::new();
        let all = (backends, Key::Slot(frontend, 0))..(backends, Key::Slot(frontend, count));
        for value in self.elements.range(all).map(|(_, value)| value) {
            let Value::Backend(backend) = value else {
                continue;
            };
            *slots.entry(Some((*backend).into())).or_default() += 1;
        }
        let missing = count - slots.values().sum::<u32>();
        if missing > 0 {
            slots.insert(None, missing);
        }
        Ok(slots)
    }
}
