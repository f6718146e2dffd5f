//! The agent's answers, as far as tables show them. Fields that an older agent lacks are optional.

use std::collections::{BTreeMap, BTreeSet};

use contiv_model::{BackendState, Frontend, NotServed, ServiceId};
use contiv_renderer::ForwardingOff;
use jiff::Timestamp;
use serde::Deserialize;

use super::selector::Labels;

/// A service as renderers see it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ServiceView {
    pub(super) id: ServiceId,
    /// The type of the stored service; `ServiceQuery` fills it in.
    #[serde(skip)]
    pub(super) service_type: &'static str,
    #[serde(default)]
    pub(super) cluster_ips: BTreeSet<String>,
    #[serde(default)]
    pub(super) external_ips: BTreeSet<String>,
    #[serde(default)]
    pub(super) external_policy: String,
    #[serde(default)]
    pub(super) internal_policy: String,
    #[serde(default)]
    pub(super) session_affinity_timeout: u32,
    #[serde(default)]
    pub(super) balance: String,
    #[serde(default)]
    pub(super) ports: Vec<PortView>,
    #[serde(default)]
    pub(super) lost: BTreeMap<Frontend, ServiceId>,
    /// The renderer that carries its connections.
    #[serde(default)]
    pub(super) assignment: Option<AssignmentView>,
    /// Why it is not served; none if it is.
    #[serde(default)]
    pub(super) not_served: Option<NotServed>,
}

impl ServiceView {
    /// As [`contiv_model::ContivService::is_in_family_of`].
    pub(super) fn is_in_family_of(&self, address: std::net::IpAddr) -> bool {
        let own = if self.cluster_ips.is_empty() {
            &self.external_ips
        } else {
            &self.cluster_ips
        };
        let is_on_node = || self.ports.iter().any(|port| port.node_port.is_some());
        own.iter().any(|own| own.contains(':') == address.is_ipv6())
            || self.cluster_ips.is_empty() && is_on_node()
    }
}

/// A stored service.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct StoredServiceView {
    pub(super) id: ServiceId,
    #[serde(default)]
    pub(super) service_type: String,
    #[serde(default)]
    pub(super) labels: Labels,
}

impl StoredServiceView {
    /// Kubernetes' name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self.service_type.as_str() {
            "NodePort" => "NodePort",
            "LoadBalancer" => "LoadBalancer",
            "ExternalName" => "ExternalName",
            _ => "ClusterIP",
        }
    }
}

/// The renderer that carries the connections of a service.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct AssignmentView {
    /// The renderer of connections to the addresses of the service.
    pub(super) addresses: String,
}

/// One of its ports.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PortView {
    pub(super) port: u16,
    pub(super) protocol: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) node_port: Option<u16>,
    #[serde(default)]
    pub(super) backends: Vec<BackendView>,
}

/// A backend of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct BackendView {
    pub(super) address: std::net::IpAddr,
    pub(super) port: u16,
    #[serde(default)]
    pub(super) local: bool,
    #[serde(default)]
    pub(super) host_network: bool,
    #[serde(default)]
    pub(super) in_topology: bool,
    #[serde(default)]
    pub(super) weight: u16,
    pub(super) state: BackendState,
}

/// An event of the history.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct EventView {
    pub(super) seq_num: u64,
    pub(super) kind: String,
    pub(super) description: String,
    pub(super) start: Timestamp,
    #[serde(default)]
    pub(super) waited_ms: f64,
    pub(super) duration_ms: f64,
    #[serde(default)]
    pub(super) revision: i64,
    #[serde(default)]
    pub(super) changed: usize,
    #[serde(default)]
    pub(super) services: Vec<ServiceId>,
    #[serde(default)]
    pub(super) renderers: BTreeMap<String, OutcomeView>,
}

impl EventView {
    /// For each renderer, how long after the store's message it sent the change to the kernel, in milliseconds. Only for
    /// changes: the time of a complete snapshot, as at the start, says nothing about them.
    pub(super) fn latencies(&self) -> impl Iterator<Item = f64> {
        let changed = (self.kind == "change").then_some(&self.renderers);
        changed
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter_map(|outcome| match outcome {
                OutcomeView::Applied {
                    sent_after_ms: Some(after),
                    ..
                } => Some(self.waited_ms + after),
                _ => None,
            })
    }
}

/// The result of a renderer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub(super) enum OutcomeView {
    Pending,
    Applied {
        duration_ms: f64,
        #[serde(default)]
        sent_after_ms: Option<f64>,
    },
    Failed {
        error: String,
    },
}

/// The status of the agent.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct StatusView {
    pub(super) node: String,
    #[serde(default)]
    pub(super) node_problem: Option<String>,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) store: String,
    #[serde(default)]
    pub(super) started: Option<Timestamp>,
    pub(super) ready: bool,
    pub(super) synced: bool,
    pub(super) revision: i64,
    #[serde(default)]
    pub(super) from_mirror: bool,
    #[serde(default)]
    pub(super) store_down: Option<StoreDownView>,
    #[serde(default)]
    pub(super) held_deletions: Option<serde_json::Value>,
    pub(super) quarantined: usize,
    #[serde(default)]
    pub(super) forwarding_off: Vec<ForwardingOff>,
    #[serde(default)]
    pub(super) warnings: usize,
}

/// Since when the store cannot be watched.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct StoreDownView {
    pub(super) since: Timestamp,
    pub(super) reason: String,
}

/// The numbers of objects.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct SizesView {
    pub(super) services: usize,
    pub(super) service_ports: usize,
    pub(super) backends: usize,
    #[serde(default)]
    pub(super) services_without_backends: usize,
    #[serde(default)]
    pub(super) without_backends: Vec<ServiceId>,
    #[serde(default)]
    pub(super) services_with_lost_frontends: usize,
    #[serde(default)]
    pub(super) lost_frontends: Vec<LostFrontendView>,
    #[serde(default)]
    pub(super) left_to_other_proxies: usize,
    #[serde(default)]
    pub(super) services_without_address: usize,
    #[serde(default)]
    pub(super) without_address: Vec<ServiceId>,
}

/// A frontend that two services ask for.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LostFrontendView {
    pub(super) service: ServiceId,
    pub(super) frontend: Frontend,
    pub(super) holder: ServiceId,
}

/// A renderer.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RendererStateView {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) applied_revision: i64,
    #[serde(default)]
    pub(super) pending: String,
    #[serde(default)]
    pub(super) pending_services: usize,
    #[serde(default)]
    pub(super) failures: u32,
    #[serde(default)]
    pub(super) foreign_changes: u64,
    #[serde(default)]
    pub(super) verification: Option<DriftView>,
    #[serde(default)]
    pub(super) last_report: Option<CallView>,
    #[serde(default)]
    pub(super) last_error: Option<ErrorView>,
}

/// The last verification of a renderer's dataplane.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct DriftView {
    pub(super) checked: usize,
    pub(super) drift: usize,
    #[serde(default)]
    pub(super) error: Option<String>,
}

/// A call of a renderer that succeeded.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct CallView {
    pub(super) call: String,
    pub(super) at: Timestamp,
    pub(super) duration_ms: f64,
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

/// One that failed.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ErrorView {
    pub(super) at: Timestamp,
    pub(super) error: String,
}

/// A stored object that cannot be used.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct QuarantinedView {
    pub(super) source: String,
    #[serde(default)]
    pub(super) object: Option<String>,
    #[serde(default)]
    pub(super) field: Option<String>,
    pub(super) reason: String,
    /// What is used meanwhile: `last good`, `nothing` or `the rest`. Agents of earlier versions say `in_force`.
    #[serde(default, alias = "in_force")]
    pub(super) active_state: Option<String>,
}

impl QuarantinedView {
    /// The object (or else the place), the field and the reason.
    pub(super) fn summary(&self) -> String {
        format!(
            "quarantine: {}: {}",
            self.object.as_ref().unwrap_or(&self.source),
            self.problem()
        )
    }

    /// The field and the reason.
    pub(super) fn problem(&self) -> String {
        let parts = self.field.iter().chain([&self.reason]);
        parts.map(String::as_str).collect::<Vec<_>>().join(": ")
    }
}

/// A warning about a stored object that is used.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct WarningView {
    pub(super) source: String,
    #[serde(default)]
    pub(super) object: Option<String>,
    #[serde(default)]
    pub(super) field: Option<String>,
    pub(super) reason: String,
}

impl WarningView {
    /// The service, if it is about one: `service NAMESPACE/NAME`.
    pub(super) fn service(&self) -> Option<ServiceId> {
        let (kind, id) = self.object.as_deref()?.split_once(' ')?;
        let (namespace, name) = id
            .split_once('/')
            .filter(|_| kind.eq_ignore_ascii_case("service"))?;
        Some(ServiceId::new(namespace, name))
    }

    /// The object (or else the place), and the field.
    pub(super) fn subject(&self) -> String {
        let Self {
            source,
            object,
            field,
            ..
        } = self;
        let parts = [object.as_ref().unwrap_or(source)].into_iter().chain(field);
        parts.map(String::as_str).collect::<Vec<_>>().join(": ")
    }
}

/// Attempts to connect by service.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct CountersView {
    /// The refused ones by reason, of all services.
    #[serde(default)]
    pub(super) refused_by: BTreeMap<String, u64>,
    pub(super) services: Vec<ConnectionsView>,
}

/// The attempts to connect to one service: served and refused ones.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ConnectionsView {
    pub(super) service: ServiceId,
    pub(super) connections: u64,
    #[serde(default)]
    pub(super) refused: u64,
    /// The refused ones by reason.
    #[serde(default)]
    pub(super) refused_by: BTreeMap<String, u64>,
}
