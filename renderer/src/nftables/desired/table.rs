//! The programmed state of the table, kept in memory. Changes are planned against it without reading the kernel.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    iter,
    net::SocketAddr,
    sync::Arc,
};

use contiv_model::{ChangeSet, ContivService, NodeFacts, ServiceId, Snapshot};

use super::{
    capacity::{self, Counts, Sizes},
    desired_elements::DesiredElements,
    element::{Element, FrontendKey, Key, Value, max_message_bytes},
    elements::{self, INTERVALS},
    needed_chains::needed_chains,
    plan::{self, FrontendPlan, plan},
    programmed_elements::ProgrammedElements,
    shared_address::{SharedAddress, shared_addresses},
    transaction::{Group, Transaction},
};
use crate::nftables::{
    desired::existing_elements::Elements,
    layout::{DemandChain, Family, Form, PodRanges, Set, SetKind},
};

/// The elements of the table. The caller keeps the services that they are derived from.
#[derive(Debug, Default)]
pub(crate) struct Table {
    node: NodeFacts,
    /// The elements of each frontend.
    frontends: BTreeMap<FrontendKey, ProgrammedElements>,
    /// Addresses that several services may share, with the number of uses.
    shared: BTreeMap<SharedAddress, u32>,
    /// Every existing on-demand chain, with the number of elements that need it.
    chains: BTreeMap<DemandChain, usize>,
}

impl Table {
    /// The table for `snapshot`.
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let services: Vec<&Arc<ContivService>> = snapshot.services.values().collect();
        let program = |elements: Vec<Element>| ProgrammedElements::new(&elements);
        let parts = DesiredElements::of_all(&services, &BTreeMap::new(), program);
        let (mut frontends, mut shared) = (Vec::with_capacity(services.len()), Vec::new());
        for part in parts {
            frontends.extend(part.frontends);
            shared.extend(part.shared);
        }
        let table = Self {
            node: snapshot.node.clone(),
            // Of several plans for one frontend the last counts.
            frontends: frontends.into_iter().collect(),
            shared: counted(shared),
            chains: BTreeMap::new(),
        };
        let mut chains = BTreeMap::new();
        let of_frontends = table
            .frontends
            .iter()
            .flat_map(|(frontend, programmed)| programmed.without_backend(*frontend));
        for element in of_frontends.chain(table.common_elements()) {
            count_uses(&mut chains, &element, 1, |_| ());
        }
        Self { chains, ..table }
    }

    /// The table for `snapshot`, and the transaction that turns the kernel's elements into it.
    pub(crate) fn resync(snapshot: &Snapshot, kernel: Elements) -> (Self, Transaction) {
        if kernel.is_empty() {
            let table = Self::new(snapshot);
            let mut transaction = Transaction {
                flush: kernel.foreign,
                adds_all: true,
                ..Transaction::default()
            };
            transaction.flush.extend(Set::of_form(Form::Chains));
            transaction.flush.extend(interval_sets());
            transaction.chains = table.chains().collect();
            transaction.forget = table.invalid_affinities(kernel.memory);
            return (table, transaction);
        }
        let mut table = Self::default();
        let found = kernel.frontends;
        // Counted only because the removals below decrement them: a resync writes all chains again.
        for element in found.values().flatten().chain(&kernel.others) {
            count_uses(&mut table.chains, element, 1, |_| ());
        }
        let mut transaction = Transaction {
            flush: kernel.foreign,
            ..Transaction::default()
        };
        // The elements that lead to chains are written together with these.
        transaction.flush.extend(Set::of_form(Form::Chains));
        let (mut shared, mut planned) = (Vec::new(), Vec::new());
        let services: Vec<&Arc<ContivService>> = snapshot.services.values().collect();
        for part in DesiredElements::of_all(&services, &found, |elements| elements) {
            shared.extend(part.shared);
            planned.extend(part.frontends);
        }
        let mut programmed = Vec::with_capacity(planned.len());
        for (frontend, before, after) in merge_by_frontend(found, planned) {
            transaction
                .forget
                .extend(stale_affinities(frontend, &before, &after));
            if !after.is_empty() {
                programmed.push((frontend, ProgrammedElements::new(&after)));
            }
            table.change(Group::between(&before, after), &mut transaction);
        }
        // `collect` fills the nodes of a BTreeMap; insertions in key order leave them half empty.
        table.frontends = programmed.into_iter().collect();
        table.shared = counted(shared);
        let mut shared: Vec<Element> = table.shared_elements().collect();
        shared.extend(elements::of_node(&snapshot.node));
        shared.sort_unstable();
        shared.dedup();
        let kernel_others: Vec<Element> = kernel.others.into_iter().collect();
        let others = Group::between(&kernel_others, shared);
        others
            .split()
            .for_each(|group| table.change(group, &mut transaction));
        for kind in INTERVALS {
            table.rewrite(
                kind,
                &[],
                elements::of_intervals(kind, &snapshot.node),
                &mut transaction,
            );
        }
        table.node = snapshot.node.clone();
        transaction
            .forget
            .extend(table.invalid_affinities(kernel.memory));
        table.chains.retain(|_, uses| *uses > 0);
        transaction.chains = table.chains.keys().copied().collect();
        (table, transaction)
    }

    /// Applies `changes` to the table, and returns the transaction. `before` are the services before them.
    pub(crate) fn update(
        &mut self,
        before: &BTreeMap<ServiceId, Arc<ContivService>>,
        changes: &ChangeSet,
    ) -> Transaction {
        let mut transaction = Transaction::default();
        let mut desired: BTreeMap<FrontendKey, Option<FrontendPlan>> = BTreeMap::new();
        let mut shared: BTreeMap<SharedAddress, i32> = BTreeMap::new();
        // Removals come before additions: a frontend may move from one service to another.
        for old in changes.services.keys().filter_map(|id| before.get(id)) {
            shared_addresses(old).for_each(|address| *shared.entry(address).or_default() -= 1);
            desired.extend(plan::keys(old).map(|frontend| (frontend, None)));
        }
        for change in changes.services.values() {
            if let Some(new) = &change.new {
                shared_addresses(new).for_each(|address| *shared.entry(address).or_default() += 1);
                let plan = plan(new);
                desired.extend(
                    plan.frontends
                        .into_iter()
                        .map(|(frontend, plan)| (frontend, Some(plan))),
                );
            }
        }
        for (frontend, plan) in desired {
            let before = self.programmed(frontend);
            let after = plan
                .map(|plan| elements::of_frontend(frontend, &plan, &before))
                .unwrap_or_default();
            self.program(frontend, &before, after, &mut transaction);
        }
        self.change_shared(shared, &mut transaction);
        if let Some(node) = &changes.node {
            let sorted = |node| {
                elements::of_node(node)
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect::<Vec<_>>()
            };
            self.change(
                Group::between(&sorted(&self.node), sorted(node)),
                &mut transaction,
            );
            let pods = elements::pod_ranges(node);
            transaction.pod_ranges = (pods != self.pod_ranges()).then_some(pods);
            self.rewrite_intervals(node, &mut transaction);
            self.node = node.clone();
        }
        transaction
    }

    /// The ranges of pods that rules compare with.
    pub(crate) fn pod_ranges(&self) -> PodRanges {
        elements::pod_ranges(&self.node)
    }

    /// Existing chains that no element needs.
    pub(crate) fn unused_chains(&self) -> Vec<DemandChain> {
        self.chains
            .iter()
            .filter(|(_, uses)| **uses == 0)
            .map(|(chain, _)| *chain)
            .collect()
    }

    /// Forgets on-demand chains that were removed.
    pub(crate) fn forget_unused_chains(&mut self) {
        self.chains.retain(|_, uses| *uses > 0);
    }

    /// All elements, to be added to a table without any. In several batches no frontend is served without what it shares with
    /// others, such as the node's addresses: so those come first.
    pub(crate) fn creation(&self) -> impl Iterator<Item = Group> + Send {
        let of_frontend = |(frontend, programmed): (&FrontendKey, &ProgrammedElements)| Group {
            remove: vec![],
            add: programmed.elements(*frontend),
        };
        Group::additions(self.common_elements()).chain(self.frontends.iter().map(of_frontend))
    }

    /// The number of elements in [`Self::creation`].
    pub(crate) fn creation_len(&self) -> usize {
        self.frontends
            .values()
            .map(ProgrammedElements::len)
            .sum::<usize>()
            + self.common_elements().count()
    }

    /// The elements of no frontend alone: of the node, and those that several services may share.
    fn common_elements(&self) -> impl Iterator<Item = Element> + Send {
        let intervals = INTERVALS
            .into_iter()
            .flat_map(|kind| elements::of_intervals(kind, &self.node));
        let of_node: BTreeSet<Element> = elements::of_node(&self.node).chain(intervals).collect();
        // Their sets differ, so no element occurs twice.
        of_node.into_iter().chain(self.shared_elements())
    }

    /// The elements that several services may share, each once.
    fn shared_elements(&self) -> impl Iterator<Item = Element> {
        self.shared.keys().map(|address| address.element())
    }

    /// The on-demand chains in use.
    pub(crate) fn chains(&self) -> impl Iterator<Item = DemandChain> {
        self.chains
            .iter()
            .filter(|(_, uses)| **uses > 0)
            .map(|(chain, _)| *chain)
    }

    /// All elements, sorted by set.
    pub(crate) fn elements(&self) -> Vec<Element> {
        let of_frontends = self
            .frontends
            .iter()
            .flat_map(|(frontend, programmed)| programmed.elements(*frontend));
        let of_chains = self.chains().filter_map(elements::of_chain);
        let all = of_frontends.chain(self.common_elements()).chain(of_chains);
        let mut all: Vec<Element> = all.collect();
        all.sort_unstable();
        all
    }

    /// The desired element with this key; none if there must be none.
    pub(crate) fn element(&self, set: Set, key: Key) -> Option<Element> {
        match key {
            Key::Frontend(frontend) | Key::Slot(frontend, _) | Key::Source(frontend, _) => {
                self.frontends.get(&frontend)?.element(set, frontend, key)
            }
            Key::Address(address) | Key::Pair(address) => {
                let element = Element {
                    set,
                    key,
                    value: Value::None,
                };
                let is_shared = self
                    .shared
                    .contains_key(&SharedAddress::new(set.kind, address));
                (is_shared || elements::of_node(&self.node).any(|other| other == element))
                    .then_some(element)
            }
            Key::Output(_) => elements::of_node(&self.node)
                .find(|element| (element.set, element.key) == (set, key)),
            // The kernel writes affinity entries; interval sets and the numbers of chains are written as a whole.
            Key::Client(..) | Key::Range(_) | Key::Interface(_) | Key::Number(_) => None,
        }
    }

    /// Adds all elements of sets that are created again, and drops the changes of them: these sets are empty.
    pub(crate) fn refill(&self, sets: &Sizes, transaction: &mut Transaction) {
        if sets.is_empty() {
            return;
        }
        for set in sets.keys() {
            transaction.drop_changes_of(*set);
        }
        // The elements that lead to chains are written together with these.
        let is_missing = |element: &Element| {
            sets.contains_key(&element.set) && element.set.kind.form() != Form::Chains
        };
        let elements = self.elements().into_iter().filter(is_missing).collect();
        Group {
            remove: vec![],
            add: elements,
        }
        .split()
        .for_each(|group| transaction.push(group));
    }

    /// The sizes to declare, for a kernel with this limit of a batch. Sets that are filled in several batches are not bounded:
    /// while such a set is created again, traffic would see it half full.
    pub(crate) fn sizes(&self, batch_limit: usize) -> Sizes {
        if self.max_bytes() <= batch_limit {
            capacity::sizes(&self.counts())
        } else {
            Sizes::new()
        }
    }

    /// The number of elements in each set, without the addresses of node ports. Unused chains that still exist count too.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for verdict in self
            .chains
            .keys()
            .filter_map(|chain| elements::of_chain(*chain))
        {
            *counts.entry(verdict.set).or_default() += 1;
        }
        for (frontend, programmed) in &self.frontends {
            programmed.count(frontend.family(), &mut counts);
        }
        for address in self.shared.keys() {
            *counts.entry(address.set()).or_default() += 1;
        }
        for element in elements::masquerade_sources(&self.node) {
            *counts.entry(element.set).or_default() += 1;
        }
        counts
    }

    /// An upper bound for the size of all elements in messages, without those of the node.
    pub(crate) fn max_bytes(&self) -> usize {
        let of_frontends = self.frontends.iter();
        let of_frontends = of_frontends
            .map(|(frontend, programmed)| max_message_bytes(frontend.family()) * programmed.len());
        of_frontends
            .chain(
                self.shared
                    .keys()
                    .map(|address| max_message_bytes(address.set().family)),
            )
            .sum()
    }

    /// The number of elements, without those of the node.
    pub(crate) fn len(&self) -> usize {
        self.frontends
            .values()
            .map(ProgrammedElements::len)
            .sum::<usize>()
            + self.shared.len()
    }

    /// The affinity entries that lead to a backend that may no longer serve their client.
    fn invalid_affinities(
        &self,
        memory: BTreeSet<(FrontendKey, SocketAddr)>,
    ) -> BTreeSet<(FrontendKey, SocketAddr)> {
        memory
            .into_iter()
            .filter(|memory| !self.is_valid_affinity(*memory))
            .collect()
    }

    /// True if an affinity entry leads to a backend that may still serve its client.
    fn is_valid_affinity(&self, (frontend, backend): (FrontendKey, SocketAddr)) -> bool {
        self.frontends.get(&frontend).is_some_and(|programmed| {
            programmed.is_sticky() && programmed.has_backend(backend.into())
        })
    }

    /// The elements of a frontend; empty if it has none.
    fn programmed(&self, frontend: FrontendKey) -> Vec<Element> {
        self.frontends
            .get(&frontend)
            .map(|programmed| programmed.elements(frontend))
            .unwrap_or_default()
    }

    /// Sets or removes the elements of a frontend.
    fn program(
        &mut self,
        frontend: FrontendKey,
        before: &[Element],
        after: Vec<Element>,
        transaction: &mut Transaction,
    ) {
        transaction
            .forget
            .extend(stale_affinities(frontend, before, &after));
        if after.is_empty() {
            self.frontends.remove(&frontend);
        } else {
            self.frontends
                .insert(frontend, ProgrammedElements::new(&after));
        }
        self.change(Group::between(before, after), transaction);
    }

    /// Adds changes, and counts the uses of chains.
    fn change(&mut self, group: Group, transaction: &mut Transaction) {
        for element in &group.remove {
            count_uses(&mut self.chains, element, -1, |_| ());
        }
        for element in &group.add {
            count_uses(&mut self.chains, element, 1, |new| {
                transaction.chains.insert(new);
            });
        }
        transaction.push(group);
    }

    /// Fills the interval sets that differ for these facts.
    fn rewrite_intervals(&mut self, new: &NodeFacts, transaction: &mut Transaction) {
        for kind in INTERVALS {
            let (before, after) = (
                elements::of_intervals(kind, &self.node),
                elements::of_intervals(kind, new),
            );
            if before != after {
                self.rewrite(kind, &before, after, transaction);
            }
        }
    }

    /// Empties an interval set and fills it again, and counts the uses of chains.
    fn rewrite(
        &mut self,
        kind: SetKind,
        before: &[Element],
        after: Vec<Element>,
        transaction: &mut Transaction,
    ) {
        transaction
            .flush
            .extend(Family::ALL.map(|family| Set::new(kind, family)));
        for element in before {
            count_uses(&mut self.chains, element, -1, |_| ());
        }
        self.change(
            Group {
                remove: vec![],
                add: after,
            },
            transaction,
        );
    }

    /// Changes the counts of shared addresses: the first use adds the element, and the end of the last removes it.
    fn change_shared(
        &mut self,
        changes: BTreeMap<SharedAddress, i32>,
        transaction: &mut Transaction,
    ) {
        for (address, change) in changes.into_iter().filter(|(_, change)| *change != 0) {
            let before = self.shared.remove(&address).unwrap_or(0);
            let after = before.saturating_add_signed(change);
            if after > 0 {
                self.shared.insert(address, after);
            }
            let element = address.element();
            match (before, after) {
                (0, 1..) => transaction.push(Group {
                    remove: vec![],
                    add: vec![element],
                }),
                (1.., 0) => transaction.push(Group {
                    remove: vec![element],
                    add: vec![],
                }),
                _ => (),
            }
        }
    }
}

/// All previous and desired frontends in order, with their elements before and after. Of several plans for one frontend the
/// last counts.
fn merge_by_frontend(
    before: BTreeMap<FrontendKey, Vec<Element>>,
    mut after: Vec<(FrontendKey, Vec<Element>)>,
) -> impl Iterator<Item = (FrontendKey, Vec<Element>, Vec<Element>)> {
    after.sort_by_key(|(frontend, _)| *frontend);
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    iter::from_fn(move || {
        let frontends = [
            before.peek().map(|(frontend, _)| *frontend),
            after.peek().map(|(frontend, _)| *frontend),
        ];
        let first = frontends.into_iter().flatten().min()?;
        let old = before
            .next_if(|(frontend, _)| *frontend == first)
            .map(|(_, elements)| elements);
        let mut new = None;
        while let Some((_, elements)) = after.next_if(|(frontend, _)| *frontend == first) {
            new = Some(elements);
        }
        Some((first, old.unwrap_or_default(), new.unwrap_or_default()))
    })
}

/// Each address with the number of times it occurs.
fn counted(mut addresses: Vec<SharedAddress>) -> BTreeMap<SharedAddress, u32> {
    addresses.sort_unstable();
    let count = |same: &[SharedAddress]| u32::try_from(same.len()).unwrap_or(u32::MAX);
    addresses
        .chunk_by(|a, b| a == b)
        .map(|same| (same[0], count(same)))
        .collect()
}

/// The sets that are always emptied and filled again.
fn interval_sets() -> impl Iterator<Item = Set> {
    INTERVALS
        .into_iter()
        .flat_map(|kind| Family::ALL.map(|family| Set::new(kind, family)))
}

/// The backends whose affinity entries of a frontend must be deleted.
///
/// Entries do not tell external clients from others. So when external clients get their own backends, all entries with other
/// backends are deleted: an external client must not reach those, and the other clients only choose a backend again.
fn stale_affinities(
    frontend: FrontendKey,
    before: &[Element],
    after: &[Element],
) -> Vec<(FrontendKey, SocketAddr)> {
    let has = |elements: &[Element], kind| elements.iter().any(|element| element.set.kind == kind);
    if !has(before, SetKind::Sticky) {
        return Vec::new();
    }
    let backends = |elements: &[Element], kinds: &[SetKind]| -> BTreeSet<SocketAddr> {
        let backend = |element: &Element| match element.value {
            Value::Backend(backend) if kinds.contains(&element.set.kind) => Some(backend.into()),
            _ => None,
        };
        elements.iter().filter_map(backend).collect()
    };
    let external = SetKind::BackendsExternal;
    let kept = if !has(after, SetKind::Sticky) {
        BTreeSet::new()
    } else if has(after, external) && !has(before, external) {
        backends(after, &[external])
    } else {
        backends(after, &[SetKind::Backends, external])
    };
    let known = backends(before, &[SetKind::Backends, external]);
    known
        .difference(&kept)
        .map(|backend| (frontend, *backend))
        .collect()
}

/// Changes the counts of the chains that an element needs, and calls `on_new` with each new one.
fn count_uses(
    chains: &mut BTreeMap<DemandChain, usize>,
    element: &Element,
    change: isize,
    mut on_new: impl FnMut(DemandChain),
) {
    for chain in needed_chains(element) {
        match chains.entry(chain) {
            Entry::Vacant(free) => {
                free.insert(0_usize.saturating_add_signed(change));
                on_new(chain);
            }
            Entry::Occupied(mut uses) => *uses.get_mut() = uses.get().saturating_add_signed(change),
        }
    }
}

#[cfg(test)]
mod tests;
