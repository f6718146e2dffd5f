//! Stale flows: deletes conntrack entries of removed backends and services.
//!
//! A flow keeps the translation of its first packet. If its backend is gone, its packets go nowhere until the flow times out,
//! and each of them renews the timeout.
//!
//! ```text
//! programmed changes ─ reaper ═► worker (a thread) ─ stale ─► filter ─ netlink ─► dump, compare, delete
//!                                      └─ drained ─ attempts ─► a table that records new attempts on drained flows
//! ```

mod attempts;
mod backends;
pub(crate) mod constants;
mod drained;
mod flow;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod netlink;
mod observer;
mod reaper;
mod request;
mod seqlock;
mod serving;
mod stale;
mod worker;

pub(crate) use attempts::remove_attempt_table;
pub(crate) use flow::{Flow, Identity, endpoint};
pub use observer::StaleFlowObserver;
pub(crate) use reaper::StaleFlowReaper;
pub(crate) use request::Services;
pub(crate) use serving::programmed;
pub(crate) use stale::{FlowVerdict, StaleFlowFilter};
