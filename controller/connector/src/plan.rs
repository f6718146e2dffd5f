//! Plans the writes that make the store match the registries. Pure.
//!
//! - An object without this connector's label is foreign: it is never written or deleted. A foreign service or foreign endpoints
//!   with the name of a desired service are a [`Problem`].
//! - No stored object is deleted or changed while its registry has not answered, or while the instances of its source service are
//!   unknown. Services of a registry that is no longer configured are deleted once every configured registry has answered.
//! - The stored services of a source service without instances stay, with their addresses and ports but without endpoints:
//!   connections of clients are rejected at once instead of reaching another service. If the namespace changes, they move with
//!   their ports, as those with instances do.
//! - Endpoints that were deleted while their source service is unknown are restored from the annotations of their service.
//! - A service keeps its allocated cluster addresses, also if another program changes them. Of two services with the same
//!   address the older one keeps it. An address that a foreign service has too is kept, since clients use it, and is a
//!   [`Problem`].
//! - A service whose objects are too large for the store is not written and is a [`Problem`]. Other services are written.
//! - Deletions come before updates, and updates before creations. A service never appears before its endpoints.

mod build;
mod desired;
mod registry_state;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
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
use desired::DesiredServices;
pub use registry_state::{Problem, RegistryState};

/// The size limit of an object. etcd accepts requests of 1.5 MiB; the rest is for the key and the conditions.
const MAX_OBJECT_BYTES: usize = 1_400_000;

/// The namespace of the stored services, and the ranges of their cluster addresses.
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

/// The size of the stored services of one registry once the plan is applied.
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
    let mut taken: BTreeSet<IpAddr> = stored
        .foreign_addresses
        .keys()
        .chain(stored.holders.keys())
        .copied()
        .collect();
    taken.extend(
        stored
            .services
            .values()
            .flat_map(|service| stored::addresses(service)),
    );
    let mut planner = Planner {
        stored,
        namespace: &target.namespace,
        pool: AddressPool::new(&target.cluster_ip_ranges, taken),
        deletes: Vec::new(),
        updates: Vec::new(),
        creates: Vec::new(),
        created: BTreeSet::new(),
        sizes: registries
            .iter()
            .map(|registry| (registry.name.to_owned(), Size::default()))
            .collect(),
    };
    let mut desired = desired::collect(registries, &target.namespace);
    for (id, service) in &stored.services {
        planner.plan_stored_service(id, service, &mut desired);
    }
    for (id, (registry, micro_service)) in std::mem::take(&mut desired.services) {
        if let Err(reason) = planner.plan_new_service(&id, registry, &micro_service) {
            desired.add_problem(registry, &id.1, reason);
        }
    }
    for (id, endpoints) in &stored.endpoints {
        planner.plan_stray_endpoints(id, endpoints, &desired);
    }
    let Planner {
        deletes,
        updates,
        creates,
        sizes,
        ..
    } = planner;
    desired.problems.sort();
    Plan {
        changes: [deletes, updates, creates].concat(),
        problems: desired.problems,
        sizes,
    }
}

struct Planner<'a> {
    stored: &'a Stored<'a>,
    namespace: &'a str,
    pool: AddressPool<'a>,
    deletes: Vec<Change>,
    updates: Vec<Change>,
    creates: Vec<Change>,
    created: BTreeSet<Id>,
    sizes: BTreeMap<String, Size>,
}

impl Planner<'_> {
    /// Plans the writes for a stored service of this connector.
    fn plan_stored_service(
        &mut self,
        id: &Id,
        stored: &Service,
        desired: &mut DesiredServices<'_>,
    ) {
        let (registry, source) = build::origin(stored);
        if desired.is_unknown(registry, source) {
            // Another registry may get the name once it is known that this one no longer has it.
            desired.services.remove(id);
            self.restore_endpoints(id, stored);
            return self.count_stored(registry, id);
        }
        if let Some((registry, micro_service)) = desired.services.remove(id) {
            match self.update(id, stored, registry, &micro_service) {
                Err(reason) => {
                    desired.add_problem(registry, &id.1, reason);
                    self.count_stored(registry, id);
                }
                Ok(conflicts) => {
                    for reason in conflicts {
                        desired.add_problem(registry, &id.1, reason);
                    }
                    if self.stored.foreign_endpoints.contains(id) {
                        desired.add_problem(
                            registry,
                            &id.1,
                            foreign_name_conflict("set of endpoints"),
                        );
                    }
                }
            }
        } else if desired.is_empty(registry, source) {
            let result = if *id.0 == *self.namespace {
                self.empty(id, stored, registry, desired)
            } else {
                self.move_empty(id, stored, registry, desired)
            };
            if let Err(reason) = result {
                desired.add_problem(registry, &id.1, reason);
                self.count_stored(registry, id);
            }
        } else if !desired.is_orphan_to_keep(registry) {
            self.delete_both(id);
        }
    }

    /// Removes the endpoints of a stored service whose source service has no instances.
    fn empty(
        &mut self,
        id: &Id,
        stored: &Service,
        registry: &str,
        desired: &mut DesiredServices<'_>,
    ) -> Result<(), String> {
        let endpoints = build::endpoints(id, registry, &MicroService::default());
        let addresses = self.kept_addresses(id, stored);
        for reason in self.foreign_address_conflicts(&addresses) {
            desired.add_problem(registry, &id.1, reason);
        }
        self.write(
            id,
            build::without_endpoints(id, stored, &addresses),
            Some(endpoints),
            registry,
        )
    }

    /// Moves a stored service whose source service has no instances to the current namespace, where it gets other addresses, as one
    /// with instances does. If its name is in use there by another service of this connector, it is only deleted.
    fn move_empty(
        &mut self,
        id: &Id,
        stored: &Service,
        registry: &str,
        desired: &DesiredServices<'_>,
    ) -> Result<(), String> {
        let new: Id = (self.namespace.into(), Arc::clone(&id.1));
        let is_in_use = self.stored.services.contains_key(&new)
            || self.created.contains(&new)
            || desired.services.contains_key(&new);
        if !is_in_use {
            self.check_name(&new)?;
            let addresses = self.replacing_addresses(&new, stored)?;
            let endpoints = build::endpoints(&new, registry, &MicroService::default());
            let service = build::without_endpoints(&new, stored, &addresses);
            self.write(&new, service, Some(endpoints), registry)?;
            self.created.insert(new);
        }
        self.delete_both(id);
        Ok(())
    }

    /// Deletes a stored service and its endpoints.
    fn delete_both(&mut self, id: &Id) {
        self.delete::<Service>(id);
        if self.stored.endpoints.contains_key(id) {
            self.delete::<Endpoints>(id);
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
            self.write(
                id,
                build::service(id, registry, micro_service, &[]),
                None,
                registry,
            )?;
            return Ok(Vec::new());
        }
        let (addresses, mut conflicts) = self.cluster_addresses(id, micro_service, Some(stored))?;
        conflicts.extend(self.foreign_address_conflicts(&addresses));
        let service = build::service(id, registry, micro_service, &addresses);
        self.write(
            id,
            service,
            Some(build::endpoints(id, registry, micro_service)),
            registry,
        )?;
        Ok(conflicts)
    }

    /// Restores endpoints that another program deleted, from the annotations of their service: their registry has not answered.
    fn restore_endpoints(&mut self, id: &Id, stored: &Service) {
        let are_stored =
            self.stored.endpoints.contains_key(id) || self.stored.foreign_endpoints.contains(id);
        if let Some(endpoints) = build::annotated_endpoints(id, stored).filter(|_| !are_stored) {
            self.creates.push(Change::Create(endpoints.into()));
        }
    }

    /// Plans the writes for a desired service that is not stored yet.
    fn plan_new_service(
        &mut self,
        id: &Id,
        registry: &str,
        micro_service: &MicroService,
    ) -> Result<(), String> {
        self.check_name(id)?;
        if micro_service.external_name.is_some() {
            self.write(
                id,
                build::service(id, registry, micro_service, &[]),
                None,
                registry,
            )?;
        } else {
            let (addresses, _) = self.cluster_addresses(id, micro_service, None)?;
            let service = build::service(id, registry, micro_service, &addresses);
            self.write(
                id,
                service,
                Some(build::endpoints(id, registry, micro_service)),
                registry,
            )?;
        }
        self.created.insert(id.clone());
        Ok(())
    }

    /// # Errors
    /// When a foreign object has the name of a service that is to be created.
    fn check_name(&self, id: &Id) -> Result<(), String> {
        if self.stored.foreign_services.contains(id) {
            return Err(foreign_name_conflict("service"));
        }
        if self.stored.foreign_endpoints.contains(id) {
            return Err(foreign_name_conflict("set of endpoints"));
        }
        Ok(())
    }

    /// Plans the deletion of endpoints of this connector that have no service of this connector.
    fn plan_stray_endpoints(
        &mut self,
        id: &Id,
        endpoints: &Endpoints,
        desired: &DesiredServices<'_>,
    ) {
        if self.stored.services.contains_key(id) || self.created.contains(id) {
            return;
        }
        let registry = build::registry(&endpoints.labels);
        // Endpoints with the name of a foreign service would become its backends.
        if self.stored.foreign_services.contains(id) || !desired.is_any_unknown(registry) {
            self.delete::<Endpoints>(id);
        }
    }

    /// Plans the writes of objects that differ from the stored ones, unless one is too large for the store. Without `endpoints`,
    /// stored ones are deleted.
    fn write(
        &mut self,
        id: &Id,
        service: Service,
        endpoints: Option<Endpoints>,
        registry: &str,
    ) -> Result<(), String> {
        let size = endpoints.as_ref().map_or(
            Size {
                services: 1,
                endpoints: 0,
            },
            Size::of,
        );
        let (old_service, old_endpoints) =
            (self.stored.services.get(id), self.stored.endpoints.get(id));
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
        changes
            .iter()
            .try_for_each(|(_, object)| check_size(object))?;
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

    /// The cluster addresses of a service, and the reasons why requested ones are not used. There is one address for each
    /// family of its endpoints or of its current addresses: the requested one, else the current one, else a free one. If a
    /// requested address is taken, a stored service keeps its current one.
    ///
    /// # Errors
    /// When a new service cannot get an address.
    fn cluster_addresses(
        &mut self,
        id: &Id,
        micro_service: &MicroService,
        stored: Option<&Service>,
    ) -> Result<(Vec<IpAddr>, Vec<String>), String> {
        let current = stored
            .map(|stored| self.current_addresses(id, stored))
            .unwrap_or_default();
        let endpoints = micro_service.addresses();
        let (mut addresses, mut conflicts) = (Vec::new(), Vec::new());
        for is_ipv4 in [true, false] {
            let of_family = |address: &&IpAddr| address.is_ipv4() == is_ipv4;
            let requested = micro_service.cluster_ips.iter().find(of_family);
            if let Some(requested) = requested {
                if current.contains(requested) || self.pool.claim(*requested) {
                    addresses.push(*requested);
                    continue;
                }
                let reason = format!(
                    "another service has the cluster address {requested}; request another one, or none"
                );
                if stored.is_none() {
                    return Err(reason);
                }
                conflicts.push(reason);
            }
            // A previously requested address may be outside of the ranges.
            let is_kept = |current: &&IpAddr| requested.is_some() || self.pool.contains(**current);
            if let Some(current) = current.iter().filter(of_family).find(is_kept) {
                addresses.push(*current);
            } else if let Some(one) = endpoints.iter().find(of_family)
                && self.pool.has_family_of(*one)
            {
                addresses.push(self.take_address(id, is_ipv4)?);
            }
        }
        if addresses.is_empty() && !self.pool.is_empty() {
            return Err(
                "cluster-ip-ranges has no range of the family of its endpoints; add one".to_owned(),
            );
        }
        Ok((addresses, conflicts))
    }

    /// The cluster addresses of a stored service, without those that another service of this connector holds.
    fn current_addresses(&self, id: &Id, stored: &Service) -> BTreeSet<IpAddr> {
        stored::cluster_addresses(stored)
            .into_iter()
            .filter(|address| {
                self.stored
                    .holders
                    .get(address)
                    .is_some_and(|(_, holder)| holder == id)
            })
            .collect()
    }

    /// The cluster addresses of a stored service without endpoints: its own, with replacements for those of another service.
    fn kept_addresses(&mut self, id: &Id, stored: &Service) -> Vec<IpAddr> {
        let current = self.current_addresses(id, stored);
        stored::cluster_addresses(stored)
            .into_iter()
            .filter_map(|address| {
                if current.contains(&address) {
                    return Some(address);
                }
                self.pool
                    .take(&format!("{}/{}", id.0, id.1), address.is_ipv4())
            })
            .collect()
    }

    /// The cluster addresses of a stored service in another namespace: one for each family that it has and that has a range.
    fn replacing_addresses(&mut self, new: &Id, stored: &Service) -> Result<Vec<IpAddr>, String> {
        let old = stored::cluster_addresses(stored);
        let mut addresses = Vec::new();
        for is_ipv4 in [true, false] {
            let of_family = old.iter().find(|old| old.is_ipv4() == is_ipv4);
            if of_family.is_some_and(|old| self.pool.has_family_of(*old)) {
                addresses.push(self.take_address(new, is_ipv4)?);
            }
        }
        Ok(addresses)
    }

    /// A free cluster address.
    fn take_address(&mut self, id: &Id, is_ipv4: bool) -> Result<IpAddr, String> {
        let free = self.pool.take(&format!("{}/{}", id.0, id.1), is_ipv4);
        free.ok_or_else(|| {
            "no address is free in cluster-ip-ranges; name a larger range".to_owned()
        })
    }

    /// A problem for each of these addresses that a foreign service has too.
    fn foreign_address_conflicts(&self, addresses: &[IpAddr]) -> Vec<String> {
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
        let Some(size) = self.sizes.get_mut(registry) else {
            return;
        };
        size.services += of_service.services;
        size.endpoints += of_service.endpoints;
    }

    /// Counts a service that stays as it is stored.
    fn count_stored(&mut self, registry: &str, id: &Id) {
        let endpoints = self
            .stored
            .endpoints
            .get(id)
            .map_or(0, |endpoints| Size::of(endpoints).endpoints);
        self.count(
            registry,
            Size {
                services: 1,
                endpoints,
            },
        );
    }
}

impl Size {
    /// The size of one service.
    fn of(endpoints: &Endpoints) -> Self {
        let addresses = endpoints
            .endpoint_subsets
            .iter()
            .map(|subset| subset.addresses.len());
        Self {
            services: 1,
            endpoints: addresses.sum(),
        }
    }
}

fn check_size(object: &Object) -> Result<(), String> {
    let size = object.encode().map_err(|error| error.to_string())?.len();
    if size > MAX_OBJECT_BYTES {
        return Err(format!(
            "its {} would have {size} bytes, and the store accepts {MAX_OBJECT_BYTES}; split the service",
            object.kind()
        ));
    }
    Ok(())
}

/// The problem that a foreign object has the name of a desired one.
fn foreign_name_conflict(object: &str) -> String {
    format!(
        "there is a {object} of this name that is not this connector's and is left alone; \
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
