//! `contiv controller`: the cluster-wide controllers, of which one instance is active at a time.
//!
//! This module registers and observes, and has no logic of a controller: the available controllers (`registry`), and the election of the active instance (`leadership`). Each
//! controller is a crate of its own on the runtime of `contiv-controller`.

mod connector;
mod context;
mod external_workloads;
mod leadership;
mod reflector;
mod registry;

pub use context::{ControllerContext, Reload, Report, ReportFn, Reports};
pub use leadership::Leadership;
pub(crate) use leadership::Observer;
pub use registry::Register;
pub(crate) use registry::register;
