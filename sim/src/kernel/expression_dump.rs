//! Expressions as the kernel reports them.

use super::{
    attributes::Writer,
    data::{Data, Verdict},
    expression::{Expression, register::Register},
    ruleset::Table,
    uapi::{data, expr},
};

impl Expression {
    /// Writes name and attributes.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of expression")]
    pub(crate) fn write(&self, table: &Table, out: &mut Writer) {
        let set_name = |set| table.sets.get(set).map_or("", |set| &*set.name);
        let register =
            |out: &mut Writer, kind, register: Register| out.u32(kind, register.number());
        let mut named = |name, fill: &dyn Fn(&mut Writer)| {
            out.text(expr::NAME, name);
            out.nested(expr::DATA, fill);
        };
        match self {
            Self::Immediate { to, data } => named("immediate", &|out| {
                register(out, expr::IMMEDIATE_DREG, *to);
                out.nested(expr::IMMEDIATE_DATA, |out| data.write(table, out));
            }),
            Self::Bitwise {
                from,
                to,
                mask,
                xor,
            } => named("bitwise", &|out| {
                register(out, expr::BITWISE_SREG, *from);
                register(out, expr::BITWISE_DREG, *to);
                out.u32(
                    expr::BITWISE_LEN,
                    u32::try_from(mask.len()).unwrap_or(u32::MAX),
                );
                out.u32(expr::BITWISE_OP, 0);
                out.nested(expr::BITWISE_MASK, |out| out.bytes(data::VALUE, mask));
                out.nested(expr::BITWISE_XOR, |out| out.bytes(data::VALUE, xor));
            }),
            Self::Compare {
                from,
                operator,
                value,
            } => named("cmp", &|out| {
                register(out, expr::CMP_SREG, *from);
                out.u32(expr::CMP_OP, *operator);
                out.nested(expr::CMP_DATA, |out| out.bytes(data::VALUE, value));
            }),
            Self::Lookup {
                set,
                key,
                to,
                invert,
            } => named("lookup", &|out| {
                out.text(expr::LOOKUP_SET, set_name(set));
                register(out, expr::LOOKUP_SREG, *key);
                if let Some(to) = to {
                    register(out, expr::LOOKUP_DREG, *to);
                }
                out.u32(expr::LOOKUP_FLAGS, u32::from(*invert));
            }),
            Self::Dynset {
                set,
                operation,
                key,
                data,
                timeout,
            } => named("dynset", &|out| {
                register(out, expr::DYNSET_SREG_KEY, *key);
                if let Some(data) = data {
                    register(out, expr::DYNSET_SREG_DATA, *data);
                }
                out.u32(expr::DYNSET_OP, *operation);
                out.text(expr::DYNSET_SET_NAME, set_name(set));
                out.u64(expr::DYNSET_TIMEOUT, *timeout);
                out.u32(expr::DYNSET_FLAGS, 0);
            }),
            Self::Payload {
                base,
                offset,
                len,
                to,
            } => named("payload", &|out| {
                register(out, expr::PAYLOAD_DREG, *to);
                out.u32(expr::PAYLOAD_BASE, *base);
                out.u32(expr::PAYLOAD_OFFSET, *offset);
                out.u32(expr::PAYLOAD_LEN, *len);
            }),
            Self::Meta { key, to } => named("meta", &|out| {
                out.u32(expr::META_KEY, *key);
                register(out, expr::META_DREG, *to);
            }),
            Self::MetaSet { key, from } => named("meta", &|out| {
                out.u32(expr::META_KEY, *key);
                register(out, expr::META_SREG, *from);
            }),
            Self::Conntrack { key, direction, to } => named("ct", &|out| {
                register(out, expr::CT_DREG, *to);
                out.u32(expr::CT_KEY, *key);
                if let Some(direction) = direction.filter(|_| *key != expr::CT_PROTOCOL) {
                    out.u8(expr::CT_DIRECTION, direction);
                }
            }),
            Self::Hash {
                from,
                len,
                to,
                modulus,
                seed,
                offset,
            } => named("hash", &|out| {
                register(out, expr::HASH_SREG, *from);
                register(out, expr::HASH_DREG, *to);
                out.u32(expr::HASH_LEN, *len);
                out.u32(expr::HASH_MODULUS, *modulus);
                if let Some(seed) = seed {
                    out.u32(expr::HASH_SEED, *seed);
                }
                if *offset != 0 {
                    out.u32(expr::HASH_OFFSET, *offset);
                }
                out.u32(expr::HASH_TYPE, 0);
            }),
            Self::Numgen {
                to,
                modulus,
                kind,
                offset,
            } => named("numgen", &|out| {
                register(out, expr::NUMGEN_DREG, *to);
                out.u32(expr::NUMGEN_MODULUS, *modulus);
                out.u32(expr::NUMGEN_TYPE, *kind);
                out.u32(expr::NUMGEN_OFFSET, *offset);
            }),
            Self::Fib { to, result, flags } => named("fib", &|out| {
                register(out, expr::FIB_DREG, *to);
                out.u32(expr::FIB_RESULT, *result);
                out.u32(expr::FIB_FLAGS, *flags);
            }),
            Self::Nat {
                kind,
                family,
                address,
                port,
                flags,
            } => named("nat", &|out| {
                out.u32(expr::NAT_TYPE, *kind);
                out.u32(expr::NAT_FAMILY, *family);
                range(
                    out,
                    *address,
                    [expr::NAT_REG_ADDR_MIN, expr::NAT_REG_ADDR_MAX],
                );
                range(
                    out,
                    *port,
                    [expr::NAT_REG_PROTO_MIN, expr::NAT_REG_PROTO_MAX],
                );
                if *flags != 0 {
                    out.u32(expr::NAT_FLAGS, *flags);
                }
            }),
            Self::Masquerade { flags } => named("masq", &|out| {
                if *flags != 0 {
                    out.u32(expr::MASQ_FLAGS, *flags);
                }
            }),
            Self::Redirect { port, flags } => named("redir", &|out| {
                range(
                    out,
                    *port,
                    [expr::REDIR_PROTO_MIN, expr::REDIR_PROTO_MIN + 1],
                );
                if *flags != 0 {
                    out.u32(expr::REDIR_FLAGS, *flags);
                }
            }),
            Self::Reject { kind, code } => named("reject", &|out| {
                out.u32(expr::REJECT_TYPE, *kind);
                if *kind != expr::REJECT_TCP_RST {
                    out.u8(expr::REJECT_ICMP_CODE, *code);
                }
            }),
            Self::Counter { bytes, packets } => named("counter", &|out| {
                out.u64(expr::COUNTER_BYTES, *bytes);
                out.u64(expr::COUNTER_PACKETS, *packets);
            }),
        }
    }
}

fn range(out: &mut Writer, registers: Option<[Register; 2]>, kinds: [u16; 2]) {
    for (register, kind) in registers.into_iter().flatten().zip(kinds) {
        out.u32(kind, register.number());
    }
}

impl Data {
    /// Writes a value or a verdict.
    pub(crate) fn write(&self, table: &Table, out: &mut Writer) {
        match self {
            Self::Value(value) => out.bytes(data::VALUE, value),
            Self::Verdict(Verdict { code, chain }) => out.nested(data::VERDICT, |out| {
                out.u32(data::VERDICT_CODE, code.cast_unsigned());
                if let Some(chain) = chain.and_then(|chain| table.chains.get(&chain)) {
                    out.text(data::VERDICT_CHAIN, &chain.name);
                }
            }),
        }
    }
}
