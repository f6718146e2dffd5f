//! The layout of the table: its sets, chains and rules. `skeleton.nft` beside this folder describes the same in nft's language.

mod base;
mod demand;
mod expression;
mod learn;
mod module;
mod pick;
mod set;
mod skeleton;
mod typeof_data;
mod written;

pub(crate) use base::{BaseChain, Hook};
pub(crate) use demand::DemandChain;
pub(crate) use expression::write_verdict;
pub(crate) use learn::LearnChain;
pub(crate) use module::KernelModule;
pub(crate) use pick::{Choice, PickChain};
pub(crate) use set::{ANONYMOUS, Declaration, Family, Form, PROTOCOLS, Set, SetKind};
pub(crate) use skeleton::{Chain, chains, write_chains, write_rules, write_sets, write_table};

/// The name of the one table the agent owns, in family inet.
pub(crate) const TABLE: &str = "contiv";

/// The skeleton in nft's language, with comments.
pub(crate) const SKELETON: &str = include_str!("../skeleton.nft");
