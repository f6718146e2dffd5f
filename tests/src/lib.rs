//! The lab for tests with real packets: network namespaces without root, and a real etcd.
//!
//! Tests live in `tests/`, one file per subject. Every test there but those of `architecture.rs` runs in its own namespaces
//! through [`lab::isolated`]; `scripts/test` checks that each of them did.

pub mod agent;
pub mod cluster;
pub mod fleet;
pub mod kernel;
pub mod lab;
