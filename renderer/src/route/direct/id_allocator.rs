//! Allocates next hop IDs, and counts the groups that use each next hop.

use std::collections::{BTreeMap, BTreeSet};

use crate::route::nexthop::{END_ID, FIRST_ID, Grouping, Hop, Member};

/// The next hop group of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) id: u32,
    /// Sorted.
    pub(super) members: Vec<Member>,
}

/// Distinguishes the copies of one next hop, each with its own ID.
pub(super) type CopyIndex = u8;

/// The copies of each next hop in a group.
///
/// With IPv4 the kernel does not use the buckets of a group with one member, and so does not see that they are in use: when
/// another next hop is added, it takes them for idle and moves active connections. So a resilient group always has at least two
/// members. Source: the kernel's `fib_select_path`.
pub(super) const fn copies(grouping: Grouping) -> std::ops::Range<CopyIndex> {
    match grouping {
        Grouping::Resilient { .. } => 0..2,
        Grouping::Plain => 0..1,
    }
}

/// The programmed next hops, with their IDs and how many groups use them.
#[derive(Debug, Default)]
pub(super) struct Hops {
    ids: BTreeMap<(Hop, CopyIndex), u32>,
    by_id: BTreeMap<u32, ((Hop, CopyIndex), usize)>,
    /// IDs that may be unused: no group used them when they were added, or a group stopped using them since.
    maybe_unused: BTreeSet<u32>,
}

impl Hops {
    pub(super) fn id(&self, hop: Hop, copy: CopyIndex) -> Option<u32> {
        self.ids.get(&(hop, copy)).copied()
    }

    /// Adds a programmed next hop. False if all of its copies exist already.
    pub(super) fn insert(&mut self, hop: Hop, id: u32, grouping: Grouping) -> bool {
        let Some(copy) = copies(grouping).find(|copy| self.id(hop, *copy).is_none()) else {
            return false;
        };
        self.ids.insert((hop, copy), id);
        self.by_id.insert(id, ((hop, copy), 0));
        self.maybe_unused.insert(id);
        true
    }

    /// Records that a group has the members `new` instead of `old`.
    pub(super) fn replace_members(&mut self, old: &[Member], new: &[Member]) {
        for member in new {
            if let Some((_, users)) = self.by_id.get_mut(&member.id) {
                *users += 1;
            }
        }
        for member in old {
            if let Some((_, users)) = self.by_id.get_mut(&member.id) {
                *users = users.saturating_sub(1);
                self.maybe_unused.insert(member.id);
            }
        }
    }

    /// Removes and returns unused next hops.
    pub(super) fn take_unused(&mut self) -> Vec<u32> {
        let mut unused = Vec::new();
        for id in std::mem::take(&mut self.maybe_unused) {
            if let Some((hop, 0)) = self.by_id.get(&id) {
                self.ids.remove(hop);
                self.by_id.remove(&id);
                unused.push(id);
            }
        }
        unused
    }

    /// All next hops, with their IDs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Hop, u32)> {
        self.ids.iter().map(|((hop, _), id)| (hop, *id))
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Allocates IDs in ascending order, so that a freed ID is not reused while something may still refer to it.
#[derive(Debug)]
pub(super) struct IdAllocator {
    next: u32,
    /// IDs in use, including those of other programs.
    used: BTreeSet<u32>,
}

impl IdAllocator {
    /// `used`: all IDs that the kernel has now.
    pub(super) fn new(used: impl IntoIterator<Item = u32>) -> Self {
        let used: BTreeSet<u32> = used
            .into_iter()
            .filter(|id| (FIRST_ID..END_ID).contains(id))
            .collect();
        Self {
            next: used.last().map_or(FIRST_ID, |last| last + 1),
            used,
        }
    }

    /// Allocates a free ID. None if all are in use.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        let range = (END_ID - FIRST_ID) as usize;
        let free = (self.next..END_ID)
            .chain(FIRST_ID..END_ID)
            .take(range + 1)
            .find(|id| !self.used.contains(id))?;
        self.used.insert(free);
        self.next = if free + 1 < END_ID {
            free + 1
        } else {
            FIRST_ID
        };
        Some(free)
    }

    pub(super) fn free(&mut self, id: u32) {
        self.used.remove(&id);
    }
}

/// The members of a group, with a share for each next hop ID. Weights are the shares, scaled down if one exceeds the kernel's
/// maximum.
pub(super) fn members(shares: &BTreeMap<u32, u32>) -> Vec<Member> {
    let largest = shares.values().copied().max().unwrap_or(1).max(1);
    let limit = u32::from(u8::MAX);
    let scaled = |share: u32| {
        if largest > limit {
            u64::from(share) * u64::from(limit) / u64::from(largest)
        } else {
            share.into()
        }
    };
    let member = |(id, share): (&u32, &u32)| Member {
        id: *id,
        weight: u8::try_from(scaled(*share)).unwrap_or(u8::MAX).max(1),
    };
    shares.iter().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(last: u8) -> Hop {
        Hop {
            gateway: [10, 1, 0, last].into(),
            interface: 1,
        }
    }

    fn weights(shares: &[u32]) -> Vec<u8> {
        let shares = (1..).zip(shares.iter().copied()).collect();
        members(&shares)
            .iter()
            .map(|member| member.weight)
            .collect()
    }

    #[test]
    fn shares_keep_their_proportion_within_the_kernels_limit() {
        assert_eq!(weights(&[1, 3]), [1, 3]);
        assert_eq!(weights(&[1000, 500, 1]), [255, 127, 1]);
    }

    #[test]
    fn next_hop_is_unused_once_no_group_has_it() {
        let mut hops = Hops::default();
        assert!(
            hops.insert(hop(1), 7, Grouping::Plain) && !hops.insert(hop(1), 8, Grouping::Plain)
        );
        let member = [Member { id: 7, weight: 1 }];
        hops.replace_members(&[], &member);
        hops.replace_members(&[], &member);
        hops.replace_members(&member, &[]);
        assert!(hops.take_unused().is_empty());
        hops.replace_members(&member, &[]);
        assert_eq!(hops.take_unused(), [7]);
        assert_eq!(hops.id(hop(1), 0), None);
    }

    #[test]
    fn next_hop_that_no_group_has_ever_used_is_unused() {
        let mut hops = Hops::default();
        assert!([7, 8].into_iter().all(|id| hops.insert(
            hop(u8::try_from(id).unwrap()),
            id,
            Grouping::Plain
        )));
        hops.replace_members(&[], &[Member { id: 8, weight: 1 }]);
        assert_eq!(hops.take_unused(), [7]);
        assert!(hops.take_unused().is_empty(), "the other one is used");
        assert!(hops.insert(hop(7), 7, Grouping::Plain));
        assert_eq!(hops.take_unused(), [7], "also one that came again");
    }

    #[test]
    fn resilient_groups_have_two_copies_of_each_next_hop() {
        let (mut hops, grouping) = (Hops::default(), Grouping::Resilient { idle: 1 });
        assert_eq!(
            [7, 8, 9].map(|id| hops.insert(hop(1), id, grouping)),
            [true, true, false]
        );
        assert_eq!([0, 1].map(|copy| hops.id(hop(1), copy)), [Some(7), Some(8)]);
    }

    #[test]
    fn foreign_ids_are_skipped_and_freed_ids_come_last() {
        let mut ids = IdAllocator::new([5, FIRST_ID, END_ID - 1]);
        assert_eq!(
            ids.allocate(),
            Some(FIRST_ID + 1),
            "wraps around to the first ID"
        );
        ids.free(FIRST_ID + 1);
        assert_eq!(ids.allocate(), Some(FIRST_ID + 2));
    }
}
