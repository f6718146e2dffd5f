//! Runs the rules of a chain over a packet: `nft_do_chain` and the `eval` of each expression.

use std::net::IpAddr;

use super::{
    jhash,
    packet::{HookVerdict, Packet, hook_verdict},
};
use crate::kernel::{
    conntrack::status,
    data::{Data, Handle, Verdict},
    element::{Counter, Element},
    expression::{Expression, register::Register},
    ruleset::Table,
    uapi::{expr, set, verdict},
};

/// `NF_CT_STATE_BIT(IP_CT_NEW)`
const STATE_NEW: u32 = 1 << 3;
/// `RTN_UNICAST` and `RTN_LOCAL`
const ADDRESS_TYPES: [u32; 2] = [1, 2];

/// A change made by a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// The counter of an element is incremented.
    Count { set: Handle, key: Vec<u8> },
    /// An element is written, or refreshed.
    Write {
        set: Handle,
        element: Element,
        updates: bool,
    },
    /// An element is deleted.
    Delete { set: Handle, key: Vec<u8> },
}

impl Effect {
    pub(super) fn apply(self, table: &mut Table, now: u64) {
        match self {
            Self::Count { set, key } => {
                let found = table
                    .set_mut(set)
                    .and_then(|set| set.elements.get_mut(&key));
                if let Some(counter) = found.and_then(|element| element.counter.as_mut()) {
                    counter.packets += 1;
                }
            }
            Self::Write {
                set,
                element,
                updates,
            } => {
                let Some(found) = table.set_mut(set) else {
                    return;
                };
                found.expire(now);
                let is_full = found.size > 0 && found.elements.len() >= found.size as usize;
                match found.elements.get_mut(&element.key) {
                    // The data of an existing element is not changed.
                    Some(known) => {
                        if updates {
                            (known.timeout, known.expires) = (element.timeout, element.expires);
                        }
                        if let Some(counter) = &mut known.counter {
                            counter.packets += 1;
                        }
                    }
                    None if is_full => {}
                    // The element does not exist.
                    None => drop(found.elements.insert(element.into(), false, now)),
                }
            }
            Self::Delete { set, key } => {
                if let Some(found) = table.set_mut(set) {
                    found.elements.remove(&key, false);
                }
            }
        }
    }
}

/// Runs rules of a table.
pub(super) struct Interpreter<'a> {
    pub(super) table: &'a Table,
    pub(super) effects: &'a mut Vec<Effect>,
    pub(super) is_local_address: &'a dyn Fn(IpAddr) -> bool,
    pub(super) now: u64,
    pub(super) draw: &'a mut dyn FnMut(u32) -> u32,
}

/// The continuation after an expression.
enum Next {
    Expression,
    Rule,
    Verdict(Verdict),
    Reject,
}

impl Interpreter<'_> {
    /// Runs a base chain.
    pub(super) fn run(&mut self, packet: &mut Packet, base: Handle, policy: i32) -> HookVerdict {
        // The return positions of jumps.
        let mut stack: Vec<(Handle, usize)> = Vec::new();
        let (mut chain, mut at) = (base, 0);
        let table = self.table;
        loop {
            let Some(found) = table.chains.get(&chain) else {
                return hook_verdict(policy);
            };
            let Some(rule) = found.rules.get(at) else {
                let Some(back) = stack.pop() else {
                    return hook_verdict(policy);
                };
                (chain, at) = back;
                continue;
            };
            at += 1;
            let mut registers = [0; REGISTERS];
            let mut next = Next::Expression;
            for expression in &rule.expressions {
                next = self.step(packet, &mut registers, expression);
                if !matches!(next, Next::Expression) {
                    break;
                }
            }
            match next {
                Next::Expression | Next::Rule => {}
                Next::Reject => return HookVerdict::Reject,
                Next::Verdict(Verdict { code, chain: to }) => match (code, to) {
                    (verdict::CONTINUE | verdict::BREAK, _) => {}
                    (verdict::RETURN, _) => at = usize::MAX,
                    (verdict::JUMP, Some(to)) => {
                        stack.push((chain, at));
                        (chain, at) = (to, 0);
                    }
                    (verdict::GOTO, Some(to)) => (chain, at) = (to, 0),
                    (code, _) => return hook_verdict(code),
                },
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each expression")]
    fn step(
        &mut self,
        packet: &mut Packet,
        registers: &mut Registers,
        expression: &Expression,
    ) -> Next {
        let value = match expression {
            Expression::Immediate { to, data } => match data {
                Data::Verdict(verdict) => return Next::Verdict(*verdict),
                Data::Value(value) => Some((*to, value.clone())),
            },
            Expression::Bitwise {
                from,
                to,
                mask,
                xor,
            } => {
                let operands = read(registers, *from, mask.len()).iter().zip(mask).zip(xor);
                Some((
                    *to,
                    operands
                        .map(|((byte, mask), xor)| byte & mask ^ xor)
                        .collect(),
                ))
            }
            Expression::Compare {
                from,
                operator,
                value,
            } => {
                let order = read(registers, *from, value.len()).cmp(value);
                let holds = match operator {
                    0 => order.is_eq(),
                    1 => order.is_ne(),
                    2 => order.is_lt(),
                    3 => order.is_le(),
                    4 => order.is_gt(),
                    _ => order.is_ge(),
                };
                return if holds { Next::Expression } else { Next::Rule };
            }
            Expression::Lookup {
                set,
                key,
                to,
                invert,
            } => {
                return self.lookup(registers, *set, *key, *to, *invert);
            }
            Expression::Dynset {
                set,
                operation,
                key,
                data,
                timeout,
            } => {
                self.update(registers, *set, *operation, *key, *data, *timeout);
                return Next::Expression;
            }
            Expression::Payload {
                base,
                offset,
                len,
                to,
            } => {
                let header = match *base {
                    expr::NETWORK_HEADER => packet.network_header(),
                    _ => packet.transport_header(),
                };
                let range = *offset as usize..(offset + len) as usize;
                header.get(range).map(|bytes| (*to, bytes.to_vec()))
            }
            Expression::Meta {
                key: key @ (expr::META_PRIORITY | expr::META_MARK),
                to,
            } => Some((*to, packet.meta_field(*key).to_ne_bytes().to_vec())),
            Expression::Meta { key, to } => Some((*to, meta(packet, *key))),
            Expression::MetaSet { key, from } => {
                let value = read(registers, *from, 4)
                    .first_chunk()
                    .copied()
                    .unwrap_or_default();
                *packet.meta_field(*key) = u32::from_ne_bytes(value);
                return Next::Expression;
            }
            Expression::Conntrack { key, direction, to } => {
                conntrack(packet, *key, *direction).map(|value| (*to, value))
            }
            Expression::Hash {
                from,
                len,
                to,
                modulus,
                seed,
                offset,
            } => {
                let bytes = read(registers, *from, *len as usize);
                let hash = jhash::jhash(bytes, seed.unwrap_or_default());
                Some((
                    *to,
                    (offset + jhash::scale(hash, *modulus))
                        .to_ne_bytes()
                        .to_vec(),
                ))
            }
            Expression::Numgen {
                to,
                modulus,
                offset,
                ..
            } => {
                let drawn = (self.draw)(*modulus).min(modulus - 1);
                Some((*to, (offset + drawn).to_ne_bytes().to_vec()))
            }
            Expression::Fib { to, flags, .. } => {
                let end = if flags & expr::FIB_F_SADDR != 0 {
                    packet.source
                } else {
                    packet.destination
                };
                let kind = ADDRESS_TYPES[usize::from((self.is_local_address)(end.ip()))];
                Some((*to, kind.to_ne_bytes().to_vec()))
            }
            Expression::Nat {
                kind,
                address,
                port,
                ..
            } => {
                return translate(packet, registers, *kind == expr::NAT_DNAT, *address, *port);
            }
            Expression::Redirect { port, .. } => {
                return translate(packet, registers, true, None, *port);
            }
            Expression::Masquerade { .. } => {
                packet.is_masqueraded = true;
                packet.status |= status::SRC_NAT;
                packet.is_nat_decided[1] = true;
                return accept();
            }
            Expression::Reject { .. } => return Next::Reject,
            Expression::Counter { .. } => return Next::Expression,
        };
        match value {
            Some((to, value)) => {
                write(registers, to, &value);
                Next::Expression
            }
            None => Next::Rule,
        }
    }

    fn lookup(
        &mut self,
        registers: &mut Registers,
        set: Handle,
        key: Register,
        to: Option<Register>,
        invert: bool,
    ) -> Next {
        let Some(found) = self.table.sets.get(&set) else {
            return Next::Rule;
        };
        let key = read(registers, key, found.declaration.key_len as usize).to_vec();
        let element = found.elements.find(&key, self.now);
        if element.is_some() == invert {
            return Next::Rule;
        }
        let Some(element) = element else {
            return Next::Expression;
        };
        let data = element.data.clone();
        if element.counter.is_some() {
            self.effects.push(Effect::Count { set, key });
        }
        match (to, data) {
            (Some(_), Some(Data::Verdict(verdict))) => Next::Verdict(verdict),
            (Some(to), Some(Data::Value(value))) => {
                write(registers, to, &value);
                Next::Expression
            }
            _ => Next::Expression,
        }
    }

    /// `nft_dynset_eval`
    fn update(
        &mut self,
        registers: &Registers,
        set: Handle,
        operation: u32,
        key: Register,
        data: Option<Register>,
        timeout: u64,
    ) {
        let Some(found) = self.table.sets.get(&set) else {
            return;
        };
        let key = read(registers, key, found.declaration.key_len as usize).to_vec();
        if operation == expr::DYNSET_OP_DELETE {
            self.effects.push(Effect::Delete { set, key });
            return;
        }
        let timeout = if timeout == 0 { found.timeout } else { timeout };
        let data =
            data.map(|data| read(registers, data, found.declaration.data_len as usize).to_vec());
        let element = Element {
            key,
            key_end: None,
            data: data.map(Data::Value),
            is_end: false,
            userdata: Vec::new(),
            counter: found.declaration.has_counter.then(|| Counter {
                packets: 1,
                ..Counter::default()
            }),
            timeout: found.has(set::F_TIMEOUT).then_some(timeout),
            expires: (timeout != 0).then(|| self.now + timeout),
        };
        let updates = operation == expr::DYNSET_OP_UPDATE;
        self.effects.push(Effect::Write {
            set,
            element,
            updates,
        });
    }
}

/// The bytes of all registers except the verdict.
const REGISTERS: usize = 64;

type Registers = [u8; REGISTERS];

fn read(registers: &Registers, from: Register, len: usize) -> &[u8] {
    registers
        .get(from.offset()..from.offset() + len)
        .unwrap_or_default()
}

/// Writes a value, padded with zeros to a multiple of four bytes.
fn write(registers: &mut Registers, to: Register, value: &[u8]) {
    let end = (to.offset() + value.len().next_multiple_of(4)).min(REGISTERS);
    registers[to.offset()..end].fill(0);
    let end = (to.offset() + value.len()).min(REGISTERS);
    registers[to.offset()..end].copy_from_slice(&value[..end - to.offset()]);
}

fn meta(packet: &Packet, key: u32) -> Vec<u8> {
    match key {
        expr::META_NFPROTO => vec![packet.family()],
        expr::META_L4PROTO => vec![packet.protocol],
        expr::META_OIFNAME => name(packet.output),
        _ => name(packet.interface.as_deref().unwrap_or_default()),
    }
}

/// A name of an interface, padded with zeros.
fn name(name: &str) -> Vec<u8> {
    let mut name = name.as_bytes().to_vec();
    name.resize(16, 0);
    name
}

fn conntrack(packet: &Packet, key: u32, direction: Option<u8>) -> Option<Vec<u8>> {
    // These packets are the first of their connections, so the source of replies is the current destination.
    let end = if direction == Some(0) {
        packet.original
    } else {
        packet.source
    };
    Some(match (key, end.ip()) {
        (expr::CT_STATE, _) => STATE_NEW.to_ne_bytes().to_vec(),
        (expr::CT_STATUS, _) => packet.status.to_ne_bytes().to_vec(),
        (expr::CT_PROTOCOL, _) => vec![packet.protocol],
        (expr::CT_PROTO_DST, _) => end.port().to_be_bytes().to_vec(),
        (expr::CT_DST_IP, IpAddr::V4(address)) => address.octets().to_vec(),
        (expr::CT_DST_IP6, IpAddr::V6(address)) => address.octets().to_vec(),
        _ => return None,
    })
}

fn translate(
    packet: &mut Packet,
    registers: &Registers,
    is_destination: bool,
    address: Option<[Register; 2]>,
    port: Option<[Register; 2]>,
) -> Next {
    let before = if is_destination {
        packet.destination
    } else {
        packet.source
    };
    let mut after = before;
    if let Some([address, _]) = address {
        let v4 = read(registers, address, 4)
            .first_chunk::<4>()
            .copied()
            .map(IpAddr::from);
        let v6 = read(registers, address, 16)
            .first_chunk::<16>()
            .copied()
            .map(IpAddr::from);
        if let Some(address) = if before.is_ipv4() { v4 } else { v6 } {
            after.set_ip(address);
        }
    }
    if let Some([port, _]) = port {
        let port = read(registers, port, 2)
            .first_chunk::<2>()
            .copied()
            .map(u16::from_be_bytes);
        after.set_port(port.unwrap_or_default());
    }
    if is_destination {
        packet.destination = after;
        packet.is_nat_decided[0] = true;
        packet.status |= if after == before { 0 } else { status::DST_NAT };
    } else {
        packet.is_masqueraded = after.ip() != before.ip();
        packet.source = after;
        packet.is_nat_decided[1] = true;
        packet.status |= if after == before { 0 } else { status::SRC_NAT };
    }
    accept()
}

const fn accept() -> Next {
    Next::Verdict(Verdict {
        code: verdict::ACCEPT,
        chain: None,
    })
}
