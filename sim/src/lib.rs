//! A simulation of a whole node in one thread and in simulated time: the real core and the real nftables renderer, with models
//! of the store, the kernel and the disk.
//!
//! - [`kernel`]: nf_tables and conntrack, driven by the netlink messages that the renderer encodes.
//! - [`store`], [`disk`]: the store that the agent watches, and its state folder.
//! - [`cluster`]: the writes of clients; `expected`: the results of connections to expect from them.
//! - [`faults`]: the injected faults.
//! - [`world`]: the whole simulation, determined by one seed. [`route_world`]: the route renderer alone.
//! - `long_flows`: connections that go on while services change.
//! - [`invariants`]: the invariants of the state at rest; `used_endpoints`, `pods`, `history` and `metrics` check one subject each.

pub mod cluster;
mod config;
mod confirmation;
pub mod disk;
mod expected;
mod failover;
pub mod faults;
mod history;
pub mod invariants;
pub mod kernel;
mod local_addresses;
mod long_flows;
mod metrics;
mod outputs;
mod own_node;
mod pods;
pub mod route_world;
pub mod store;
mod used_endpoints;
pub mod world;
