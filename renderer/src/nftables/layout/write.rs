//! The constant part of the table as netlink messages.

use super::{
    Set, Sizes, TABLE, bytecode,
    hook::write_chain,
    rules::{Chain, chains},
};
use crate::nftables::netlink::{
    Batch,
    constants::{msg, table},
};

/// Adds the message that creates the table.
pub(crate) fn write_table(batch: &mut Batch, flags: u32) {
    batch.create(msg::NEWTABLE, "the table", |message| {
        message.text(table::NAME, TABLE);
        message.u32(table::FLAGS, flags);
    });
}

/// Adds the messages that create all sets, some of them with a size.
pub(crate) fn write_sets(batch: &mut Batch, sizes: &Sizes) {
    for set in Set::all() {
        let id = batch.new_set_id();
        set.write(batch, id, sizes.get(&set).copied());
    }
}

/// Adds the messages that create the chains.
pub(crate) fn write_chains(batch: &mut Batch) {
    for one in chains() {
        write_chain(batch, one.name, one.hook);
    }
}

/// Adds the messages that fill the chains, which must be empty, with their rules.
pub(crate) fn write_rules(batch: &mut Batch) {
    for one in chains() {
        bytecode::write_rules(one.name, &one.rules, batch);
    }
}

impl Chain {
    /// The list of expressions of each rule, as in a message, for comparison with those of the kernel.
    pub(crate) fn written_rules(&self) -> Vec<Vec<u8>> {
        bytecode::written_rules(&self.rules)
    }
}
