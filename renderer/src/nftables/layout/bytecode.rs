//! Rules as the kernel's expressions: those that nft itself would write.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::{
    Family, Field, Set, TABLE,
    field::CLIENT_HASH_SEED,
    rule::{Comparison, Constant, Flag, Key, Rule, Statement},
    set::{ANONYMOUS, write_protocols},
};
use crate::nftables::netlink::{
    Batch, Writer,
    constants::{LIST_ELEM, NFPROTO_IPV4, NFPROTO_IPV6, data, expr, msg, rule, verdict},
};

/// A 32-bit register, 0 to 15. A key is gathered in consecutive registers.
type Register = u32;

/// The register where every key begins.
const FIRST: Register = 0;
/// The input of hashes, beyond all keys.
const HASH_INPUT: Register = 8;

/// Adds the messages that append rules to a chain, with the anonymous sets that they need.
pub(super) fn write_rules(chain: &str, rules: &[Rule], batch: &mut Batch) {
    for one in rules {
        let mut protocols = 0;
        if one
            .statements
            .iter()
            .any(|statement| matches!(statement, Statement::MatchProtocols))
        {
            protocols = batch.new_set_id();
            write_protocols(batch, protocols);
        }
        batch.append(msg::NEWRULE, format!("rule of chain {chain}"), |message| {
            message.text(rule::TABLE, TABLE);
            message.text(rule::CHAIN, chain);
            message.nested(rule::EXPRESSIONS, |list| {
                write_statements(&one.statements, protocols, list);
            });
        });
    }
}

/// The list of expressions of each rule, as in a message, for comparison with those of the kernel.
pub(super) fn written_rules(rules: &[Rule]) -> Vec<Vec<u8>> {
    let written = |rule: &Rule| {
        let mut bytes = Vec::new();
        write_statements(&rule.statements, 0, &mut Writer::new(&mut bytes));
        bytes
    };
    rules.iter().map(written).collect()
}

/// Adds the expressions of statements. `protocols` is the id of the anonymous set of [`Statement::MatchProtocols`].
pub(super) fn write_statements(statements: &[Statement], protocols: u32, list: &mut Writer<'_>) {
    let mut matched = None;
    for statement in statements {
        let header = statement.header();
        if let Some(family) = header.filter(|family| matched != Some(*family)) {
            compare(
                list,
                Field::Nfproto,
                Comparison::Is,
                Constant::Family(family),
            );
            matched = header;
        }
        if let Statement::Match(Field::Nfproto, Comparison::Is, Constant::Family(family)) =
            statement
        {
            matched = Some(*family);
        }
        write_statement(statement, protocols, list);
    }
}

fn write_statement(statement: &Statement, protocols: u32, list: &mut Writer<'_>) {
    match statement {
        Statement::Match(field, comparison, constant) => {
            compare(list, *field, *comparison, *constant);
        }
        Statement::MatchProtocols => {
            load(list, Field::L4Proto, FIRST);
            lookup(list, ANONYMOUS, |attributes| {
                attributes.u32(expr::LOOKUP_SET_ID, protocols);
            });
        }
        Statement::MatchAny(flags) => {
            load_flags(list, flags);
            compare_with(list, Comparison::IsNot, &0_u32.to_ne_bytes());
        }
        Statement::MatchSet(key, comparison, set) => {
            load_key(list, key, FIRST);
            lookup(list, &set.name(), |attributes| {
                if *comparison == Comparison::IsNot {
                    attributes.u32(expr::LOOKUP_FLAGS, expr::LOOKUP_FLAG_INV);
                }
            });
        }
        Statement::ResetPriority => {
            constant(list, FIRST, &0_u32.to_ne_bytes());
            set_priority(list);
        }
        Statement::SetPriority(key, map) => {
            load_value(list, key, *map);
            set_priority(list);
        }
        Statement::Vmap(key, map) => {
            load_key(list, key, FIRST);
            // In the other numbering register 0 is the verdict.
            lookup(list, &map.name(), |attributes| {
                attributes.u32(expr::LOOKUP_DREG, 0);
            });
        }
        Statement::Dnat(family, key, map) => {
            match map {
                Some(map) => load_value(list, key, *map),
                None => drop(load_key(list, key, FIRST)),
            }
            dnat(list, *family);
        }
        Statement::DnatToPort(family, port) => {
            load(list, Field::Daddr(*family), FIRST);
            let at = after(FIRST, Field::Daddr(*family));
            constant(list, at, &port.to_be_bytes());
            dnat(list, *family);
        }
        Statement::Update {
            map,
            key,
            timeout,
            data,
        } => {
            // nft up to 1.0.6 runs out of registers for IPv6 here; it lists the rule all the same.
            let values = load_key(list, key, FIRST);
            load_key(list, data, values);
            update(list, &map.name(), values, u64::from(*timeout) * 1000);
        }
        Statement::Record(set, key) => {
            load_key(list, key, FIRST);
            record(list, &set.name(), expr::DYNSET_OP_UPDATE);
        }
        Statement::Snat(family, field) => {
            load(list, *field, FIRST);
            snat(list, *family, 0);
        }
        Statement::SnatByMap(family, field, map) => {
            load_value(list, &vec![*field], *map);
            snat(list, *family, expr::NAT_FULLY_RANDOM);
        }
        Statement::Masquerade => expression(list, "masq", |attributes| {
            attributes.u32(expr::MASQ_FLAGS, expr::MASQ_FULLY_RANDOM);
        }),
        Statement::RejectWithTcpReset => reject(list, expr::REJECT_TCP_RST, 0),
        Statement::Reject => reject(list, expr::REJECT_ICMPX, expr::REJECT_ICMPX_PORT_UNREACH),
        Statement::Counter => expression(list, "counter", |_| ()),
        Statement::Accept => immediate(list, verdict::ACCEPT, None),
        Statement::Drop => immediate(list, verdict::DROP, None),
        Statement::Goto(chain) => immediate(list, verdict::GOTO, Some(chain)),
        Statement::Jump(chain) => immediate(list, verdict::JUMP, Some(chain)),
    }
}

/// Loads fields into consecutive registers, and returns the next one.
pub(super) fn load_key(list: &mut Writer<'_>, key: &Key, first: Register) -> Register {
    key.iter().fold(first, |at, field| {
        load(list, *field, at);
        after(at, *field)
    })
}

/// Loads what the map has for the key into the registers from [`FIRST`] on.
fn load_value(list: &mut Writer<'_>, key: &Key, map: Set) {
    load_key(list, key, FIRST);
    lookup(list, &map.name(), |attributes| {
        attributes.u32(expr::LOOKUP_DREG, register(FIRST));
    });
}

/// Loads a field into registers.
fn load(list: &mut Writer<'_>, field: Field, at: Register) {
    match field {
        Field::Nfproto => meta(list, expr::META_NFPROTO, at),
        Field::L4Proto => meta(list, expr::META_L4PROTO, at),
        Field::Priority => meta(list, expr::META_PRIORITY, at),
        Field::InputInterface => meta(list, expr::META_IIFNAME, at),
        Field::OutputInterface => meta(list, expr::META_OIFNAME, at),
        Field::Saddr(_) | Field::Daddr(_) => {
            let offset = address_offset(field).unwrap_or_default();
            payload(list, expr::PAYLOAD_NETWORK_HEADER, offset, field.len(), at);
        }
        Field::DaddrMasked(family) => {
            load(list, Field::Daddr(family), at);
            mask(list, &[0; 16][..usize::from(family.address_len())], at);
        }
        Field::Dport => payload(list, expr::PAYLOAD_TRANSPORT_HEADER, 2, field.len(), at),
        Field::Sport => payload(list, expr::PAYLOAD_TRANSPORT_HEADER, 0, field.len(), at),
        Field::CtState => conntrack(list, expr::CT_STATE, None, at),
        Field::CtStatus => conntrack(list, expr::CT_STATUS, None, at),
        Field::CtProtocol => conntrack(list, expr::CT_PROTOCOL, None, at),
        Field::OriginalDaddr(family) => {
            let key = match family {
                Family::V4 => expr::CT_DST_IP,
                Family::V6 => expr::CT_DST_IP6,
            };
            conntrack(list, key, Some(expr::CT_DIR_ORIGINAL), at);
        }
        Field::OriginalDaddrMasked(family) => {
            load(list, Field::OriginalDaddr(family), at);
            mask(list, &[0; 16][..usize::from(family.address_len())], at);
        }
        Field::OriginalDport => {
            conntrack(list, expr::CT_PROTO_DST, Some(expr::CT_DIR_ORIGINAL), at);
        }
        Field::SaddrType => address_type(list, expr::FIB_FLAG_SADDR, at),
        Field::DaddrType => address_type(list, expr::FIB_FLAG_DADDR, at),
        Field::Random(modulus) => expression(list, "numgen", |attributes| {
            attributes.u32(expr::NUMGEN_DREG, register(at));
            attributes.u32(expr::NUMGEN_MODULUS, modulus);
            attributes.u32(expr::NUMGEN_TYPE, expr::NUMGEN_RANDOM);
            attributes.u32(expr::NUMGEN_OFFSET, 0);
        }),
        Field::ClientHash(family, modulus) => {
            let client = Field::Saddr(family);
            load(list, client, HASH_INPUT);
            expression(list, "hash", |attributes| {
                attributes.u32(expr::HASH_SREG, register(HASH_INPUT));
                attributes.u32(expr::HASH_DREG, register(at));
                attributes.u32(expr::HASH_LEN, client.len());
                attributes.u32(expr::HASH_MODULUS, modulus);
                attributes.u32(expr::HASH_SEED, CLIENT_HASH_SEED);
                attributes.u32(expr::HASH_OFFSET, 0);
                attributes.u32(expr::HASH_TYPE, expr::HASH_JENKINS);
            });
        }
    }
}

/// Where an address is in the network header; none for other fields.
const fn address_offset(field: Field) -> Option<u32> {
    Some(match field {
        Field::Saddr(Family::V4) => 12,
        Field::Daddr(Family::V4) => 16,
        Field::Saddr(Family::V6) => 8,
        Field::Daddr(Family::V6) => 24,
        _ => return None,
    })
}

/// The register after a field.
const fn after(at: Register, field: Field) -> Register {
    at + field.len().div_ceil(4)
}

/// The kernel's number of a 32-bit register: `NFT_REG32_00` is 8. Where one begins a 128-bit register it is written as
/// that one (1 to 4), as nft does.
const fn register(number: Register) -> u32 {
    if number.is_multiple_of(4) {
        1 + number / 4
    } else {
        8 + number
    }
}

/// The family's number in the kernel.
pub(super) const fn nfproto(family: Family) -> u8 {
    match family {
        Family::V4 => NFPROTO_IPV4,
        Family::V6 => NFPROTO_IPV6,
    }
}

/// Adds an expression.
pub(super) fn expression(list: &mut Writer<'_>, name: &str, fill: impl FnOnce(&mut Writer<'_>)) {
    list.nested(LIST_ELEM, |one| {
        one.text(rule::EXPR_NAME, name);
        one.nested(rule::EXPR_DATA, fill);
    });
}

fn meta(list: &mut Writer<'_>, key: u32, at: Register) {
    expression(list, "meta", |attributes| {
        attributes.u32(expr::META_KEY, key);
        attributes.u32(expr::META_DREG, register(at));
    });
}

/// Stores the value of the register at [`FIRST`] as the packet's priority.
fn set_priority(list: &mut Writer<'_>) {
    expression(list, "meta", |attributes| {
        attributes.u32(expr::META_KEY, expr::META_PRIORITY);
        attributes.u32(expr::META_SREG, register(FIRST));
    });
}

fn compare(list: &mut Writer<'_>, field: Field, comparison: Comparison, constant: Constant) {
    let value = match constant {
        Constant::Range(range) => return compare_with_range(list, field, comparison, range),
        Constant::Family(family) => vec![nfproto(family)],
        Constant::Protocol(protocol) => vec![protocol.number()],
        Constant::Interface(name) => {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(field.len() as usize, 0);
            bytes
        }
        Constant::Local => expr::ADDRTYPE_LOCAL.to_ne_bytes().to_vec(),
        Constant::Number(number) => number.to_ne_bytes().to_vec(),
    };
    load(list, field, FIRST);
    compare_with(list, comparison, &value);
}

/// Compares an address with a range. Like nft it loads only the bytes of the prefix if these are whole.
fn compare_with_range(
    list: &mut Writer<'_>,
    field: Field,
    comparison: Comparison,
    range: IpNetwork,
) {
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let network = octets(range.network());
    match address_offset(field) {
        Some(offset) if range.prefix().is_multiple_of(8) => {
            let bytes = range.prefix() / 8;
            let base = expr::PAYLOAD_NETWORK_HEADER;
            payload(list, base, offset, u32::from(bytes), FIRST);
            compare_with(list, comparison, &network[..usize::from(bytes)]);
        }
        _ => {
            load(list, field, FIRST);
            mask(list, &octets(range.mask()), FIRST);
            compare_with(list, comparison, &network);
        }
    }
}

/// Compares the value of the registers from [`FIRST`] on.
pub(super) fn compare_with(list: &mut Writer<'_>, comparison: Comparison, value: &[u8]) {
    expression(list, "cmp", |attributes| {
        attributes.u32(expr::CMP_SREG, register(FIRST));
        let operator = match comparison {
            Comparison::Is => expr::CMP_EQ,
            Comparison::IsNot => expr::CMP_NEQ,
        };
        attributes.u32(expr::CMP_OP, operator);
        attributes.nested(expr::CMP_DATA, |data| data.bytes(data::VALUE, value));
    });
}

/// Loads bytes of the packet.
pub(super) fn payload(list: &mut Writer<'_>, base: u32, offset: u32, len: u32, at: Register) {
    expression(list, "payload", |attributes| {
        attributes.u32(expr::PAYLOAD_DREG, register(at));
        attributes.u32(expr::PAYLOAD_BASE, base);
        attributes.u32(expr::PAYLOAD_OFFSET, offset);
        attributes.u32(expr::PAYLOAD_LEN, len);
    });
}

/// Clears the bits of a register that are not in the mask.
pub(super) fn mask(list: &mut Writer<'_>, mask: &[u8], at: Register) {
    expression(list, "bitwise", |attributes| {
        attributes.u32(expr::BITWISE_SREG, register(at));
        attributes.u32(expr::BITWISE_DREG, register(at));
        #[allow(clippy::cast_possible_truncation)]
        attributes.u32(expr::BITWISE_LEN, mask.len() as u32);
        attributes.nested(expr::BITWISE_MASK, |data| data.bytes(data::VALUE, mask));
        attributes.nested(expr::BITWISE_XOR, |data| {
            data.bytes(data::VALUE, &[0; 16][..mask.len()]);
        });
    });
}

/// Loads something of the packet's connection.
pub(super) fn conntrack(list: &mut Writer<'_>, key: u32, direction: Option<u8>, at: Register) {
    expression(list, "ct", |attributes| {
        attributes.u32(expr::CT_KEY, key);
        attributes.u32(expr::CT_DREG, register(at));
        if let Some(direction) = direction {
            attributes.u8(expr::CT_DIRECTION, direction);
        }
    });
}

/// Loads whether an address of the packet is one of this node's.
fn address_type(list: &mut Writer<'_>, address: u32, at: Register) {
    expression(list, "fib", |attributes| {
        attributes.u32(expr::FIB_FLAGS, address);
        attributes.u32(expr::FIB_RESULT, expr::FIB_RESULT_ADDRTYPE);
        attributes.u32(expr::FIB_DREG, register(at));
    });
}

/// Loads a constant.
fn constant(list: &mut Writer<'_>, at: Register, value: &[u8]) {
    expression(list, "immediate", |attributes| {
        attributes.u32(expr::IMMEDIATE_DREG, register(at));
        attributes.nested(expr::IMMEDIATE_DATA, |data| data.bytes(data::VALUE, value));
    });
}

/// Translates the destination to the address and port in the registers from [`FIRST`] on.
fn dnat(list: &mut Writer<'_>, family: Family) {
    expression(list, "nat", |attributes| {
        attributes.u32(expr::NAT_TYPE, expr::NAT_TYPE_DNAT);
        attributes.u32(expr::NAT_FAMILY, u32::from(nfproto(family)));
        attributes.u32(expr::NAT_REG_ADDR_MIN, register(FIRST));
        let port = after(FIRST, Field::Daddr(family));
        attributes.u32(expr::NAT_REG_PROTO_MIN, register(port));
    });
}

/// Translates the source to the address in the registers from [`FIRST`] on.
fn snat(list: &mut Writer<'_>, family: Family, flags: u32) {
    expression(list, "nat", |attributes| {
        attributes.u32(expr::NAT_TYPE, expr::NAT_TYPE_SNAT);
        attributes.u32(expr::NAT_FAMILY, u32::from(nfproto(family)));
        attributes.u32(expr::NAT_REG_ADDR_MIN, register(FIRST));
        if flags != 0 {
            attributes.u32(expr::NAT_FLAGS, flags);
        }
    });
}

/// These flags, which are of one field, into the register at [`FIRST`].
fn load_flags(list: &mut Writer<'_>, flags: &[Flag]) {
    if let Some(first) = flags.first() {
        load(list, first.field(), FIRST);
    }
    let bits = flags.iter().fold(0, |bits, flag| bits | flag.bit());
    mask(list, &bits.to_ne_bytes(), FIRST);
}

/// Stores the key at [`FIRST`] in a set, for the timeout of the set; whether an entry is refreshed depends on the operation.
pub(super) fn record(list: &mut Writer<'_>, set: &str, operation: u32) {
    write_dynamically(list, set, operation, None, None);
}

/// Stores the key at [`FIRST`] with the data at `data` in a map, or refreshes it, for so many milliseconds.
fn update(list: &mut Writer<'_>, map: &str, data: Register, timeout: u64) {
    write_dynamically(list, map, expr::DYNSET_OP_UPDATE, Some(data), Some(timeout));
}

fn write_dynamically(
    list: &mut Writer<'_>,
    set: &str,
    operation: u32,
    data: Option<Register>,
    timeout: Option<u64>,
) {
    expression(list, "dynset", |attributes| {
        attributes.u32(expr::DYNSET_SREG_KEY, register(FIRST));
        if let Some(data) = data {
            attributes.u32(expr::DYNSET_SREG_DATA, register(data));
        }
        attributes.u32(expr::DYNSET_OP, operation);
        if let Some(timeout) = timeout {
            attributes.bytes(expr::DYNSET_TIMEOUT, &timeout.to_be_bytes());
        }
        attributes.text(expr::DYNSET_SET_NAME, set);
    });
}

/// Looks the key at [`FIRST`] up in a set.
pub(super) fn lookup(list: &mut Writer<'_>, set: &str, more: impl FnOnce(&mut Writer<'_>)) {
    expression(list, "lookup", |attributes| {
        attributes.u32(expr::LOOKUP_SREG, register(FIRST));
        attributes.text(expr::LOOKUP_SET, set);
        more(attributes);
    });
}

fn reject(list: &mut Writer<'_>, kind: u32, code: u8) {
    expression(list, "reject", |attributes| {
        attributes.u32(expr::REJECT_TYPE, kind);
        attributes.u8(expr::REJECT_ICMP_CODE, code);
    });
}

/// Ends with a verdict.
pub(super) fn immediate(list: &mut Writer<'_>, code: i32, chain: Option<&str>) {
    expression(list, "immediate", |attributes| {
        attributes.u32(expr::IMMEDIATE_DREG, 0);
        attributes.nested(expr::IMMEDIATE_DATA, |data| {
            write_verdict(data, code, chain);
        });
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
