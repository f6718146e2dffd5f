//! Which controllers there are, and what each of them needs to be added to the manager.

use std::{collections::BTreeMap, fmt, sync::Arc};

use contiv_controller::Manager;
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde_json::Value;

use super::{ControllerName, connector, external_workloads, reflector};
use crate::config::controller::ControllerConfig;

/// Adds a controller to the manager, and its report. It is called once, within the tokio runtime, before anything runs. It
/// should start nothing by itself: what a controller needs beside its reconciler is its
/// [background task](contiv_controller::ControllerBuilder::with_background), which runs only on the active instance.
pub type Register = fn(&mut Manager, &mut Wiring<'_>) -> anyhow::Result<()>;

/// What adds a controller.
pub(crate) const fn register(name: ControllerName) -> Register {
    match name {
        ControllerName::ExternalWorkloads => external_workloads::register,
        ControllerName::Reflector => reflector::register,
        ControllerName::Connector => connector::register,
    }
}

/// What a controller is given beside the manager.
pub struct Wiring<'a> {
    /// The settings. Those of a controller begin with its name.
    pub config: &'a ControllerConfig,
    /// For metrics of its own, whose names get the prefix `contiv_`. Those of its work queue are there by the manager.
    pub metrics: &'a mut Registry,
    /// What `/status` and `/readiness` say of it: add one report under its name.
    pub reports: &'a mut Reports,
}

impl fmt::Debug for Wiring<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring").field("config", self.config).finish_non_exhaustive()
    }
}

/// How each controller is, by its name.
pub type Reports = BTreeMap<ControllerName, ReportFn>;

/// How a controller is, now.
pub type ReportFn = Arc<dyn Fn() -> Report + Send + Sync>;

/// How a controller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether it has read all it needs. The active instance is ready when all its controllers have. False while it does
    /// not run.
    pub has_synced: bool,
    /// What else there is to say of it.
    pub details: Value,
}
