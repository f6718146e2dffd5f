//! A lab of network namespaces: this node with two pods, a second node with two more, and an external client.
//!
//! ```text
//!    pod1  pod2                 pod3  pod4
//!      └─┬──┘                     └─┬──┘        pods know only their node; nodes route the other's pods plainly
//!      node ──────── external ──── node2
//!                        │
//!                      client                  knows the service ranges, via `node`, and no pod
//! ```
//!
//! No root is needed: [`isolated`] runs a test again inside new user, network, mount and process namespaces, and everything in
//! there ends with it. Where namespaces cannot be made, the test fails; it is never skipped.
//!
//! The client has no route to pods. So a reply that left a node without its address being translated back is seen as a
//! failure, and not hidden by routing.

mod client;
mod error;
mod http;
mod isolation;
mod namespace;
mod plan;
mod prober;
mod process;
mod raw;
mod requirements;
mod sctp;
mod server;
mod threads;
mod topology;
mod wait;

pub use client::{Outcome, ServerReply, Session};
pub use error::{LabError, Result};
pub use http::Response;
pub use isolation::{isolated, isolated_measurement, isolated_program, isolated_within};
pub use namespace::Namespace;
pub use plan::{Family, Host, Protocol, Range, ranges};
pub use prober::{Probes, RetryMode};
pub use process::{Process, scratch};
pub use raw::RawSocket;
pub use requirements::{load_ruleset, need_linux};
pub use sctp::Association;
pub use server::{Responder, Server};
pub use topology::Lab;
pub(crate) use wait::scaled;
pub use wait::{wait_for, wait_until};
