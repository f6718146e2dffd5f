//! The address families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The two address families; each has its own sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The digit in the names of sets and chains.
    pub(crate) const fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }

    /// The family in nft's language.
    pub(crate) const fn nft(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// The address that represents all addresses of the node.
    pub(crate) const fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// Bytes of an address.
    pub(crate) const fn address_len(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }
}
