//! The desired content of the table for a snapshot: rendered from scratch, independent of what was programmed.

use std::collections::{BTreeMap, BTreeSet};

use contiv_model::{ServiceId, Snapshot};

use super::reader::{StoredEntry, hook_text};
use crate::nftables::{
    desired::{
        element::{Element, Key, Value},
        plan::{plan, routed},
        table::Table,
    },
    layout::{Choice, DemandChain, Hook, PodRanges, Set, SetKind, chains},
    netlink::constants::chain,
};

/// The desired content.
#[derive(Debug, Default)]
pub(super) struct DesiredTable {
    /// The hook of each chain; empty for one that others jump to.
    pub(super) chains: BTreeMap<String, String>,
    pub(super) sets: BTreeMap<String, DesiredSet>,
    /// The ranges of pods that rules compare with.
    pub(super) pod_ranges: PodRanges,
    /// The service of a frontend or an address, by the text of its key.
    owners: BTreeMap<String, ServiceId>,
    /// The backends that affinity entries of a frontend may have.
    pub(super) memories: BTreeMap<String, BTreeSet<String>>,
}

/// A set or map.
#[derive(Debug, Default)]
pub(super) struct DesiredSet {
    pub(super) elements: BTreeMap<String, BTreeSet<StoredEntry>>,
    /// The frontends that choose by the client's address: there the order of slots matters.
    pub(super) fixed: BTreeSet<String>,
    /// Written by rules: affinity entries.
    pub(super) is_memory: bool,
    /// Written by rules that only count: its elements are not compared.
    pub(super) only_records: bool,
}

impl DesiredTable {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let table = Table::new(snapshot);
        let mut desired = Self {
            pod_ranges: table.pod_ranges(),
            ..Self::default()
        };
        let skeleton = chains()
            .iter()
            .map(|chain| (chain.name.to_owned(), chain.hook));
        let on_demand = table
            .chains()
            .map(|chain| (chain.to_string(), chain.hook()));
        for (name, hook) in skeleton.chain(on_demand) {
            let text =
                |hook: Hook| hook_text(hook.kind, hook.number, hook.priority, chain::POLICY_ACCEPT);
            desired
                .chains
                .insert(name, hook.map(text).unwrap_or_default());
        }
        for set in Set::all() {
            let (is_memory, only_records) =
                (set.kind == SetKind::Affinity, set.kind.only_records());
            let desired_set = DesiredSet {
                is_memory,
                only_records,
                ..DesiredSet::default()
            };
            desired.sets.insert(set.name(), desired_set);
        }
        for service in snapshot.services.values() {
            let plan = plan(service);
            let frontends = plan.frontends.keys().map(ToString::to_string);
            let hairpins = plan
                .hairpins
                .iter()
                .map(|address| format!("{address} . {address}"));
            let addresses = plan.cluster_ips.iter().copied().chain(routed(service));
            let addresses = addresses.map(|address| address.to_string());
            for key in frontends.chain(hairpins).chain(addresses) {
                desired
                    .owners
                    .entry(key)
                    .or_insert_with(|| service.id.clone());
            }
        }
        for element in table.elements() {
            desired.insert(&element);
        }
        desired
    }

    fn insert(&mut self, element: &Element) {
        // The text that `contiv render` prints, and that nft reads.
        let text = element.to_string();
        let (key, value) = text.split_once(" : ").unwrap_or((&text, ""));
        let (key, slot) = match element.key {
            Key::Slot(frontend, slot) => (frontend.to_string(), Some(slot)),
            _ => (key.to_owned(), None),
        };
        if let (Key::Slot(frontend, _), Value::Backend(_)) = (element.key, element.value) {
            self.memories
                .entry(frontend.to_string())
                .or_default()
                .insert(value.to_owned());
        }
        if let (Key::Frontend(_), Value::Goto(DemandChain::Pick(pick))) =
            (element.key, element.value)
            && pick.choice == Choice::Client
        {
            for (map, _) in [false, true].map(|is_external| pick.slots_of(is_external)) {
                self.sets
                    .entry(map.name())
                    .or_default()
                    .fixed
                    .insert(key.clone());
            }
        }
        let set = self.sets.entry(element.set.name()).or_default();
        set.elements
            .entry(key)
            .or_default()
            .insert((slot, value.to_owned()));
    }

    /// The number of desired elements.
    pub(super) fn count(&self) -> usize {
        self.sets
            .values()
            .flat_map(|set| set.elements.values())
            .map(BTreeSet::len)
            .sum()
    }

    /// The owner of an element, by its key; the key of a client or source begins with the frontend.
    pub(super) fn owner(&self, key: &str) -> Option<&ServiceId> {
        self.owners
            .get(key)
            .or_else(|| self.owners.get(key.rsplit_once(" . ")?.0))
    }
}
