//! Helpers for tests of controllers: a store in memory with configurable faults, and controllers without their loops.

mod controller;
mod faults;
mod memory;

pub use controller::TestController;
pub use faults::Faults;
pub use memory::MemoryStore;
