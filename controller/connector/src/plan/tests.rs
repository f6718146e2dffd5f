//! Properties and examples of the plan.

mod cases;
mod laws;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use contiv_proto::{
    Key, Kind, Object,
    message::{endpoints::Endpoints, service::Service},
};

use super::*;
use crate::{
    Instance, SourceService,
    aggregator::Aggregator,
    catalog::{Catalog, ResolvedHosts},
    stored::{REGISTRY_LABEL, Stored},
};

/// The objects of a store, by key.
type StoreContent = BTreeMap<Key, Object>;

fn target() -> Target {
    let ranges = ["10.97.0.0/16", "fd00:97::/112"];
    Target {
        namespace: "default".to_owned(),
        cluster_ip_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
    }
}

fn stored(store: &StoreContent) -> Stored<'_> {
    let mut stored = Stored::default();
    for (key, object) in store {
        let id: Id = (key.namespace().into(), key.name().into());
        match object {
            Object::Service(service) if service.labels.contains_key(REGISTRY_LABEL) => {
                stored.insert_service(id, service, 1);
            }
            Object::Service(service) => {
                let addresses = stored::addresses(service).into_iter();
                stored
                    .foreign_addresses
                    .extend(addresses.map(|address| (address, id.clone())));
                stored.foreign_services.insert(id);
            }
            Object::Endpoints(endpoints) if endpoints.labels.contains_key(REGISTRY_LABEL) => {
                stored.endpoints.insert(id, endpoints);
            }
            Object::Endpoints(_) => drop(stored.foreign_endpoints.insert(id)),
            other => panic!("{other:?} is neither a service nor endpoints"),
        }
    }
    stored
}

/// Applies the changes; each must be possible, in this order.
fn apply(store: &mut StoreContent, plan: &Plan) {
    let rank = |change: &Change| match change {
        Change::Delete(_) => 0,
        Change::Update(_) => 1,
        Change::Create(_) => 2,
    };
    assert!(
        plan.changes.is_sorted_by_key(rank),
        "deletes come before updates before creates"
    );
    for change in &plan.changes {
        match change {
            Change::Delete(key) => assert!(store.remove(key).is_some(), "{key} is not there"),
            Change::Update(object) => {
                let before = store.insert(object.key().unwrap(), object.clone());
                assert!(
                    before.is_some_and(|before| before != *object),
                    "{object:?} is not there, or the same"
                );
            }
            Change::Create(object) => {
                assert_eq!(store.insert(object.key().unwrap(), object.clone()), None);
            }
        }
    }
}

/// The registries `a` and `b`, of which `a` comes first.
#[derive(Debug, Clone, Default)]
struct Registries {
    aggregator: Aggregator,
    catalogs: [Option<Catalog>; 2],
    hosts: ResolvedHosts,
}

impl Registries {
    fn plan(&self, store: &StoreContent) -> Plan {
        self.plan_for(store, &target())
    }

    fn plan_for(&self, store: &StoreContent, target: &Target) -> Plan {
        let states: Vec<RegistryState<'_>> = ["a", "b"]
            .into_iter()
            .zip(&self.catalogs)
            .map(|(name, catalog)| RegistryState {
                name,
                aggregator: &self.aggregator,
                catalog: catalog.as_ref(),
                hosts: &self.hosts,
            })
            .collect();
        plan(&states, &stored(store), target)
    }

    fn sync(&self, store: &mut StoreContent) -> Plan {
        let plan = self.plan(store);
        apply(store, &plan);
        plan
    }
}

fn instance(address: &str, port: u16) -> Instance {
    Instance::new(address.parse().unwrap(), port)
}

fn catalog<const N: usize>(services: [(&str, &[Instance]); N]) -> Catalog {
    let service = |instances: &[Instance]| SourceService {
        instances: instances.iter().cloned().collect(),
        ..SourceService::default()
    };
    services
        .into_iter()
        .map(|(name, instances)| (name.to_owned(), Some(Arc::new(service(instances)))))
        .collect()
}

fn key(kind: Kind, name: &str) -> Key {
    Key::new(kind, "default", name).unwrap()
}

fn service<'a>(store: &'a StoreContent, name: &str) -> &'a Service {
    match &store[&key(Kind::Service, name)] {
        Object::Service(service) => service,
        other => panic!("{other:?}"),
    }
}

fn endpoints<'a>(store: &'a StoreContent, name: &str) -> &'a Endpoints {
    match &store[&key(Kind::Endpoints, name)] {
        Object::Endpoints(endpoints) => endpoints,
        other => panic!("{other:?}"),
    }
}
