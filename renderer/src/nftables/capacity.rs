//! The declared size of sets. Pure.
//!
//! A set of unknown size is a resizable hash table, whose elements move each time it grows; filling it takes the kernel about
//! twice as long as a table of fixed size (`nft_hash` in place of `nft_rhash`, see `net/netfilter/nft_set_hash.c`). But that
//! one accepts no more elements than declared, so a set that has outgrown its size is created again, in the transaction of a
//! resync.

use std::collections::BTreeMap;

pub(crate) use super::layout::Sizes;
use super::layout::{Form, Set};

/// The number of elements of each set.
pub(crate) type Counts = BTreeMap<Set, usize>;

/// A resync with more elements than this replaces them all instead of comparing them with the kernel's: dumping a large set
/// takes time quadratic in its size.
pub const COMPARE_LIMIT: usize = 150_000;

/// Smaller sets are not worth a bound: resizing them is cheap.
const MIN_BOUNDED_SIZE: usize = 1024;

/// The size to declare for sets with so many elements: twice as many, so that they rarely have to be created again.
pub(crate) fn sizes(counts: &Counts) -> Sizes {
    let bounded = counts.iter().filter(|(set, count)| can_be_bounded(**set) && **count >= MIN_BOUNDED_SIZE);
    bounded.map(|(set, count)| (*set, u32::try_from(2 * count).unwrap_or(u32::MAX))).collect()
}

/// Sets to create again, with the size of those that are bounded.
pub(crate) type Remade = BTreeMap<Set, Option<u32>>;

/// The sets that are too small, or soon will be, with their new size.
pub(crate) fn outgrown(declared: &Sizes, counts: &Counts) -> Sizes {
    let needs = |set: &Set| counts.get(set).map_or(0, |count| count + count / 8);
    let is_too_small = |set: &Set| declared.get(set).is_some_and(|size| needs(set) > *size as usize);
    sizes(counts).into_iter().filter(|(set, _)| is_too_small(set)).collect()
}

/// Whether the elements of a table whose sets were declared with these sizes should be read before the desired state is known:
/// they are neither few, so that a resync reads them in no time, nor so many that it does not compare them. A large table has
/// sets without a size, since it was written in several batches: dumping a million elements takes minutes.
pub(crate) fn is_worth_reading_ahead(declared: &Sizes) -> bool {
    let bounded = declared.iter().filter(|(set, _)| can_be_bounded(**set));
    let capacity: usize = bounded.map(|(_, size)| *size as usize).sum();
    (1..=2 * COMPARE_LIMIT).contains(&capacity)
}

/// Only hash tables without timeouts.
const fn can_be_bounded(set: Set) -> bool {
    match set.kind.form() {
        Form::Numbers { .. } | Form::Slots | Form::Frontends { .. } | Form::Addresses | Form::Pairs => true,
        Form::Chains | Form::Ranges | Form::Interfaces | Form::Memory | Form::Sources => false,
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
    fn table_of_unknown_size_is_not_read_ahead() {
        let clients = (Set::new(SetKind::Affinity, Family::V4), 65_535);
        assert!(is_worth_reading_ahead(&Sizes::from([(BACKENDS, 80_000), clients])));
        assert!(!is_worth_reading_ahead(&Sizes::from([(BACKENDS, 800_000), clients])));
        assert!(!is_worth_reading_ahead(&Sizes::from([clients])), "written in several batches, or small");
    }

    #[test]
    fn set_is_outgrown_little_before_it_is_full() {
        let declared = Sizes::from([(BACKENDS, 9000)]);
        let is_outgrown = |count| !outgrown(&declared, &Counts::from([(BACKENDS, count)])).is_empty();
        assert!(!is_outgrown(0) && !is_outgrown(8000) && is_outgrown(8001) && is_outgrown(9001));
        assert!(outgrown(&Sizes::new(), &Counts::from([(BACKENDS, 9001)])).is_empty(), "not bounded");
    }
}
