//! How many elements a set is declared for. Pure.
//!
//! A set of unknown size is a hash table that grows while it is filled, and whose elements move each time; to fill it takes
//! the kernel about twice as long as one that has room from the start (`nft_hash` in place of `nft_rhash`, see
//! `net/netfilter/nft_set_hash.c`). But it takes no more elements than it was declared for, so a set that has outgrown its
//! declaration is made anew, in the transaction of a resync.

use std::collections::BTreeMap;

use super::layout::{Form, Set};

/// How many elements there are in each set.
pub(crate) type Counts = BTreeMap<Set, usize>;

/// How many elements sets are declared for; a set that is not among them is not bounded.
pub(crate) type Sizes = BTreeMap<Set, u32>;

/// Smaller sets are not worth a bound: they grow in no time.
const MIN_BOUNDED_SIZE: usize = 1024;

/// What to declare for sets that hold so many: twice as many, so that they seldom have to be made anew.
pub(crate) fn sizes(counts: &Counts) -> Sizes {
    let bounded = counts.iter().filter(|(set, count)| can_be_bounded(**set) && **count >= MIN_BOUNDED_SIZE);
    bounded.map(|(set, count)| (*set, u32::try_from(2 * count).unwrap_or(u32::MAX))).collect()
}

/// The sets that are declared for fewer elements than they are to hold, or than they soon will; and what to declare them for.
pub(crate) fn outgrown(declared: &Sizes, counts: &Counts) -> Sizes {
    let needs = |set: &Set| counts.get(set).map_or(0, |count| count + count / 8);
    let is_too_small = |set: &Set| declared.get(set).is_some_and(|size| needs(set) > *size as usize);
    sizes(counts).into_iter().filter(|(set, _)| is_too_small(set)).collect()
}

/// Hash tables without a time limit.
const fn can_be_bounded(set: Set) -> bool {
    match set.kind.form() {
        Form::Verdicts { .. } | Form::Slots | Form::Frontends | Form::Addresses | Form::Pairs => true,
        Form::Ranges | Form::Interfaces | Form::Memory | Form::Sources => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nftables::layout::{Family, SetKind};

    const BACKENDS: Set = Set::new(SetKind::Backends, Family::V4);

    #[test]
    fn large_sets_are_declared_for_twice_their_content() {
        let others =
            [SetKind::Services, SetKind::Pods, SetKind::Affinity].map(|kind| Set::new(kind, Family::V6));
        let mut counts = Counts::from([(BACKENDS, 40_000), (others[0], 100)]);
        counts.extend([(others[1], 40_000), (others[2], 40_000)]);
        assert_eq!(sizes(&counts), Sizes::from([(BACKENDS, 80_000)]));
        assert_eq!(outgrown(&sizes(&counts), &counts), Sizes::new());
    }

    #[test]
    fn set_is_outgrown_little_before_it_is_full() {
        let declared = Sizes::from([(BACKENDS, 9000)]);
        let is_outgrown = |count| !outgrown(&declared, &Counts::from([(BACKENDS, count)])).is_empty();
        assert!(!is_outgrown(0) && !is_outgrown(8000) && is_outgrown(8001) && is_outgrown(9001));
        assert!(outgrown(&Sizes::new(), &Counts::from([(BACKENDS, 9001)])).is_empty(), "not bounded");
    }
}
