//! What tests of controllers need: a store in memory that misbehaves as told, and controllers without their loops.

mod controller;
mod faults;
mod memory;

pub use controller::TestController;
pub use faults::Faults;
pub use memory::MemoryStore;
