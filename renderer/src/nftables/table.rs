//! What is programmed, remembered: every change is planned against this, and never against a listing of the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contiv_model::{ChangeSet, ContivService, NodeFacts, ServiceId, Snapshot};

use super::{
    element::{Element, FrontendKey, Value},
    elements,
    layout::{Family, PickChain, Set, SetKind},
    plan::{FrontendPlan, ServicePlan, plan},
    read::Elements,
    transaction::{Group, Transaction},
};

/// The elements of the table and what they came from.
#[derive(Debug, Default)]
pub(crate) struct Table {
    services: BTreeMap<ServiceId, Arc<ContivService>>,
    node: NodeFacts,
    /// Sorted elements of each frontend.
    frontends: BTreeMap<FrontendKey, Vec<Element>>,
    /// Addresses that several services can ask for, and how many do.
    shared: BTreeMap<Element, usize>,
    /// Every pick chain that exists, and how many elements lead to it.
    picks: BTreeMap<PickChain, usize>,
}

impl Table {
    /// The table for `snapshot`, and what leads there from what the kernel holds now.
    pub(crate) fn resync(snapshot: &Snapshot, kernel: Elements) -> (Self, Transaction) {
        let mut table = Self { frontends: kernel.frontends, ..Self::default() };
        // Pick chains are all written anew, so these uses only have to balance.
        for element in table.frontends.values().flatten() {
            count_use(&mut table.picks, element, 1);
        }
        let stale: Vec<FrontendKey> = table.frontends.keys().copied().collect();
        let mut wanted: BTreeMap<FrontendKey, Option<FrontendPlan>> =
            stale.into_iter().map(|frontend| (frontend, None)).collect();
        for (id, service) in &snapshot.services {
            let plan = plan(service);
            for element in shared_elements(&plan) {
                *table.shared.entry(element).or_default() += 1;
            }
            wanted.extend(plan.frontends.into_iter().map(|(frontend, plan)| (frontend, Some(plan))));
            table.services.insert(id.clone(), Arc::clone(service));
        }
        let mut transaction = Transaction { flush: kernel.foreign, ..Transaction::default() };
        table.program(wanted, &mut transaction);

        let others: BTreeSet<Element> =
            table.shared.keys().copied().chain(elements::of_node_ips(&snapshot.node)).collect();
        for element in kernel.others.difference(&others) {
            transaction.push(Group { remove: vec![*element], add: vec![] });
        }
        for element in others.difference(&kernel.others) {
            transaction.push(Group { remove: vec![], add: vec![*element] });
        }
        rewrite_pods(&snapshot.node, &mut transaction);
        table.node = snapshot.node.clone();

        table.picks.retain(|_, uses| *uses > 0);
        transaction.picks = table.picks.keys().copied().collect();
        (table, transaction)
    }

    /// Brings the table forward by `changes`, and returns what leads there.
    pub(crate) fn update(&mut self, changes: &ChangeSet) -> Transaction {
        let mut transaction = Transaction::default();
        let mut wanted: BTreeMap<FrontendKey, Option<FrontendPlan>> = BTreeMap::new();
        let mut shared: BTreeMap<Element, isize> = BTreeMap::new();
        // First all that goes, then all that comes: a frontend may pass from one service to another.
        for id in changes.services.keys() {
            if let Some(old) = self.services.remove(id) {
                let plan = plan(&old);
                shared_elements(&plan).for_each(|element| *shared.entry(element).or_default() -= 1);
                wanted.extend(plan.frontends.into_keys().map(|frontend| (frontend, None)));
            }
        }
        for (id, change) in &changes.services {
            if let Some(new) = &change.new {
                let plan = plan(new);
                shared_elements(&plan).for_each(|element| *shared.entry(element).or_default() += 1);
                wanted.extend(plan.frontends.into_iter().map(|(frontend, plan)| (frontend, Some(plan))));
                self.services.insert(id.clone(), Arc::clone(new));
            }
        }
        let existing: BTreeSet<PickChain> = self.picks.keys().copied().collect();
        self.program(wanted, &mut transaction);
        transaction.picks = self.picks.keys().filter(|pick| !existing.contains(pick)).copied().collect();
        self.share(shared, &mut transaction);
        if let Some(node) = &changes.node {
            let sorted =
                |node| elements::of_node_ips(node).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
            transaction.push(Group::between(&sorted(&self.node), &sorted(node)));
            if elements::of_pods(&self.node) != elements::of_pods(node) {
                rewrite_pods(node, &mut transaction);
            }
            self.node = node.clone();
        }
        transaction
    }

    /// Pick chains that exist and that nothing leads to.
    pub(crate) fn unused_picks(&self) -> Vec<PickChain> {
        self.picks.iter().filter(|(_, uses)| **uses == 0).map(|(pick, _)| *pick).collect()
    }

    /// Forgets pick chains that have been removed.
    pub(crate) fn forget_unused_picks(&mut self) {
        self.picks.retain(|_, uses| *uses > 0);
    }

    /// The services that are programmed.
    pub(crate) const fn services(&self) -> &BTreeMap<ServiceId, Arc<ContivService>> {
        &self.services
    }

    /// The pick chains that are in use.
    pub(crate) fn picks(&self) -> impl Iterator<Item = PickChain> {
        self.picks.iter().filter(|(_, uses)| **uses > 0).map(|(pick, _)| *pick)
    }

    /// All elements, sorted by set.
    pub(crate) fn elements(&self) -> Vec<Element> {
        let of_frontends = self.frontends.values().flatten().copied();
        let of_node = elements::of_node_ips(&self.node).chain(elements::of_pods(&self.node));
        let mut all: Vec<Element> = of_frontends.chain(self.shared.keys().copied()).chain(of_node).collect();
        all.sort_unstable();
        all
    }

    /// How many elements there are besides those that come from the node.
    pub(crate) fn len(&self) -> usize {
        self.frontends.values().map(Vec::len).sum::<usize>() + self.shared.len()
    }

    /// Gives every frontend in `wanted` its elements, or takes them away.
    fn program(
        &mut self,
        wanted: BTreeMap<FrontendKey, Option<FrontendPlan>>,
        transaction: &mut Transaction,
    ) {
        for (frontend, plan) in wanted {
            let before = self.frontends.remove(&frontend).unwrap_or_default();
            let after = plan.map(|plan| elements::of_frontend(frontend, &plan, &before)).unwrap_or_default();
            let group = Group::between(&before, &after);
            group.remove.iter().for_each(|element| count_use(&mut self.picks, element, -1));
            group.add.iter().for_each(|element| count_use(&mut self.picks, element, 1));
            transaction.push(group);
            if !after.is_empty() {
                self.frontends.insert(frontend, after);
            }
        }
    }

    /// Counts who asks for a shared element, and programs the first and the last.
    fn share(&mut self, changes: BTreeMap<Element, isize>, transaction: &mut Transaction) {
        for (element, change) in changes {
            let before = self.shared.remove(&element).unwrap_or(0);
            let after = before.saturating_add_signed(change);
            if after > 0 {
                self.shared.insert(element, after);
            }
            match (before, after) {
                (0, 1..) => transaction.push(Group { remove: vec![], add: vec![element] }),
                (1.., 0) => transaction.push(Group { remove: vec![element], add: vec![] }),
                _ => (),
            }
        }
    }
}

/// The ranges of pods are so few that both sets are emptied and filled in the same transaction.
fn rewrite_pods(node: &NodeFacts, transaction: &mut Transaction) {
    transaction.flush.extend(Family::ALL.map(|family| Set::new(SetKind::Pods, family)));
    transaction.push(Group { remove: vec![], add: elements::of_pods(node) });
}

/// Elements that other services may ask for too.
fn shared_elements(plan: &ServicePlan) -> impl Iterator<Item = Element> {
    let cluster_ips = plan.cluster_ips.iter().copied().map(elements::of_cluster_ip);
    cluster_ips.chain(plan.hairpins.iter().copied().map(elements::of_hairpin))
}

fn count_use(picks: &mut BTreeMap<PickChain, usize>, element: &Element, change: isize) {
    if let Value::Pick(pick) = element.value {
        let uses = picks.entry(pick).or_default();
        *uses = uses.saturating_add_signed(change);
    }
}

#[cfg(test)]
mod tests;
