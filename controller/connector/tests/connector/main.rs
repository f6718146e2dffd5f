//! The whole connector: from a registry's content to a store's.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

mod consul;
#[cfg(feature = "dns")]
mod dns;
mod file;
mod harness;
mod sink;
