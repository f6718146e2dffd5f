//! Contiv's reflector (KSR): keeps the objects of a Kubernetes API server in a store, in Contiv's form.
//!
//! Pods, services, endpoints, endpoint slices, external workloads, nodes and namespaces are watched at source and store, each
//! type by itself. For each key the stored object is compared with that of Kubernetes by a pure function (`state`), so that the
//! first pass, a change, a lost connection, another client's write and a store that lost its data are handled in the same way.
//!
//! - Nothing is written before source and store were listed, and nothing is written that is already stored.
//! - Objects of other writers (`ownership`) are neither written nor swept.
//! - An object that cannot be read is neither a change nor a deletion: its stored state stays.
//! - Every write is fenced by the lease of the election, so there is one writer. A standby watches both too and continues
//!   from there, but after it has won, nothing is written before Kubernetes has answered it.
//!
//! A [`contiv_controller::Manager`] runs two parts: the mirrors of all types ([`controller`]), and the controller of the key
//! `status/gauges`, in which Contiv keeps the counters of its reflectors ([`gauges`]).

mod action;
mod batch;
mod first_ten;
mod gauges;
mod kind_mirror;
mod mirror_controller;
mod ownership;
mod source_and_stored;
mod state;
mod stats;

pub use gauges::{GAUGES, gauges};
pub use mirror_controller::controller;
pub use ownership::{MANAGED_BY, REFLECTED, is_foreign};
pub use stats::Stats;
