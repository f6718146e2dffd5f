//! What waits and does I/O for the pure core ([`contiv_node`]): the only places of the node that block.
//!
//! - `driver` passes inputs to the core and executes its outputs.
//! - `inputs` waits for the store, the kernel, timers and requests; `api` is what other tasks ask.
//! - `failover` watches and probes backends.
//! - `outputs` has the receivers of the core's outputs; `renderer_thread` and `verifier_thread` are the threads among them.
//!
//! A new kind of input is sent as [`Request::Input`], or by [`Request::answered`] if the sender waits; only a source with a priority
//! of its own needs a place in `inputs`. A new output needs an arm in `outputs`.

mod api;
mod attempt_watcher;
mod driver;
mod failover;
mod inputs;
mod outputs;
mod prober;
mod renderer_thread;
mod verifier_thread;

#[cfg(test)]
mod tests;

pub(crate) use api::snapshot;
pub use api::{Question, Reply, Request};
pub use driver::{Node, NodeConfig, StoreFeedEnded};
pub use outputs::MetricSink;
pub use renderer_thread::RendererSpec;
