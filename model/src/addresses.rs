//! The addresses of one kind that a service has.

use std::{collections::BTreeSet, mem, net::IpAddr, ops::Deref};

use serde::{Deserialize, Serialize};

/// A sorted set of addresses, read as a slice.
///
/// A service mostly has one address of a kind, or none, and there are many services: a `BTreeSet` allocates space for eleven
/// with the first element, and a `Vec` has a capacity that would never differ from its length.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(from = "BTreeSet<IpAddr>")]
pub struct Addresses(Box<[IpAddr]>);

impl Addresses {
    /// No address.
    pub fn new() -> Self {
        Self::default()
    }

    /// The union of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).copied().collect()
    }

    /// Adds one.
    pub fn insert(&mut self, address: IpAddr) {
        if let Err(place) = self.0.binary_search(&address) {
            let mut addresses = mem::take(&mut self.0).into_vec();
            addresses.insert(place, address);
            self.0 = addresses.into_boxed_slice();
        }
    }
}

impl Deref for Addresses {
    type Target = [IpAddr];

    fn deref(&self) -> &[IpAddr] {
        &self.0
    }
}

impl FromIterator<IpAddr> for Addresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut addresses = Vec::from_iter(addresses);
        addresses.sort_unstable();
        addresses.dedup();
        Self(addresses.into_boxed_slice())
    }
}

impl From<BTreeSet<IpAddr>> for Addresses {
    fn from(addresses: BTreeSet<IpAddr>) -> Self {
        addresses.into_iter().collect()
    }
}

impl<const N: usize> From<[IpAddr; N]> for Addresses {
    fn from(addresses: [IpAddr; N]) -> Self {
        addresses.into_iter().collect()
    }
}

impl<'a> IntoIterator for &'a Addresses {
    type Item = &'a IpAddr;
    type IntoIter = std::slice::Iter<'a, IpAddr>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn addresses_behave_like_a_sorted_set(a: Vec<[u8; 4]>, b: Vec<[u8; 4]>, one: [u8; 4]) {
            let set = |addresses: &[[u8; 4]]| addresses.iter().copied().map(IpAddr::from).collect::<BTreeSet<_>>();
            let (set_a, set_b) = (set(&a), set(&b));
            let (of_a, of_b) = (Addresses::from(set_a.clone()), set_b.iter().rev().copied().collect());
            prop_assert!(of_a.iter().eq(&set_a));
            prop_assert!(of_a.union(&of_b).iter().eq(set_a.union(&set_b)));
            let mut with_one = (of_a, set_a);
            with_one.0.insert(one.into());
            with_one.1.insert(one.into());
            prop_assert!(with_one.0.iter().eq(&with_one.1));
        }
    }
}
