//! Which backend holds which slot. A change moves as few slots as it can.

use std::net::SocketAddr;

use super::plan::Shares;

/// Gives each backend its number of slots. Slots that hold the right backend in `before` keep it; what is too much or
/// beyond the new end makes room. From nothing, backends come in order.
///
/// Which slot a backend has is of no consequence to traffic, only how many; so two histories may end in different orders.
pub(crate) fn assign(before: &[Option<SocketAddr>], shares: &Shares) -> Vec<SocketAddr> {
    let total: u32 = shares.values().sum();
    let mut missing = shares.clone();
    let mut slots: Vec<Option<SocketAddr>> = vec![None; total as usize];
    for (slot, held) in slots.iter_mut().zip(before) {
        if let Some(backend) = held
            && let Some(left) = missing.get_mut(backend).filter(|left| **left > 0)
        {
            *left -= 1;
            *slot = Some(*backend);
        }
    }
    let mut fill = missing.into_iter().flat_map(|(backend, left)| (0..left).map(move |_| backend));
    slots.into_iter().filter_map(|slot| slot.or_else(|| fill.next())).collect()
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
    }

    fn some(slots: &[SocketAddr]) -> Vec<Option<SocketAddr>> {
        slots.iter().copied().map(Some).collect()
    }

    fn count(slots: &[SocketAddr]) -> Shares {
        let mut counted = Shares::new();
        for slot in slots {
            *counted.entry(*slot).or_default() += 1;
        }
        counted
    }

    #[test]
    fn a_new_backend_takes_the_slot_at_the_end() {
        let before = assign(&[], &Shares::from([(backend(2), 1), (backend(3), 1)]));
        let after =
            assign(&some(&before), &Shares::from([(backend(1), 1), (backend(2), 1), (backend(3), 1)]));
        assert_eq!(after, [backend(2), backend(3), backend(1)]);
    }

    #[test]
    fn the_last_slot_moves_into_the_hole_that_a_removed_backend_leaves() {
        let before = [backend(1), backend(2), backend(3), backend(4)];
        let after =
            assign(&some(&before), &Shares::from([(backend(1), 1), (backend(3), 1), (backend(4), 1)]));
        assert_eq!(after, [backend(1), backend(4), backend(3)]);
    }

    proptest! {
        #[test]
        fn every_backend_has_exactly_its_share(before in shares(), wanted in shares()) {
            let before = assign(&[], &before);
            let after = assign(&some(&before), &wanted);
            prop_assert_eq!(count(&after), wanted);
        }

        #[test]
        fn nothing_moves_without_a_change_and_no_more_slots_than_the_change_has(
            before in shares(),
            wanted in shares(),
        ) {
            let old = assign(&[], &before);
            prop_assert_eq!(&assign(&some(&old), &before), &old);
            let new = assign(&some(&old), &wanted);
            let gone: u32 = before
                .iter()
                .map(|(backend, slots)| slots.saturating_sub(wanted.get(backend).copied().unwrap_or(0)))
                .sum();
            let rewritten = old.iter().zip(&new).filter(|(old, new)| old != new).count();
            prop_assert!(rewritten <= gone as usize, "{rewritten} rewritten for {gone} gone");
        }
    }
}
