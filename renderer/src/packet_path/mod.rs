//! The way of a connection's first packet and of its answer through the network stack of this node: the rules of all tables in the
//! order of the hooks, and the routing between them.
//!
//! The agent's own tables are not evaluated here: what they do is known ([`OwnVerdict`]), and whether the kernel has what they should hold
//! is another question ([`crate::nftables::Inspector`]).

mod network;
mod packet;
mod walk;

pub use network::{AddressKind, Network, PathError, Route, RouteQuery};
pub use packet::{OwnVerdict, Packet};
pub use walk::{ChainRef, Doubt, Hook, RuleRef, StopKind, Walk, WalkEnd, WalkStep};
