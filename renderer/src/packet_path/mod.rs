//! The way of a connection's first packet and of its answer through the network stack of this node: the rules of all tables in the
//! order of the hooks, and the routing between them.
//!
//! The agent's own tables are not evaluated here: what they do is known ([`OwnVerdict`]), and whether the kernel has what they should hold
//! is another question ([`crate::nftables::Inspector`]).

mod effect;
mod evaluate;
mod fields;
mod follow;
mod path_inspector;
mod lookups;
mod network;
mod packet;
mod registers;
mod ruleset;
mod state;
#[cfg(test)]
mod tests;
mod walk;
mod xt_match;

pub use path_inspector::PathInspector;
pub use network::{AddressKind, Network, PathError, Route, RouteQuery};
pub use packet::{OwnVerdict, Packet};
pub use ruleset::Ruleset;
pub use walk::{ChainRef, Doubt, Hook, RuleRef, StopKind, Walk, WalkEnd, WalkStep};
