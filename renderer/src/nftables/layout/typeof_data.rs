//! User data of sets, which lets `nft list` print the expressions of a set's keys.
//!
//! The kernel only stores these bytes. Source: nftables' `udata` writers (`src/mnl.c`, `src/expression.c`, `src/payload.c`,
//! `src/meta.c`, `src/numgen.c`) and libnftnl's `include/libnftnl/udata.h`. Items are type, length and value; numbers are in
//! host order.

use super::Family;

/// An expression of a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Typeof {
    /// `ip daddr` or `ip6 daddr`
    Daddr(Family),
    /// `ip saddr` or `ip6 saddr`
    Saddr(Family),
    /// `meta l4proto`
    L4Proto,
    /// `th dport`
    Dport,
    /// `numgen random mod 2`: nft needs a modulus, but any one will do.
    Slot,
    /// `meta priority`
    Priority,
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

impl Typeof {
    fn bytes(self) -> Vec<u8> {
        // Payload: protocol description and field; nft's numbers for ip, ip6, th and their fields.
        let payload = |description: u32, field: u32| {
            expression(EXPR_PAYLOAD, &[number(0, description), number(1, field)].concat())
        };
        match self {
            Self::Daddr(Family::V4) => payload(12, 12),
            Self::Daddr(Family::V6) => payload(13, 9),
            Self::Saddr(Family::V4) => payload(12, 11),
            Self::Saddr(Family::V6) => payload(13, 8),
            Self::Dport => payload(11, 2),
            // The only item is the meta key: `NFT_META_L4PROTO`, `NFT_META_PRIORITY`.
            Self::L4Proto => expression(EXPR_META, &number(0, 16)),
            Self::Priority => expression(EXPR_META, &number(0, 2)),
            // Type (random), modulus, offset.
            Self::Slot => expression(EXPR_NUMGEN, &[number(0, 1), number(1, 2), number(2, 0)].concat()),
        }
    }
}

/// A concatenation of expressions.
fn concatenation(parts: &[Typeof]) -> Vec<u8> {
    let items: Vec<u8> = (0..).zip(parts).flat_map(|(index, part)| item(index, &part.bytes())).collect();
    expression(EXPR_CONCAT, &items)
}

/// The user data of a set with these keys.
pub(super) fn set(key: &[Typeof]) -> Vec<u8> {
    [number(KEY_BYTEORDER, BYTEORDER_NONE), item(KEY_TYPEOF, &concatenation(key))].concat()
}

/// The user data of a map with these keys and this data, both concatenations.
pub(super) fn map(key: &[Typeof], data: &[Typeof]) -> Vec<u8> {
    map_of([BYTEORDER_NONE, BYTEORDER_NONE], &concatenation(key), &concatenation(data))
}

/// The user data of a map with these keys and data of the type `meta priority`.
pub(super) fn number_map(key: &[Typeof]) -> Vec<u8> {
    map_of([BYTEORDER_NONE, BYTEORDER_HOST], &concatenation(key), &Typeof::Priority.bytes())
}

/// The user data of a map from `meta priority` to verdicts.
pub(super) fn verdicts_by_number() -> Vec<u8> {
    map_of([BYTEORDER_HOST, BYTEORDER_NONE], &Typeof::Priority.bytes(), VERDICT)
}

fn map_of([key_order, data_order]: [u32; 2], key: &[u8], data: &[u8]) -> Vec<u8> {
    [
        number(KEY_BYTEORDER, key_order),
        number(DATA_BYTEORDER, data_order),
        item(KEY_TYPEOF, key),
        item(DATA_TYPEOF, data),
        number(DATA_INTERVAL, 0),
    ]
    .concat()
}

/// The user data of a set declared `type ipv4_addr` or `type ipv6_addr`.
pub(super) fn plain_address() -> Vec<u8> {
    number(KEY_BYTEORDER, BYTEORDER_BIG_ENDIAN)
}

/// The user data of a set declared `type ifname`.
pub(super) fn plain_text() -> Vec<u8> {
    number(KEY_BYTEORDER, BYTEORDER_HOST)
}

/// The user data of a set declared by the types of a concatenation.
pub(super) fn plain_concatenation() -> Vec<u8> {
    [number(KEY_BYTEORDER, BYTEORDER_NONE), item(KEY_TYPEOF, &expression(EXPR_CONCAT, &[]))].concat()
}

/// The user data of the anonymous set in `meta l4proto { … }`.
pub(super) fn l4proto() -> Vec<u8> {
    [number(KEY_BYTEORDER, BYTEORDER_HOST), item(KEY_TYPEOF, &Typeof::L4Proto.bytes())].concat()
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
