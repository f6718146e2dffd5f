//! Allocates numbers of next hops, and tracks their users.

use std::collections::{BTreeMap, BTreeSet};

use crate::route::nexthop::{END_ID, FIRST_ID, Grouping, Hop, Member};

/// The group of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) id: u32,
    /// Sorted.
    pub(super) members: Vec<Member>,
}

/// A next hop may exist twice, with two numbers.
pub(super) type Copy = u8;

/// The copies of each next hop in a group.
///
/// With IPv4 the kernel does not use the buckets of a group with one member, and so does not see that they are in use: when
/// another next hop is added, it takes them for idle and moves active connections. So a resilient group always has at least two
/// members. Source: the kernel's `fib_select_path`.
pub(super) const fn copies(grouping: Grouping) -> std::ops::Range<Copy> {
    match grouping {
        Grouping::Resilient { .. } => 0..2,
        Grouping::Plain => 0..1,
    }
}

/// The programmed next hops, with their numbers and how many groups use them.
#[derive(Debug, Default)]
pub(super) struct Hops {
    ids: BTreeMap<(Hop, Copy), u32>,
    by_id: BTreeMap<u32, ((Hop, Copy), usize)>,
    /// Candidates that may be unused.
    idle: BTreeSet<u32>,
}

impl Hops {
    pub(super) fn id(&self, hop: Hop, copy: Copy) -> Option<u32> {
        self.ids.get(&(hop, copy)).copied()
    }

    /// Adds a programmed next hop. False if all of its copies exist already.
    pub(super) fn insert(&mut self, hop: Hop, id: u32, grouping: Grouping) -> bool {
        let Some(copy) = copies(grouping).find(|copy| self.id(hop, *copy).is_none()) else { return false };
        self.ids.insert((hop, copy), id);
        self.by_id.insert(id, ((hop, copy), 0));
        self.idle.insert(id);
        true
    }

    /// Records the new members of a group.
    pub(super) fn regroup(&mut self, old: &[Member], new: &[Member]) {
        for member in new {
            if let Some((_, users)) = self.by_id.get_mut(&member.id) {
                *users += 1;
            }
        }
        for member in old {
            if let Some((_, users)) = self.by_id.get_mut(&member.id) {
                *users = users.saturating_sub(1);
                self.idle.insert(member.id);
            }
        }
    }

    /// Removes and returns unused next hops.
    pub(super) fn take_unused(&mut self) -> Vec<u32> {
        let mut unused = Vec::new();
        for id in std::mem::take(&mut self.idle) {
            if let Some((hop, 0)) = self.by_id.get(&id) {
                self.ids.remove(hop);
                self.by_id.remove(&id);
                unused.push(id);
            }
        }
        unused
    }

    /// All next hops, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Hop, u32)> {
        self.ids.iter().map(|((hop, _), id)| (hop, *id))
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Allocates numbers in ascending order, so that a freed number is not reused while something may still refer to it.
#[derive(Debug)]
pub(super) struct IdAllocator {
    next: u32,
    /// Numbers in use, also by others.
    used: BTreeSet<u32>,
}

impl IdAllocator {
    /// With all numbers that are in use now.
    pub(super) fn new(used: impl IntoIterator<Item = u32>) -> Self {
        let used: BTreeSet<u32> = used.into_iter().filter(|id| (FIRST_ID..END_ID).contains(id)).collect();
        Self { next: used.last().map_or(FIRST_ID, |last| last + 1), used }
    }

    /// A free number. None if all are in use.
    pub(super) fn take(&mut self) -> Option<u32> {
        let range = (END_ID - FIRST_ID) as usize;
        let free =
            (self.next..END_ID).chain(FIRST_ID..END_ID).take(range + 1).find(|id| !self.used.contains(id))?;
        self.used.insert(free);
        self.next = if free + 1 < END_ID { free + 1 } else { FIRST_ID };
        Some(free)
    }

    pub(super) fn free(&mut self, id: u32) {
        self.used.remove(&id);
    }
}

/// The members of a group: next hops with the smallest weights in the right proportion that the kernel's range allows.
pub(super) fn members(shares: &BTreeMap<u32, u32>) -> Vec<Member> {
    let most = shares.values().copied().max().unwrap_or(1).max(1);
    let limit = u32::from(u8::MAX);
    let scaled = |share: u32| {
        if most > limit { u64::from(share) * u64::from(limit) / u64::from(most) } else { share.into() }
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
        Hop { gateway: [10, 1, 0, last].into(), interface: 1 }
    }

    fn weights(shares: &[u32]) -> Vec<u8> {
        let shares = (1..).zip(shares.iter().copied()).collect();
        members(&shares).iter().map(|member| member.weight).collect()
    }

    #[test]
    fn shares_keep_their_proportion_within_the_kernels_limit() {
        assert_eq!(weights(&[1, 3]), [1, 3]);
        assert_eq!(weights(&[1000, 500, 1]), [255, 127, 1]);
    }

    #[test]
    fn next_hop_is_unused_when_last_group_is_without_it() {
        let mut hops = Hops::default();
        assert!(hops.insert(hop(1), 7, Grouping::Plain) && !hops.insert(hop(1), 8, Grouping::Plain));
        let member = [Member { id: 7, weight: 1 }];
        hops.regroup(&[], &member);
        hops.regroup(&[], &member);
        hops.regroup(&member, &[]);
        assert!(hops.take_unused().is_empty());
        hops.regroup(&member, &[]);
        assert_eq!(hops.take_unused(), [7]);
        assert_eq!(hops.id(hop(1), 0), None);
    }

    #[test]
    fn resilient_groups_have_two_of_each_next_hop() {
        let (mut hops, grouping) = (Hops::default(), Grouping::Resilient { idle: 1 });
        assert_eq!([7, 8, 9].map(|id| hops.insert(hop(1), id, grouping)), [true, true, false]);
        assert_eq!([0, 1].map(|copy| hops.id(hop(1), copy)), [Some(7), Some(8)]);
    }

    #[test]
    fn numbers_of_others_are_passed_over_and_freed_ones_come_last() {
        let mut numbers = IdAllocator::new([5, FIRST_ID, END_ID - 1]);
        assert_eq!(numbers.take(), Some(FIRST_ID + 1), "after the end comes the start");
        numbers.free(FIRST_ID + 1);
        assert_eq!(numbers.take(), Some(FIRST_ID + 2));
    }
}
