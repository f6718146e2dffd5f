//! The pure core of the agent: inputs in, outputs out. It knows no clock, no thread and no I/O; drivers around it do.
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
//! - [`attempts`]: what clients' attempts say about backends, before it reaches the core.
//! - [`balance`]: how new connections are spread over backends, beside how they should be.
//! - [`decode`]: values of the store become events of the processor, before they reach the core.
//! - [`flows`]: connections through services, from what conntrack tells.
//! - [`health`]: health checks of load balancers, and whether this node's dataplane is up to date.
//! - [`metrics`]: what is counted, and gauges as functions of the state.
//!
//! A new kind of input is a variant of [`message::Input`] and an arm of [`Core::handle`]; something new that the node does is a
//! variant of [`message::Output`]. Something new that users can ask is a method of [`Core`], derived from its state: nothing is
//! kept in step by hand.

// The list is in the workspace's clippy.toml. Tests have clocks and channels of their own.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod attempts;
pub mod balance;
pub mod core;
pub mod decode;
pub mod diagnosis;
pub mod flows;
pub mod health;
#[cfg(test)]
mod logged;
pub mod message;
pub mod metrics;
pub mod plural;

pub use self::core::{
    Caveat, Core, CoreConfig, Explanation, FailingBackend, FailoverStatus, FormerDestination,
    FormerFrontend, GuardConfig, HeldDeletions, HistoryLimits, LastError, LastReport, MirrorStatus,
    ObjectChanges, Outcome, Quarantined, Record, RendererView, SelfCheckFailure, Status, StoreDown,
    VerificationConfig, VerificationView, Warning, own_node_key,
};
pub use message::{Answer, Input, PodNotAdded};
