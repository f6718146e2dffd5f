//! Endpoint slices of external workloads.

use std::sync::Arc;

use contiv_controller::Manager;
use serde_json::json;

use super::{ControllerContext, Report};
use crate::config::ControllerName;

pub(super) fn register(
    manager: &mut Manager,
    context: &mut ControllerContext<'_>,
) -> anyhow::Result<()> {
    let controller = contiv_external_workloads::controller()?;
    let status = controller.status();
    manager.register(controller)?;
    let report = move || Report {
        has_synced: status.has_synced(),
        details: json!({
            "services": status.cache().map(|services| services.view().len()),
            "revision": status.last_sync_revision(),
        }),
    };
    context
        .reports
        .insert(ControllerName::ExternalWorkloads, Arc::new(report));
    Ok(())
}
