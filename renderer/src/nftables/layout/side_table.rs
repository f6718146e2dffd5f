//! Tables beside the main one, each for a feature that not every node uses: the messages that create them.

use std::net::SocketAddr;

use contiv_model::Protocol;

use super::{
    Family, PROTOCOLS,
    part::{self, DeclaredBy, Part},
};
use crate::nftables::netlink::{
    Batch, Writer,
    constants::{msg, rule, set, table},
    write_removal,
};

/// A set of such a table, with a declared key and without data.
#[derive(Debug)]
pub(super) struct SideSet<'a> {
    pub(super) name: &'a str,
    pub(super) key: &'a [Part],
    pub(super) declared_by: DeclaredBy,
    /// Rules write its entries, if it has this.
    pub(super) by_packets: Option<ByPackets>,
}

/// What rules write to a set.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByPackets {
    /// For how long an entry is kept.
    pub(super) timeout_ms: u64,
    /// The most entries.
    pub(super) size: u32,
    /// Each entry counts the packets that write it.
    pub(super) is_counted: bool,
}

/// Adds the messages that create an empty table. An earlier one of this name is replaced.
pub(super) fn write_side_table(batch: &mut Batch, name: &str, is_owned: bool) {
    let create = |batch: &mut Batch, flags: u32| {
        batch.create(msg::NEWTABLE, format!("table {name}"), |message| {
            message.text(table::NAME, name);
            message.u32(table::FLAGS, flags);
        });
    };
    // A table can only be deleted if it exists.
    create(batch, 0);
    write_removal(batch, name);
    create(batch, if is_owned { table::FLAG_OWNER } else { 0 });
}

/// Adds the message that creates a set.
pub(super) fn write_side_set(batch: &mut Batch, table: &str, one: &SideSet<'_>) {
    let id = batch.new_set_id();
    batch.create(msg::NEWSET, format!("set {}", one.name), |message| {
        message.text(set::TABLE, table);
        message.text(set::NAME, one.name);
        let flags = one
            .by_packets
            .map_or(0, |_| set::FLAG_TIMEOUT | set::FLAG_EVAL);
        message.u32(set::FLAGS, flags);
        message.u32(set::KEY_TYPE, part::datatype(one.key));
        message.u32(set::KEY_LEN, part::len(one.key));
        message.u32(set::ID, id);
        if let Some(written) = one.by_packets {
            message.nested(set::DESC, |desc| desc.u32(set::DESC_SIZE, written.size));
            message.bytes(set::TIMEOUT, &written.timeout_ms.to_be_bytes());
        }
        message.bytes(
            set::USERDATA,
            &part::userdata(one.key, None, one.declared_by),
        );
        if one.by_packets.is_some_and(|written| written.is_counted) {
            message.nested(set::EXPR, |expression| {
                expression.text(rule::EXPR_NAME, "counter");
                expression.nested(rule::EXPR_DATA, |_| ());
            });
        }
    });
}

/// Adds the message that appends a rule to a chain.
pub(super) fn write_side_rule(
    batch: &mut Batch,
    table: &str,
    chain: &str,
    fill: impl FnOnce(&mut Writer<'_>),
) {
    let subject = format!("a rule of chain {chain}");
    batch.append(msg::NEWRULE, subject, |message| {
        message.text(rule::TABLE, table);
        message.text(rule::CHAIN, chain);
        message.nested(rule::EXPRESSIONS, fill);
    });
}

/// The protocol, and the address and port, of a key that begins with a frontend; and the rest of the key.
pub(super) fn parse_frontend(family: Family, key: &[u8]) -> Option<(Protocol, SocketAddr, &[u8])> {
    let (address, rest) = key.split_at_checked(usize::from(family.address_len()))?;
    let (protocol, rest) = rest.split_first_chunk::<4>()?;
    let (port, rest) = rest.split_at_checked(rest.len().min(4))?;
    let protocol = PROTOCOLS
        .into_iter()
        .find(|one| one.number() == protocol[0])?;
    let end = part::parse_end(family, &[address, port].concat())?;
    Some((protocol, end, rest))
}
