//! The table `contiv-attempts`: records repeated first packets (a SYN of TCP, an INIT of SCTP) on flows that are translated.
//!
//! It exists only while there are drained connections, which are those to backends that no longer are; so its two chains cost
//! packets nothing at all other times. Its rules only record, and never decide. It is a table of its own since another thread
//! writes it: the main table may be owned by the socket of the renderer.

use std::net::SocketAddr;

use contiv_model::Protocol;

use super::{
    Family, Field,
    bytecode::{compare_with, load_key, mask, payload, record, write_statements},
    hook::{BEFORE_DSTNAT, Hook, OUTPUT, PREROUTING, write_chain_of},
    part::{self, DeclaredBy, Part},
    rule::{
        Comparison::Is,
        Constant, Flag,
        Statement::{Match, MatchAny},
    },
    side_table::{
        ByPackets, SideSet, parse_frontend, write_side_rule, write_side_set, write_side_table,
    },
};
use crate::nftables::netlink::{
    Attributes, Batch, Writer,
    constants::{data, elem, expr},
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
    write_side_table(batch, ATTEMPTS_TABLE, is_owned);
    for family in Family::ALL {
        let set = SideSet {
            name: &set_name(family),
            key: &parts(family),
            declared_by: DeclaredBy::Type,
            by_packets: Some(ByPackets {
                timeout_ms: TIMEOUT_MS,
                size: SIZE,
                is_counted: false,
            }),
        };
        write_side_set(batch, ATTEMPTS_TABLE, &set);
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
                write_side_rule(batch, ATTEMPTS_TABLE, name, |list| {
                    write_rule(list, family, protocol);
                });
            }
        }
    }
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
    let (protocol, destination, client) = parse_frontend(family, key)?;
    Some(Attempt {
        protocol,
        client: part::parse_end(family, client)?,
        destination,
    })
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
