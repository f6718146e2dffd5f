//! The available controllers, and how each is added to the manager.

use std::{collections::BTreeMap, fmt, sync::Arc};

use contiv_controller::Manager;
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde_json::Value;

use super::{ControllerName, connector, external_workloads, reflector};
use crate::config::controller::ControllerConfig;

/// Adds a controller to the manager, and its report. Called once, within the tokio runtime, before anything runs. It should
/// start nothing itself: further work of a controller belongs into its [background
/// task](contiv_controller::ControllerBuilder::with_background), which runs only on the active instance.
pub type Register = fn(&mut Manager, &mut Wiring<'_>) -> anyhow::Result<()>;

/// The function that adds a controller.
pub(crate) const fn register(name: ControllerName) -> Register {
    match name {
        ControllerName::ExternalWorkloads => external_workloads::register,
        ControllerName::Reflector => reflector::register,
        ControllerName::Connector => connector::register,
    }
}

/// The context for adding a controller, besides the manager.
pub struct Wiring<'a> {
    /// The settings. The keys of a controller begin with its name.
    pub config: &'a ControllerConfig,
    /// For its own metrics, whose names get the prefix `contiv_`. The manager registers those of its work queue.
    pub metrics: &'a mut Registry,
    /// The content of `/status` and `/readiness`: add one report under its name.
    pub reports: &'a mut Reports,
}

impl fmt::Debug for Wiring<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring").field("config", self.config).finish_non_exhaustive()
    }
}

/// The report of each controller, by its name.
pub type Reports = BTreeMap<ControllerName, ReportFn>;

/// Returns the current report of a controller.
pub type ReportFn = Arc<dyn Fn() -> Report + Send + Sync>;

/// The state of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether it has completed its first lists. The active instance is ready when all its controllers have. False while it
    /// does not run.
    pub has_synced: bool,
    /// Further details.
    pub details: Value,
}
