//! What needs the outside: a network-namespace lab without root, a real etcd, real packets.
//!
//! Tests live in `tests/`, one file per subject. Every test there but those of `architecture.rs` runs in namespaces of
//! its own through [`lab::isolated`]; `scripts/test` checks that each of them really did.

pub mod agent;
pub mod cluster;
pub mod fleet;
pub mod kernel;
pub mod lab;
