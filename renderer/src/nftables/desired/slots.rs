//! Assigns slots to backends. A change moves as few slots as possible.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use super::plan::Shares;

/// Assigns each backend its number of slots. Backends keep their slots in `before`; surplus slots and those beyond the new end
/// are reassigned. Without `before`, backends are placed in order.
///
/// Only the number of slots matters to traffic; so two histories may lead to different orders.
pub(crate) fn assign(before: &[Option<SocketAddr>], shares: &Shares) -> Vec<SocketAddr> {
    let total: u32 = shares.iter().map(|(_, share)| share).sum();
    let mut missing = shares.clone();
    let mut slots: Vec<Option<SocketAddr>> = vec![None; total as usize];
    for (slot, occupant) in slots.iter_mut().zip(before) {
        if let Some(backend) = occupant
            && let Ok(place) = missing.binary_search_by_key(backend, |(backend, _)| *backend)
            && let Some((_, left)) = missing.get_mut(place).filter(|(_, left)| *left > 0)
        {
            *left -= 1;
            *slot = Some(*backend);
        }
    }
    let mut fill = missing
        .into_iter()
        .flat_map(|(backend, left)| (0..left).map(move |_| backend));
    slots
        .into_iter()
        .filter_map(|slot| slot.or_else(|| fill.next()))
        .collect()
}

/// The number of slots of a frontend that chooses by client address: a prime, large enough that shares are right within a few
/// percent.
const CLIENT_SLOTS: u64 = 1021;

/// Assigns each slot to the backend with the highest rank for it (weighted rendezvous hashing). When a backend is removed, only its
/// slots move; a new one takes its share evenly from all. Shares may come in other terms then: 4 and 2 are 2 and 1 where there is no
/// third. Only addresses count, so that the ports of a service with the same pods agree, and nodes agree with each other.
pub(crate) fn by_client(shares: &Shares) -> Vec<SocketAddr> {
    // Backends with one address have numbers, so that no two rank equally.
    let mut next: BTreeMap<IpAddr, u64> = BTreeMap::new();
    let mut by_share: BTreeMap<u32, Vec<(SocketAddr, u64)>> = BTreeMap::new();
    for (backend, share) in shares {
        let number = next.entry(backend.ip()).or_default();
        by_share
            .entry(*share)
            .or_default()
            .push((*backend, *number));
        *number += 1;
    }
    let best = |slot: u64| {
        let best_of_share = by_share.iter().filter_map(|(share, backends)| {
            let drawn = backends
                .iter()
                .map(|(backend, number)| (hash(backend.ip(), slot << 16 | number), *backend));
            drawn.max().map(|(draw, backend)| (*share, draw, backend))
        });
        best_of_share.max_by(rank).map(|(.., backend)| backend)
    };
    (0..CLIENT_SLOTS).filter_map(best).collect()
}

/// Orders backends of different shares by what they draw for a slot, each as good as the best of as many draws as its share. Only the
/// ratio of two shares matters.
fn rank(one: &(u32, u64, SocketAddr), other: &(u32, u64, SocketAddr)) -> Ordering {
    let weighed =
        (logarithm(other.1) * u64::from(one.0)).cmp(&(logarithm(one.1) * u64::from(other.0)));
    weighed.then_with(|| one.2.cmp(&other.2))
}

/// The binary logarithm of 2^64 divided by the number, with 24 bits after the point: the same on every machine.
fn logarithm(number: u64) -> u64 {
    const BITS: u32 = 24;
    let number = number.max(1);
    let zeros = number.leading_zeros();
    // Squaring the mantissa, from 1 to 2, doubles its logarithm.
    let mut mantissa = u128::from(number << zeros);
    let mut fraction = 0;
    for _ in 0..BITS {
        mantissa = (mantissa * mantissa) >> 63;
        let bit = u64::from(mantissa >> 64 != 0);
        mantissa >>= bit;
        fraction = fraction << 1 | bit;
    }
    (u64::from(zeros + 1) << BITS) - fraction
}

/// FNV-1a with a final mix. It must never change: other nodes and later versions must find the same backends.
fn hash(address: IpAddr, number: u64) -> u64 {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let bytes = address.octets().into_iter().chain(number.to_be_bytes());
    let fnv = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The finalizer of MurmurHash3: without it consecutive numbers rank alike.
    let mixed = (fnv ^ fnv >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn backend(number: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], number))
    }

    fn shares() -> impl Strategy<Value = Shares> {
        proptest::collection::btree_map((1u16..12).prop_map(backend), 1u32..4, 0..10)
            .prop_map(Shares::from_iter)
    }

    fn some(slots: &[SocketAddr]) -> Vec<Option<SocketAddr>> {
        slots.iter().copied().map(Some).collect()
    }

    fn count(slots: &[SocketAddr]) -> Shares {
        let mut counted = BTreeMap::new();
        for slot in slots {
            *counted.entry(*slot).or_default() += 1;
        }
        counted.into_iter().collect()
    }

    fn share_of(shares: &Shares, backend: SocketAddr) -> u32 {
        shares
            .iter()
            .find(|(other, _)| *other == backend)
            .map_or(0, |(_, share)| *share)
    }

    #[test]
    fn new_backend_takes_slot_at_end() {
        let before = assign(&[], &Shares::from([(backend(2), 1), (backend(3), 1)]));
        let after = assign(
            &some(&before),
            &Shares::from([(backend(1), 1), (backend(2), 1), (backend(3), 1)]),
        );
        assert_eq!(after, [backend(2), backend(3), backend(1)]);
    }

    #[test]
    fn last_slot_moves_into_hole_that_removed_backend_leaves() {
        let before = [backend(1), backend(2), backend(3), backend(4)];
        let after = assign(
            &some(&before),
            &Shares::from([(backend(1), 1), (backend(3), 1), (backend(4), 1)]),
        );
        assert_eq!(after, [backend(1), backend(4), backend(3)]);
    }

    #[test]
    fn slots_by_client_are_shared_evenly_and_same_for_ever() {
        let four: Shares = (1..=4)
            .map(|last| (SocketAddr::from(([10, 0, 0, last], 80)), 1))
            .collect();
        let slots = by_client(&four);
        assert_eq!(slots.len(), 1021);
        let counts: Vec<u32> = count(&slots).into_iter().map(|(_, count)| count).collect();
        assert!(
            counts.iter().all(|count| (225..290).contains(count)),
            "{counts:?}"
        );
        // On another port the same pods have the same slots.
        let other = by_client(
            &four
                .iter()
                .map(|(backend, _)| (SocketAddr::new(backend.ip(), 443), 1))
                .collect(),
        );
        assert!(slots.iter().zip(&other).all(|(a, b)| a.ip() == b.ip()));
    }

    #[test]
    fn removed_backend_moves_only_its_clients() {
        let all: Shares = (1..=10)
            .map(|last| (SocketAddr::from(([10, 0, 0, last], 80)), 1))
            .collect();
        let gone = SocketAddr::from(([10, 0, 0, 7], 80));
        let mut rest = all.clone();
        rest.retain(|(backend, _)| *backend != gone);
        let (before, after) = (by_client(&all), by_client(&rest));
        assert!(
            before
                .iter()
                .zip(&after)
                .all(|(old, new)| old == new || *old == gone)
        );
    }

    #[test]
    fn clients_stay_although_shares_come_in_other_terms() {
        let backend = |last| SocketAddr::from(([10, 0, 0, last], 80));
        let with_third = Shares::from([(backend(1), 4), (backend(2), 2), (backend(3), 1)]);
        let without = Shares::from([(backend(1), 2), (backend(2), 1)]);
        let (before, after) = (by_client(&with_third), by_client(&without));
        assert!(
            before
                .iter()
                .zip(&after)
                .all(|(old, new)| old == new || *old == backend(3))
        );
    }

    #[test]
    fn logarithm_is_that_of_floating_point() {
        for number in [
            1,
            3,
            1 << 20,
            u64::MAX / 3,
            u64::MAX / 2,
            u64::MAX - 1,
            u64::MAX,
        ] {
            #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
            let (found, expected) = (
                logarithm(number) as f64 / f64::from(1 << 24),
                64.0 - (number as f64).log2(),
            );
            assert!(
                (found - expected).abs() < 1e-6,
                "{number}: {found}, {expected}"
            );
        }
    }

    #[test]
    fn backend_of_twice_weight_gets_about_twice_clients() {
        let shares = Shares::from([
            (SocketAddr::from(([10, 0, 0, 1], 80)), 2),
            (SocketAddr::from(([10, 0, 0, 2], 80)), 1),
        ]);
        let counts: Vec<u32> = count(&by_client(&shares))
            .into_iter()
            .map(|(_, count)| count)
            .collect();
        assert!((600..760).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn backends_that_share_address_share_its_clients() {
        let shares = Shares::from([(backend(1), 1), (backend(2), 1), (backend(3), 2)]);
        let counts: Vec<u32> = count(&by_client(&shares))
            .into_iter()
            .map(|(_, count)| count)
            .collect();
        assert!(
            counts.len() == 3 && (190..320).contains(&counts[0]) && (190..320).contains(&counts[1]),
            "{counts:?}"
        );
    }

    proptest! {
        #[test]
        fn every_backend_has_exactly_its_share(before in shares(), desired in shares()) {
            let before = assign(&[], &before);
            let after = assign(&some(&before), &desired);
            prop_assert_eq!(count(&after), desired);
        }

        #[test]
        fn slots_move_no_more_than_the_change_requires(
            before in shares(),
            desired in shares(),
        ) {
            let old = assign(&[], &before);
            prop_assert_eq!(&assign(&some(&old), &before), &old);
            let new = assign(&some(&old), &desired);
            let gone: u32 = before
                .iter()
                .map(|(backend, slots)| slots.saturating_sub(share_of(&desired, *backend)))
                .sum();
            let rewritten = old.iter().zip(&new).filter(|(old, new)| old != new).count();
            prop_assert!(rewritten <= gone as usize, "{rewritten} rewritten for {gone} gone");
        }
    }
}
