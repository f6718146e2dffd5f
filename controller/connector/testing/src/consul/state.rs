//! The content of the server, with the indexes of its changes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ConsulInstance, Fault};

#[derive(Debug)]
pub(super) struct State {
    index: u64,
    services: BTreeMap<String, BTreeMap<String, ConsulInstance>>,
    /// When each service last changed, including removed ones.
    changed: BTreeMap<String, u64>,
    /// When the list of services last changed, in Consul's sense: with every registration.
    catalog_changed: u64,
    pub(super) fault: Option<Fault>,
    pub(super) token: Option<String>,
    pub(super) requests: u64,
    pub(super) waiting: u64,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            index: 10,
            services: BTreeMap::new(),
            changed: BTreeMap::new(),
            catalog_changed: 10,
            fault: None,
            token: None,
            requests: 0,
            waiting: 0,
        }
    }

    pub(super) fn register(&mut self, service: &str, instance: ConsulInstance) {
        let instances = self.services.entry(service.to_owned()).or_default();
        instances.insert(instance.id.clone(), instance);
        self.touch(service, true);
    }

    pub(super) fn deregister(&mut self, service: &str, id: &str) {
        if let Some(instances) = self.services.get_mut(service) {
            instances.remove(id);
            if instances.is_empty() {
                self.services.remove(service);
            }
        }
        self.touch(service, true);
    }

    pub(super) fn set_status(&mut self, service: &str, id: &str, status: &str) {
        let instance = self
            .services
            .get_mut(service)
            .and_then(|instances| instances.get_mut(id));
        if let Some(instance) = instance {
            status.clone_into(&mut instance.status);
        }
        self.touch(service, false);
    }

    pub(super) fn restart_at(&mut self, index: u64) {
        self.index = index;
        self.catalog_changed = index;
        self.changed
            .values_mut()
            .for_each(|changed| *changed = index);
    }

    fn touch(&mut self, service: &str, is_registration: bool) {
        self.index += 1;
        self.changed.insert(service.to_owned(), self.index);
        if is_registration {
            self.catalog_changed = self.index;
        }
    }

    /// `/v1/catalog/services`: the answer and its index.
    pub(super) fn catalog(&self) -> (Value, u64) {
        let tags = |instances: &BTreeMap<String, ConsulInstance>| -> BTreeSet<String> {
            instances
                .values()
                .flat_map(|instance| instance.tags.iter().cloned())
                .collect()
        };
        let mut services: serde_json::Map<String, Value> = self
            .services
            .iter()
            .map(|(name, instances)| (name.clone(), json!(tags(instances))))
            .collect();
        services.insert("consul".to_owned(), json!([]));
        (Value::Object(services), self.catalog_changed)
    }

    /// `/v1/health/service/<name>`: the answer and its index.
    pub(super) fn health(&self, service: &str, passing: bool) -> (Value, u64) {
        let entries: Vec<Value> = self
            .services
            .get(service)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|instance| !passing || instance.status == "passing")
            .map(|instance| entry(service, instance))
            .collect();
        (
            json!(entries),
            self.changed.get(service).copied().unwrap_or(self.index),
        )
    }
}

fn entry(service: &str, instance: &ConsulInstance) -> Value {
    json!({
        "Node": {"ID": "", "Node": format!("node-of-{}", instance.id), "Address": instance.node_address},
        "Service": {
            "ID": instance.id, "Service": service, "Tags": instance.tags, "Address": instance.address,
            "Port": instance.port, "Meta": null, "Weights": {"Passing": 1, "Warning": 1},
        },
        "Checks": [
            {"CheckID": "serfHealth", "Status": "passing", "ServiceID": ""},
            {"CheckID": format!("service:{}", instance.id), "Status": instance.status, "ServiceID": instance.id},
        ],
    })
}
