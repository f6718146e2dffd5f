//! The lab for tests with real packets: network namespaces without root, and a real etcd.
//!
//! Tests live in `tests/packets/`, one file per subject. Every test there that sends packets runs in its own namespaces through
//! [`lab::isolated`]; `scripts/test` checks that each of them did. `tests/repository/` checks the repository, and needs no kernel.

pub mod agent;
pub mod cluster;
pub mod fleet;
pub mod kernel;
pub mod lab;
