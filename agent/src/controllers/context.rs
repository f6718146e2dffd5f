//! The context for adding a controller, and the report of each.

use std::{collections::BTreeMap, fmt, sync::Arc};

use prometheus_client::registry::Registry;
use serde::Serialize;
use serde_json::Value;

use crate::config::{ControllerName, controller::ControllerConfig};

/// The context for adding a controller, besides the manager.
pub struct ControllerContext<'a> {
    /// The settings. The keys of a controller begin with its name.
    pub config: &'a ControllerConfig,
    /// For its own metrics, whose names get the prefix `contiv_`. The manager registers those of its work queue.
    pub metrics: &'a mut Registry,
    /// The functions called on SIGHUP: each controller whose settings can change while it runs adds a function.
    pub reloads: &'a mut Vec<Reload>,
    /// The content of `/status` and `/readiness`: add one report under its name.
    pub reports: &'a mut Reports,
}

impl fmt::Debug for ControllerContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerContext")
            .field("config", self.config)
            .finish_non_exhaustive()
    }
}

/// The report of each controller, by its name.
pub type Reports = BTreeMap<ControllerName, ReportFn>;

/// Reads the settings of a controller again, and logs the result.
pub type Reload = Box<dyn FnMut() + Send>;

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
