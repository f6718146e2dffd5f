//! Registries for tests, on loopback or any listener that is handed in.

mod consul;
mod dns;

pub use consul::{ConsulInstance, ConsulServer, Fault};
pub use dns::{DnsServer, Zone};
