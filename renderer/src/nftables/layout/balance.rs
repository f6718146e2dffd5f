//! The table `contiv-balance`: counts new connections by frontend and backend.
//!
//! It exists only while somebody looks at the balance, and ends with the socket that owns it. Its chains are of type nat, so
//! established packets do not pass them; they come before those that masquerade, since conntrack calls none after these.

use std::net::SocketAddr;

use contiv_model::Protocol;

use super::{
    Family, Field, PROTOCOLS,
    bytecode::{load_key, record, write_statements},
    hook::{BEFORE_SRCNAT, Hook, INPUT, POSTROUTING, write_chain_of},
    part::{self, DeclaredBy, Part},
    rule::{
        Comparison::Is,
        Constant, Flag,
        Statement::{Match, MatchAny},
    },
    rules::original_frontend,
    side_table::{
        ByPackets, SideSet, parse_frontend, write_side_rule, write_side_set, write_side_table,
    },
};
use crate::nftables::netlink::{
    Attributes, Batch, Writer,
    constants::{data, elem, expr},
    counted_packets, set_elements, write_set_request,
};

/// The name of the table, in family inet.
pub(crate) const BALANCE_TABLE: &str = "contiv-balance";

/// A count ends when there was no new connection for an hour.
const TIMEOUT_MS: u64 = 3_600_000;
/// How many pairs of frontend and backend are counted in each family. Without room for one its connections are not.
pub(crate) const BALANCE_SIZE: u32 = 65_536;

/// New connections that were sent from a frontend to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConnections {
    /// The protocol.
    pub protocol: Protocol,
    /// Where the client connected to; for node ports an address of the node.
    pub destination: SocketAddr,
    /// Where it was sent.
    pub backend: SocketAddr,
    /// How many, since counting began.
    pub count: u64,
}

fn set_name(family: Family) -> String {
    format!("new{}", family.digit())
}

/// The backend, since both chains come after the translation; and the frontend as the client knows it. In this order nft can load what it
/// lists: it knows the type of `ct original proto-dst` after a port of the protocol.
fn key(family: Family) -> Vec<Field> {
    let mut key = vec![Field::Daddr(family), Field::Dport];
    key.extend(original_frontend(family, false));
    key
}

fn parts(family: Family) -> [Part; 5] {
    [
        Part::Daddr(family),
        Part::Dport,
        Part::Daddr(family),
        Part::L4Proto,
        Part::Dport,
    ]
}

/// Adds the messages that create the table. An earlier one of this name is replaced.
pub(crate) fn write_balance_table(batch: &mut Batch) {
    write_side_table(batch, BALANCE_TABLE, true);
    for family in Family::ALL {
        let set = SideSet {
            name: &set_name(family),
            key: &parts(family),
            declared_by: DeclaredBy::Type,
            by_packets: Some(ByPackets {
                timeout_ms: TIMEOUT_MS,
                size: BALANCE_SIZE,
                is_counted: true,
            }),
        };
        write_side_set(batch, BALANCE_TABLE, &set);
    }
    for (name, number) in [("new-postrouting", POSTROUTING), ("new-input", INPUT)] {
        let hook = Hook::nat(number, BEFORE_SRCNAT);
        write_chain_of(batch, BALANCE_TABLE, name, Some(hook));
        for (family, protocol) in Family::ALL
            .into_iter()
            .flat_map(|family| PROTOCOLS.map(|protocol| (family, protocol)))
        {
            write_side_rule(batch, BALANCE_TABLE, name, |list| {
                count_new(list, family, protocol);
            });
        }
    }
}

/// `ct status dnat update @new4 { ip daddr . tcp dport . ct original ip daddr . meta l4proto . ct original proto-dst }`
fn count_new(list: &mut Writer<'_>, family: Family, protocol: Protocol) {
    let is_translated = [
        Match(Field::Nfproto, Is, Constant::Family(family)),
        Match(Field::L4Proto, Is, Constant::Protocol(protocol)),
        MatchAny(&[Flag::StatusDnat]),
    ];
    write_statements(&is_translated, 0, list);
    load_key(list, &key(family), 0);
    record(list, &set_name(family), expr::DYNSET_OP_UPDATE);
}

/// Restricts the request of a dump to what was counted.
pub(crate) fn write_balance_request(message: &mut Writer<'_>, family: Family) {
    write_set_request(message, BALANCE_TABLE, &set_name(family));
}

/// Reads the elements of a message.
pub(crate) fn parse_new_connections(
    family: Family,
    object: Attributes<'_>,
) -> impl Iterator<Item = NewConnections> {
    set_elements(object).filter_map(move |element| {
        let key = element.nested(elem::KEY)?.get(data::VALUE)?;
        let backend_len = usize::from(family.address_len()) + 4;
        let (backend, frontend) = key.split_at_checked(backend_len)?;
        let (protocol, destination, _) = parse_frontend(family, frontend)?;
        Some(NewConnections {
            protocol,
            destination,
            backend: part::parse_end(family, backend)?,
            count: counted_packets(element)?,
        })
    })
}
