//! A whole node in one thread and by simulated time: the real core and the real nftables renderer between models of what is around
//! them.
//!
//! - [`kernel`]: nf_tables and conntrack, by the very netlink messages that the renderer encodes.
//! - [`store`], [`disk`]: the store that the agent watches, and its state folder.
//! - [`cluster`]: what clients write, and so which traffic is expected.
//! - [`faults`]: what goes wrong.
//! - [`world`]: all of it together, decided by one seed.
//! - [`invariants`]: what must hold at rest; `newest`, `pods`, `history` and `metrics` each have what must hold of one subject.

pub mod cluster;
mod config;
pub mod disk;
pub mod faults;
mod history;
pub mod invariants;
pub mod kernel;
mod local_addresses;
mod metrics;
mod newest;
mod outputs;
mod own_node;
mod pods;
pub mod store;
pub mod world;
