//! The shape of the table: its sets, chains and rules. `skeleton.nft` beside this folder says the same in nft's language.

mod expression;
mod pick;
mod set;
mod skeleton;
mod typeof_data;

pub(crate) use expression::write_verdict;
pub(crate) use pick::PickChain;
pub(crate) use set::{Declaration, Family, Form, Set, SetKind};
pub(crate) use skeleton::{chains, write_chains, write_rules, write_sets, write_table};

/// The name of the one table the agent owns, in family inet.
pub(crate) const TABLE: &str = "contiv";

/// The skeleton in nft's language, with comments.
pub(crate) const SKELETON: &str = include_str!("../skeleton.nft");
