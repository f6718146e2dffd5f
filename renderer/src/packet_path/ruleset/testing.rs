//! Rulesets in memory, for tests: rules are encoded as the kernel encodes them.

use super::{Base, Chain, ChainKind, Hook, RuleList, Ruleset, SetShape, Table};
use crate::{
    netlink::{Attributes, Writer},
    nftables::{
        TABLE,
        netlink::constants::{
            LIST_ELEM, NFPROTO_INET, data, expr, rule, verdict as verdict_number,
        },
    },
};

/// An expression as the kernel encodes it.
pub(in crate::packet_path) type Encoded = Vec<u8>;

/// A register.
const REGISTER: u32 = 1;

/// Encodes an expression with its name.
pub(in crate::packet_path) fn expression(
    name: &str,
    fill: impl FnOnce(&mut Writer<'_>),
) -> Encoded {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.text(rule::EXPR_NAME, name);
    writer.nested(rule::EXPR_DATA, fill);
    bytes
}

/// A verdict, with the chain of a jump.
pub(in crate::packet_path) fn verdict(code: i32, chain: &str) -> Encoded {
    expression("immediate", |message| {
        message.u32(expr::IMMEDIATE_DREG, 0);
        message.nested(expr::IMMEDIATE_DATA, |data| {
            data.nested(data::VERDICT, |verdict| {
                verdict.u32(data::VERDICT_CODE, code.cast_unsigned());
                if !chain.is_empty() {
                    verdict.text(data::VERDICT_CHAIN, chain);
                }
            });
        });
    })
}

pub(in crate::packet_path) fn accept() -> Encoded {
    verdict(verdict_number::ACCEPT, "")
}

pub(in crate::packet_path) fn drop_packet() -> Encoded {
    verdict(verdict_number::DROP, "")
}

pub(in crate::packet_path) fn jump(chain: &str) -> Encoded {
    verdict(verdict_number::JUMP, chain)
}

/// A comparison of the register with a value.
pub(in crate::packet_path) fn equals(value: &[u8]) -> Encoded {
    expression("cmp", |message| {
        message.u32(expr::CMP_SREG, REGISTER);
        message.u32(expr::CMP_OP, expr::CMP_EQ);
        message.nested(expr::CMP_DATA, |inner| inner.bytes(data::VALUE, value));
    })
}

/// Loads a part of a header into the register.
pub(in crate::packet_path) fn payload(base: u32, offset: u32, len: u32) -> Encoded {
    expression("payload", |message| {
        message.u32(expr::PAYLOAD_DREG, REGISTER);
        message.u32(expr::PAYLOAD_BASE, base);
        message.u32(expr::PAYLOAD_OFFSET, offset);
        message.u32(expr::PAYLOAD_LEN, len);
    })
}

/// Loads the destination port, and compares it.
pub(in crate::packet_path) fn port_is(port: u16) -> [Encoded; 2] {
    [
        payload(expr::PAYLOAD_TRANSPORT_HEADER, 2, 2),
        equals(&port.to_be_bytes()),
    ]
}

/// Loads a field of a kind of expression: meta, ct.
pub(in crate::packet_path) fn load(name: &str, key: u32) -> Encoded {
    expression(name, |message| {
        message.u32(expr::META_DREG, REGISTER);
        message.u32(expr::META_KEY, key);
    })
}

/// A value in the register.
pub(in crate::packet_path) fn value(bytes: &[u8]) -> Encoded {
    value_in(REGISTER, bytes)
}

fn value_in(register: u32, bytes: &[u8]) -> Encoded {
    expression("immediate", |message| {
        message.u32(expr::IMMEDIATE_DREG, register);
        message.nested(expr::IMMEDIATE_DATA, |inner| {
            inner.bytes(data::VALUE, bytes);
        });
    })
}

/// Sets the mark of the packet.
pub(in crate::packet_path) fn set_mark(mark: u32) -> [Encoded; 2] {
    let set = expression("meta", |message| {
        message.u32(expr::META_KEY, expr::META_MARK);
        message.u32(expr::META_SREG, REGISTER);
    });
    [value(&mark.to_ne_bytes()), set]
}

/// Translates the destination to an IPv4 address and a port.
pub(in crate::packet_path) fn translate_destination(address: [u8; 4], port: u16) -> Vec<Encoded> {
    let nat = expression("nat", |message| {
        message.u32(expr::NAT_TYPE, expr::NAT_TYPE_DNAT);
        message.u32(expr::NAT_REG_ADDR_MIN, REGISTER);
        message.u32(expr::NAT_REG_PROTO_MIN, 2);
    });
    vec![value(&address), value_in(2, &port.to_be_bytes()), nat]
}

/// A statement without attributes.
pub(in crate::packet_path) fn statement(name: &str) -> Encoded {
    expression(name, |_| ())
}

/// A lookup in a set with the register as the key; with `dreg` the data goes there.
pub(in crate::packet_path) fn look_up(set: &str, dreg: Option<u32>) -> Encoded {
    expression("lookup", |message| {
        message.text(expr::LOOKUP_SET, set);
        message.u32(expr::LOOKUP_SREG, REGISTER);
        if let Some(dreg) = dreg {
            message.u32(expr::LOOKUP_DREG, dreg);
        }
    })
}

impl Ruleset {
    /// A ruleset with a table of the family inet that has this name.
    pub(in crate::packet_path) fn with_table(mut self, name: &str) -> Self {
        self.has_conntrack = true;
        self.tables.push(Table {
            family: NFPROTO_INET,
            name: name.to_owned(),
            handle: 0,
            is_own: name == TABLE,
            limits: std::collections::BTreeMap::new(),
            sets: std::collections::BTreeMap::new(),
        });
        self
    }

    /// A set of the last table.
    pub(in crate::packet_path) fn with_set(mut self, name: &str, key_len: usize) -> Self {
        let shape = SetShape {
            key_len,
            object: None,
            flags: 0,
            timeout: 0,
            has_verdicts: false,
            fields: Vec::new(),
            numbers: None,
            handles: (0, 0),
        };
        if let Some(table) = self.tables.last_mut() {
            table.sets.insert(name.to_owned(), shape);
        }
        self
    }

    /// A chain of the last table.
    pub(in crate::packet_path) fn with_chain(mut self, name: &str, rules: &[Vec<Encoded>]) -> Self {
        let (table, chain) = (self.tables.len() - 1, self.chains.len());
        self.chain_numbers.insert((table, name.to_owned()), chain);
        self.chains.push(Chain {
            table,
            name: name.to_owned(),
            base: None,
            rules: RuleList::default(),
        });
        for (number, expressions) in (1_u64..).zip(rules) {
            let mut object = Vec::new();
            let mut writer = Writer::new(&mut object);
            writer.bytes(rule::HANDLE, &number.to_be_bytes());
            writer.nested(rule::EXPRESSIONS, |list| {
                for expression in expressions {
                    list.bytes(LIST_ELEM, expression);
                }
            });
            self.add_rule(chain, Attributes(&object));
        }
        self
    }

    /// A base chain of the last table that accepts by its policy.
    pub(in crate::packet_path) fn with_base(
        self,
        kind: ChainKind,
        hook: Hook,
        priority: i32,
        rules: &[Vec<Encoded>],
    ) -> Self {
        let name = format!("{hook}{priority}");
        let mut with_chain = self.with_chain(&name, rules);
        with_chain.bases.push(with_chain.chains.len() - 1);
        if let Some(chain) = with_chain.chains.last_mut() {
            chain.base = Some(Base {
                kind,
                hook,
                priority,
                drops_by_policy: false,
                devices: Vec::new(),
            });
        }
        with_chain
    }

    /// The last chain drops by its policy.
    pub(in crate::packet_path) fn that_drops(mut self) -> Self {
        if let Some(base) = self.chains.last_mut().and_then(|chain| chain.base.as_mut()) {
            base.drops_by_policy = true;
        }
        self
    }
}
