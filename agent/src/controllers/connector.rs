//! Services of other registries.

use std::{path::Path, sync::Arc};

use contiv_connector::{ConnectorConfig, ConnectorMetrics, Sink};
use contiv_controller::Manager;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{Report, Wiring};
use crate::config::ControllerName;

pub(super) fn register(manager: &mut Manager, wiring: &mut Wiring<'_>) -> anyhow::Result<()> {
    let config = ConnectorConfig::load(&wiring.config.connector_file)?;
    let metrics = ConnectorMetrics::register(wiring.metrics);
    let (controller, sink) = contiv_connector::controller(config.parts(metrics.clone()))
        .map_err(|error| anyhow::anyhow!("{}: {error}", wiring.config.connector_file.display()))?;
    let status = controller.status();
    manager.register(controller)?;
    let names: Vec<String> = config.registries.iter().map(|registry| registry.name.clone()).collect();
    let path = wiring.config.connector_file.clone();
    let mut running = config;
    wiring.reloads.push(Box::new(move || reload(&path, &mut running, &sink)));
    let report = move || Report {
        has_synced: status.has_synced(),
        details: json!({
            "registries": names.iter().map(|name| registry(name, &metrics)).collect::<Vec<_>>(),
        }),
    };
    wiring.reports.insert(ControllerName::Connector, Arc::new(report));
    Ok(())
}

/// Reads the file again: the namespace can change while the connector runs.
fn reload(path: &Path, running: &mut ConnectorConfig, sink: &Sink) {
    let now = match ConnectorConfig::load(path) {
        Ok(now) => now,
        Err(problems) => {
            warn!(%problems, "the connector's file cannot be used; its settings stay");
            return;
        }
    };
    if now.namespace != running.namespace {
        match sink.set_sync_namespace(&now.namespace) {
            Ok(()) => {
                info!(before = running.namespace, now = now.namespace, "services move to another namespace");
            }
            Err(error) => warn!(%error, "the namespace stays"),
        }
        running.namespace.clone_from(&now.namespace);
    }
    if now == *running {
        info!(file = %path.display(), "the connector's file was read again");
    } else {
        warn!(
            file = %path.display(),
            "of the connector's file only the namespace changes while it runs; restart for the rest"
        );
    }
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reload_changes_the_namespace_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("connector.toml");
        let write = |first: &str| {
            fs::write(&path, format!("{first}\n[[registries]]\nname = \"a\"\nfile = \"/services.yaml\"\n"))
                .unwrap();
        };
        write("namespace = \"cloud\"");
        let mut running = ConnectorConfig::load(&path).unwrap();
        let (sink, _requests) = Sink::new();
        sink.set_sync_namespace(&running.namespace).unwrap();
        write("namespace = \"edge\"\nsync-period = \"1m\"");
        reload(&path, &mut running, &sink);
        assert!(sink.is_sync_namespace("edge"));
        assert_eq!(running.sync_period.as_secs(), 600, "it is what runs");
        write("namespace = \"a/b\"");
        reload(&path, &mut running, &sink);
        assert!(sink.is_sync_namespace("edge"), "a bad file changes nothing");
        write("");
        reload(&path, &mut running, &sink);
        assert!(sink.is_sync_namespace("default"));
    }
}
