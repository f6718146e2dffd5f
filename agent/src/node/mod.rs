//! The node: one pure core that decides, and thin drivers around it.
//!
//! ```text
//!  store feed ─┐            ┌──────────────┐           ┌─► renderer threads, verifier threads
//!  kernel ─────┤  Input     │ Core::handle │  Output   ├─► mirror
//!  timer ──────┼──► driver ─► pure, sync,  ├─► driver ─┼─► store feed (list again)
//!  requests ───┘            │ no clock, no │           ├─► health checks, metrics
//!                           │ I/O          │           └─► answers
//!                           └──────────────┘
//! ```
//!
//! - [`message`]: all that can happen, and all that can be wanted.
//! - [`core`]: what is decided; `core/` has a small type for each concern.
//! - [`decode`]: values of the store become events of the processor, before they reach the core.
//! - [`api`]: what other tasks ask; a question is a function of the core's state.
//! - `driver`, `inputs`, `outputs`, `renderer_thread`, `verifier_thread`: the only places that wait or block.
//!
//! A new kind of input is a variant of [`message::Input`] and an arm of [`Core::handle`]. Other tasks send it as
//! [`Request::Input`], or by [`Request::answered`] if they wait; only a source with a priority of its own needs a place in
//! `inputs`. Something new that the node does is a variant of [`message::Output`] and an arm in `outputs`. Something new that
//! users can ask is a method of [`Core`], derived from its state: nothing is kept in step by hand.

pub mod api;
pub mod core;
pub mod decode;
mod driver;
mod inputs;
#[cfg(test)]
mod logged;
pub mod message;
mod outputs;
mod renderer_thread;
mod verifier_thread;

#[cfg(test)]
mod tests;

pub use self::core::{
    Caveat, Core, CoreConfig, Explanation, FormerDestination, FormerFrontend, GuardConfig,
    HeldDeletions, HistoryLimits, LastError, LastReport, MirrorStatus, ObjectChanges, Outcome,
    Quarantined, Record, RendererView, Status, StoreDown, VerificationConfig, VerificationView,
    Warning,
};
pub use api::{Question, Reply, Request};
pub use driver::{Node, NodeConfig, StoreFeedEnded};
pub use message::{Answer, Input, PodNotAdded};
pub use outputs::MetricSink;
pub use renderer_thread::RendererSpec;
