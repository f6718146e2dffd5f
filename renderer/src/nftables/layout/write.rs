//! The constant part of the table as netlink messages.

use super::{
    Set, Sizes, TABLE, bytecode,
    hook::write_chain,
    rules::{Chain, PodRanges, chains},
};
use crate::nftables::netlink::{
    Batch,
    constants::{msg, rule, table},
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

/// Adds the messages that fill the chains, which must be empty, with the rules for these ranges of pods.
pub(crate) fn write_rules(batch: &mut Batch, pods: PodRanges) {
    for one in chains() {
        bytecode::write_rules(one.name, &one.rules_for(pods), batch);
    }
}

/// Adds the messages that write the rules anew which depend on the ranges of pods.
pub(crate) fn rewrite_rules(batch: &mut Batch, pods: PodRanges) {
    for one in chains().iter().filter(|one| one.family_of_pods().is_some()) {
        batch.delete(
            msg::DELRULE,
            format!("all rules of chain {}", one.name),
            |message| {
                message.text(rule::TABLE, TABLE);
                message.text(rule::CHAIN, one.name);
            },
        );
        bytecode::write_rules(one.name, &one.rules_for(pods), batch);
    }
}

impl Chain {
    /// The list of expressions of each rule, as in a message, for comparison with those of the kernel.
    pub(crate) fn written_rules(&self, pods: PodRanges) -> Vec<Vec<u8>> {
        bytecode::written_rules(&self.rules_for(pods))
    }
}
