//! The declared size of sets. Pure.
//!
//! A set of unknown size is a resizable hash table, whose elements move each time it grows; filling it takes the kernel about
//! twice as long as a table of fixed size (`nft_hash` in place of `nft_rhash`, see `net/netfilter/nft_set_hash.c`), and a lookup
//! in it takes longer. But that one accepts no more elements than declared, so a set that has outgrown its size is created
//! again, in the transaction of a resync.

use std::collections::BTreeMap;

pub(crate) use crate::nftables::layout::Sizes;
use crate::nftables::layout::{Form, Set, SetKind};

/// The number of elements of each set.
pub(crate) type Counts = BTreeMap<Set, usize>;

/// A resync with more elements than this replaces them all instead of comparing them with the kernel's: dumping a large set
/// takes time quadratic in its size.
pub const COMPARE_LIMIT: usize = 150_000;

/// The size of sets with few elements, and of empty ones: 32 KiB of buckets each.
const MIN_SIZE: usize = 2048;

/// The sizes to declare for sets with so many elements: twice as many, so that they rarely have to be created again.
pub(crate) fn sizes(counts: &Counts) -> Sizes {
    let size = |set| {
        let count = counts.get(&set).copied().unwrap_or_default();
        (
            set,
            u32::try_from((2 * count).max(MIN_SIZE)).unwrap_or(u32::MAX),
        )
    };
    Set::all()
        .filter(|set| can_be_bounded(*set))
        .map(size)
        .collect()
}

/// Sets to create again, with the size of those that are bounded.
pub(crate) type Remade = BTreeMap<Set, Option<u32>>;

/// The sets that are too small, or soon will be, with their new size. `removed` are the elements to be removed: most of them stay
/// until the new ones are there.
pub(crate) fn outgrown(declared: &Sizes, counts: &Counts, removed: &Counts) -> Sizes {
    let of = |counts: &Counts, set: &Set| counts.get(set).copied().unwrap_or_default();
    let needs = |set: &Set| of(counts, set) + (of(counts, set) / 8).max(of(removed, set));
    let is_too_small = |set: &Set| {
        declared
            .get(set)
            .is_some_and(|size| needs(set) > *size as usize)
    };
    sizes(counts)
        .into_iter()
        .filter(|(set, _)| is_too_small(set))
        .collect()
}

/// Whether the elements of a table whose sets were declared with these sizes should be read before the desired state is known:
/// they are neither few, so that a resync reads them in no time, nor so many that it does not compare them. A large table has
/// sets without a size, since it was written in several batches: dumping a million elements takes minutes.
pub(crate) fn is_worth_reading_ahead(declared: &Sizes) -> bool {
    let bounded = declared.iter().filter(|(set, _)| can_be_bounded(**set));
    let many = bounded
        .map(|(_, size)| *size as usize)
        .filter(|size| *size > MIN_SIZE);
    (1..=2 * COMPARE_LIMIT).contains(&many.sum())
}

/// Only hash tables without timeouts whose elements are counted: those of the node are not.
const fn can_be_bounded(set: Set) -> bool {
    if matches!(set.kind, SetKind::NodeIps) {
        return false;
    }
    match set.kind.form() {
        Form::Numbers { .. }
        | Form::Chains
        | Form::Slots
        | Form::Frontends
        | Form::Addresses
        | Form::OutputAddresses
        | Form::Pairs => true,
        Form::Ranges
        | Form::Interfaces
        | Form::Memory
        | Form::Sources
        | Form::Tally
        | Form::Attempts => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nftables::layout::Family;

    const BACKENDS: Set = Set::new(SetKind::Backends, Family::V4);

    #[test]
    fn hash_tables_are_declared_for_twice_their_content() {
        let [services, pods, affinity] = [SetKind::Services, SetKind::Pods, SetKind::Affinity]
            .map(|kind| Set::new(kind, Family::V6));
        let counts = Counts::from([
            (BACKENDS, 40_000),
            (services, 100),
            (pods, 40_000),
            (affinity, 40_000),
        ]);
        let sizes = sizes(&counts);
        assert_eq!(
            [BACKENDS, services, pods, affinity].map(|set| sizes.get(&set).copied()),
            [Some(80_000), Some(2048), None, None]
        );
        assert!(
            !sizes.contains_key(&Set::new(SetKind::NodeIps, Family::V4)),
            "these are not counted"
        );
        let empty = Set::new(SetKind::Hairpin, Family::V4);
        assert_eq!(
            sizes.get(&empty),
            Some(&2048),
            "its lookups cost less with a size too"
        );
        assert_eq!(outgrown(&sizes, &counts, &Counts::new()), Sizes::new());
    }

    #[test]
    fn table_of_unknown_size_is_not_read_ahead() {
        let clients = (Set::new(SetKind::Affinity, Family::V4), 65_535);
        assert!(is_worth_reading_ahead(&Sizes::from([
            (BACKENDS, 80_000),
            clients
        ])));
        assert!(!is_worth_reading_ahead(&Sizes::from([
            (BACKENDS, 800_000),
            clients
        ])));
        assert!(
            !is_worth_reading_ahead(&Sizes::from([clients])),
            "written in several batches"
        );
        assert!(
            !is_worth_reading_ahead(&sizes(&Counts::from([(BACKENDS, 1000)]))),
            "small"
        );
    }

    #[test]
    fn set_is_outgrown_little_before_it_is_full() {
        let declared = Sizes::from([(BACKENDS, 9000)]);
        let count = |count| Counts::from([(BACKENDS, count)]);
        let is_outgrown =
            |new, removed| !outgrown(&declared, &count(new), &count(removed)).is_empty();
        assert!(
            !is_outgrown(0, 0)
                && !is_outgrown(8000, 0)
                && is_outgrown(8001, 0)
                && is_outgrown(9001, 0)
        );
        assert!(
            !is_outgrown(5000, 4000) && is_outgrown(5000, 4001),
            "both are in the set for a moment"
        );
        assert!(
            outgrown(&Sizes::new(), &count(9001), &count(0)).is_empty(),
            "not bounded"
        );
    }
}
