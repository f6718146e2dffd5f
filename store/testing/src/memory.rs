//! A store in memory.

mod client;
mod leases;
mod state;
mod store;
mod watching;

pub use client::MemoryStore;

#[cfg(test)]
mod tests;
