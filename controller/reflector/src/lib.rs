//! Contiv's reflector (KSR): keeps the objects of a Kubernetes API server in a store, in Contiv's form.
//!
//! Pods, services, endpoints, endpoint slices, external workloads, nodes and namespaces are watched at source and store, each type by itself. For each
//! key the stored object is compared with that of Kubernetes by a pure function (`state`), so that the first pass, a change, a
//! lost connection, another client's write and a store that lost its data are handled in the same way.
//!
//! - Nothing is written before source and store were listed, and nothing is written that is already stored.
//! - Objects of other writers (`ownership`) are neither written nor swept.
//! - An object that cannot be read is neither a change nor a deletion: its stored state stays.
//! - Every write is fenced by the lease of the election, so there is one writer. A standby watches both too and continues
//!   from there, but after it has won, nothing is written before Kubernetes has answered it.
//!
//! [`register`] gives a [`contiv_controller::Manager`] two things: the mirrors of all types, which run while the lease is held, and
//! the controller of the key `status/gauges`, in which Contiv keeps the counters of its reflectors.

mod action;
mod batch;
mod gauges;
mod kind_mirror;
mod mirror_controller;
mod ownership;
mod source_and_stored;
mod state;
mod stats;

use std::sync::Arc;

use contiv_controller::{Manager, manager::ManagerError};
use contiv_store::Store;
use tokio::sync::mpsc;

pub use gauges::GAUGES;
pub use ownership::{MANAGED_BY, REFLECTED, is_foreign};
pub use stats::Stats;

use mirror_controller::MirrorController;

/// Adds the reflector: it reflects `source`, the store of a Kubernetes API server, into the store of the manager, and counts in
/// `stats`.
///
/// # Errors
/// When the manager has something of that name.
pub fn register(manager: &mut Manager, source: Arc<dyn Store>, stats: &Stats) -> Result<(), ManagerError> {
    let (told, changes) = mpsc::channel(1);
    let mirroring = stats.clone();
    manager
        .add_runnable("reflector", move |store| MirrorController::new(&source, store, &mirroring, &told))?;
    manager.register(gauges::controller(stats, changes)?)
}
