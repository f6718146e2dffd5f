//! From what is wanted and what is stored to the writes that make them the same. Pure.
//!
//! - What does not carry this connector's label is never written or deleted. A foreign service or foreign endpoints of the
//!   same name are a [`Problem`].
//! - Nothing is deleted, and nothing is written over, of a registry that has not answered, or of a source service of which
//!   the registry has not said yet what is behind it. Services of a registry that is no longer configured go when all
//!   that are have answered.
//! - A source service without a single instance keeps its stored services, with their addresses and ports and nothing
//!   behind them: clients are refused at once instead of going elsewhere.
//! - Endpoints that are gone while nothing is known of their source come back from the annotations of their service.
//! - A service keeps the cluster addresses that it was given, whatever is written into it. Of two that were given one address
//!   the older one keeps it. One that a foreign service has too is kept, since clients use it, and is a [`Problem`].
//! - A service whose objects are too large for the store is not written, is a [`Problem`], and holds up no other.
//! - Deletions come before updates, and updates before creations. A service never appears before its endpoints.

mod build;
mod registry_state;
mod wanted;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use contiv_proto::{
    Key, Kind, Object,
    message::{endpoints::Endpoints, service::Service},
};
use ipnetwork::IpNetwork;

use crate::{
    aggregator::MicroService,
    cluster_address::AddressPool,
    stored::{self, Id, Stored},
};
pub use registry_state::{Problem, RegistryState};
use wanted::DesiredServices;

/// The size limit of an object. etcd accepts requests of 1.5 MiB; the rest is for the key and the conditions.
const MAX_OBJECT_BYTES: usize = 1_400_000;

/// The target of services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Their namespace.
    pub namespace: String,
    /// The ranges of their cluster addresses, at most one per family. Without any, services are headless.
    pub cluster_ip_ranges: Vec<IpNetwork>,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Deletes an object of this connector.
    Delete(Key),
    /// Replaces an object of this connector.
    Update(Object),
    /// Creates an object.
    Create(Object),
}

/// The size of one registry in the store after the plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Services.
    pub services: usize,
    /// Addresses of their endpoints.
    pub endpoints: usize,
}

/// The writes to make.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// In the order in which they must be made.
    pub changes: Vec<Change>,
    /// Sorted.
    pub problems: Vec<Problem>,
    /// By the names of the registries.
    pub sizes: BTreeMap<String, Size>,
}

/// Plans the changes that make the store match the registries.
pub fn plan(registries: &[RegistryState<'_>], stored: &Stored<'_>, target: &Target) -> Plan {
    let mut taken: BTreeSet<IpAddr> =
        stored.foreign_addresses.keys().chain(stored.holders.keys()).copied().collect();
    taken.extend(stored.services.values().flat_map(|service| stored::addresses(service)));
    let mut planning = Planning {
        stored,
        pool: AddressPool::new(&target.cluster_ip_ranges, taken),
        deletes: Vec::new(),
        updates: Vec::new(),
        creates: Vec::new(),
        created: BTreeSet::new(),
        sizes: registries.iter().map(|registry| (registry.name.to_owned(), Size::default())).collect(),
    };
    let mut wanted = wanted::collect(registries, &target.namespace);
    for (id, service) in &stored.services {
        planning.stored_service(id, service, &mut wanted);
    }
    for (id, (registry, micro_service)) in std::mem::take(&mut wanted.services) {
        if let Err(reason) = planning.new_service(&id, registry, &micro_service) {
            wanted.problem(registry, &id.1, reason);
        }
    }
    for (id, endpoints) in &stored.endpoints {
        planning.stray_endpoints(id, endpoints, &wanted);
    }
    let Planning { deletes, updates, creates, sizes, .. } = planning;
    wanted.problems.sort();
    Plan { changes: [deletes, updates, creates].concat(), problems: wanted.problems, sizes }
}

struct Planning<'a> {
    stored: &'a Stored<'a>,
    pool: AddressPool<'a>,
    deletes: Vec<Change>,
    updates: Vec<Change>,
    creates: Vec<Change>,
    created: BTreeSet<Id>,
    sizes: BTreeMap<String, Size>,
}

impl Planning<'_> {
    /// Handles a stored service of this connector.
    fn stored_service(&mut self, id: &Id, stored: &Service, wanted: &mut DesiredServices<'_>) {
        let (registry, source) = build::origin(stored);
        if wanted.is_unknown(registry, source) {
            // Another registry may get the name once it is known that this one no longer has it.
            wanted.services.remove(id);
            self.restore_endpoints(id, stored);
            return self.count_stored(registry, id);
        }
        if let Some((registry, micro_service)) = wanted.services.remove(id) {
            match self.update(id, stored, registry, &micro_service) {
                Err(reason) => {
                    wanted.problem(registry, &id.1, reason);
                    self.count_stored(registry, id);
                }
                Ok(conflicts) => {
                    for reason in conflicts {
                        wanted.problem(registry, &id.1, reason);
                    }
                    if self.stored.foreign_endpoints.contains(id) {
                        wanted.problem(registry, &id.1, foreign("set of endpoints"));
                    }
                }
            }
        } else if wanted.is_empty(registry, source) {
            let endpoints = build::endpoints(id, registry, &MicroService::default());
            let addresses = self.kept_addresses(id, stored);
            for reason in self.shared_with_foreign(&addresses) {
                wanted.problem(registry, &id.1, reason);
            }
            let service = build::without_endpoints(stored, &addresses);
            if let Err(reason) = self.write(id, service, Some(endpoints), registry) {
                wanted.problem(registry, &id.1, reason);
            }
        } else if !wanted.is_orphan_to_keep(registry) {
            self.delete::<Service>(id);
            if self.stored.endpoints.contains_key(id) {
                self.delete::<Endpoints>(id);
            }
        }
    }

    /// Updates a stored service if it has changed, and returns the problems of its addresses.
    fn update(
        &mut self,
        id: &Id,
        stored: &Service,
        registry: &str,
        micro_service: &MicroService,
    ) -> Result<Vec<String>, String> {
        if micro_service.external_name.is_some() {
            self.write(id, build::service(id, registry, micro_service, &[]), None, registry)?;
            return Ok(Vec::new());
        }
        let (addresses, mut conflicts) = self.cluster_addresses(id, micro_service, Some(stored))?;
        conflicts.extend(self.shared_with_foreign(&addresses));
        let service = build::service(id, registry, micro_service, &addresses);
        self.write(id, service, Some(build::endpoints(id, registry, micro_service)), registry)?;
        Ok(conflicts)
    }

    /// Endpoints that somebody deleted while their registry cannot be asked come back from the annotations of their service.
    fn restore_endpoints(&mut self, id: &Id, stored: &Service) {
        let is_there = self.stored.endpoints.contains_key(id) || self.stored.foreign_endpoints.contains(id);
        if let Some(endpoints) = build::annotated_endpoints(id, stored).filter(|_| !is_there) {
            self.creates.push(Change::Create(endpoints.into()));
        }
    }

    fn new_service(&mut self, id: &Id, registry: &str, micro_service: &MicroService) -> Result<(), String> {
        if self.stored.foreign_services.contains(id) {
            return Err(foreign("service"));
        }
        if self.stored.foreign_endpoints.contains(id) {
            return Err(foreign("set of endpoints"));
        }
        if micro_service.external_name.is_some() {
            self.write(id, build::service(id, registry, micro_service, &[]), None, registry)?;
        } else {
            let (addresses, _) = self.cluster_addresses(id, micro_service, None)?;
            let service = build::service(id, registry, micro_service, &addresses);
            self.write(id, service, Some(build::endpoints(id, registry, micro_service)), registry)?;
        }
        self.created.insert(id.clone());
        Ok(())
    }

    /// Handles endpoints of this connector without a service of it.
    fn stray_endpoints(&mut self, id: &Id, endpoints: &Endpoints, wanted: &DesiredServices<'_>) {
        if self.stored.services.contains_key(id) || self.created.contains(id) {
            return;
        }
        let registry = build::registry(&endpoints.labels);
        // Behind a foreign service they would become its backends.
        if self.stored.foreign_services.contains(id) || !wanted.is_any_unknown(registry) {
            self.delete::<Endpoints>(id);
        }
    }

    /// Writes the differences to the stored objects, unless one is too large for the store. Without endpoints stored ones are deleted.
    fn write(
        &mut self,
        id: &Id,
        service: Service,
        endpoints: Option<Endpoints>,
        registry: &str,
    ) -> Result<(), String> {
        let size = endpoints.as_ref().map_or(Size { services: 1, endpoints: 0 }, Size::of);
        let (old_service, old_endpoints) = (self.stored.services.get(id), self.stored.endpoints.get(id));
        let mut changes = Vec::with_capacity(2);
        let is_ours = !self.stored.foreign_endpoints.contains(id);
        if endpoints.is_none() && old_endpoints.is_some() {
            self.delete::<Endpoints>(id);
        }
        if let Some(endpoints) =
            endpoints.filter(|new| is_ours && old_endpoints.is_none_or(|old| *old != new))
        {
            changes.push((old_endpoints.is_some(), Object::from(endpoints)));
        }
        if old_service.is_none_or(|old| **old != service) {
            changes.push((old_service.is_some(), Object::from(service)));
        }
        changes.iter().try_for_each(|(_, object)| check_size(object))?;
        self.count(registry, size);
        for (is_stored, object) in changes {
            if is_stored {
                self.updates.push(Change::Update(object));
            } else {
                self.creates.push(Change::Create(object));
            }
        }
        Ok(())
    }

    fn delete<M: contiv_proto::Wire>(&mut self, id: &Id) {
        if let Ok(key) = Key::new(M::KIND, &*id.0, &*id.1) {
            self.deletes.push(Change::Delete(key));
        }
    }

    /// The cluster addresses of a service: requested ones, else its current ones, else free ones. In the families of its
    /// endpoints, and of its current addresses. If a requested address is taken, a stored service keeps its current ones, and
    /// the reason is returned too.
    fn cluster_addresses(
        &mut self,
        id: &Id,
        micro_service: &MicroService,
        stored: Option<&Service>,
    ) -> Result<(Vec<IpAddr>, Vec<String>), String> {
        let held = stored.map(|stored| self.held(id, stored)).unwrap_or_default();
        let behind = micro_service.addresses();
        let (mut addresses, mut conflicts) = (Vec::new(), Vec::new());
        for is_ipv4 in [true, false] {
            let of_family = |address: &&IpAddr| address.is_ipv4() == is_ipv4;
            let asked = micro_service.cluster_ips.iter().find(of_family);
            if let Some(asked) = asked {
                if held.contains(asked) || self.pool.claim(*asked) {
                    addresses.push(*asked);
                    continue;
                }
                let reason = format!(
                    "another service has the cluster address {asked}; ask for another one, or for none"
                );
                if stored.is_none() {
                    return Err(reason);
                }
                conflicts.push(reason);
            }
            // A previously requested address may be outside of the ranges.
            let may_stay = |held: &&IpAddr| asked.is_some() || self.pool.contains(**held);
            if let Some(held) = held.iter().filter(of_family).find(may_stay) {
                addresses.push(*held);
            } else if let Some(one) = behind.iter().find(of_family)
                && self.pool.has_family_of(*one)
            {
                let free = self.pool.take(&format!("{}/{}", id.0, id.1), is_ipv4);
                addresses.push(free.ok_or("no address is free in cluster-ip-ranges; name a larger range")?);
            }
        }
        if addresses.is_empty() && !self.pool.is_empty() {
            return Err("none of cluster-ip-ranges has the family of its endpoints; add one".to_owned());
        }
        Ok((addresses, conflicts))
    }

    /// The cluster addresses of a stored service, without those that belong to another one of this connector.
    fn held(&self, id: &Id, stored: &Service) -> BTreeSet<IpAddr> {
        let given = stored::cluster_addresses(stored).into_iter();
        given
            .filter(|address| self.stored.holders.get(address).is_some_and(|(_, holder)| holder == id))
            .collect()
    }

    /// The cluster addresses of a stored service without endpoints: its own, with replacements for those of another service.
    fn kept_addresses(&mut self, id: &Id, stored: &Service) -> Vec<IpAddr> {
        let held = self.held(id, stored);
        let given = stored::cluster_addresses(stored).into_iter();
        given
            .filter_map(|address| {
                if held.contains(&address) {
                    return Some(address);
                }
                self.pool.take(&format!("{}/{}", id.0, id.1), address.is_ipv4())
            })
            .collect()
    }

    /// The addresses of a stored service that a foreign service has too.
    fn shared_with_foreign(&self, addresses: &[IpAddr]) -> Vec<String> {
        let shared = addresses.iter().filter_map(|address| {
            let (namespace, name) = self.stored.foreign_addresses.get(address)?;
            Some(format!(
                "service {namespace}/{name}, which is not this connector's, has its cluster address {address} too; \
                 give that one another address"
            ))
        });
        shared.collect()
    }

    fn count(&mut self, registry: &str, of_service: Size) {
        let Some(size) = self.sizes.get_mut(registry) else { return };
        size.services += of_service.services;
        size.endpoints += of_service.endpoints;
    }

    /// Counts a service that stays as it is stored.
    fn count_stored(&mut self, registry: &str, id: &Id) {
        let endpoints = self.stored.endpoints.get(id).map_or(0, |endpoints| Size::of(endpoints).endpoints);
        self.count(registry, Size { services: 1, endpoints });
    }
}

impl Size {
    /// That of one service.
    fn of(endpoints: &Endpoints) -> Self {
        let addresses = endpoints.endpoint_subsets.iter().map(|subset| subset.addresses.len());
        Self { services: 1, endpoints: addresses.sum() }
    }
}

fn check_size(object: &Object) -> Result<(), String> {
    let size = object.encode().map_err(|error| error.to_string())?.len();
    if size > MAX_OBJECT_BYTES {
        return Err(format!(
            "its {} would take {size} bytes, and the store takes {MAX_OBJECT_BYTES}; split the service",
            object.kind()
        ));
    }
    Ok(())
}

fn foreign(what: &str) -> String {
    format!(
        "there is a {what} of this name that is not this connector's and is left alone; \
         rename one, or give the registry a prefix"
    )
}

impl Change {
    /// The key of the change.
    ///
    /// # Errors
    /// When the object has no valid key.
    pub fn key(&self) -> Result<Key, contiv_proto::KeyError> {
        match self {
            Self::Delete(key) => Ok(key.clone()),
            Self::Update(object) | Self::Create(object) => object.key(),
        }
    }

    /// The type of the object.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Delete(key) => key.kind(),
            Self::Update(object) | Self::Create(object) => object.kind(),
        }
    }
}

#[cfg(test)]
mod tests;
