//! A transaction: messages that change the ruleset one after another, and are committed together or not at all. Source: the
//! kernel's `net/netfilter/nf_tables_api.c`.

mod chain;
mod elements;
mod rule;
mod set;
mod table;
pub(super) mod transaction;

use self::transaction::Transaction;
use super::{
    errno::{Errno, Result, refuse},
    message::Message,
    uapi::msg,
};

/// Applies a message.
pub(super) fn apply(transaction: &mut Transaction<'_>, message: &Message<'_>) -> Result<()> {
    match message.kind_in_subsystem() {
        msg::NEWTABLE => transaction.new_table(message),
        msg::DELTABLE | msg::DESTROYTABLE => transaction.delete_table(message),
        msg::NEWCHAIN => transaction.new_chain(message),
        msg::DELCHAIN | msg::DESTROYCHAIN => transaction.delete_chain(message),
        msg::NEWRULE => transaction.new_rule(message),
        msg::DELRULE | msg::DESTROYRULE => transaction.delete_rule(message),
        msg::NEWSET => transaction.new_set(message),
        msg::DELSET | msg::DESTROYSET => transaction.delete_set(message),
        msg::NEWSETELEM => transaction.new_elements(message),
        msg::DELSETELEM | msg::DESTROYSETELEM => transaction.delete_elements(message),
        // Requests for objects are not allowed in a batch; stateful objects and flow tables are not modelled.
        _ => refuse(Errno::EINVAL),
    }
}
