//! Services of other registries.

use std::sync::Arc;

use contiv_connector::{ConnectorConfig, ConnectorMetrics};
use contiv_controller::Manager;
use serde_json::{Value, json};

use super::{Report, Wiring};
use crate::config::ControllerName;

pub(super) fn register(manager: &mut Manager, wiring: &mut Wiring<'_>) -> anyhow::Result<()> {
    let config = ConnectorConfig::load(&wiring.config.connector_file)?;
    let metrics = ConnectorMetrics::register(wiring.metrics);
    let controller = contiv_connector::controller(config.parts(metrics.clone()))
        .map_err(|error| anyhow::anyhow!("{}: {error}", wiring.config.connector_file.display()))?;
    let status = controller.status();
    manager.register(controller)?;
    let names: Vec<String> = config.registries.into_iter().map(|registry| registry.name).collect();
    let report = move || Report {
        has_synced: status.has_synced(),
        details: json!({
            "registries": names.iter().map(|name| registry(name, &metrics)).collect::<Vec<_>>(),
        }),
    };
    wiring.reports.insert(ControllerName::Connector, Arc::new(report));
    Ok(())
}

fn registry(name: &str, metrics: &ConnectorMetrics) -> Value {
    let found = metrics.of(name);
    json!({
        "name": name,
        "up": found.is_up,
        "services": found.services,
        "endpoints": found.endpoints,
        "problems": found.problems,
    })
}
