//! Registers the connector, and reloads its file.

use std::{path::Path, sync::Arc};

use contiv_connector::{ConnectorConfig, ConnectorMetrics, Sink};
use contiv_controller::Manager;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{ControllerContext, Report};
use crate::config::ControllerName;

pub(super) fn register(
    manager: &mut Manager,
    context: &mut ControllerContext<'_>,
) -> anyhow::Result<()> {
    let config = ConnectorConfig::load(&context.config.connector_file)?;
    let metrics = ConnectorMetrics::register(context.metrics);
    let (controller, sink) = contiv_connector::controller(config.parts(metrics.clone()))
        .map_err(|error| anyhow::anyhow!("{}: {error}", context.config.connector_file.display()))?;
    let status = controller.status();
    manager.register(controller)?;
    let names: Vec<String> = config
        .registries
        .iter()
        .map(|registry| registry.name.clone())
        .collect();
    let path = context.config.connector_file.clone();
    let mut active = config;
    context
        .reloads
        .push(Box::new(move || reload(&path, &mut active, &sink)));
    let report = move || Report {
        has_synced: status.has_synced(),
        details: json!({
            "registries": names.iter().map(|name| registry(name, &metrics)).collect::<Vec<_>>(),
        }),
    };
    context
        .reports
        .insert(ControllerName::Connector, Arc::new(report));
    Ok(())
}

/// Reads the file again and changes the namespace. Any other change needs a restart.
fn reload(path: &Path, active: &mut ConnectorConfig, sink: &Sink) {
    let new = match ConnectorConfig::load(path) {
        Ok(new) => new,
        Err(problems) => {
            warn!(%problems, "the connector's file is invalid; its previous settings stay active");
            return;
        }
    };
    if new.namespace != active.namespace {
        match sink.set_sync_namespace(&new.namespace) {
            Ok(()) => {
                info!(
                    before = active.namespace,
                    now = new.namespace,
                    "services move to another namespace"
                );
            }
            Err(error) => warn!(%error, "failed to change the namespace"),
        }
        active.namespace.clone_from(&new.namespace);
    }
    if new == *active {
        info!(file = %path.display(), "the connector's file was read again");
    } else {
        warn!(
            file = %path.display(),
            "only the namespace in the connector's file can change at run time; restart to apply its other changes"
        );
    }
}

fn registry(name: &str, metrics: &ConnectorMetrics) -> Value {
    let metrics = metrics.of(name);
    json!({
        "name": name,
        "up": metrics.is_up,
        "services": metrics.services,
        "endpoints": metrics.endpoints,
        "problems": metrics.problems,
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
            fs::write(
                &path,
                format!("{first}\n[[registries]]\nname = \"a\"\nfile = \"/services.yaml\"\n"),
            )
            .unwrap();
        };
        write("namespace = \"cloud\"");
        let mut active = ConnectorConfig::load(&path).unwrap();
        let (sink, _requests) = Sink::new();
        sink.set_sync_namespace(&active.namespace).unwrap();
        write("namespace = \"edge\"\nsync-period = \"1m\"");
        reload(&path, &mut active, &sink);
        assert!(sink.is_sync_namespace("edge"));
        assert_eq!(active.sync_period.as_secs(), 600, "a restart is needed");
        write("namespace = \"a/b\"");
        reload(&path, &mut active, &sink);
        assert!(sink.is_sync_namespace("edge"), "a bad file changes nothing");
        write("");
        reload(&path, &mut active, &sink);
        assert!(sink.is_sync_namespace("default"));
    }
}
