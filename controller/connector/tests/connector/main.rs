//! The connector as a whole: from what a registry says to what is in a store.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

mod consul;
mod dns;
mod file;
mod harness;
mod sink;
