//! The parts of keys and data of sets, and the user data of sets, by which `nft list` prints them as declared.
//!
//! The kernel only stores these bytes. Source: nftables' `udata` writers (`src/mnl.c`, `src/expression.c`, `src/payload.c`,
//! `src/meta.c`, `src/numgen.c`) and libnftnl's `include/libnftnl/udata.h`. Items are type, length and value; numbers are in
//! host order.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use super::{Family, Field};
use crate::nftables::netlink::constants::expr;

/// A part of a key, or of data.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Daddr(Family),
    Saddr(Family),
    L4Proto,
    Dport,
    Sport,
    /// nft needs a modulus, but any one will do.
    Slot,
    Priority,
    InputInterface,
    OutputInterface,
    /// Bytes behind the header of the transport layer.
    Transport {
        offset: u32,
        len: u32,
    },
}

// Items of a set.
const KEY_BYTEORDER: u8 = 0;
const DATA_BYTEORDER: u8 = 1;
const KEY_TYPEOF: u8 = 3;
const DATA_TYPEOF: u8 = 4;
const DATA_INTERVAL: u8 = 6;

// Items of an expression.
const EXPRESSION: u8 = 0;
const EXPRESSION_DATA: u8 = 1;

// Kinds of expression: nft's `enum expr_types`.
const EXPR_PAYLOAD: u32 = 7;
const EXPR_META: u32 = 9;
const EXPR_CONCAT: u32 = 13;
const EXPR_NUMGEN: u32 = 23;

// Byte orders: nft's `enum byteorder`.
const BYTEORDER_NONE: u32 = 0;
const BYTEORDER_HOST: u32 = 1;
const BYTEORDER_BIG_ENDIAN: u32 = 2;

/// The data of a verdict map: an expression of kind `EXPR_VERDICT` (1) without further items.
const VERDICT: &[u8] = &[EXPRESSION, 4, 1, 0, 0, 0, EXPRESSION_DATA, 0];

impl Part {
    /// The field of a packet that it is; none for plain bytes.
    const fn field(self) -> Option<Field> {
        Some(match self {
            Self::Daddr(family) => Field::Daddr(family),
            Self::Saddr(family) => Field::Saddr(family),
            Self::L4Proto => Field::L4Proto,
            Self::Dport => Field::Dport,
            Self::Sport => Field::Sport,
            Self::Slot => Field::Random(2),
            Self::Priority => Field::Priority,
            Self::InputInterface => Field::InputInterface,
            Self::OutputInterface => Field::OutputInterface,
            Self::Transport { .. } => return None,
        })
    }

    /// Bytes, without padding.
    pub(super) const fn len(self) -> u32 {
        match (self, self.field()) {
            (Self::Transport { len, .. }, _) => len,
            (_, Some(field)) => field.len(),
            (_, None) => 0,
        }
    }

    /// nft's number for its data type. Source: nftables' `include/datatype.h`.
    const fn datatype(self) -> u32 {
        match self {
            Self::Slot | Self::Transport { .. } => INTEGER,
            Self::Daddr(Family::V4) | Self::Saddr(Family::V4) => 7,
            Self::Daddr(Family::V6) | Self::Saddr(Family::V6) => 8,
            Self::L4Proto => INET_PROTOCOL,
            Self::Dport | Self::Sport => 13,
            Self::Priority => 23,
            Self::InputInterface | Self::OutputInterface => 41,
        }
    }

    /// The type in nft's language.
    pub(super) const fn type_name(self) -> &'static str {
        match self {
            Self::Slot | Self::Transport { .. } => "integer",
            Self::Daddr(Family::V4) | Self::Saddr(Family::V4) => "ipv4_addr",
            Self::Daddr(Family::V6) | Self::Saddr(Family::V6) => "ipv6_addr",
            Self::L4Proto => "inet_proto",
            Self::Dport | Self::Sport => "inet_service",
            Self::Priority => "classid",
            Self::InputInterface | Self::OutputInterface => "ifname",
        }
    }

    const fn byte_order(self) -> u32 {
        match self {
            Self::Slot | Self::Priority | Self::InputInterface | Self::OutputInterface => {
                BYTEORDER_HOST
            }
            Self::Daddr(_)
            | Self::Saddr(_)
            | Self::L4Proto
            | Self::Dport
            | Self::Sport
            | Self::Transport { .. } => BYTEORDER_BIG_ENDIAN,
        }
    }

    /// The expression of `typeof`.
    fn expression(self) -> Vec<u8> {
        // Payload: protocol description and field; nft's numbers for ip, ip6, th and their fields.
        let payload = |description: u32, field: u32| {
            expression(
                EXPR_PAYLOAD,
                &[number(0, description), number(1, field)].concat(),
            )
        };
        // The only item is the meta key: `NFT_META_L4PROTO` and so on.
        let meta = |key: u32| expression(EXPR_META, &number(0, key));
        match self {
            Self::Daddr(Family::V4) => payload(12, 12),
            Self::Daddr(Family::V6) => payload(13, 9),
            Self::Saddr(Family::V4) => payload(12, 11),
            Self::Saddr(Family::V6) => payload(13, 8),
            Self::Dport => payload(11, 2),
            Self::Sport => payload(11, 1),
            // Of no known protocol: base, and offset and length in bits.
            Self::Transport { offset, len } => expression(
                EXPR_PAYLOAD,
                &[
                    number(0, 0),
                    number(1, 0),
                    number(2, TRANSPORT_BASE),
                    number(3, offset * 8),
                    number(4, len * 8),
                ]
                .concat(),
            ),
            Self::L4Proto => meta(expr::META_L4PROTO),
            Self::Priority => meta(expr::META_PRIORITY),
            Self::InputInterface => meta(expr::META_IIFNAME),
            Self::OutputInterface => meta(expr::META_OIFNAME),
            // Type (random), modulus, offset.
            Self::Slot => expression(
                EXPR_NUMGEN,
                &[number(0, 1), number(1, 2), number(2, 0)].concat(),
            ),
        }
    }
}

impl fmt::Display for Part {
    /// As after `typeof`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.field()) {
            (Self::Transport { offset, len }, _) => write!(f, "@th,{},{}", offset * 8, len * 8),
            (_, Some(field)) => field.fmt(f),
            (_, None) => Ok(()),
        }
    }
}

/// nft's number for the data type of plain bytes.
const INTEGER: u32 = 4;
/// nft's number for the header of the transport layer: `PROTO_BASE_TRANSPORT_HDR`.
const TRANSPORT_BASE: u32 = 3;
/// nft's number for the data type of `meta l4proto`.
pub(super) const INET_PROTOCOL: u32 = 12;

/// nft's number for the data type of parts; a concatenation packs them at six bits each.
pub(super) fn datatype(parts: &[Part]) -> u32 {
    parts
        .iter()
        .fold(0, |packed, part| packed << 6 | part.datatype())
}

/// Bytes of parts; each of several is padded to four.
pub(super) fn len(parts: &[Part]) -> u32 {
    match parts {
        [part] => part.len(),
        _ => parts
            .iter()
            .map(|part| part.len().next_multiple_of(4))
            .sum(),
    }
}

/// The address and port at the beginning of a key or value.
pub(super) fn parse_end(family: Family, bytes: &[u8]) -> Option<SocketAddr> {
    let (address, port) = bytes.split_at_checked(usize::from(family.address_len()))?;
    let address = match family {
        Family::V4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        Family::V6 => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
    };
    let port = u16::from_be_bytes(*port.first_chunk()?);
    Some(SocketAddr::new(address, port))
}

/// The data of a map.
#[derive(Debug, Clone)]
pub(super) enum Data {
    Parts(Vec<Part>),
    Verdict,
}

/// How a set is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeclaredBy {
    /// `typeof` and expressions.
    Typeof,
    /// `type` and data types.
    Type,
}

/// The user data of a set, or of a map.
pub(super) fn userdata(key: &[Part], data: Option<&Data>, by: DeclaredBy) -> Vec<u8> {
    let key_order = number(KEY_BYTEORDER, byte_order(key));
    let key = match (by, key) {
        (DeclaredBy::Typeof, key) => item(KEY_TYPEOF, &expressions(key)),
        // Only a concatenation of types has an item, an empty one.
        (DeclaredBy::Type, [_]) => Vec::new(),
        (DeclaredBy::Type, _) => item(KEY_TYPEOF, &concatenation(&[])),
    };
    let Some(data) = data else {
        return [key_order, key].concat();
    };
    let (order, data) = match data {
        Data::Parts(parts) => (byte_order(parts), expressions(parts)),
        Data::Verdict => (BYTEORDER_NONE, VERDICT.to_vec()),
    };
    let data_order = number(DATA_BYTEORDER, order);
    [
        key_order,
        data_order,
        key,
        item(DATA_TYPEOF, &data),
        number(DATA_INTERVAL, 0),
    ]
    .concat()
}

fn byte_order(parts: &[Part]) -> u32 {
    match parts {
        [part] => part.byte_order(),
        _ => BYTEORDER_NONE,
    }
}

fn expressions(parts: &[Part]) -> Vec<u8> {
    match parts {
        [part] => part.expression(),
        _ => concatenation(parts),
    }
}

/// A concatenation of expressions.
fn concatenation(parts: &[Part]) -> Vec<u8> {
    let items: Vec<u8> = (0..)
        .zip(parts)
        .flat_map(|(index, part)| item(index, &part.expression()))
        .collect();
    expression(EXPR_CONCAT, &items)
}

/// The user data of the anonymous set in `meta l4proto { … }`.
pub(super) fn l4proto() -> Vec<u8> {
    [
        number(KEY_BYTEORDER, BYTEORDER_HOST),
        item(KEY_TYPEOF, &Part::L4Proto.expression()),
    ]
    .concat()
}

fn expression(kind: u32, data: &[u8]) -> Vec<u8> {
    [number(EXPRESSION, kind), item(EXPRESSION_DATA, data)].concat()
}

fn number(kind: u8, value: u32) -> Vec<u8> {
    item(kind, &value.to_ne_bytes())
}

fn item(kind: u8, value: &[u8]) -> Vec<u8> {
    #[allow(clippy::cast_possible_truncation)]
    let length = value.len() as u8;
    [&[kind, length], value].concat()
}
