//! The content of the store: services and endpoints of this connector, and foreign ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use contiv_controller::{Object, ResourceType};
use contiv_proto::{
    DecodeError, Key, Kind,
    message::{endpoints::Endpoints, service::Service},
    wire::Wire,
};

/// The label of this connector's services and endpoints. Its value is the registry's name. Objects without it are foreign, and
/// are never written or deleted.
pub const REGISTRY_LABEL: &str = "contiv.io/registry";

/// The annotation with the cluster addresses of a service of this connector, separated by commas. Changes of the service itself
/// are undone from it.
pub const CLUSTER_IPS_ANNOTATION: &str = "contiv.io/cluster-ips";

/// Namespace and name.
pub type Id = (Arc<str>, Arc<str>);

/// A stored object, as far as the connector uses it.
#[derive(Debug, Clone, PartialEq)]
pub enum Ownership<T> {
    /// It has the label.
    Owned(T),
    /// It does not have it. Only its addresses are kept.
    Foreign(BTreeSet<IpAddr>),
}

/// Services below their prefix.
pub fn services() -> ResourceType<Ownership<Service>> {
    ResourceType::new("service", &Key::prefix(Kind::Service), |entry| {
        decode(&entry.key, &entry.value).map(|service: Service| {
            if service.labels.contains_key(REGISTRY_LABEL) {
                Ownership::Owned(service)
            } else {
                Ownership::Foreign(addresses(&service))
            }
        })
    })
}

/// Endpoints below their prefix.
pub fn endpoints() -> ResourceType<Ownership<Endpoints>> {
    ResourceType::new("endpoints", &Key::prefix(Kind::Endpoints), |entry| {
        decode(&entry.key, &entry.value).map(|endpoints: Endpoints| {
            if endpoints.labels.contains_key(REGISTRY_LABEL) {
                Ownership::Owned(endpoints)
            } else {
                Ownership::Foreign(BTreeSet::new())
            }
        })
    })
}

/// Decodes a value; missing parts of its identity are taken from its key.
fn decode<M: Wire>(path: &str, value: &[u8]) -> Result<M, contiv_controller::BoxError> {
    let key = Key::parse(path)?.ok_or_else(|| format!("{path} is not the key of an object"))?;
    let mut message: M = contiv_proto::value::decode(value)?;
    message
        .agree_with(&key)
        .map_err(|error: DecodeError| error.to_string())?;
    Ok(message)
}

/// Every address of a service.
pub fn addresses(service: &Service) -> BTreeSet<IpAddr> {
    let ingress = service
        .load_balancer_ingress
        .iter()
        .map(|ingress| &ingress.ip);
    let texts = [&service.cluster_ip, &service.loadbalancer_ip].into_iter();
    let texts = texts
        .chain(&service.cluster_ips)
        .chain(&service.external_ips)
        .chain(&service.lb_ingress_ips);
    texts
        .chain(ingress)
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// The cluster addresses assigned to a service of this connector: those of the annotation; if an earlier version wrote none,
/// its current ones.
pub fn cluster_addresses(service: &Service) -> BTreeSet<IpAddr> {
    let annotation = service.annotations.get(CLUSTER_IPS_ANNOTATION);
    let given = annotation.and_then(|list| list.split(',').map(|ip| ip.parse().ok()).collect());
    given.unwrap_or_else(|| {
        let texts = service.cluster_ips.iter().chain([&service.cluster_ip]);
        texts.filter_map(|text| text.parse().ok()).collect()
    })
}

/// One state of the store.
#[derive(Debug, Clone, Default)]
pub struct Stored<'a> {
    /// Services of this connector.
    pub services: BTreeMap<Id, &'a Service>,
    /// Their cluster addresses: the creation revision of the oldest service with the address, and that service.
    pub holders: BTreeMap<IpAddr, (i64, Id)>,
    /// Endpoints of this connector.
    pub endpoints: BTreeMap<Id, &'a Endpoints>,
    /// Foreign services, and unreadable ones.
    pub foreign_services: BTreeSet<Id>,
    /// Foreign endpoints, and unreadable ones.
    pub foreign_endpoints: BTreeSet<Id>,
    /// The addresses of foreign services, each with one of those that have it.
    pub foreign_addresses: BTreeMap<IpAddr, Id>,
}

impl<'a> Stored<'a> {
    /// Classifies the objects of two caches. `unreadable` are the full keys of unreadable objects; they count as foreign,
    /// whatever they were.
    pub fn new(
        services: &'a [Arc<Object<Ownership<Service>>>],
        endpoints: &'a [Arc<Object<Ownership<Endpoints>>>],
        unreadable: &BTreeSet<contiv_controller::Key>,
    ) -> Self {
        let mut stored = Self::default();
        for service in services {
            let Some(id) = id(&service.key) else { continue };
            match &service.value {
                // The addresses it had when it was last read count as taken.
                Ownership::Owned(message) if unreadable.contains(&service.key) => {
                    let taken = addresses(message)
                        .into_iter()
                        .chain(cluster_addresses(message));
                    stored
                        .foreign_addresses
                        .extend(taken.map(|address| (address, id.clone())));
                }
                Ownership::Owned(message) => {
                    stored.insert_service(id, message, service.create_revision);
                }
                Ownership::Foreign(addresses) => {
                    stored
                        .foreign_addresses
                        .extend(addresses.iter().map(|address| (*address, id.clone())));
                    stored.foreign_services.insert(id);
                }
            }
        }
        for endpoints in endpoints
            .iter()
            .filter(|endpoints| !unreadable.contains(&endpoints.key))
        {
            let Some(id) = id(&endpoints.key) else {
                continue;
            };
            match &endpoints.value {
                Ownership::Owned(endpoints) => drop(stored.endpoints.insert(id, endpoints)),
                Ownership::Foreign(_) => drop(stored.foreign_endpoints.insert(id)),
            }
        }
        for path in unreadable {
            let Ok(Some(key)) = Key::parse(path) else {
                continue;
            };
            let id = (key.namespace().into(), key.name().into());
            match key.kind() {
                Kind::Service => drop(stored.foreign_services.insert(id)),
                Kind::Endpoints => drop(stored.foreign_endpoints.insert(id)),
                _ => {}
            }
        }
        stored
    }

    /// Adds a service of this connector, created at this revision.
    pub fn insert_service(&mut self, id: Id, service: &'a Service, create_revision: i64) {
        for address in cluster_addresses(service) {
            let this = || (create_revision, id.clone());
            let holder = self.holders.entry(address).or_insert_with(this);
            if create_revision < holder.0 {
                *holder = this();
            }
        }
        self.services.insert(id, service);
    }
}

/// Namespace and name in a full key.
fn id(path: &str) -> Option<Id> {
    let key = Key::parse(path).ok().flatten()?;
    Some((key.namespace().into(), key.name().into()))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use contiv_proto::message::service::service::LoadBalancerIngress;

    use super::*;

    #[test]
    fn every_address_of_foreign_service_is_known() {
        let ip = |n: u8| Ipv4Addr::new(10, 0, 0, n).to_string();
        let service = Service {
            cluster_ip: ip(1),
            cluster_ips: vec![ip(1), "fd00::1".to_owned()],
            external_ips: vec![ip(2), "None".to_owned()],
            lb_ingress_ips: vec![ip(3)],
            loadbalancer_ip: ip(4),
            load_balancer_ingress: vec![LoadBalancerIngress {
                ip: ip(5),
                ..LoadBalancerIngress::default()
            }],
            ..Service::default()
        };
        assert_eq!(addresses(&service).len(), 6);
    }
}
