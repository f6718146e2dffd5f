//! The fields of a packet and its connection that rules read.

use std::fmt;

use super::Family;

/// Constant, so that a client gets the same backend after a restart, and on every node.
pub(super) const CLIENT_HASH_SEED: u32 = 0xc047;

/// Something that a rule reads of a packet or its connection, or draws for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// The family.
    Nfproto,
    /// The protocol of the transport layer.
    L4Proto,
    /// A number that rules can write.
    Priority,
    /// The name of the input interface; empty for packets of the node itself.
    InputInterface,
    /// The name of the output interface.
    OutputInterface,
    Saddr(Family),
    Daddr(Family),
    /// The destination address masked to all zeroes: the key of node ports.
    DaddrMasked(Family),
    Dport,
    Sport,
    /// The state of the connection, one bit for each state.
    CtState,
    /// Bits of the connection.
    CtStatus,
    /// The protocol of the connection.
    CtProtocol,
    /// The address that the connection's first packet was sent to.
    OriginalDaddr(Family),
    /// `OriginalDaddr` masked to all zeroes: the key of node ports.
    OriginalDaddrMasked(Family),
    /// The port that the connection's first packet was sent to.
    OriginalDport,
    /// Whether the source address is one of this node's.
    SaddrType,
    /// Whether the destination address is one of this node's.
    DaddrType,
    /// A random number below this one.
    Random(u32),
    /// A number below this one that is always the same for a client.
    ClientHash(Family, u32),
}

impl Field {
    /// The family of the header that it is part of; none if packets of both families have it.
    pub(crate) const fn header(self) -> Option<Family> {
        match self {
            Self::Saddr(family)
            | Self::Daddr(family)
            | Self::DaddrMasked(family)
            | Self::ClientHash(family, _) => Some(family),
            _ => None,
        }
    }

    /// Bytes.
    pub(super) const fn len(self) -> u32 {
        match self {
            Self::Nfproto | Self::L4Proto | Self::CtProtocol => 1,
            Self::Dport | Self::Sport | Self::OriginalDport => 2,
            Self::Priority
            | Self::CtState
            | Self::CtStatus
            | Self::SaddrType
            | Self::DaddrType
            | Self::Random(_)
            | Self::ClientHash(..) => 4,
            Self::InputInterface | Self::OutputInterface => IFNAMSIZ,
            Self::Saddr(family)
            | Self::Daddr(family)
            | Self::DaddrMasked(family)
            | Self::OriginalDaddr(family)
            | Self::OriginalDaddrMasked(family) => family.address_len() as u32,
        }
    }
}

/// Bytes of an interface name with its padding. Source: `if.h`.
const IFNAMSIZ: u32 = 16;

impl fmt::Display for Field {
    /// In nft's syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nfproto => f.write_str("meta nfproto"),
            Self::L4Proto => f.write_str("meta l4proto"),
            Self::Priority => f.write_str("meta priority"),
            Self::InputInterface => f.write_str("iifname"),
            Self::OutputInterface => f.write_str("oifname"),
            Self::Saddr(family) => write!(f, "{} saddr", family.nft()),
            Self::Daddr(family) => write!(f, "{} daddr", family.nft()),
            Self::DaddrMasked(family) => {
                write!(f, "{} daddr & {}", family.nft(), family.unspecified())
            }
            Self::Dport => f.write_str("th dport"),
            Self::Sport => f.write_str("th sport"),
            Self::CtState => f.write_str("ct state"),
            Self::CtStatus => f.write_str("ct status"),
            Self::CtProtocol => f.write_str("ct protocol"),
            Self::OriginalDaddr(family) => write!(f, "ct original {} daddr", family.nft()),
            Self::OriginalDaddrMasked(family) => {
                write!(
                    f,
                    "ct original {} daddr & {}",
                    family.nft(),
                    family.unspecified()
                )
            }
            Self::OriginalDport => f.write_str("ct original proto-dst"),
            Self::SaddrType => f.write_str("fib saddr type"),
            Self::DaddrType => f.write_str("fib daddr type"),
            Self::Random(modulus) => write!(f, "numgen random mod {modulus}"),
            Self::ClientHash(family, modulus) => {
                write!(
                    f,
                    "jhash {} saddr mod {modulus} seed {CLIENT_HASH_SEED:#x}",
                    family.nft()
                )
            }
        }
    }
}
