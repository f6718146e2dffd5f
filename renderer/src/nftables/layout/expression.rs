//! The expressions of rules: exactly those that nft itself would write for the rules of this table.
//!
//! A rule that nft could not have written works in the kernel, but makes `nft list ruleset` abort.

use super::{Family, Set, set::ANONYMOUS};
use crate::nftables::netlink::{
    Writer,
    constants::{LIST_ELEM, NFPROTO_IPV4, NFPROTO_IPV6, data, expr, rule, verdict},
};

/// A 32-bit register, 0 to 15. A key is gathered in consecutive registers.
pub(super) type Register = u8;

/// The register where every key begins.
pub(super) const FIRST: Register = 0;

/// Constant, so that a client gets the same backend after a restart, and on every node.
pub(super) const CLIENT_HASH_SEED: u32 = 0xc047;

/// The expressions of a rule. The id in [`Expression::Protocols`] is set when the rule is written.
pub(super) type Rule = Vec<Expression>;

/// One expression of a rule.
#[derive(Debug, Clone)]
pub(super) enum Expression {
    /// Matches this family.
    Family(Family),
    /// Matches this IP protocol.
    Protocol(u8),
    /// Matches the protocols in the anonymous set of this id.
    Protocols(u32),
    /// `ip saddr`, `ip6 saddr` into a register.
    Saddr(Family, Register),
    /// `ip daddr`, `ip6 daddr` into a register.
    Daddr(Family, Register),
    /// `ct original ip daddr` into a register.
    OriginalDaddr(Family, Register),
    /// Replaces the address in the register by all zeroes: `& 0.0.0.0`.
    MaskAway(Family, Register),
    /// `meta l4proto` into a register.
    L4Proto(Register),
    /// `ct protocol` into a register: the protocol of a packet that conntrack tracks.
    ConntrackProtocol(Register),
    /// `th dport` into a register.
    Dport(Register),
    /// `ct original proto-dst` into a register.
    OriginalDport(Register),
    /// `numgen random mod N` into a register.
    Random(u32, Register),
    /// `jhash ip saddr mod N` into a register: a client always gets the same number.
    ClientHash(Family, u32, Register),
    /// Stores the backend whose address is in this register under the key at [`FIRST`], with a timeout in seconds.
    Remember(Set, Register, u32),
    /// Matches packets whose source address is one of this node's (true), or is not (false).
    SaddrLocal(bool),
    /// The name of the input interface, empty for none, into the register at [`FIRST`]: `iifname`.
    Interface,
    /// `iifname != "lo"`
    NotByLoopback,
    /// `ct state new`
    StateNew,
    /// `ct state invalid,new`
    StateInvalidOrNew,
    /// `ct status dnat`
    StatusDnat,
    /// `ct status & (confirmed | dnat) == dnat`: the first packet of a connection whose destination was translated. Later
    /// packets belong to a confirmed connection, even if it is unanswered and its state is still "new".
    StatusDnatUnconfirmed,
    /// `ct status confirmed`: not the first packet of a connection.
    StatusConfirmed,
    /// Matches if the key at [`FIRST`] is in the set.
    In(Set),
    /// Matches if the key at [`FIRST`] is not in the set.
    NotIn(Set),
    /// Looks up the key at [`FIRST`], stores the number found as the packet's priority, and goes to the chain that the second
    /// map has for it. The packet's priority comes between the two maps since nft up to 1.0.6 cannot list one that is looked up
    /// by what another holds.
    GotoNumbered(Set, Set),
    /// `meta priority set none`
    ResetPriority,
    /// Looks up the key at [`FIRST`] and stores the value there.
    DataOf(Set),
    /// `dnat` to the address at [`FIRST`] and the port after it.
    Dnat(Family),
    /// `masquerade fully-random`
    Masquerade,
    /// `reject with tcp reset`
    RejectTcpReset,
    /// `reject`: ICMP or ICMPv6 port unreachable.
    Reject,
    /// `counter`
    Counter,
    /// `accept`: ends the evaluation of the base chain.
    Accept,
    Drop,
    Goto(&'static str),
    Jump(&'static str),
}

impl Expression {
    pub(super) fn write(&self, expressions: &mut Writer<'_>) {
        match self {
            Self::Family(family) => {
                meta(expressions, expr::META_NFPROTO, FIRST);
                compare(expressions, expr::CMP_EQ, &[nfproto(*family)]);
            }
            Self::Protocol(protocol) => {
                meta(expressions, expr::META_L4PROTO, FIRST);
                compare(expressions, expr::CMP_EQ, &[*protocol]);
            }
            Self::Protocols(id) => {
                meta(expressions, expr::META_L4PROTO, FIRST);
                lookup(expressions, ANONYMOUS, |attributes| attributes.u32(expr::LOOKUP_SET_ID, *id));
            }
            Self::Saddr(Family::V4, at) => payload(expressions, expr::PAYLOAD_NETWORK_HEADER, 12, 4, *at),
            Self::Saddr(Family::V6, at) => payload(expressions, expr::PAYLOAD_NETWORK_HEADER, 8, 16, *at),
            Self::Daddr(Family::V4, at) => payload(expressions, expr::PAYLOAD_NETWORK_HEADER, 16, 4, *at),
            Self::Daddr(Family::V6, at) => payload(expressions, expr::PAYLOAD_NETWORK_HEADER, 24, 16, *at),
            Self::Dport(at) => payload(expressions, expr::PAYLOAD_TRANSPORT_HEADER, 2, 2, *at),
            Self::L4Proto(at) => meta(expressions, expr::META_L4PROTO, *at),
            Self::ConntrackProtocol(at) => expression(expressions, "ct", |attributes| {
                attributes.u32(expr::CT_KEY, expr::CT_PROTOCOL);
                attributes.u32(expr::CT_DREG, register(*at));
            }),
            Self::OriginalDaddr(Family::V4, at) => conntrack_original(expressions, expr::CT_DST_IP, *at),
            Self::OriginalDaddr(Family::V6, at) => conntrack_original(expressions, expr::CT_DST_IP6, *at),
            Self::OriginalDport(at) => conntrack_original(expressions, expr::CT_PROTO_DST, *at),
            Self::MaskAway(family, at) => {
                let zeroes = [0; 16];
                bitwise(expressions, &zeroes[..usize::from(family.address_len())], *at);
            }
            Self::Random(modulus, at) => expression(expressions, "numgen", |attributes| {
                attributes.u32(expr::NUMGEN_DREG, register(*at));
                attributes.u32(expr::NUMGEN_MODULUS, *modulus);
                attributes.u32(expr::NUMGEN_TYPE, expr::NUMGEN_RANDOM);
                attributes.u32(expr::NUMGEN_OFFSET, 0);
            }),
            Self::ClientHash(family, modulus, at) => client_hash(expressions, *family, *modulus, *at),
            Self::Remember(memory, at, timeout) => expression(expressions, "dynset", |attributes| {
                attributes.u32(expr::DYNSET_SREG_KEY, register(FIRST));
                attributes.u32(expr::DYNSET_SREG_DATA, register(*at));
                attributes.u32(expr::DYNSET_OP, expr::DYNSET_OP_UPDATE);
                attributes.bytes(expr::DYNSET_TIMEOUT, &(u64::from(*timeout) * 1000).to_be_bytes());
                attributes.text(expr::DYNSET_SET_NAME, &memory.name());
            }),
            Self::SaddrLocal(wanted) => {
                expression(expressions, "fib", |attributes| {
                    attributes.u32(expr::FIB_FLAGS, expr::FIB_FLAG_SADDR);
                    attributes.u32(expr::FIB_RESULT, expr::FIB_RESULT_ADDRTYPE);
                    attributes.u32(expr::FIB_DREG, register(FIRST));
                });
                let operator = if *wanted { expr::CMP_EQ } else { expr::CMP_NEQ };
                compare(expressions, operator, &expr::ADDRTYPE_LOCAL.to_ne_bytes());
            }
            Self::Interface => meta(expressions, expr::META_IIFNAME, FIRST),
            Self::NotByLoopback => {
                meta(expressions, expr::META_IIFNAME, FIRST);
                compare(expressions, expr::CMP_NEQ, b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
            }
            Self::StateNew => conntrack_bits(expressions, expr::CT_STATE, expr::CT_STATE_NEW),
            Self::StateInvalidOrNew => {
                let states = expr::CT_STATE_INVALID | expr::CT_STATE_NEW;
                conntrack_bits(expressions, expr::CT_STATE, states);
            }
            Self::StatusDnat => conntrack_bits(expressions, expr::CT_STATUS, expr::CT_STATUS_DNAT),
            Self::StatusConfirmed => conntrack_bits(expressions, expr::CT_STATUS, expr::CT_STATUS_CONFIRMED),
            Self::StatusDnatUnconfirmed => conntrack_dnat_unconfirmed(expressions),
            Self::In(set) => lookup(expressions, &set.name(), |_| ()),
            Self::NotIn(set) => lookup(expressions, &set.name(), |attributes| {
                attributes.u32(expr::LOOKUP_FLAGS, expr::LOOKUP_FLAG_INV);
            }),
            Self::GotoNumbered(numbers, chains) => goto_numbered(expressions, *numbers, *chains),
            Self::ResetPriority => reset_priority(expressions),
            Self::DataOf(set) => lookup(expressions, &set.name(), |attributes| {
                attributes.u32(expr::LOOKUP_DREG, register(FIRST));
            }),
            Self::Dnat(family) => expression(expressions, "nat", |attributes| {
                attributes.u32(expr::NAT_TYPE, expr::NAT_TYPE_DNAT);
                attributes.u32(expr::NAT_FAMILY, u32::from(nfproto(*family)));
                attributes.u32(expr::NAT_REG_ADDR_MIN, register(FIRST));
                attributes.u32(expr::NAT_REG_PROTO_MIN, register(after_address(*family)));
            }),
            Self::Masquerade => expression(expressions, "masq", |attributes| {
                attributes.u32(expr::MASQ_FLAGS, expr::MASQ_FULLY_RANDOM);
            }),
            Self::RejectTcpReset => reject(expressions, expr::REJECT_TCP_RST, 0),
            Self::Reject => reject(expressions, expr::REJECT_ICMPX, expr::REJECT_ICMPX_PORT_UNREACH),
            Self::Counter => expression(expressions, "counter", |_| ()),
            Self::Accept => immediate(expressions, verdict::ACCEPT, None),
            Self::Drop => immediate(expressions, verdict::DROP, None),
            Self::Goto(chain) => immediate(expressions, verdict::GOTO, Some(chain)),
            Self::Jump(chain) => immediate(expressions, verdict::JUMP, Some(chain)),
        }
    }
}

/// The register after an address at [`FIRST`].
pub(super) const fn after_address(family: Family) -> Register {
    FIRST + family.address_len() / 4
}

/// The register after address, protocol and port.
pub(super) const fn after_frontend(family: Family) -> Register {
    after_address(family) + 2
}

/// The kernel's number of a 32-bit register: `NFT_REG32_00` is 8. Where one begins a 128-bit register it is written as
/// that one (1 to 4), as nft does.
const fn register(number: Register) -> u32 {
    if number.is_multiple_of(4) { 1 + (number / 4) as u32 } else { 8 + number as u32 }
}

/// The family's number in the kernel.
const fn nfproto(family: Family) -> u8 {
    match family {
        Family::V4 => NFPROTO_IPV4,
        Family::V6 => NFPROTO_IPV6,
    }
}

fn expression(expressions: &mut Writer<'_>, name: &str, fill: impl FnOnce(&mut Writer<'_>)) {
    expressions.nested(LIST_ELEM, |one| {
        one.text(rule::EXPR_NAME, name);
        one.nested(rule::EXPR_DATA, fill);
    });
}

fn meta(expressions: &mut Writer<'_>, key: u32, at: Register) {
    expression(expressions, "meta", |attributes| {
        attributes.u32(expr::META_KEY, key);
        attributes.u32(expr::META_DREG, register(at));
    });
}

fn goto_numbered(expressions: &mut Writer<'_>, numbers: Set, chains: Set) {
    Expression::DataOf(numbers).write(expressions);
    set_priority(expressions);
    meta(expressions, expr::META_PRIORITY, FIRST);
    // In the other numbering register 0 is the verdict.
    lookup(expressions, &chains.name(), |attributes| attributes.u32(expr::LOOKUP_DREG, 0));
}

fn reset_priority(expressions: &mut Writer<'_>) {
    expression(expressions, "immediate", |attributes| {
        attributes.u32(expr::IMMEDIATE_DREG, register(FIRST));
        attributes.nested(expr::IMMEDIATE_DATA, |data| data.bytes(data::VALUE, &0_u32.to_ne_bytes()));
    });
    set_priority(expressions);
}

/// Stores the value of the register at [`FIRST`] as the packet's priority.
fn set_priority(expressions: &mut Writer<'_>) {
    expression(expressions, "meta", |attributes| {
        attributes.u32(expr::META_KEY, expr::META_PRIORITY);
        attributes.u32(expr::META_SREG, register(FIRST));
    });
}

fn compare(expressions: &mut Writer<'_>, operator: u32, value: &[u8]) {
    expression(expressions, "cmp", |attributes| {
        attributes.u32(expr::CMP_SREG, register(FIRST));
        attributes.u32(expr::CMP_OP, operator);
        attributes.nested(expr::CMP_DATA, |data| data.bytes(data::VALUE, value));
    });
}

fn payload(expressions: &mut Writer<'_>, base: u32, offset: u32, len: u32, at: Register) {
    expression(expressions, "payload", |attributes| {
        attributes.u32(expr::PAYLOAD_DREG, register(at));
        attributes.u32(expr::PAYLOAD_BASE, base);
        attributes.u32(expr::PAYLOAD_OFFSET, offset);
        attributes.u32(expr::PAYLOAD_LEN, len);
    });
}

fn client_hash(expressions: &mut Writer<'_>, family: Family, modulus: u32, at: Register) {
    // Beyond the key: the hash reads its input from registers that nothing else uses.
    const INPUT: Register = 8;
    Expression::Saddr(family, INPUT).write(expressions);
    expression(expressions, "hash", |attributes| {
        attributes.u32(expr::HASH_SREG, register(INPUT));
        attributes.u32(expr::HASH_DREG, register(at));
        attributes.u32(expr::HASH_LEN, u32::from(family.address_len()));
        attributes.u32(expr::HASH_MODULUS, modulus);
        attributes.u32(expr::HASH_SEED, CLIENT_HASH_SEED);
        attributes.u32(expr::HASH_OFFSET, 0);
        attributes.u32(expr::HASH_TYPE, expr::HASH_JENKINS);
    });
}

fn bitwise(expressions: &mut Writer<'_>, mask: &[u8], at: Register) {
    expression(expressions, "bitwise", |attributes| {
        attributes.u32(expr::BITWISE_SREG, register(at));
        attributes.u32(expr::BITWISE_DREG, register(at));
        #[allow(clippy::cast_possible_truncation)]
        attributes.u32(expr::BITWISE_LEN, mask.len() as u32);
        attributes.nested(expr::BITWISE_MASK, |data| data.bytes(data::VALUE, mask));
        attributes.nested(expr::BITWISE_XOR, |data| data.bytes(data::VALUE, &[0; 16][..mask.len()]));
    });
}

fn conntrack_original(expressions: &mut Writer<'_>, key: u32, at: Register) {
    expression(expressions, "ct", |attributes| {
        attributes.u32(expr::CT_KEY, key);
        attributes.u32(expr::CT_DREG, register(at));
        attributes.u8(expr::CT_DIRECTION, expr::CT_DIR_ORIGINAL);
    });
}

/// Matches if one of these bits of a conntrack field is set.
fn conntrack_bits(expressions: &mut Writer<'_>, key: u32, bits: u32) {
    conntrack_masked(expressions, key, bits);
    compare(expressions, expr::CMP_NEQ, &0u32.to_ne_bytes());
}

/// Matches if the connection is translated and not confirmed yet.
fn conntrack_dnat_unconfirmed(expressions: &mut Writer<'_>) {
    conntrack_masked(expressions, expr::CT_STATUS, expr::CT_STATUS_CONFIRMED | expr::CT_STATUS_DNAT);
    compare(expressions, expr::CMP_EQ, &expr::CT_STATUS_DNAT.to_ne_bytes());
}

/// These bits of a conntrack field into the register at [`FIRST`].
fn conntrack_masked(expressions: &mut Writer<'_>, key: u32, bits: u32) {
    expression(expressions, "ct", |attributes| {
        attributes.u32(expr::CT_KEY, key);
        attributes.u32(expr::CT_DREG, register(FIRST));
    });
    bitwise(expressions, &bits.to_ne_bytes(), FIRST);
}

fn lookup(expressions: &mut Writer<'_>, set: &str, more: impl FnOnce(&mut Writer<'_>)) {
    expression(expressions, "lookup", |attributes| {
        attributes.u32(expr::LOOKUP_SREG, register(FIRST));
        attributes.text(expr::LOOKUP_SET, set);
        more(attributes);
    });
}

fn reject(expressions: &mut Writer<'_>, kind: u32, code: u8) {
    expression(expressions, "reject", |attributes| {
        attributes.u32(expr::REJECT_TYPE, kind);
        attributes.u8(expr::REJECT_ICMP_CODE, code);
    });
}

fn immediate(expressions: &mut Writer<'_>, code: i32, chain: Option<&str>) {
    expression(expressions, "immediate", |attributes| {
        attributes.u32(expr::IMMEDIATE_DREG, 0);
        attributes.nested(expr::IMMEDIATE_DATA, |data| write_verdict(data, code, chain));
    });
}

/// The data of a verdict, in an expression or in an element of a verdict map.
pub(crate) fn write_verdict(data: &mut Writer<'_>, code: i32, chain: Option<&str>) {
    data.nested(data::VERDICT, |attributes| {
        attributes.bytes(data::VERDICT_CODE, &code.to_be_bytes());
        if let Some(chain) = chain {
            attributes.text(data::VERDICT_CHAIN, chain);
        }
    });
}
