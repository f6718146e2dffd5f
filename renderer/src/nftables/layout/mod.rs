//! The layout of the table: its sets, chains and rules. Each is described once; from there come the messages for the kernel,
//! the text for nft and for people (`skeleton.nft` beside this folder), and what `evaluate` executes.

mod attempts;
mod balance;
mod base;
mod bytecode;
mod demand;
mod failover;
mod family;
mod field;
mod hook;
pub(crate) mod hook_name;
mod learn;
mod module;
mod part;
mod pick;
mod rule;
mod rules;
mod set;
mod side_table;
mod table;
mod text;
mod write;

pub(crate) use attempts::{
    ATTEMPTS_TABLE, Attempt, parse_attempts, write_attempts_request, write_attempts_table,
};
pub use balance::NewConnections;
pub(crate) use balance::{
    BALANCE_SIZE, BALANCE_TABLE, parse_new_connections, write_balance_request, write_balance_table,
};
pub(crate) use base::BaseChain;
pub(crate) use bytecode::write_verdict;
pub(crate) use demand::DemandChain;
pub(crate) use failover::{
    FAILOVER_TABLE, FailoverSet, LOGGED_BYTES, REFUSALS_GROUP, parse_counted,
    write_failover_element, write_failover_request, write_failover_table,
};
pub(crate) use family::Family;
pub(crate) use field::Field;
pub(crate) use hook::{Hook, INPUT, OUTPUT, POSTROUTING, PREROUTING};
pub(crate) use learn::LearnChain;
pub(crate) use module::KernelModule;
pub(crate) use pick::{Choice, MAX_EXTERNAL_SLOTS, MAX_SLOTS, PickChain};
pub(crate) use rule::{Comparison, Constant, Flag, Rule, Statement};
pub(crate) use rules::{PodRanges, chains};
pub(crate) use set::{ANONYMOUS, Declaration, Form, PROTOCOLS, Set, SetKind, Sizes};
pub(crate) use table::TABLE;

/// The tables of this program: all of family inet.
pub(crate) const OWN_TABLES: [&str; 4] = [TABLE, ATTEMPTS_TABLE, FAILOVER_TABLE, BALANCE_TABLE];

pub(crate) use text::{on_demand, skeleton};
pub(crate) use write::{rewrite_rules, write_chains, write_rules, write_sets, write_table};
