//! The effect of a transaction on the table, and how large ones are split so that traffic never sees a half-changed frontend.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    net::SocketAddr,
};

use super::{
    capacity::Counts,
    element::{Element, FrontendKey, Key, max_message_bytes},
};
use crate::nftables::layout::{DemandChain, PodRanges, Set};

/// Elements of a group whose changes need not become visible together.
const MAX_SPLIT_ELEMENTS: usize = 256;

/// Element changes that must become visible together: those of one frontend, or of a single address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) remove: Vec<Element>,
    pub(crate) add: Vec<Element>,
}

impl Group {
    /// The difference between `before` and `after`, both sorted.
    pub(crate) fn between(before: &[Element], after: Vec<Element>) -> Self {
        if before.is_empty() {
            return Self {
                remove: Vec::new(),
                add: after,
            };
        }
        let mut group = Self::default();
        let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
        loop {
            match (old.peek(), new.peek()) {
                (None, None) => return group,
                (Some(a), Some(b)) if a == b => {
                    old.next();
                    new.next();
                }
                (Some(a), Some(b)) if a > b => group.add.extend(new.next()),
                (None, Some(_)) => group.add.extend(new.next()),
                (Some(_), _) => group.remove.extend(old.next()),
            }
        }
    }

    /// Smaller groups of the same changes, if they need not become visible together.
    pub(crate) fn split(self) -> impl Iterator<Item = Self> {
        let mut remove = self.remove.into_iter();
        let removals = iter::from_fn(move || {
            let remove: Vec<Element> = remove.by_ref().take(MAX_SPLIT_ELEMENTS).collect();
            (!remove.is_empty()).then(|| Self {
                remove,
                add: vec![],
            })
        });
        removals.chain(Self::additions(self.add.into_iter()))
    }

    /// Groups that add elements which need not become visible together.
    pub(crate) fn additions(
        mut elements: impl Iterator<Item = Element>,
    ) -> impl Iterator<Item = Self> {
        iter::from_fn(move || {
            let add: Vec<Element> = elements.by_ref().take(MAX_SPLIT_ELEMENTS).collect();
            (!add.is_empty()).then(|| Self {
                remove: vec![],
                add,
            })
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.add.is_empty()
    }

    /// An upper bound for its size in messages.
    fn max_bytes(&self) -> usize {
        self.remove
            .iter()
            .chain(&self.add)
            .map(|element| max_message_bytes(element.set.family))
            .sum()
    }
}

/// Elements of each set, in the order of their groups.
pub(crate) type BySet<'a> = BTreeMap<Set, Vec<&'a Element>>;

/// Changes to the elements of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// Sets to empty first.
    pub(crate) flush: BTreeSet<Set>,
    /// Chains that must exist before the first element jumps to them.
    pub(crate) chains: BTreeSet<DemandChain>,
    /// The rules that compare with the ranges of pods are written anew, with these.
    pub(crate) pod_ranges: Option<PodRanges>,
    pub(crate) groups: Vec<Group>,
    /// All elements of the table are added: [`Table::creation`](super::table::Table::creation). They take more memory than the
    /// table itself, so their groups are made when they are sent.
    pub(crate) adds_all: bool,
    /// Backends whose affinity entries of a frontend must be deleted after the commit.
    pub(crate) forget: BTreeSet<(FrontendKey, SocketAddr)>,
}

impl Transaction {
    pub(crate) fn push(&mut self, group: Group) {
        if !group.is_empty() {
            self.groups.push(group);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flush.is_empty()
            && self.chains.is_empty()
            && self.pod_ranges.is_none()
            && self.groups.is_empty()
            && !self.adds_all
    }

    /// Drops the changes of one set.
    pub(crate) fn drop_changes_of(&mut self, set: Set) {
        for group in &mut self.groups {
            group.remove.retain(|element| element.set != set);
            group.add.retain(|element| element.set != set);
        }
        self.groups.retain(|group| !group.is_empty());
    }

    /// Takes out the removals that must wait until the rest is committed, as a separate transaction.
    ///
    /// A packet passes several hooks, and each looks up the current elements. One that was translated just before a change
    /// needs the masquerade elements a few microseconds later; one that found no backend needs its reject element; and one
    /// between the lookup of its frontend and that of its slot needs the slot. So only elements that direct new connections are
    /// removed at once.
    pub(crate) fn take_late(&mut self) -> Self {
        let mut late = Self::default();
        for group in self
            .groups
            .iter_mut()
            .filter(|group| !group.remove.is_empty())
        {
            let added: BTreeSet<(Set, Key)> = group
                .add
                .iter()
                .map(|element| (element.set, element.key))
                .collect();
            let waits = |element: &Element| {
                element.set.kind.is_needed_by_packets_under_way()
                    && !added.contains(&(element.set, element.key))
            };
            let (wait, now) = std::mem::take(&mut group.remove)
                .into_iter()
                .partition(waits);
            group.remove = now;
            late.push(Group {
                remove: wait,
                add: vec![],
            });
        }
        self.groups.retain(|group| !group.is_empty());
        late
    }

    /// Splits it, with more groups after its own, into transactions of at most `limit` bytes each. Groups are never split; a
    /// single group larger than the limit makes its transaction exceed it. Chains are part of the first transaction, so that no
    /// frontend is served without what it needs.
    pub(crate) fn split(
        mut self,
        more: impl Iterator<Item = Group>,
        limit: usize,
    ) -> impl Iterator<Item = Self> {
        let mut groups = std::mem::take(&mut self.groups)
            .into_iter()
            .chain(more)
            .peekable();
        let mut first = Some(self);
        iter::from_fn(move || {
            let mut part = if let Some(first) = first.take() {
                first
            } else {
                groups.peek()?;
                Self::default()
            };
            let mut size = 0;
            while let Some(group) =
                groups.next_if(|group| size == 0 || size + group.max_bytes() <= limit)
            {
                size += group.max_bytes();
                part.groups.push(group);
            }
            Some(part)
        })
    }

    /// An upper bound for the size of its elements in messages.
    pub(crate) fn max_bytes(&self) -> usize {
        self.groups.iter().map(Group::max_bytes).sum()
    }

    /// Removals and additions of all groups.
    pub(crate) fn elements(&self) -> (BySet<'_>, BySet<'_>) {
        let by_set = |pick: fn(&Group) -> &Vec<Element>| {
            let mut sets = BySet::new();
            for same in self
                .groups
                .iter()
                .flat_map(|group| pick(group).chunk_by(|a, b| a.set == b.set))
            {
                if let Some(first) = same.first() {
                    sets.entry(first.set).or_default().extend(same);
                }
            }
            sets
        };
        (by_set(|group| &group.remove), by_set(|group| &group.add))
    }

    /// The number of removed elements in each set.
    pub(crate) fn removed(&self) -> Counts {
        let mut counts = Counts::new();
        for element in self.groups.iter().flat_map(|group| &group.remove) {
            *counts.entry(element.set).or_default() += 1;
        }
        counts
    }

    /// The numbers of removed and of added elements.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let sum = |pick: fn(&Group) -> &Vec<Element>| {
            self.groups.iter().map(|group| pick(group).len()).sum()
        };
        (sum(|group| &group.remove), sum(|group| &group.add))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use contiv_model::Protocol;

    use super::*;
    use crate::nftables::{
        desired::{
            element::{Endpoint, Value},
            programmed_elements::of_slot,
            shared_address::SharedAddress,
        },
        layout::{BaseChain, Family, SetKind},
    };

    fn element(number: u8) -> Element {
        SharedAddress::cluster_ip(IpAddr::from([10, 0, 0, number])).element()
    }

    #[test]
    fn group_has_exactly_the_differences() {
        let group = Group::between(
            &[element(1), element(2), element(4)],
            vec![element(2), element(3), element(5)],
        );
        assert_eq!(group.remove, [element(1), element(4)]);
        assert_eq!(group.add, [element(3), element(5)]);
    }

    #[test]
    fn removed_elements_are_counted_by_set() {
        let one = |numbers: std::ops::Range<u8>| Group {
            remove: numbers.map(element).collect(),
            add: vec![],
        };
        let transaction = Transaction {
            groups: vec![one(0..2), one(2..3)],
            ..Transaction::default()
        };
        assert_eq!(transaction.removed(), Counts::from([(element(0).set, 3)]));
        assert_eq!(transaction.counts(), (3, 0));
    }

    #[test]
    fn elements_packets_may_need_are_removed_late_unless_replaced() {
        let frontend = FrontendKey::node_port(Family::V4, Protocol::Tcp, 80);
        let of = |kind| Element {
            set: Set::new(kind, Family::V4),
            key: Key::Frontend(frontend),
            value: Value::None,
        };
        let (service, refused) = (of(SetKind::Services), of(SetKind::NoEndpoints));
        let mut transaction = Transaction::default();
        transaction.push(Group {
            remove: vec![service, refused],
            add: vec![],
        });
        assert_eq!(
            transaction.take_late().groups,
            [Group {
                remove: vec![refused],
                add: vec![]
            }]
        );
        assert_eq!(
            transaction.groups,
            [Group {
                remove: vec![service],
                add: vec![]
            }]
        );

        let slot = |port| {
            let backend = Endpoint {
                address: [10, 0, 0, 1].into(),
                port,
            };
            of_slot(
                Set::new(SetKind::Backends, Family::V4),
                frontend,
                0,
                backend,
            )
        };
        let replacement = Group {
            remove: vec![slot(1)],
            add: vec![slot(2)],
        };
        let mut transaction = Transaction {
            groups: vec![replacement.clone()],
            ..Transaction::default()
        };
        assert!(transaction.take_late().is_empty());
        assert_eq!(transaction.groups, [replacement]);
    }

    #[test]
    fn large_transaction_is_cut_between_groups_and_nothing_is_lost() {
        let group = |numbers: std::ops::Range<u8>| Group {
            remove: vec![],
            add: numbers.map(element).collect(),
        };
        let whole = Transaction {
            flush: BTreeSet::from([element(1).set]),
            chains: BTreeSet::from([DemandChain::Base(BaseChain::LearnInput)]),
            groups: vec![group(0..2), group(2..4), group(4..9), group(9..10)],
            ..Transaction::default()
        };
        let mut first = whole.clone();
        let more = first.groups.split_off(1);
        let parts: Vec<Transaction> = first.split(more.into_iter(), 4 * 96).collect();
        let sizes: Vec<usize> = parts.iter().map(|part| part.counts().1).collect();
        assert_eq!(sizes, [4, 5, 1]);
        assert_eq!((parts[0].flush.len(), parts[1].flush.len()), (1, 0));
        assert_eq!((parts[0].chains.len(), parts[1].chains.len()), (1, 0));
        assert_eq!(
            parts
                .into_iter()
                .flat_map(|part| part.groups)
                .collect::<Vec<_>>(),
            whole.groups
        );
    }
}
