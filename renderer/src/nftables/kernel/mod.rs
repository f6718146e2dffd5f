//! Talks to the kernel about the table: reads it, encodes transactions and sends them, watches it.

pub(crate) mod ahead;
pub(crate) mod apply;
pub(crate) mod encode;
pub(crate) mod loopback;
pub(crate) mod modules;
pub mod offline;
pub(crate) mod ownership;
pub(crate) mod read;
pub(crate) mod refused;
pub(crate) mod watch;
