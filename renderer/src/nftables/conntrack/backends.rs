//! A set of backends.

use std::{net::SocketAddr, slice};

/// Backends of one frontend, all of its family: sorted, each once. There is one such set for each frontend after a start; a
/// `BTreeSet` would allocate space for eleven backends with the first one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backends(Box<[SocketAddr]>);

impl Backends {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, backend: &SocketAddr) -> bool {
        self.0.binary_search(backend).is_ok()
    }

    pub(super) fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().all(|backend| other.contains(backend))
    }

    pub(super) fn iter(&self) -> slice::Iter<'_, SocketAddr> {
        self.0.iter()
    }

    /// Adds those of `other`.
    pub(super) fn extend(&mut self, other: &Self) {
        if !other.is_subset(self) {
            *self = self.iter().chain(other.iter()).copied().collect();
        }
    }

    /// Removes those of `other`.
    pub(super) fn remove_all(&mut self, other: &Self) {
        if self.iter().any(|backend| other.contains(backend)) {
            *self = self
                .iter()
                .filter(|backend| !other.contains(backend))
                .copied()
                .collect();
        }
    }
}

impl FromIterator<SocketAddr> for Backends {
    fn from_iter<I: IntoIterator<Item = SocketAddr>>(backends: I) -> Self {
        let mut backends = Vec::from_iter(backends);
        backends.sort_unstable();
        backends.dedup();
        Self(backends.into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn backends_behave_like_a_sorted_set(a: Vec<u8>, b: Vec<u8>, is_inside: bool) {
            let set = |backends: &[u8]| -> BTreeSet<SocketAddr> {
                // Few different ones, so that both have some in common.
                backends.iter().map(|number| SocketAddr::from(([10, 0, 0, number % 8], 80))).collect()
            };
            let (set_a, mut set_b) = (set(&a), set(&b));
            if is_inside {
                set_b.retain(|backend| set_a.contains(backend));
            }
            let backends = |set: &BTreeSet<SocketAddr>| set.iter().rev().chain(set).copied().collect::<Backends>();
            let (of_a, of_b) = (backends(&set_a), backends(&set_b));
            prop_assert!(of_a.iter().eq(&set_a));
            prop_assert_eq!(of_b.is_empty(), set_b.is_empty());
            prop_assert_eq!(of_b.is_subset(&of_a), set_b.is_subset(&set_a));
            let (mut both, mut rest) = (of_a.clone(), of_a);
            both.extend(&of_b);
            rest.remove_all(&of_b);
            prop_assert!(both.iter().eq(set_a.union(&set_b)));
            prop_assert!(rest.iter().eq(set_a.difference(&set_b)));
        }
    }
}
