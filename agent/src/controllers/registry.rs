//! The available controllers, and how each is added to the manager.

use contiv_controller::Manager;

use super::{ControllerContext, connector, external_workloads, reflector};
use crate::config::ControllerName;

/// Adds a controller to the manager, and its report to the context. Called once, within the tokio runtime, before anything runs.
/// It should start nothing itself: further work of a controller belongs in its [background
/// task](contiv_controller::ControllerBuilder::with_background) or a [runnable](contiv_controller::Runnable), which run only on the
/// active instance.
pub type Register = fn(&mut Manager, &mut ControllerContext<'_>) -> anyhow::Result<()>;

/// The function that adds a controller.
pub(crate) const fn register(name: ControllerName) -> Register {
    match name {
        ControllerName::ExternalWorkloads => external_workloads::register,
        ControllerName::Reflector => reflector::register,
        ControllerName::Connector => connector::register,
    }
}
