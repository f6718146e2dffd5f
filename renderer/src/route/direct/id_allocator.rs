//! Numbers for next hops, and who uses which.

use std::collections::{BTreeMap, BTreeSet};

use crate::route::nexthop::{END_ID, FIRST_ID, Grouping, Hop, Member};

/// The group of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) id: u32,
    /// Sorted.
    pub(super) members: Vec<Member>,
}

/// A next hop may be there twice, under two numbers.
pub(super) type Copy = u8;

/// How many copies of each next hop a group has.
///
/// With IPv4 the kernel does not ask a group of one, and so does not see that its buckets are in use: when another next hop
/// comes, it takes them for idle and moves connections that are not. So no resilient group ever has only one member.
/// Source: the kernel's `fib_select_path`.
pub(super) const fn copies(grouping: Grouping) -> std::ops::Range<Copy> {
    match grouping {
        Grouping::Resilient { .. } => 0..2,
        Grouping::Plain => 0..1,
    }
}

/// The next hops that are programmed, their numbers, and how many groups have them.
#[derive(Debug, Default)]
pub(super) struct Hops {
    ids: BTreeMap<(Hop, Copy), u32>,
    by_id: BTreeMap<u32, ((Hop, Copy), usize)>,
    /// Perhaps in no group any more.
    idle: BTreeSet<u32>,
}

impl Hops {
    pub(super) fn id(&self, hop: Hop, copy: Copy) -> Option<u32> {
        self.ids.get(&(hop, copy)).copied()
    }

    /// Takes in one that is programmed. False if there are as many like it as there can be.
    pub(super) fn insert(&mut self, hop: Hop, id: u32, grouping: Grouping) -> bool {
        let Some(copy) = copies(grouping).find(|copy| self.id(hop, *copy).is_none()) else { return false };
        self.ids.insert((hop, copy), id);
        self.by_id.insert(id, ((hop, copy), 0));
        self.idle.insert(id);
        true
    }

    /// Takes in that a group has other members now.
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

    /// Takes out those that no group has.
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

    /// All, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Hop, u32)> {
        self.ids.iter().map(|((hop, _), id)| (hop, *id))
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// Gives numbers out, each only once, so that one that was freed is not met by what still knows it.
#[derive(Debug)]
pub(super) struct IdAllocator {
    next: u32,
    /// In use, by whomever.
    used: BTreeSet<u32>,
}

impl IdAllocator {
    /// Those in use now, of all there are.
    pub(super) fn new(used: impl IntoIterator<Item = u32>) -> Self {
        let used: BTreeSet<u32> = used.into_iter().filter(|id| (FIRST_ID..END_ID).contains(id)).collect();
        Self { next: used.last().map_or(FIRST_ID, |last| last + 1), used }
    }

    /// One that nobody uses. None if there is none left.
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

/// The members of a group: next hops with shares, the least that fit into the numbers that the kernel has for them.
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
