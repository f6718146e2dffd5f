//! The layout of the table: its sets, chains and rules. `skeleton.nft` beside this folder describes the same in nft's language.

mod base;
mod demand;
mod expression;
mod family;
mod hook;
mod learn;
mod module;
mod pick;
mod set;
mod skeleton;
mod table;
mod typeof_data;
mod written;

pub(crate) use base::BaseChain;
pub(crate) use demand::DemandChain;
pub(crate) use expression::write_verdict;
pub(crate) use family::Family;
pub(crate) use hook::Hook;
pub(crate) use learn::LearnChain;
pub(crate) use module::KernelModule;
pub(crate) use pick::{Choice, MAX_OUTSIDE_SLOTS, MAX_SLOTS, PickChain};
pub(crate) use set::{ANONYMOUS, Declaration, Form, PROTOCOLS, Set, SetKind, Sizes};
pub(crate) use skeleton::{Chain, chains, write_chains, write_rules, write_sets, write_table};
pub(crate) use table::TABLE;

/// The skeleton in nft's language, with comments.
pub(crate) const SKELETON: &str = include_str!("../skeleton.nft");
