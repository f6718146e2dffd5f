//! The table `contiv-attempts`: records repeated first packets (a SYN of TCP, an INIT of SCTP) on flows that are translated.
//!
//! It exists only while there are drained connections, which are those to backends that no longer are; so its two chains cost
//! packets nothing at all other times. Its rules only record, and never decide. It is a table of its own since another thread
//! writes it: the main table may be owned by the socket of the renderer.

use std::net::SocketAddr;

use contiv_model::Protocol;

use super::{
    Family, Field, PROTOCOLS,
    bytecode::{compare_with, load_key, mask, payload, record, write_statements},
    hook::{BEFORE_DSTNAT, Hook, OUTPUT, PREROUTING, write_chain_of},
    part::{self, DeclaredBy, Part},
    rule::{
        Comparison::Is,
        Constant, Flag,
        Statement::{Match, MatchAny},
    },
};
use crate::nftables::netlink::{
    Attributes, Batch, Writer,
    constants::{data, elem, expr, msg, rule, set, table},
    set_elements, write_set_request,
};

/// The name of the table, in family inet.
pub(crate) const ATTEMPTS_TABLE: &str = "contiv-attempts";

/// Entries last longer than the thread that reads them ever pauses.
const TIMEOUT_MS: u64 = 5_000;
/// How many attempts can wait to be read. One that finds no room is repeated by its client.
const SIZE: u32 = 4_096;

/// An attempt to connect: a first packet on a flow that exists already, or one that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt {
    pub(crate) protocol: Protocol,
    pub(crate) client: SocketAddr,
    /// Before translation.
    pub(crate) destination: SocketAddr,
}

/// The fields of a key. They are read before destinations are translated.
fn key(family: Family) -> Vec<Field> {
    vec![
        Field::Daddr(family),
        Field::L4Proto,
        Field::Dport,
        Field::Saddr(family),
        Field::Sport,
    ]
}

fn parts(family: Family) -> [Part; 5] {
    [
        Part::Daddr(family),
        Part::L4Proto,
        Part::Dport,
        Part::Saddr(family),
        Part::Sport,
    ]
}

fn set_name(family: Family) -> String {
    format!("attempts{}", family.digit())
}

/// Adds the messages that create the table. An earlier one of this name is replaced.
pub(crate) fn write_attempts_table(batch: &mut Batch, is_owned: bool) {
    // A table can only be deleted if it exists.
    batch.create(msg::NEWTABLE, "the table of attempts", |message| {
        message.text(table::NAME, ATTEMPTS_TABLE);
    });
    write_attempts_removal(batch);
    batch.create(msg::NEWTABLE, "the table of attempts", |message| {
        message.text(table::NAME, ATTEMPTS_TABLE);
        message.u32(table::FLAGS, if is_owned { table::FLAG_OWNER } else { 0 });
    });
    for family in Family::ALL {
        let id = batch.new_set_id();
        write_set(batch, family, id);
    }
    for (name, number) in [("prerouting", PREROUTING), ("output", OUTPUT)] {
        write_chain_of(
            batch,
            ATTEMPTS_TABLE,
            name,
            Some(Hook::filter_at(number, BEFORE_DSTNAT)),
        );
        for family in Family::ALL {
            for protocol in [Protocol::Tcp, Protocol::Sctp] {
                batch.append(msg::NEWRULE, "a rule of the table of attempts", |message| {
                    message.text(rule::TABLE, ATTEMPTS_TABLE);
                    message.text(rule::CHAIN, name);
                    message.nested(rule::EXPRESSIONS, |list| write_rule(list, family, protocol));
                });
            }
        }
    }
}

/// Adds the message that removes the table.
pub(crate) fn write_attempts_removal(batch: &mut Batch) {
    batch.delete(msg::DELTABLE, "remove the table of attempts", |message| {
        message.text(table::NAME, ATTEMPTS_TABLE);
    });
}

/// Restricts the request of a dump to the recorded attempts.
pub(crate) fn write_attempts_request(message: &mut Writer<'_>, family: Family) {
    write_set_request(message, ATTEMPTS_TABLE, &set_name(family));
}

/// Reads the elements of a message, of a set with the same key as these.
pub(crate) fn parse_attempts(
    family: Family,
    object: Attributes<'_>,
) -> impl Iterator<Item = Attempt> {
    let keys =
        set_elements(object).filter_map(|element| element.nested(elem::KEY)?.get(data::VALUE));
    keys.filter_map(move |key| parse_key(family, key))
}

fn parse_key(family: Family, key: &[u8]) -> Option<Attempt> {
    let (address, rest) = key.split_at_checked(usize::from(family.address_len()))?;
    let (protocol, rest) = rest.split_first_chunk::<4>()?;
    let (port, client) = rest.split_first_chunk::<4>()?;
    Some(Attempt {
        protocol: PROTOCOLS
            .into_iter()
            .find(|one| one.number() == protocol[0])?,
        client: part::parse_end(family, client)?,
        destination: part::parse_end(family, &[address, port].concat())?,
    })
}

fn write_set(batch: &mut Batch, family: Family, id: u32) {
    let key = parts(family);
    batch.create(
        msg::NEWSET,
        format!("set {}", set_name(family)),
        |message| {
            message.text(set::TABLE, ATTEMPTS_TABLE);
            message.text(set::NAME, &set_name(family));
            message.u32(set::FLAGS, set::FLAG_TIMEOUT | set::FLAG_EVAL);
            message.u32(set::KEY_TYPE, part::datatype(&key));
            message.u32(set::KEY_LEN, part::len(&key));
            message.u32(set::ID, id);
            message.nested(set::DESC, |desc| desc.u32(set::DESC_SIZE, SIZE));
            message.bytes(set::TIMEOUT, &TIMEOUT_MS.to_be_bytes());
            message.bytes(set::USERDATA, &part::userdata(&key, None, DeclaredBy::Type));
        },
    );
}

/// `meta nfproto ipv4 tcp flags & (syn | ack) == syn ct status assured ct status dnat update @attempts4 { … }`
///
/// The protocol and the flags are compared before the flow's status: other packets pay for nothing else. A SYN that is repeated within
/// the handshake of its connection comes before the connection is assured. An association is assured with its last cookie, and
/// has to end if its client repeats the INIT before; so for SCTP the flow only has to be there, which it is not at its first packet.
fn write_rule(list: &mut Writer<'_>, family: Family, protocol: Protocol) {
    let of = [
        Match(Field::Nfproto, Is, Constant::Family(family)),
        Match(Field::L4Proto, Is, Constant::Protocol(protocol)),
    ];
    write_statements(&of, 0, list);
    if protocol == Protocol::Sctp {
        // An INIT is the only chunk of its packet, so its type follows the common header.
        payload(list, expr::PAYLOAD_TRANSPORT_HEADER, 12, 1, 0);
        compare_with(list, Is, &[INIT]);
    } else {
        payload(list, expr::PAYLOAD_TRANSPORT_HEADER, 13, 1, 0);
        mask(list, &[SYN | ACK], 0);
        compare_with(list, Is, &[SYN]);
    }
    let has_begun = MatchAny(if protocol == Protocol::Sctp {
        &[Flag::StatusConfirmed]
    } else {
        &[Flag::StatusAssured]
    });
    write_statements(&[has_begun, MatchAny(&[Flag::StatusDnat])], 0, list);
    load_key(list, &key(family), 0);
    record(list, &set_name(family), expr::DYNSET_OP_UPDATE);
}

/// Flags of TCP.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// The type of a chunk of SCTP.
const INIT: u8 = 1;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn attempt_is_read_from_its_key() {
        let padded = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        for (protocol, client, destination) in [
            (Protocol::Tcp, "10.0.0.9:4000", "10.96.0.1:80"),
            (Protocol::Sctp, "[fd00::9]:4000", "[fd00::1]:80"),
        ] {
            let [client, destination] =
                [client, destination].map(|end| end.parse::<SocketAddr>().unwrap());
            let octets = |end: SocketAddr| match end.ip() {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            let port = |end: SocketAddr| padded(&end.port().to_be_bytes());
            let key = [
                octets(destination),
                padded(&[protocol.number()]),
                port(destination),
                octets(client),
                port(client),
            ]
            .concat();
            let family = Family::of(&client.ip());
            assert_eq!(key.len(), part::len(&parts(family)) as usize);
            assert_eq!(
                parse_key(family, &key),
                Some(Attempt {
                    protocol,
                    client,
                    destination
                })
            );
            for length in 0..key.len() - 2 {
                assert_eq!(parse_key(family, &key[..length]), None, "{length} bytes");
            }
        }
    }
}
