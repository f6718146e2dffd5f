//! The kernel's side of failover: a table that counts attempts at backends and answers, and a log of who refuses.

mod refusals;
mod table;

pub use refusals::Refusals;
pub(super) use table::remove_failover_table;
pub use table::{BackendAttempts, FailoverTable};
