//! `contiv controller`: the cluster-wide controllers, of which one instance is active at a time.
//!
//! This is wiring only: the available controllers (`registry`), the active instance (`leadership`), and the running process
//! (`process`). Each controller is a crate of its own on the runtime of `contiv-controller`.

mod connector;
mod external_workloads;
mod leadership;
mod name;
pub mod process;
mod reflector;
mod registry;

pub use leadership::Leadership;
pub(crate) use leadership::Observer;
pub(crate) use name::list;
pub use name::{ControllerName, UnknownController};
pub(crate) use registry::register;
pub use registry::{Register, Report, ReportFn, Reports, Wiring};
