//! What an agent knows about services.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_model::ServiceId;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{
    commands::{
        backends,
        events::{self, Event},
        refused::RefusedView,
    },
    output::listing::Item,
    source::{
        agent_argument::AgentArgument,
        views::{
            ConnectionsView, CountersView, Labels, QuarantinedView, ServiceView, StoredServiceView,
            WarningView,
        },
    },
};

/// How many of the newest events of a service are described.
const MAX_EVENTS: usize = 10;

/// The answers of an agent.
#[derive(Debug)]
pub(super) struct AgentState {
    services: BTreeMap<ServiceId, (ServiceView, Value)>,
    stored: BTreeMap<ServiceId, (StoredServiceView, Value)>,
    /// The labels of services; none of those that were in quarantine from the start.
    labels: BTreeMap<ServiceId, Labels>,
    /// The slices of services.
    slices: BTreeMap<ServiceId, Vec<SliceView>>,
    /// The zones of nodes.
    zones: BTreeMap<String, String>,
    /// Or why connections are not counted.
    connections: Result<BTreeMap<ServiceId, ConnectionsView>, String>,
    refused: Vec<(RefusedView, Value)>,
    warnings: Vec<(WarningView, Value)>,
    quarantine: Vec<(QuarantinedView, Value)>,
    events: Vec<Event>,
}

/// A slice in the agent's JSON.
#[derive(Debug, Deserialize)]
struct SliceView {
    id: String,
    #[serde(default)]
    service: Option<ServiceId>,
    endpoints: Vec<EndpointView>,
}

#[derive(Debug, Clone, Deserialize)]
struct EndpointView {
    ip: IpAddr,
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    pod: Option<String>,
    conditions: ConditionsView,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct ConditionsView {
    ready: bool,
}

/// A node in the agent's JSON.
#[derive(Debug, Deserialize)]
struct NodeView {
    name: String,
    #[serde(default)]
    zone: Option<String>,
}

/// All about one service.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) id: ServiceId,
    /// As renderers have it, or why it is not served.
    pub(super) service: Option<(ServiceView, Value)>,
    pub(super) stored: Option<(StoredServiceView, Value)>,
    /// As `contiv backends` lists them.
    pub(super) backends: Vec<(Item, Place)>,
    /// Endpoints of its slices that are no backends: their addresses, and why.
    pub(super) unused: Vec<(IpAddr, &'static str, Place)>,
    pub(super) connections: Result<Option<ConnectionsView>, String>,
    pub(super) refused: Vec<(RefusedView, Value)>,
    pub(super) warnings: Vec<(WarningView, Value)>,
    pub(super) quarantine: Vec<(QuarantinedView, Value)>,
    /// Slices that are its own by their name; what they say was never valid.
    pub(super) quarantine_by_name: Vec<(QuarantinedView, Value)>,
    pub(super) events: Vec<Event>,
}

/// Where an endpoint is, as far as its slice says it.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) node: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) pod: Option<String>,
}

/// The name of an object of this kind, from its name in quarantine, as in `EndpointSlice shop/web-1`.
fn id_of(kind: &str, object: &str) -> Option<ServiceId> {
    let (found, id) = object.split_once(' ')?;
    let (namespace, name) = id.split_once('/')?;
    let is_kind = found.eq_ignore_ascii_case(kind);
    is_kind.then(|| ServiceId::new(namespace, name))
}

impl AgentState {
    /// # Errors
    /// When the agent does not answer.
    pub(super) fn read(agent: &AgentArgument) -> anyhow::Result<Self> {
        let services: Vec<(ServiceView, Value)> = agent.list("/services?all=true")?;
        let stored: Vec<(StoredServiceView, Value)> = agent.list("/objects/svc")?;
        let mut slices: BTreeMap<ServiceId, Vec<SliceView>> = BTreeMap::new();
        for slice in agent.get::<Vec<SliceView>>("/objects/endpointslice")? {
            if let Some(service) = &slice.service {
                slices.entry(service.clone()).or_default().push(slice);
            }
        }
        let nodes: Vec<NodeView> = agent.get("/objects/node")?;
        let zones = nodes
            .into_iter()
            .filter_map(|node| Some((node.name, node.zone?)));
        let counters: anyhow::Result<CountersView> = agent.get("/counters");
        let connections = counters.map(|counters| {
            let counted = counters.services.into_iter();
            counted.map(|of| (of.service.clone(), of)).collect()
        });
        let quarantine: Vec<(QuarantinedView, Value)> = agent.list("/quarantine")?;
        let invalid = quarantine.iter().filter_map(|(entry, _)| {
            let id = id_of("service", entry.object.as_deref()?)?;
            Some((id, Labels::new()))
        });
        let mut labels: BTreeMap<ServiceId, Labels> = invalid.collect();
        labels.extend(
            stored
                .iter()
                .map(|(service, _)| (service.id.clone(), service.labels.clone())),
        );
        Ok(Self {
            labels,
            services: services
                .into_iter()
                .map(|(service, value)| (service.id.clone(), (service, value)))
                .collect(),
            stored: stored
                .into_iter()
                .map(|(service, value)| (service.id.clone(), (service, value)))
                .collect(),
            slices,
            zones: zones.collect(),
            // Who is refused is counted with them.
            refused: if connections.is_ok() {
                agent.list("/refused")?
            } else {
                Vec::new()
            },
            connections: connections.map_err(|error| error.to_string()),
            warnings: agent.list("/warnings")?,
            quarantine,
            events: events::fetch(agent, "from=0")?,
        })
    }

    /// The services that are stored or in quarantine, with the labels that are known of them.
    pub(super) fn services(&self) -> impl Iterator<Item = (&ServiceId, &Labels)> {
        self.labels.iter()
    }

    /// The service that is meant by the name of a slice in quarantine, which the agent has never read: the longest name that it
    /// begins with, as controllers name slices.
    fn service_by_name(&self, entry: &QuarantinedView) -> Option<&ServiceId> {
        let slice = id_of("endpointslice", entry.object.as_deref()?)?;
        let mut read = self.slices.values().flatten();
        if read.any(|known| known.id == slice.to_string()) {
            return None;
        }
        let is_its = |id: &&ServiceId| {
            let rest = slice.name.strip_prefix(&*id.name);
            id.namespace == slice.namespace && rest.is_some_and(|rest| rest.starts_with('-'))
        };
        let services = self.labels.keys().filter(is_its);
        services.max_by_key(|id| id.name.len())
    }

    /// None if nothing is known about the service: it is neither stored nor in quarantine.
    pub(super) fn describe(&self, id: &ServiceId) -> Option<Description> {
        let slices = self.slices.get(id).map(Vec::as_slice).unwrap_or_default();
        // Both are found by the name of the object, as in `service shop/web`.
        let mut subjects: BTreeSet<String> = slices
            .iter()
            .map(|slice| format!("endpointslice {}", slice.id))
            .collect();
        subjects.extend([format!("service {id}"), format!("endpoints {id}")]);
        let is_about = |object: &Option<String>| {
            let object = object.as_ref().map(|object| object.to_lowercase());
            object.is_some_and(|object| subjects.contains(&object))
        };
        let service = self.services.get(id).cloned();
        let stored = self.stored.get(id).cloned();
        let mut quarantine = self.quarantine.clone();
        quarantine.retain(|(entry, _)| is_about(&entry.object));
        if service.is_none() && stored.is_none() && quarantine.is_empty() {
            return None;
        }
        let mut quarantine_by_name = self.quarantine.clone();
        quarantine_by_name.retain(|(entry, _)| {
            !is_about(&entry.object) && self.service_by_name(entry) == Some(id)
        });
        let mut warnings = self.warnings.clone();
        warnings.retain(|(warning, _)| is_about(&warning.object));
        let mut refused = self.refused.clone();
        refused.retain(|(refused, _)| refused.service == *id);
        let mut events = self.events.clone();
        events.retain(|(event, _)| event.services.contains(id));
        events.drain(..events.len().saturating_sub(MAX_EVENTS));
        let (backends, unused) = self.endpoints(service.as_ref(), slices);
        Some(Description {
            id: id.clone(),
            service,
            stored,
            backends,
            unused,
            connections: self
                .connections
                .as_ref()
                .map(|counted| counted.get(id).cloned())
                .map_err(Clone::clone),
            refused,
            warnings,
            quarantine,
            quarantine_by_name,
            events,
        })
    }

    /// The backends of a service, and the endpoints of its slices that are none.
    #[expect(clippy::type_complexity, reason = "both are fields of the description")]
    fn endpoints(
        &self,
        service: Option<&(ServiceView, Value)>,
        slices: &[SliceView],
    ) -> (Vec<(Item, Place)>, Vec<(IpAddr, &'static str, Place)>) {
        let endpoints = || slices.iter().flat_map(|slice| &slice.endpoints);
        let place = |endpoint: &EndpointView| Place {
            node: endpoint.node_name.clone(),
            zone: endpoint
                .node_name
                .as_ref()
                .and_then(|node| self.zones.get(node).cloned()),
            pod: endpoint.pod.clone(),
        };
        let places: BTreeMap<IpAddr, Place> = endpoints()
            .map(|endpoint| (endpoint.ip, place(endpoint)))
            .collect();
        let (mut backends, mut used) = (Vec::new(), BTreeSet::new());
        if let Some((service, value)) = service.filter(|(one, _)| one.not_served.is_none()) {
            for (position, port) in service.ports.iter().enumerate() {
                let items = backends::lines(service, port, &value["ports"][position], None);
                // A port without backends has an item without an address.
                let addresses = port.backends.iter().map(|backend| Some(backend.address));
                for (item, address) in items.into_iter().zip(addresses.chain([None])) {
                    let place = address.and_then(|address| places.get(&address));
                    backends.push((item, place.cloned().unwrap_or_default()));
                }
                used.extend(port.backends.iter().map(|backend| backend.address));
            }
        }
        let mut unused: BTreeMap<IpAddr, (&'static str, Place)> = BTreeMap::new();
        for endpoint in endpoints().filter(|endpoint| !used.contains(&endpoint.ip)) {
            let reason = if endpoint.conditions.ready {
                "not used"
            } else {
                "not ready"
            };
            unused.insert(endpoint.ip, (reason, place(endpoint)));
        }
        let unused = unused
            .into_iter()
            .map(|(address, (reason, place))| (address, reason, place));
        (backends, unused.collect())
    }
}

impl Place {
    fn add_to(&self, value: &mut Value) {
        value["node_name"] = json!(self.node);
        value["zone"] = json!(self.zone);
        value["pod"] = json!(self.pod);
    }
}

impl Description {
    /// For programs: the agent's JSON of each part.
    pub(super) fn to_json(&self) -> Value {
        fn values<T>(entries: &[(T, Value)]) -> Vec<&Value> {
            entries.iter().map(|(_, value)| value).collect()
        }
        let backends = self
            .backends
            .iter()
            .filter(|(item, _)| !item.value.is_null());
        let backends = backends.map(|(item, place)| {
            let mut value = item.value.clone();
            place.add_to(&mut value);
            value
        });
        let unused = self.unused.iter().map(|(address, reason, place)| {
            let mut value = json!({ "address": address, "reason": reason });
            place.add_to(&mut value);
            value
        });
        json!({
            "id": self.id,
            "service": self.service.as_ref().map(|(_, value)| value),
            "stored": self.stored.as_ref().map(|(_, value)| value),
            "backends": backends.collect::<Vec<_>>(),
            "unused_endpoints": unused.collect::<Vec<_>>(),
            "connections": self.connections.as_ref().ok(),
            "connections_error": self.connections.as_ref().err(),
            "refused": values(&self.refused),
            "warnings": values(&self.warnings),
            "quarantine": values(&self.quarantine),
            "quarantine_by_name": values(&self.quarantine_by_name),
            "events": values(&self.events),
        })
    }
}
