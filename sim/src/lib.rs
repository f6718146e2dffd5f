//! A simulation of a whole node in one thread and in simulated time: the real core and the real nftables renderer, with models
//! of the store, the kernel and the disk.
//!
//! - [`kernel`]: nf_tables and conntrack, driven by the netlink messages that the renderer encodes.
//! - [`store`], [`disk`]: the store that the agent watches, and its state folder.
//! - [`cluster`]: the writes of clients, and the traffic to expect from them.
//! - [`faults`]: the injected faults.
//! - [`world`]: the whole simulation, determined by one seed.
//! - [`invariants`]: the invariants of the state at rest; `newest`, `pods`, `history` and `metrics` check one subject each.

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
