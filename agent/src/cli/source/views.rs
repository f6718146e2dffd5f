//! The agent's answers, as far as tables show them. Fields that an older agent lacks are optional.

use std::collections::{BTreeMap, BTreeSet};

use contiv_model::{BackendState, Frontend, NotServed, ServiceId};
use contiv_node::FailoverStatus;
use contiv_renderer::{ForwardingOff, shared_tables::TableProblem};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// A service as renderers see it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServiceView {
    pub(crate) id: ServiceId,
    /// The type of the stored service; `ServiceQuery` fills it in.
    #[serde(skip)]
    pub(crate) service_type: &'static str,
    #[serde(default)]
    pub(crate) cluster_ips: BTreeSet<String>,
    #[serde(default)]
    pub(crate) external_ips: BTreeSet<String>,
    #[serde(default)]
    pub(crate) external_policy: String,
    #[serde(default)]
    pub(crate) internal_policy: String,
    #[serde(default)]
    pub(crate) session_affinity_timeout: u32,
    #[serde(default)]
    pub(crate) balance: String,
    #[serde(default)]
    pub(crate) ports: Vec<PortView>,
    #[serde(default)]
    pub(crate) lost: BTreeMap<Frontend, ServiceId>,
    /// The renderer that carries its connections.
    #[serde(default)]
    pub(crate) assignment: Option<AssignmentView>,
    /// Why it is not served; none if it is.
    #[serde(default)]
    pub(crate) not_served: Option<NotServed>,
}

impl ServiceView {
    /// As [`contiv_model::ContivService::is_in_family_of`].
    pub(crate) fn is_in_family_of(&self, address: std::net::IpAddr) -> bool {
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
pub(crate) struct StoredServiceView {
    pub(crate) id: ServiceId,
    #[serde(default)]
    pub(crate) service_type: String,
    #[serde(default)]
    pub(crate) labels: Labels,
    #[serde(default)]
    pub(crate) source_ranges: Vec<String>,
    #[serde(default)]
    pub(crate) health_check_node_port: Option<u16>,
}

impl StoredServiceView {
    /// Kubernetes' name of its type.
    pub(crate) fn type_name(&self) -> &'static str {
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
pub(crate) struct AssignmentView {
    /// The renderer of connections to the addresses of the service.
    pub(crate) addresses: String,
}

/// One of its ports.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PortView {
    pub(crate) port: u16,
    pub(crate) protocol: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) node_port: Option<u16>,
    #[serde(default)]
    pub(crate) backends: Vec<BackendView>,
}

/// A backend of a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct BackendView {
    pub(crate) address: std::net::IpAddr,
    pub(crate) port: u16,
    #[serde(default)]
    pub(crate) local: bool,
    #[serde(default)]
    pub(crate) host_network: bool,
    #[serde(default)]
    pub(crate) in_topology: bool,
    #[serde(default)]
    pub(crate) weight: u16,
    pub(crate) state: BackendState,
}

/// An event of the history.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct EventView {
    pub(crate) seq_num: u64,
    pub(crate) kind: String,
    pub(crate) description: String,
    pub(crate) start: Timestamp,
    #[serde(default)]
    pub(crate) waited_ms: f64,
    pub(crate) duration_ms: f64,
    #[serde(default)]
    pub(crate) revision: i64,
    #[serde(default)]
    pub(crate) changed: usize,
    #[serde(default)]
    pub(crate) services: Vec<ServiceId>,
    #[serde(default)]
    pub(crate) renderers: BTreeMap<String, OutcomeView>,
}

impl EventView {
    /// For each renderer, how long after the store's message it sent the change to the kernel, in milliseconds. Only for
    /// changes: the time of a complete snapshot, as at the start, says nothing about them.
    pub(crate) fn latencies(&self) -> impl Iterator<Item = f64> {
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
pub(crate) enum OutcomeView {
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
pub(crate) struct StatusView {
    pub(crate) node: String,
    #[serde(default)]
    pub(crate) node_problem: Option<String>,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) store: String,
    #[serde(default)]
    pub(crate) started: Option<Timestamp>,
    pub(crate) ready: bool,
    pub(crate) synced: bool,
    pub(crate) revision: i64,
    #[serde(default)]
    pub(crate) from_mirror: bool,
    #[serde(default)]
    pub(crate) store_down: Option<FailureView>,
    #[serde(default)]
    pub(crate) held_deletions: Option<serde_json::Value>,
    pub(crate) quarantined: usize,
    #[serde(default)]
    pub(crate) forwarding_off: Vec<ForwardingOff>,
    #[serde(default)]
    pub(crate) table_problems: Vec<TableProblem>,
    #[serde(default)]
    pub(crate) failover: Option<FailoverStatus>,
    #[serde(default)]
    pub(crate) warnings: usize,
    #[serde(default)]
    pub(crate) self_check: Option<FailureView>,
}

impl StatusView {
    /// Why failover does not work.
    pub(crate) fn failover_problem(&self) -> Option<String> {
        self.failover.as_ref().and_then(FailoverStatus::problem)
    }
}

/// Since when something fails, and why: the store cannot be watched, or the agent does not reach itself.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FailureView {
    pub(crate) since: Timestamp,
    pub(crate) reason: String,
}

/// The numbers of objects.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct SizesView {
    pub(crate) services: usize,
    pub(crate) service_ports: usize,
    pub(crate) backends: usize,
    #[serde(default)]
    pub(crate) services_without_backends: usize,
    #[serde(default)]
    pub(crate) without_backends: Vec<ServiceId>,
    #[serde(default)]
    pub(crate) services_with_lost_frontends: usize,
    #[serde(default)]
    pub(crate) lost_frontends: Vec<LostFrontendView>,
    #[serde(default)]
    pub(crate) left_to_other_proxies: usize,
    #[serde(default)]
    pub(crate) services_without_address: usize,
    #[serde(default)]
    pub(crate) without_address: Vec<ServiceId>,
}

/// A frontend that two services ask for.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct LostFrontendView {
    pub(crate) service: ServiceId,
    pub(crate) frontend: Frontend,
    pub(crate) holder: ServiceId,
}

/// A renderer.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RendererStateView {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) applied_revision: i64,
    #[serde(default)]
    pub(crate) pending: String,
    #[serde(default)]
    pub(crate) pending_services: usize,
    #[serde(default)]
    pub(crate) failures: u32,
    #[serde(default)]
    pub(crate) foreign_changes: u64,
    #[serde(default)]
    pub(crate) verification: Option<DriftView>,
    #[serde(default)]
    pub(crate) last_report: Option<CallView>,
    #[serde(default)]
    pub(crate) last_error: Option<ErrorView>,
}

/// The last verification of a renderer's dataplane.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DriftView {
    pub(crate) checked: usize,
    pub(crate) drift: usize,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// A call of a renderer that succeeded.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CallView {
    pub(crate) call: String,
    pub(crate) at: Timestamp,
    pub(crate) duration_ms: f64,
    #[serde(default)]
    pub(crate) notes: Vec<String>,
}

/// One that failed.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ErrorView {
    pub(crate) at: Timestamp,
    pub(crate) error: String,
}

/// A stored object that cannot be used.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct QuarantinedView {
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) object: Option<String>,
    #[serde(default)]
    pub(crate) field: Option<String>,
    pub(crate) reason: String,
    /// What is used meanwhile: `last good`, `nothing` or `the rest`. Agents of earlier versions say `in_force`.
    #[serde(default, alias = "in_force")]
    pub(crate) active_state: Option<String>,
}

impl QuarantinedView {
    /// The object (or else the place), the field and the reason.
    pub(crate) fn summary(&self) -> String {
        format!(
            "quarantine: {}: {}",
            self.object.as_ref().unwrap_or(&self.source),
            self.problem()
        )
    }

    /// The field and the reason.
    pub(crate) fn problem(&self) -> String {
        let parts = self.field.iter().chain([&self.reason]);
        parts.map(String::as_str).collect::<Vec<_>>().join(": ")
    }
}

/// A warning about a stored object that is used.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WarningView {
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) object: Option<String>,
    #[serde(default)]
    pub(crate) field: Option<String>,
    pub(crate) reason: String,
}

impl WarningView {
    /// The service, if it is about one: `service NAMESPACE/NAME`.
    pub(crate) fn service(&self) -> Option<ServiceId> {
        let (kind, id) = self.object.as_deref()?.split_once(' ')?;
        let (namespace, name) = id
            .split_once('/')
            .filter(|_| kind.eq_ignore_ascii_case("service"))?;
        Some(ServiceId::new(namespace, name))
    }

    /// The object (or else the place), and the field.
    pub(crate) fn subject(&self) -> String {
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
pub(crate) struct CountersView {
    /// The refused ones by reason, of all services.
    #[serde(default)]
    pub(crate) refused_by: BTreeMap<String, u64>,
    pub(crate) services: Vec<ConnectionsView>,
}

/// The attempts to connect to one service: served and refused ones.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct ConnectionsView {
    pub(crate) service: ServiceId,
    pub(crate) connections: u64,
    #[serde(default)]
    pub(crate) refused: u64,
    /// The refused ones by reason.
    #[serde(default)]
    pub(crate) refused_by: BTreeMap<String, u64>,
}
