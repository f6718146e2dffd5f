//! Stale flows: what the kernel's connection tracking remembers of backends and services that are gone is deleted.
//!
//! A flow keeps the translation that its first packet got. Where its backend is gone, the next packets go nowhere until
//! the flow times out, and each of them puts that off.
//!
//! ```text
//! programmed changes ─ reaper ═► worker (a thread) ─ stale ─► suspects ─ netlink ─► dump, compare, delete
//! ```

mod constants;
mod flow;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod netlink;
mod reaper;
mod seqlock;
mod serving;
mod stale;
mod worker;

pub(crate) use reaper::StaleFlowReaper;
pub(crate) use serving::programmed;
