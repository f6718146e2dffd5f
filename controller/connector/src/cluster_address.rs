//! Allocates cluster addresses from configured ranges: always the same for a name while it is free.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnetwork::IpNetwork;
use thiserror::Error;

/// The ranges and the allocated addresses.
#[derive(Debug, Clone)]
pub struct AddressPool<'a> {
    ranges: &'a [IpNetwork],
    taken: BTreeSet<IpAddr>,
}

impl<'a> AddressPool<'a> {
    /// Ranges, and the addresses of every stored service of any writer.
    pub const fn new(ranges: &'a [IpNetwork], taken: BTreeSet<IpAddr>) -> Self {
        Self { ranges, taken }
    }

    /// Whether there is no range to take from.
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether an address belongs to one of the ranges.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// Whether there is a range of the family of this address.
    pub fn has_family_of(&self, address: IpAddr) -> bool {
        self.range(address.is_ipv4()).is_some()
    }

    /// Takes exactly this address. False if it is taken.
    pub fn claim(&mut self, address: IpAddr) -> bool {
        self.taken.insert(address)
    }

    /// Takes a free address of a family for a name: the one its hash leads to, or the next free one. None if the range is full.
    ///
    /// So in an empty store the same names get the same addresses, independent of their order, unless two hashes collide.
    pub fn take(&mut self, name: &str, is_ipv4: bool) -> Option<IpAddr> {
        let range = self.range(is_ipv4)?;
        // Neither the network's own address nor its broadcast address.
        let (first, last) = match range {
            IpNetwork::V4(range) => (
                u128::from(range.network().to_bits()) + 1,
                u128::from(range.broadcast().to_bits()) - 1,
            ),
            IpNetwork::V6(range) => (
                range.network().to_bits() + 1,
                range.broadcast().to_bits() - 1,
            ),
        };
        let size = last.checked_sub(first)?.checked_add(1)?;
        let start = u128::from(hash(name)) % size;
        // At most this many are taken, so one of the next is free unless the range is full.
        let most = size.min(self.taken.len() as u128 + 1);
        let free = (0..most)
            .map(|step| to_address(first + (start + step) % size, is_ipv4))
            .find(|address| !self.taken.contains(address))?;
        self.taken.insert(free);
        Some(free)
    }

    fn range(&self, is_ipv4: bool) -> Option<IpNetwork> {
        self.ranges
            .iter()
            .copied()
            .find(|range| range.is_ipv4() == is_ipv4)
    }
}

/// Why addresses cannot be taken from a range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RangeError {
    /// It has host bits.
    #[error("{range} has bits beyond its prefix; write {}/{}", .range.network(), .range.prefix())]
    HostBits {
        /// The range.
        range: IpNetwork,
    },
    /// It is too small.
    #[error("{range} holds too few addresses; the longest prefix is /{longest}")]
    Small {
        /// The range.
        range: IpNetwork,
        /// The longest prefix of such a range.
        longest: u8,
    },
    /// It has all addresses of its family.
    #[error("{0} is every address there is; name a range that is for services only")]
    Everything(IpNetwork),
}

/// Checks that addresses can be taken from a range.
///
/// # Errors
/// See [`RangeError`].
pub fn check_range(range: IpNetwork) -> Result<(), RangeError> {
    // Two addresses besides the first and the last one.
    let longest = if range.is_ipv4() { 30 } else { 126 };
    if range.ip() != range.network() {
        Err(RangeError::HostBits { range })
    } else if range.prefix() > longest {
        Err(RangeError::Small { range, longest })
    } else if range.prefix() == 0 {
        Err(RangeError::Everything(range))
    } else {
        Ok(())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "an address of IPv4 has 32 bits"
)]
fn to_address(bits: u128, is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        Ipv4Addr::from_bits(bits as u32).into()
    } else {
        Ipv6Addr::from_bits(bits).into()
    }
}

/// FNV-1a, which must give the same result in every version of this program.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(texts: &[&str]) -> Vec<IpNetwork> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn name_leads_to_same_address_in_every_version() {
        let ranges = ranges(&["10.97.0.0/16", "fd00:97::/112"]);
        let mut pool = AddressPool::new(&ranges, BTreeSet::new());
        let taken =
            [true, false].map(|is_ipv4| pool.take("default/web", is_ipv4).unwrap().to_string());
        assert_eq!(taken, ["10.97.251.238", "fd00:97::fbee"]);
    }

    #[test]
    fn every_address_but_first_and_last_is_given_once() {
        for range in ["10.0.0.0/28", "fd00::/124"] {
            let ranges = ranges(&[range]);
            let is_ipv4 = ranges[0].is_ipv4();
            let mut pool = AddressPool::new(&ranges, BTreeSet::new());
            let taken: Vec<_> = (0..15)
                .map(|n| pool.take(&format!("s{n}"), is_ipv4))
                .collect();
            let given: BTreeSet<IpAddr> = taken.iter().flatten().copied().collect();
            assert_eq!((given.len(), taken[14]), (14, None), "{range}");
            assert!(given.iter().all(|address| ranges[0].contains(*address)));
        }
    }

    #[test]
    fn ranges_without_room_or_with_host_bits_are_refused() {
        assert!(check_range("10.0.0.0/30".parse().unwrap()).is_ok());
        for wrong in [
            "10.0.0.0/31",
            "10.0.0.1/24",
            "0.0.0.0/0",
            "fd00::/127",
            "::/0",
        ] {
            assert!(check_range(wrong.parse().unwrap()).is_err(), "{wrong}");
        }
    }
}
