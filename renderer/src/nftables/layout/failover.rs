//! The table `contiv-failover`: counts attempts at backends and their answers, and gives clients a second chance.
//!
//! It exists only while a service is to fail over, and ends with the socket that owns it: without an agent nobody would put a backend
//! back. All of it speaks of TCP, and of backends by their own address and port, after the translation. The parts:
//!
//! - `watched`: backends whose attempts and answers are counted, in `tried` and `answered`, and whose refusals are logged.
//! - `second-chance`: those of them whose refusals do not reach the client, and whose unanswered attempts are forgotten after a
//!   second or so. The client then repeats its SYN, which is a new attempt that chooses among all backends again.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use contiv_model::Protocol;

use super::{
    Family, Field,
    bytecode::{
        compare_with, conntrack, expression, immediate, load_key, lookup, mask, nfproto, payload,
        record, write_statements,
    },
    hook::{BEFORE_SRCNAT, Hook, INPUT, OUTPUT, POSTROUTING, PREROUTING, write_chain_of},
    part::{self, DeclaredBy, Part},
    rule::{
        Comparison::{self, Is, IsNot},
        Constant, Flag,
        Statement::{Match, MatchAny},
    },
    side_table::{ByPackets, SideSet, write_side_rule, write_side_set, write_side_table},
};
use crate::nftables::netlink::{
    Attributes, Batch, Writer,
    constants::{LIST_ELEM, data, elem, expr, msg, object, verdict},
    counted_packets, set_elements, write_set_request,
};

/// The name of the table, in family inet.
pub(crate) const FAILOVER_TABLE: &str = "contiv-failover";
/// The group of `nfnetlink_log` that refusals go to.
pub(crate) const REFUSALS_GROUP: u16 = 0xc047;

/// How long an attempt or an answer is remembered: much longer than the pauses between two readings.
const COUNTED_MS: u64 = 60_000;
/// A backend that refuses all the time is logged so often.
const REFUSED_MS: u64 = 1_000;
/// The most backends of a family that are tried within a minute. Without room for one its attempts are not counted.
const SIZE: u32 = 65_536;
/// Bytes of a packet that are logged: its headers, and those of the packet that an ICMP error is about.
pub(crate) const LOGGED_BYTES: u32 = 128;
/// Logged ICMP errors a second; routers send few.
const UNREACHABLE_RATE: u64 = 1_000;

/// Before other programs' rules at `filter`, after conntrack and before replies are translated back.
const PRIORITY_MANGLE: i32 = -150;

/// The sets of the table. Each exists for both families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailoverSet {
    /// Backends.
    Watched,
    /// Backends.
    SecondChance,
    /// Those of [`Self::Watched`], as the destination of the packet that an ICMP error is about.
    WatchedErrors,
    /// Those of [`Self::SecondChance`] in the same way.
    SecondChanceErrors,
    /// Backends with a counter of first packets to them.
    Tried,
    /// Backends with a counter of answers to first packets.
    Answered,
    /// Backends whose refusal was logged just now.
    Refused,
}

use FailoverSet::{
    Answered, Refused, SecondChance, SecondChanceErrors, Tried, Watched, WatchedErrors,
};

impl FailoverSet {
    const ALL: [Self; 7] = [
        Watched,
        SecondChance,
        WatchedErrors,
        SecondChanceErrors,
        Tried,
        Answered,
        Refused,
    ];

    fn name(self, family: Family) -> String {
        let name = match self {
            Watched => "watched",
            SecondChance => "second-chance",
            WatchedErrors => "watched-errors",
            SecondChanceErrors => "second-chance-errors",
            Tried => "tried",
            Answered => "answered",
            Refused => "refused",
        };
        format!("{name}{}", family.digit())
    }

    /// The key: that of a packet to a backend, or from one.
    fn parts(self, family: Family) -> Vec<Part> {
        match self {
            Watched | SecondChance | Tried => vec![Part::Daddr(family), Part::Dport],
            Answered | Refused => vec![Part::Saddr(family), Part::Sport],
            WatchedErrors | SecondChanceErrors => {
                let places = inner_destination(family);
                places
                    .map(|(offset, len)| Part::Transport { offset, len })
                    .to_vec()
            }
        }
    }

    /// Plain bytes have no type with a name.
    const fn declared_by(self) -> DeclaredBy {
        match self {
            WatchedErrors | SecondChanceErrors => DeclaredBy::Typeof,
            _ => DeclaredBy::Type,
        }
    }

    /// For how long rules keep an entry.
    const fn timeout_ms(self) -> Option<u64> {
        match self {
            Tried | Answered => Some(COUNTED_MS),
            Refused => Some(REFUSED_MS),
            _ => None,
        }
    }
}

/// Adds the messages that create the table. An earlier one of this name is replaced. `answer_within`: after this time, in whole
/// seconds, an unanswered attempt is forgotten; none: never, as the kernel has no timeouts of single connections.
pub(crate) fn write_failover_table(batch: &mut Batch, answer_within: Option<Duration>) {
    write_side_table(batch, FAILOVER_TABLE, true);
    for family in Family::ALL {
        for set in FailoverSet::ALL {
            write_set(batch, set, family);
        }
        if let Some(limit) = answer_within {
            write_timeout(batch, family, limit);
        }
        for chain in [
            attempts_chain(family),
            refused_chain(family),
            unreachable_chain(family),
        ] {
            write_chain_of(batch, FAILOVER_TABLE, &chain, None);
        }
    }
    write_chain_of(batch, FAILOVER_TABLE, ANSWERS, None);
    for (name, number) in [("first-postrouting", POSTROUTING), ("first-input", INPUT)] {
        let hook = Hook::nat(number, BEFORE_SRCNAT);
        write_chain_of(batch, FAILOVER_TABLE, name, Some(hook));
        for family in Family::ALL {
            write_rule(batch, name, |list| {
                of_tcp(list, family);
                write_statements(&[MatchAny(&[Flag::StatusDnat])], 0, list);
                immediate(list, verdict::GOTO, Some(&attempts_chain(family)));
            });
        }
    }
    for (name, number) in [
        ("replies-prerouting", PREROUTING),
        ("replies-output", OUTPUT),
    ] {
        let hook = Hook::filter_at(number, PRIORITY_MANGLE);
        write_chain_of(batch, FAILOVER_TABLE, name, Some(hook));
        // First, and without a jump: it is for nearly all packets.
        write_rule(batch, name, accept_all_but_beginnings);
        let chains = [
            (Protocol::Tcp.number(), ANSWERS.to_owned()),
            (ICMP, unreachable_chain(Family::V4)),
            (ICMPV6, unreachable_chain(Family::V6)),
        ];
        for (protocol, chain) in chains {
            write_rule(batch, name, |list| {
                of_protocol(list, protocol);
                immediate(list, verdict::GOTO, Some(&chain));
            });
        }
    }
    for family in Family::ALL {
        write_attempts_rules(batch, family, answer_within.is_some());
        write_rule(batch, ANSWERS, |list| count_answer(list, family));
        write_rule(batch, ANSWERS, |list| catch_refusal(list, family));
        write_refused_rules(batch, family);
        let chain = unreachable_chain(family);
        write_rule(batch, &chain, |list| log_unreachable(list, family));
        write_rule(batch, &chain, |list| drop_unreachable(list, family));
    }
}

/// Attempts are counted, and those with a second chance forgotten in time.
fn write_attempts_rules(batch: &mut Batch, family: Family, has_timeouts: bool) {
    let chain = attempts_chain(family);
    write_rule(batch, &chain, |list| {
        of_family(list, family);
        look_up(list, &to_backend(family), Is, Watched, family);
        load_key(list, &to_backend(family), 0);
        record(list, &Tried.name(family), expr::DYNSET_OP_UPDATE);
    });
    if has_timeouts {
        write_rule(batch, &chain, |list| {
            of_family(list, family);
            look_up(list, &to_backend(family), Is, SecondChance, family);
            expression(list, "objref", |reference| {
                reference.u32(expr::OBJREF_IMM_TYPE, object::TYPE_CT_TIMEOUT);
                reference.text(expr::OBJREF_IMM_NAME, &timeout_name(family));
            });
        });
    }
}

/// Refusals are logged, once a second for each backend, and dropped where there is a second chance.
fn write_refused_rules(batch: &mut Batch, family: Family) {
    let chain = refused_chain(family);
    // The family is known here, but nft needs it to list the rules.
    write_rule(batch, &chain, |list| {
        of_family(list, family);
        look_up(list, &from_backend(family), IsNot, Refused, family);
        log(list);
    });
    write_rule(batch, &chain, |list| {
        of_family(list, family);
        load_key(list, &from_backend(family), 0);
        record(list, &Refused.name(family), expr::DYNSET_OP_ADD);
    });
    write_rule(batch, &chain, |list| {
        of_family(list, family);
        look_up(list, &from_backend(family), Is, SecondChance, family);
        immediate(list, verdict::DROP, None);
    });
}

/// Adds the message that adds an element, or removes it.
pub(crate) fn write_failover_element(
    batch: &mut Batch,
    set: FailoverSet,
    backend: SocketAddr,
    is_added: bool,
) {
    let family = Family::of(&backend.ip());
    let mut key = match backend.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    key.extend_from_slice(&backend.port().to_be_bytes());
    key.extend_from_slice(&[0; 2]);
    let fill = |message: &mut Writer<'_>| {
        message.text(elem::LIST_TABLE, FAILOVER_TABLE);
        message.text(elem::LIST_SET, &set.name(family));
        message.nested(elem::LIST_ELEMENTS, |list| {
            list.nested(LIST_ELEM, |element| {
                element.nested(elem::KEY, |value| value.bytes(data::VALUE, &key));
            });
        });
    };
    let subject = format!("backend {backend} in set {}", set.name(family));
    if is_added {
        batch.create(msg::NEWSETELEM, subject, fill);
    } else {
        batch.delete(msg::DELSETELEM, subject, fill);
    }
}

/// Restricts the request of a dump to the elements of a set.
pub(crate) fn write_failover_request(message: &mut Writer<'_>, set: FailoverSet, family: Family) {
    write_set_request(message, FAILOVER_TABLE, &set.name(family));
}

/// Reads the elements of a message: backends with what the packet path counted for them.
pub(crate) fn parse_counted(
    family: Family,
    object: Attributes<'_>,
) -> impl Iterator<Item = (SocketAddr, u64)> {
    set_elements(object).filter_map(move |element| {
        let key = element.nested(elem::KEY)?.get(data::VALUE)?;
        Some((part::parse_end(family, key)?, counted_packets(element)?))
    })
}

fn write_set(batch: &mut Batch, one: FailoverSet, family: Family) {
    let by_packets = one.timeout_ms().map(|timeout_ms| ByPackets {
        timeout_ms,
        size: SIZE,
        is_counted: matches!(one, Tried | Answered),
    });
    let set = SideSet {
        name: &one.name(family),
        key: &one.parts(family),
        declared_by: one.declared_by(),
        by_packets,
    };
    write_side_set(batch, FAILOVER_TABLE, &set);
}

/// `ct timeout attempt4 { protocol tcp; l3proto ip; policy = { syn_sent : 1 } }`
fn write_timeout(batch: &mut Batch, family: Family, limit: Duration) {
    let seconds = u32::try_from(limit.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    let name = timeout_name(family);
    batch.create(msg::NEWOBJ, format!("ct timeout {name}"), |message| {
        message.text(object::TABLE, FAILOVER_TABLE);
        message.text(object::NAME, &name);
        message.u32(object::TYPE, object::TYPE_CT_TIMEOUT);
        message.nested(object::DATA, |timeout| {
            let family = u16::from(nfproto(family));
            timeout.bytes(object::CT_TIMEOUT_L3PROTO, &family.to_be_bytes());
            timeout.u8(object::CT_TIMEOUT_L4PROTO, Protocol::Tcp.number());
            timeout.nested(object::CT_TIMEOUT_DATA, |policy| {
                policy.u32(object::CT_TIMEOUT_SYN_SENT, seconds);
            });
        });
    });
}

fn timeout_name(family: Family) -> String {
    format!("attempt{}", family.digit())
}

fn refused_chain(family: Family) -> String {
    format!("refused-v{}", family.digit())
}

fn attempts_chain(family: Family) -> String {
    format!("attempts-v{}", family.digit())
}

fn unreachable_chain(family: Family) -> String {
    format!("unreachable-v{}", family.digit())
}

/// The chain of what answers attempts.
const ANSWERS: &str = "answers";

fn to_backend(family: Family) -> Vec<Field> {
    vec![Field::Daddr(family), Field::Dport]
}

fn from_backend(family: Family) -> Vec<Field> {
    vec![Field::Saddr(family), Field::Sport]
}

fn write_rule(batch: &mut Batch, chain: &str, fill: impl FnOnce(&mut Writer<'_>)) {
    write_side_rule(batch, FAILOVER_TABLE, chain, fill);
}

/// Packets of TCP that neither begin a connection nor end one abruptly: nearly all.
fn accept_all_but_beginnings(list: &mut Writer<'_>) {
    of_protocol(list, Protocol::Tcp.number());
    tcp_flags(list, SYN | RST, 0);
    immediate(list, verdict::ACCEPT, None);
}

/// `tcp flags & (syn | ack | rst) == syn | ack ip saddr . th sport @watched4 update @answered4 { … }`
fn count_answer(list: &mut Writer<'_>, family: Family) {
    of_tcp(list, family);
    tcp_flags(list, SYN | ACK | RST, SYN | ACK);
    look_up(list, &from_backend(family), Is, Watched, family);
    load_key(list, &from_backend(family), 0);
    record(list, &Answered.name(family), expr::DYNSET_OP_UPDATE);
}

/// A reset with sequence number 0 answers a SYN; one within a connection has another number.
fn catch_refusal(list: &mut Writer<'_>, family: Family) {
    of_tcp(list, family);
    tcp_flags(list, SYN | FIN | RST | ACK, RST | ACK);
    payload(list, expr::PAYLOAD_TRANSPORT_HEADER, 4, 4, 0);
    compare_with(list, Is, &[0; 4]);
    write_statements(&[MatchAny(&[Flag::StatusDnat])], 0, list);
    conntrack(list, expr::CT_DIR, None, 0);
    compare_with(list, Is, &[expr::CT_DIR_REPLY]);
    look_up(list, &from_backend(family), Is, Watched, family);
    immediate(list, verdict::JUMP, Some(&refused_chain(family)));
}

/// Where an ICMP error has the destination of the packet that it is about: offsets and lengths of address and port. That packet
/// begins a connection, so it has a header of IP without options or extensions.
const fn inner_destination(family: Family) -> [(u32, u32); 2] {
    const ICMP_HEADER: u32 = 8;
    match family {
        Family::V4 => [(ICMP_HEADER + 16, 4), (ICMP_HEADER + 20 + 2, 2)],
        Family::V6 => [(ICMP_HEADER + 24, 16), (ICMP_HEADER + 40 + 2, 2)],
    }
}

/// An ICMP error "unreachable" for a connection to a backend that was never answered.
fn unreachable(list: &mut Writer<'_>, family: Family, set: FailoverSet) {
    of_family(list, family);
    let (protocol, kind) = match family {
        Family::V4 => (ICMP, ICMP_UNREACHABLE),
        Family::V6 => (ICMPV6, ICMPV6_UNREACHABLE),
    };
    of_protocol(list, protocol);
    payload(list, expr::PAYLOAD_TRANSPORT_HEADER, 0, 1, 0);
    compare_with(list, Is, &[kind]);
    conntrack(list, expr::CT_STATE, None, 0);
    mask(list, &expr::CT_STATE_RELATED.to_ne_bytes(), 0);
    compare_with(list, IsNot, &[0; 4]);
    conntrack(list, expr::CT_STATUS, None, 0);
    let answered = expr::CT_STATUS_DNAT | expr::CT_STATUS_SEEN_REPLY;
    mask(list, &answered.to_ne_bytes(), 0);
    compare_with(list, Is, &expr::CT_STATUS_DNAT.to_ne_bytes());
    conntrack(list, expr::CT_PROTOCOL, None, 0);
    compare_with(list, Is, &[Protocol::Tcp.number()]);
    let mut at = 0;
    for (offset, len) in inner_destination(family) {
        payload(list, expr::PAYLOAD_TRANSPORT_HEADER, offset, len, at);
        at += len.div_ceil(4);
    }
    lookup(list, &set.name(family), |_| ());
}

fn log_unreachable(list: &mut Writer<'_>, family: Family) {
    unreachable(list, family, WatchedErrors);
    expression(list, "limit", |limit| {
        limit.bytes(expr::LIMIT_RATE, &UNREACHABLE_RATE.to_be_bytes());
        limit.bytes(expr::LIMIT_UNIT, &1_u64.to_be_bytes());
        limit.u32(expr::LIMIT_BURST, 5);
    });
    log(list);
}

fn drop_unreachable(list: &mut Writer<'_>, family: Family) {
    unreachable(list, family, SecondChanceErrors);
    immediate(list, verdict::DROP, None);
}

/// `meta nfproto ipv4`
fn of_family(list: &mut Writer<'_>, family: Family) {
    let family = Match(Field::Nfproto, Is, Constant::Family(family));
    write_statements(&[family], 0, list);
}

/// `meta nfproto ipv4 meta l4proto tcp`
fn of_tcp(list: &mut Writer<'_>, family: Family) {
    of_family(list, family);
    of_protocol(list, Protocol::Tcp.number());
}

/// `meta l4proto …`
fn of_protocol(list: &mut Writer<'_>, protocol: u8) {
    load_key(list, &vec![Field::L4Proto], 0);
    compare_with(list, Is, &[protocol]);
}

/// `tcp flags & (…) == …`
fn tcp_flags(list: &mut Writer<'_>, of: u8, are: u8) {
    payload(list, expr::PAYLOAD_TRANSPORT_HEADER, 13, 1, 0);
    mask(list, &[of], 0);
    compare_with(list, Is, &[are]);
}

fn look_up(
    list: &mut Writer<'_>,
    key: &Vec<Field>,
    comparison: Comparison,
    set: FailoverSet,
    family: Family,
) {
    load_key(list, key, 0);
    lookup(list, &set.name(family), |attributes| {
        if comparison == IsNot {
            attributes.u32(expr::LOOKUP_FLAGS, expr::LOOKUP_FLAG_INV);
        }
    });
}

/// Logs to the group, each packet at once.
fn log(list: &mut Writer<'_>) {
    expression(list, "log", |log| {
        log.bytes(expr::LOG_GROUP, &REFUSALS_GROUP.to_be_bytes());
        log.u32(expr::LOG_SNAPLEN, LOGGED_BYTES);
        log.bytes(expr::LOG_QTHRESHOLD, &1_u16.to_be_bytes());
    });
}

/// Flags of TCP.
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Protocols and their type of message "destination unreachable".
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const ICMP_UNREACHABLE: u8 = 3;
const ICMPV6_UNREACHABLE: u8 = 1;
