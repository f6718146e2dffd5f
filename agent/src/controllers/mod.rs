//! `contiv controller`: the cluster-wide controllers, of which one instance is active at a time.
//!
//! This is wiring only: the available controllers (`registry`), and the election of the active instance (`leadership`). Each
//! controller is a crate of its own on the runtime of `contiv-controller`.

mod connector;
mod external_workloads;
mod leadership;
mod reflector;
mod registry;
mod wiring;

pub use leadership::Leadership;
pub(crate) use leadership::Observer;
pub use registry::Register;
pub(crate) use registry::register;
pub use wiring::{Reload, Report, ReportFn, Reports, Wiring};
