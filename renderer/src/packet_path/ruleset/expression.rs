//! Expressions of rules, decoded from the kernel's attributes.

use super::xt::{XtMatch, XtTarget};
use crate::nftables::netlink::{
    Attributes,
    constants::{LIST_ELEM, data, elem, expr, object, rule, verdict},
};

/// The bytes of all registers.
pub(in crate::packet_path) const REGISTER_BYTES: usize = 64;
/// The bytes of a value of unknown length, at most.
const LONGEST_UNKNOWN: usize = 16;

/// The offset of a register in the bytes of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::packet_path) struct Register(pub(in crate::packet_path) usize);

/// A verdict, as rules and elements of verdict maps have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::packet_path) enum Verdict {
    /// The next base chain.
    Accept,
    /// The packet ends.
    Drop,
    /// A program of user space decides; without one the packet ends, unless it is bypassed.
    Queue {
        /// Without a program the packet continues.
        is_bypassed: bool,
    },
    /// The next rule.
    Continue,
    /// Back to the chain that jumped here.
    Return,
    /// To a chain, and back.
    Jump(String),
    /// To a chain.
    Goto(String),
}

/// The data of an element, or of an immediate expression.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::packet_path) enum Data {
    /// None: of a set.
    None,
    /// Of a map.
    Value(Vec<u8>),
    /// Of a verdict map.
    Verdict(Verdict),
}

/// A condition on the rate or number of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::packet_path) struct Limit {
    /// Its name.
    pub(in crate::packet_path) name: &'static str,
    /// It matches packets beyond it, and not those within.
    pub(in crate::packet_path) is_over: bool,
}

/// Registers with the least and the greatest value.
pub(in crate::packet_path) type RegisterRange = (Register, Register);

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::packet_path) enum Expression {
    Immediate {
        to: Register,
        value: Vec<u8>,
    },
    Verdict(Verdict),
    Payload {
        base: u32,
        offset: usize,
        len: usize,
        to: Register,
    },
    PayloadWrite {
        base: u32,
        offset: usize,
        len: usize,
    },
    Meta {
        key: u32,
        to: Register,
    },
    MetaSet {
        key: u32,
        from: Register,
    },
    Compare {
        from: Register,
        operator: u32,
        value: Vec<u8>,
    },
    Range {
        from: Register,
        is_inverted: bool,
        low: Vec<u8>,
        high: Vec<u8>,
    },
    Bitwise {
        from: Register,
        to: Register,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    Shift {
        from: Register,
        to: Register,
        len: usize,
        is_left: bool,
        bits: u32,
    },
    Byteorder {
        from: Register,
        to: Register,
        len: usize,
        size: usize,
    },
    /// With `to` the data of the element is written there; a verdict is followed.
    Lookup {
        set: String,
        key: Register,
        to: Option<LookupTarget>,
        is_inverted: bool,
    },
    Object {
        kind: u32,
        name: String,
    },
    ObjectMap {
        set: String,
        key: Register,
    },
    /// A random number below `modulus`, plus `offset`.
    Random {
        modulus: u32,
        offset: u32,
        to: Register,
    },
    /// A hash of a part of the packet below `modulus`, plus `offset`.
    Hash {
        modulus: u32,
        offset: u32,
        to: Register,
    },
    Dynset {
        set: String,
        is_inverted: bool,
        limits: Vec<Limit>,
        /// The seconds after which the element expires, if they are not the set's.
        timeout: Option<u32>,
    },
    Conntrack {
        key: u32,
        direction: Option<u8>,
        to: Register,
    },
    ConntrackSet {
        key: u32,
        from: Register,
    },
    Fib {
        result: u32,
        flags: u32,
        to: Register,
    },
    /// A header that packets of connections do not have: the rule does not match, or 0 says that it is absent.
    AbsentHeader {
        to: Option<Register>,
    },
    /// A value that cannot be known.
    Unknown {
        name: String,
        to: Option<(Register, usize)>,
    },
    Limit(Limit),
    /// It changes an option of TCP: the size of the segments that the other side may send.
    ClampSegments,
    /// Nothing that concerns the way of a packet.
    Harmless,
    Notrack,
    Nat {
        is_destination: bool,
        address: Option<RegisterRange>,
        port: Option<RegisterRange>,
    },
    Masquerade,
    Redirect {
        port: Option<RegisterRange>,
    },
    Reject,
    /// The packet ends in a socket of this node, or elsewhere.
    Divert {
        name: &'static str,
        is_for_tcp_only: bool,
    },
    Match(XtMatch),
    Target(XtTarget),
}

/// The place of the data of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::packet_path) enum LookupTarget {
    Register(Register),
    Verdict,
}

impl Expression {
    /// Decodes one expression with its name. One that has not the attributes it should have is unknown.
    pub(in crate::packet_path) fn decode(expression: Attributes<'_>) -> Self {
        let name = expression.text(rule::EXPR_NAME).unwrap_or_default();
        let attributes = expression
            .nested(rule::EXPR_DATA)
            .unwrap_or(Attributes(&[]));
        let decoded = match name {
            "immediate" => immediate(attributes),
            "payload" => payload(attributes),
            "meta" => meta(attributes),
            "cmp" => compare(attributes),
            "range" => range(attributes),
            "bitwise" => bitwise(attributes),
            "byteorder" => byteorder(attributes),
            "lookup" => lookup(attributes),
            "objref" => object_reference(attributes),
            "numgen" => random(attributes),
            "hash" => hash(attributes),
            "dynset" => Some(dynset(attributes)),
            "ct" => conntrack(attributes),
            "fib" => fib(attributes),
            "exthdr" => exthdr(attributes),
            "limit" | "quota" | "connlimit" => limit(name, attributes).map(Self::Limit),
            "counter" | "log" | "last" | "dup" | "flow_offload" | "secmark" => Some(Self::Harmless),
            "notrack" => Some(Self::Notrack),
            "nat" => nat(attributes),
            "masq" => Some(Self::Masquerade),
            "redir" => Some(Self::Redirect {
                port: register_range(attributes, expr::REDIR_PROTO_MIN, expr::REDIR_PROTO_MAX),
            }),
            "reject" => Some(Self::Reject),
            "queue" => Some(Self::Verdict(Verdict::Queue {
                is_bypassed: queue_flags(attributes) & expr::QUEUE_FLAG_BYPASS != 0,
            })),
            "fwd" => Some(divert("fwd", false)),
            "tproxy" => Some(divert("tproxy", false)),
            "synproxy" => Some(divert("synproxy", true)),
            "match" => XtMatch::decode(attributes).map(Self::Match),
            "target" => XtTarget::decode(attributes).map(Self::Target),
            _ => None,
        };
        decoded.unwrap_or_else(|| unknown(name, attributes))
    }
}

fn divert(name: &'static str, is_for_tcp_only: bool) -> Expression {
    Expression::Divert {
        name,
        is_for_tcp_only,
    }
}

/// An expression whose result is random, or depends on what is not known here.
fn unknown(name: &str, attributes: Attributes<'_>) -> Expression {
    let place = |attribute, len| register(attributes, attribute).map(|to| (to, len));
    let to = match name {
        "rt" | "osf" | "xfrm" => place(1, LONGEST_UNKNOWN),
        "tunnel" | "socket" => place(2, LONGEST_UNKNOWN),
        "exthdr" => place(expr::EXTHDR_DREG, LONGEST_UNKNOWN),
        "bitwise" => place(expr::BITWISE_DREG, LONGEST_UNKNOWN),
        _ => None,
    };
    Expression::Unknown {
        name: name.to_owned(),
        to,
    }
}

/// Registers of 16 bytes have the numbers 1 to 4, those of 4 bytes begin with 8. None for that of verdicts, and for others.
fn register(attributes: Attributes<'_>, kind: u16) -> Option<Register> {
    match attributes.u32(kind)? as usize {
        number @ 1..=4 => Some(Register((number - 1) * 16)),
        number @ 8..=23 => Some(Register((number - 8) * 4)),
        _ => None,
    }
}

/// Whether an attribute names the register of verdicts.
fn is_verdict(attributes: Attributes<'_>, kind: u16) -> bool {
    attributes.u32(kind) == Some(0)
}

fn register_range(attributes: Attributes<'_>, low: u16, high: u16) -> Option<RegisterRange> {
    let low = register(attributes, low)?;
    Some((low, register(attributes, high).unwrap_or(low)))
}

fn value(attributes: Attributes<'_>, kind: u16) -> Option<Vec<u8>> {
    let value = attributes.nested(kind)?.get(data::VALUE)?;
    (value.len() <= REGISTER_BYTES).then(|| value.to_vec())
}

fn length(attributes: Attributes<'_>, kind: u16) -> Option<usize> {
    usize::try_from(attributes.u32(kind)?).ok()
}

/// The data of an element or an immediate expression.
pub(in crate::packet_path) fn decode_data(attributes: Attributes<'_>) -> Option<Data> {
    if let Some(value) = attributes.get(data::VALUE) {
        return Some(Data::Value(value.to_vec()));
    }
    let nested = attributes.nested(data::VERDICT)?;
    let code = nested.u32(data::VERDICT_CODE)?.cast_signed();
    let chain = nested.text(data::VERDICT_CHAIN).map(str::to_owned);
    Some(Data::Verdict(match (code, chain) {
        (verdict::CONTINUE | verdict::BREAK, _) => Verdict::Continue,
        (verdict::RETURN, _) => Verdict::Return,
        (verdict::JUMP, Some(chain)) => Verdict::Jump(chain),
        (verdict::GOTO, Some(chain)) => Verdict::Goto(chain),
        (verdict::DROP, _) => Verdict::Drop,
        (verdict::ACCEPT, _) => Verdict::Accept,
        // `NF_VERDICT_FLAG_QUEUE_BYPASS`
        (code, _) if code > 0 && code & verdict::MASK == verdict::QUEUE => Verdict::Queue {
            is_bypassed: code & 0x8000 != 0,
        },
        _ => return None,
    }))
}

fn immediate(attributes: Attributes<'_>) -> Option<Expression> {
    let decoded = decode_data(attributes.nested(expr::IMMEDIATE_DATA)?)?;
    Some(match decoded {
        Data::Verdict(verdict) => Expression::Verdict(verdict),
        Data::Value(value) if value.len() <= REGISTER_BYTES => Expression::Immediate {
            to: register(attributes, expr::IMMEDIATE_DREG)?,
            value,
        },
        _ => return None,
    })
}

fn payload(attributes: Attributes<'_>) -> Option<Expression> {
    let base = attributes.u32(expr::PAYLOAD_BASE)?;
    let offset = length(attributes, expr::PAYLOAD_OFFSET)?;
    let len = length(attributes, expr::PAYLOAD_LEN)?;
    if register(attributes, expr::PAYLOAD_SREG).is_some() {
        return Some(Expression::PayloadWrite { base, offset, len });
    }
    let to = register(attributes, expr::PAYLOAD_DREG)?;
    Some(Expression::Payload {
        base,
        offset,
        len: (len <= REGISTER_BYTES).then_some(len)?,
        to,
    })
}

fn meta(attributes: Attributes<'_>) -> Option<Expression> {
    let key = attributes.u32(expr::META_KEY)?;
    if let Some(from) = register(attributes, expr::META_SREG) {
        return Some(Expression::MetaSet { key, from });
    }
    let to = register(attributes, expr::META_DREG)?;
    Some(Expression::Meta { key, to })
}

fn compare(attributes: Attributes<'_>) -> Option<Expression> {
    Some(Expression::Compare {
        from: register(attributes, expr::CMP_SREG)?,
        operator: attributes
            .u32(expr::CMP_OP)
            .filter(|operator| *operator <= expr::CMP_GTE)?,
        value: value(attributes, expr::CMP_DATA)?,
    })
}

fn range(attributes: Attributes<'_>) -> Option<Expression> {
    Some(Expression::Range {
        from: register(attributes, expr::RANGE_SREG)?,
        is_inverted: attributes.u32(expr::RANGE_OP)? == expr::RANGE_NEQ,
        low: value(attributes, expr::RANGE_FROM)?,
        high: value(attributes, expr::RANGE_TO)?,
    })
}

fn bitwise(attributes: Attributes<'_>) -> Option<Expression> {
    let from = register(attributes, expr::BITWISE_SREG)?;
    let to = register(attributes, expr::BITWISE_DREG)?;
    let operation = attributes
        .u32(expr::BITWISE_OP)
        .unwrap_or(expr::BITWISE_MASK_XOR);
    match operation {
        expr::BITWISE_MASK_XOR => Some(Expression::Bitwise {
            from,
            to,
            mask: value(attributes, expr::BITWISE_MASK)?,
            xor: value(attributes, expr::BITWISE_XOR)?,
        }),
        expr::BITWISE_LSHIFT | expr::BITWISE_RSHIFT => {
            let bits = value(attributes, expr::BITWISE_DATA)?;
            let bits = u32::from_ne_bytes(bits.try_into().ok()?);
            Some(Expression::Shift {
                from,
                to,
                len: length(attributes, expr::BITWISE_LEN)?,
                is_left: operation == expr::BITWISE_LSHIFT,
                bits: (bits < u32::BITS).then_some(bits)?,
            })
        }
        _ => None,
    }
}

fn byteorder(attributes: Attributes<'_>) -> Option<Expression> {
    let size = length(attributes, expr::BYTEORDER_SIZE)?;
    Some(Expression::Byteorder {
        from: register(attributes, expr::BYTEORDER_SREG)?,
        to: register(attributes, expr::BYTEORDER_DREG)?,
        len: length(attributes, expr::BYTEORDER_LEN)?,
        size: [2, 4, 8].contains(&size).then_some(size)?,
    })
}

fn lookup(attributes: Attributes<'_>) -> Option<Expression> {
    let flags = attributes.u32(expr::LOOKUP_FLAGS).unwrap_or_default();
    let to = if is_verdict(attributes, expr::LOOKUP_DREG) {
        Some(LookupTarget::Verdict)
    } else {
        register(attributes, expr::LOOKUP_DREG).map(LookupTarget::Register)
    };
    Some(Expression::Lookup {
        set: attributes.text(expr::LOOKUP_SET)?.to_owned(),
        key: register(attributes, expr::LOOKUP_SREG)?,
        to,
        is_inverted: flags & expr::LOOKUP_FLAG_INV != 0,
    })
}

fn random(attributes: Attributes<'_>) -> Option<Expression> {
    Some(Expression::Random {
        modulus: attributes.u32(expr::NUMGEN_MODULUS)?.max(1),
        offset: attributes.u32(expr::NUMGEN_OFFSET).unwrap_or_default(),
        to: register(attributes, expr::NUMGEN_DREG)?,
    })
}

fn hash(attributes: Attributes<'_>) -> Option<Expression> {
    Some(Expression::Hash {
        modulus: attributes.u32(expr::HASH_MODULUS)?.max(1),
        offset: attributes.u32(expr::HASH_OFFSET).unwrap_or_default(),
        to: register(attributes, expr::HASH_DREG)?,
    })
}

fn object_reference(attributes: Attributes<'_>) -> Option<Expression> {
    if let Some(name) = attributes.text(expr::OBJREF_IMM_NAME) {
        return Some(Expression::Object {
            kind: attributes.u32(expr::OBJREF_IMM_TYPE)?,
            name: name.to_owned(),
        });
    }
    Some(Expression::ObjectMap {
        set: attributes.text(expr::OBJREF_SET_NAME)?.to_owned(),
        key: register(attributes, expr::OBJREF_SET_SREG)?,
    })
}

/// The limits among the expressions of an element, or of a rule that adds elements.
pub(in crate::packet_path) fn limits_of(
    attributes: Attributes<'_>,
    single: u16,
    several: u16,
) -> Vec<Limit> {
    let list = attributes
        .nested(several)
        .into_iter()
        .flat_map(Attributes::iter)
        .filter(|(kind, _)| *kind == LIST_ELEM)
        .map(|(_, expression)| Attributes(expression));
    let all = attributes.nested(single).into_iter().chain(list);
    all.filter_map(|expression| {
        let name = expression.text(rule::EXPR_NAME)?;
        limit(name, expression.nested(rule::EXPR_DATA)?)
    })
    .collect()
}

/// The limits of an element.
pub(in crate::packet_path) fn limits_of_element(element: Attributes<'_>) -> Vec<Limit> {
    limits_of(element, elem::EXPR, elem::EXPRESSIONS)
}

fn dynset(attributes: Attributes<'_>) -> Expression {
    let flags = attributes.u32(expr::DYNSET_FLAGS).unwrap_or_default();
    let set = attributes.text(expr::DYNSET_SET_NAME).unwrap_or_default();
    let timeout = attributes.get(expr::DYNSET_TIMEOUT);
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    // Without one of its own the rule has 0, and the entry that of the set.
    let timeout = timeout.map(u64::from_be_bytes).filter(|it| *it > 0);
    Expression::Dynset {
        set: set.to_owned(),
        is_inverted: flags & expr::DYNSET_FLAG_INV != 0,
        limits: limits_of(attributes, expr::DYNSET_EXPR, expr::DYNSET_EXPRESSIONS),
        timeout: timeout.map(|timeout| u32::try_from(timeout / 1000).unwrap_or(u32::MAX)),
    }
}

fn limit(name: &str, attributes: Attributes<'_>) -> Option<Limit> {
    let (name, flags) = match name {
        "limit" => ("limit", expr::LIMIT_FLAGS),
        "quota" => ("quota", expr::QUOTA_FLAGS),
        "connlimit" => ("ct count", expr::CONNLIMIT_FLAGS),
        _ => return None,
    };
    let flags = attributes.u32(flags).unwrap_or_default();
    Some(Limit {
        name,
        is_over: flags & expr::LIMIT_FLAG_INV != 0,
    })
}

/// The limit that an object is; none if it is of another kind.
pub(in crate::packet_path) fn limit_of_object(
    kind: u32,
    attributes: Option<Attributes<'_>>,
) -> Option<Limit> {
    let name = match kind {
        object::TYPE_QUOTA => "quota",
        object::TYPE_LIMIT => "limit",
        object::TYPE_CONNLIMIT => "connlimit",
        _ => return None,
    };
    limit(name, attributes.unwrap_or(Attributes(&[])))
}

fn conntrack(attributes: Attributes<'_>) -> Option<Expression> {
    let key = attributes.u32(expr::CT_KEY)?;
    if let Some(from) = register(attributes, expr::CT_SREG) {
        return Some(Expression::ConntrackSet { key, from });
    }
    let direction = attributes.get(expr::CT_DIRECTION);
    Some(Expression::Conntrack {
        key,
        direction: direction.and_then(|direction| direction.first().copied()),
        to: register(attributes, expr::CT_DREG)?,
    })
}

fn fib(attributes: Attributes<'_>) -> Option<Expression> {
    Some(Expression::Fib {
        result: attributes.u32(expr::FIB_RESULT)?,
        flags: attributes.u32(expr::FIB_FLAGS)?,
        to: register(attributes, expr::FIB_DREG)?,
    })
}

/// Without a destination register it changes an option of TCP: that of the size of segments, or others, which do no harm.
fn exthdr(attributes: Attributes<'_>) -> Option<Expression> {
    let Some(to) = register(attributes, expr::EXTHDR_DREG) else {
        let is_size = attributes.get(expr::EXTHDR_TYPE) == Some(&[expr::TCP_OPTION_MAXSEG]);
        return Some(if is_size {
            Expression::ClampSegments
        } else {
            Expression::Harmless
        });
    };
    let operation = attributes
        .u32(expr::EXTHDR_OP)
        .unwrap_or(expr::EXTHDR_OP_IPV6);
    let flags = attributes.u32(expr::EXTHDR_FLAGS).unwrap_or_default();
    let is_absent = [expr::EXTHDR_OP_IPV6, expr::EXTHDR_OP_IPV4].contains(&operation);
    is_absent.then(|| Expression::AbsentHeader {
        to: (flags & expr::EXTHDR_FLAG_PRESENT != 0).then_some(to),
    })
}

fn nat(attributes: Attributes<'_>) -> Option<Expression> {
    Some(Expression::Nat {
        is_destination: match attributes.u32(expr::NAT_TYPE)? {
            expr::NAT_TYPE_DNAT => true,
            expr::NAT_TYPE_SNAT => false,
            _ => return None,
        },
        address: register_range(attributes, expr::NAT_REG_ADDR_MIN, expr::NAT_REG_ADDR_MAX),
        port: register_range(attributes, expr::NAT_REG_PROTO_MIN, expr::NAT_REG_PROTO_MAX),
    })
}

fn queue_flags(attributes: Attributes<'_>) -> u16 {
    let flags = attributes
        .get(expr::QUEUE_FLAGS)
        .and_then(|flags| flags.try_into().ok());
    flags.map_or(0, u16::from_be_bytes)
}
