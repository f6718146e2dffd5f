//! Contiv's reflector (KSR): what a Kubernetes API server has is kept in a store, in Contiv's form.
//!
//! Pods, services, endpoints, endpoint slices, nodes and namespaces are followed on both sides, each type by itself. Each
//! key is brought from what is stored to what Kubernetes says: a pure comparison (`state`), so that the first pass, a
//! change, a lost connection, somebody else's write and a store that lost its data are one and the same.
//!
//! - Nothing is written before both sides were listed, and nothing is written that is there already.
//! - What is somebody else's (`ownership`) is neither written nor swept, whatever Kubernetes says.
//! - An object that cannot be read is neither a change nor a deletion: what is stored of it stays.
//! - Every write is fenced by the lease of the election, so there is one writer. Whoever waits for it follows both sides
//!   too, and goes on from there; but nothing is written before Kubernetes has answered the one that has won.
//!
//! [`controller`] puts it together as one controller for a [`contiv_controller::Manager`]. What it manages itself is the
//! key `status/gauges`, where Contiv keeps what its reflectors have counted.

mod batch;
mod gauges;
mod kind_mirror;
mod mirror_controller;
mod ownership;
mod source_and_stored;
mod state;
mod stats;

use std::sync::Arc;

use bytes::Bytes;
use contiv_controller::{BuildError, Controller};
use contiv_proto::Kind;
use contiv_store::Store;

pub use gauges::GAUGES;
pub use ownership::{MANAGED_BY, is_foreign};
pub use stats::Stats;

/// The types that are reflected.
pub const KINDS: [Kind; 6] =
    [Kind::Namespace, Kind::Node, Kind::Pod, Kind::Service, Kind::Endpoints, Kind::EndpointSlice];

/// The controller that reflects `source`, the store of a Kubernetes API server, into the store of its manager. It counts
/// in `stats`.
///
/// # Errors
/// Those of the builder.
pub fn controller(source: Arc<dyn Store>, stats: &Stats) -> Result<Controller<Bytes>, BuildError> {
    gauges::controller(source, stats)
}
