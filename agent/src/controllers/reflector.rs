//! Reflects a Kubernetes API server into etcd.

use std::sync::Arc;

use contiv_controller::Manager;
use contiv_reflector::Stats;
use contiv_store::{
    AgentScope,
    kube::{KubeAddress, KubeStore, Scope},
};
use serde_json::json;

use super::{ControllerContext, Report};
use crate::config::{ControllerName, controller::ControllerConfig};

/// Adds the reflector. It watches Kubernetes also while this instance is not active.
pub(super) fn register(
    manager: &mut Manager,
    context: &mut ControllerContext<'_>,
) -> anyhow::Result<()> {
    let address = address(context.config);
    let source = address.to_string();
    let stats = Stats::register(context.metrics);
    let store = Arc::new(KubeStore::new(address, &Scope::cluster()));
    manager.register(contiv_reflector::controller(store, &stats))?;
    manager.register(contiv_reflector::gauges(&stats)?)?;
    let report = move || Report {
        has_synced: stats.has_synced(),
        details: json!({ "source": source }),
    };
    context
        .reports
        .insert(ControllerName::Reflector, Arc::new(report));
    Ok(())
}

fn address(config: &ControllerConfig) -> KubeAddress {
    KubeAddress {
        kubeconfig: (!config.reflector_kubeconfig.as_os_str().is_empty())
            .then(|| config.reflector_kubeconfig.clone()),
        context: (!config.reflector_context.is_empty()).then(|| config.reflector_context.clone()),
        scope: AgentScope::default(),
    }
}
