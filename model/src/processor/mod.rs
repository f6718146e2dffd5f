//! The service processor: turns stored objects and pod events into changes for renderers. Pure.
//!
//! Source: Contiv's `plugins/service/processor` for the structure, kube-proxy for the rules. Everything that renderers get is
//! derived from the current objects and attached pods, never from counters. So the order of events does not matter, and a
//! resync leads to the same state as incremental changes.

mod backends;
mod cache;
mod claims;
mod combine;
mod config;
mod event;
mod interfaces;
mod introspection;
mod masquerade_sources;
mod multi_index;
mod node_view;
mod not_served;
mod placement;
mod reasons;
mod sources;
mod string_interner;
mod topology;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use crate::{
    ChangeSet, ContivService, Frontend, InterfaceChange, InterfaceName, NodeFacts, Object,
    ObjectKey, PodId, ServiceChange, ServiceId, Snapshot, assignment::assign,
    change::services_between, object::EndpointAddress, parallel::in_shares,
};
use cache::{Cache, DirtySet, SERVICES_PER_THREAD};
use claims::{Claimant, Claims};
use combine::{ServiceRecord, combine};
use interfaces::Interfaces;
use multi_index::MultiIndex;
use placement::Placement;
use sources::Sources;

pub use config::{LocalDetect, NodePortAddresses, ProcessorConfig, ServiceInterfaces};
pub use event::{Event, LocalInterface, LocalInterfaces, Resync};
pub use node_view::{EndpointPlace, NodeView};
pub use string_interner::StringInterner;

/// Holds the objects of the store and derives the changes for renderers.
#[derive(Debug, Clone)]
pub struct Processor {
    config: ProcessorConfig,
    cache: Cache,
    /// Pods on this node's dataplane with their main interface.
    attached: BTreeMap<PodId, InterfaceName>,
    /// Addresses of this node's interfaces.
    local_ips: BTreeSet<IpAddr>,
    /// This node's interfaces.
    local_interfaces: LocalInterfaces,
    /// The backends of each service that do not answer; no empty sets.
    failing: BTreeMap<ServiceId, BTreeSet<SocketAddr>>,
    placement: Placement,
    /// The rendered services.
    records: BTreeMap<ServiceId, ServiceRecord>,
    claims: Claims,
    /// The services that each pod of this node is a backend of.
    serving: MultiIndex<PodId, ServiceId>,
    interfaces: Interfaces,
}

impl Processor {
    /// A processor without objects.
    pub fn new(config: ProcessorConfig) -> Self {
        let cache = Cache::default();
        let local_ips = BTreeSet::new();
        let placement = Placement::derive(&cache, &config, &local_ips);
        Self {
            config,
            cache,
            attached: BTreeMap::new(),
            local_ips,
            local_interfaces: LocalInterfaces::new(),
            failing: BTreeMap::new(),
            placement,
            records: BTreeMap::new(),
            claims: Claims::default(),
            serving: MultiIndex::default(),
            interfaces: Interfaces::default(),
        }
    }

    /// Replaces all objects, and derives everything again. Attached pods, this node's interfaces and failing backends are not part
    /// of the store, and stay.
    pub fn resync(&mut self, mut resync: Resync) -> ChangeSet {
        let mut names = StringInterner::default();
        for object in &mut resync.objects {
            names.share(object);
        }
        self.resync_sharing(resync, names)
    }

    /// Like [`Self::resync`], with objects whose names are interned in `names` already.
    pub fn resync_sharing(&mut self, resync: Resync, mut names: StringInterner) -> ChangeSet {
        // The last known state of unreadable objects comes first, so that an object that was read after all replaces it.
        let kept = resync
            .undecodable
            .iter()
            .filter_map(|key: &ObjectKey| self.cache.get(key));
        let mut kept: Vec<Object> = kept.collect();
        for object in &mut kept {
            names.share(object);
        }
        let mut fresh = Self {
            cache: Cache::of(kept.into_iter().chain(resync.objects), names),
            attached: self.attached.clone(),
            local_ips: self.local_ips.clone(),
            local_interfaces: self.local_interfaces.clone(),
            failing: self.failing.clone(),
            ..Self::new(self.config.clone())
        };
        fresh.derive_all();
        fresh.share_unchanged_services(self);
        let before = std::mem::replace(self, fresh);
        before.changes_to(self)
    }

    /// Applies events and returns their combined effect.
    pub fn apply(&mut self, events: impl IntoIterator<Item = Event>) -> ChangeSet {
        let mut dirty = DirtySet::default();
        for event in events {
            self.apply_event(event, &mut dirty);
        }
        self.derive_dirty(dirty)
    }

    fn apply_event(&mut self, event: Event, dirty: &mut DirtySet) {
        match event {
            Event::Put(object) => self.cache.put(object, dirty),
            Event::Delete(key) => self.cache.delete(&key, dirty),
            Event::AddPod { pod, interface } => {
                self.attached.insert(pod, interface);
                dirty.interfaces = true;
            }
            Event::DeletePod(pod) | Event::RevertAddPod(pod) => {
                dirty.interfaces |= self.attached.remove(&pod).is_some();
            }
            Event::LocalAddresses(ips) => {
                dirty.placement |= self.local_ips != ips;
                self.local_ips = ips;
            }
            Event::LocalInterfaces(interfaces) => {
                dirty.interfaces |= self.local_interfaces != interfaces;
                self.local_interfaces = interfaces;
            }
            Event::FailingBackends(service, backends) => {
                let before = if backends.is_empty() {
                    self.failing.remove(&service)
                } else {
                    self.failing.insert(service.clone(), backends)
                };
                if before.as_ref() != self.failing.get(&service) {
                    dirty.services.insert(service);
                }
            }
        }
    }

    /// The changes that turn this state into another. Compares services in place, without copying all of them into snapshots.
    fn changes_to(&self, other: &Self) -> ChangeSet {
        ChangeSet {
            services: services_between(self.services(), other.services()),
            ..ChangeSet::between(
                &self.snapshot_without_services(),
                &other.snapshot_without_services(),
            )
        }
    }

    /// Every service that is rendered, in the order of ids.
    pub fn services(&self) -> impl Iterator<Item = (&ServiceId, &Arc<ContivService>)> {
        self.records
            .iter()
            .map(|(id, combined)| (id, &combined.service))
    }

    /// The complete state for renderers.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            services: self
                .services()
                .map(|(id, service)| (id.clone(), Arc::clone(service)))
                .collect(),
            ..self.snapshot_without_services()
        }
    }

    fn snapshot_without_services(&self) -> Snapshot {
        Snapshot {
            services: BTreeMap::new(),
            node: self.facts(),
            frontend_interfaces: self.interfaces.frontends.clone(),
            backend_interfaces: self.interfaces.backends.clone(),
        }
    }

    fn facts(&self) -> NodeFacts {
        let service_interfaces = self.interfaces.serving(&self.config);
        let masquerade_sources = self.interfaces.masquerade_sources.clone();
        NodeFacts {
            masquerade_sources,
            service_interfaces,
            ..self.placement.facts.clone()
        }
    }

    fn derive_interfaces(&self) -> Interfaces {
        let by = (&self.placement, &self.config);
        Interfaces::derive(
            &self.attached,
            &self.local_interfaces,
            &self.serving,
            &self.cache,
            by,
        )
    }

    /// Derives everything that `dirty` objects affect, and returns the changes.
    fn derive_dirty(&mut self, mut dirty: DirtySet) -> ChangeSet {
        let mut changes = ChangeSet::default();
        let before = (dirty.placement || dirty.interfaces).then(|| self.facts());
        // The main interface is that of an address of this node.
        dirty.interfaces |= dirty.placement;
        self.mark_relocated(&mut dirty);
        let mut results = self.combine_all(dirty.services);
        for (id, new) in &results {
            let old = self.records.get(id);
            if !have_equal_claims(old, new.as_ref()) {
                self.claims.replace(old.map(claim), new.as_ref().map(claim));
            }
            dirty.interfaces |= update_serving(&mut self.serving, id, old, new.as_ref());
        }
        let mut affected = self.claims.take_affected();
        if self.config.route_runs {
            affected.extend(self.neighbours(&results));
        }
        for id in &affected {
            let unchanged = self.records.get(id);
            results
                .entry(id.clone())
                .or_insert_with(|| unchanged.cloned());
        }
        for (id, new) in results {
            let is_affected = affected.contains(&id);
            let new =
                new.map(|new| self.with_assignment(self.with_lost_frontends(new, is_affected)));
            if let Some(change) = self.commit(&id, new) {
                changes.services.insert(id, change);
            }
        }
        if dirty.interfaces {
            let new = self.derive_interfaces();
            let old = std::mem::replace(&mut self.interfaces, new.clone());
            changes.frontend_interfaces = InterfaceChange::between(&old.frontends, &new.frontends);
            changes.backend_interfaces = InterfaceChange::between(&old.backends, &new.backends);
        }
        changes.node = before
            .filter(|before| *before != self.facts())
            .map(|_| self.facts());
        changes
    }

    /// Derives everything from the cache alone. The result is the same as that of [`Self::derive_dirty`]; but collecting everything
    /// at once is many times faster than inserting, and takes no more memory than needed.
    fn derive_all(&mut self) {
        self.placement = Placement::derive(&self.cache, &self.config, &self.local_ips);
        let slices = self.cache.slices_by_service();
        let combine_share = |share: &[Sources<'_, _>]| {
            let combined = share.iter().map(|it| {
                combine(
                    it.to_be_combined(),
                    &self.cache,
                    &self.placement,
                    &self.config,
                    self.failing.get(&it.service.id),
                )
            });
            combined.flatten().collect::<Vec<ServiceRecord>>()
        };
        let shares = in_shares(
            &self.cache.all_sources(&slices),
            SERVICES_PER_THREAD,
            combine_share,
        );
        let all: Vec<ServiceRecord> = shares.into_iter().flatten().collect();
        self.claims = Claims::of(all.iter().map(claim));
        let serving = |combined: &ServiceRecord| {
            let id = &combined.service.id;
            combined
                .local_pods
                .iter()
                .map(|pod| (pod.clone(), id.clone()))
                .collect::<Vec<_>>()
        };
        self.serving = all.iter().flat_map(serving).collect();
        let mut lost = self.claims.all_lost();
        let records = all.into_iter().map(|mut combined| {
            let id = combined.service.id.clone();
            if let Some(lost) = lost.remove(&id) {
                Arc::make_mut(&mut combined.service).lost = lost;
            }
            (id, self.with_assignment(combined))
        });
        self.records = records.collect();
        self.interfaces = self.derive_interfaces();
    }

    fn combine_all(&self, ids: BTreeSet<ServiceId>) -> BTreeMap<ServiceId, Option<ServiceRecord>> {
        let combine = |id: &ServiceId| {
            combine(
                self.cache.sources(id)?,
                &self.cache,
                &self.placement,
                &self.config,
                self.failing.get(id),
            )
        };
        if ids.len() < SERVICES_PER_THREAD {
            let combined = ids.into_iter().map(|id| {
                let new = combine(&id);
                (id, new)
            });
            return combined.collect();
        }
        let ids: Vec<ServiceId> = ids.into_iter().collect();
        let combine_share = |ids: &[ServiceId]| ids.iter().map(combine).collect::<Vec<_>>();
        let combined = in_shares(&ids, SERVICES_PER_THREAD, combine_share);
        ids.into_iter()
            .zip(combined.into_iter().flatten())
            .collect()
    }

    /// Marks the services as dirty that have an endpoint whose placement has changed.
    fn mark_relocated(&mut self, dirty: &mut DirtySet) {
        if !dirty.pods.is_empty() {
            let of_pod = |address: &EndpointAddress| {
                address
                    .pod
                    .as_ref()
                    .is_some_and(|pod| dirty.pods.contains(pod))
            };
            dirty
                .services
                .extend(self.cache.services_with_address(of_pod, &dirty.services));
        }
        if !dirty.placement {
            return;
        }
        let placement = Placement::derive(&self.cache, &self.config, &self.local_ips);
        let before = std::mem::replace(&mut self.placement, placement);
        if before.facts.primary_ips != self.placement.facts.primary_ips {
            dirty
                .services
                .extend(self.cache.services_with_source_ranges());
        }
        if before.zone != self.placement.zone {
            dirty
                .services
                .extend(self.cache.services_with_zone_hints(&dirty.services));
        }
        if let Some(moves) = self.placement.moves_since(&before) {
            let moved = |address: &EndpointAddress| {
                moves.concern(address.ip) && before.place(address) != self.placement.place(address)
            };
            dirty
                .services
                .extend(self.cache.services_with_address(moved, &dirty.services));
        }
    }

    /// Sets the frontends that other services hold. `is_affected`: the holder of some of them may have changed, even if this service
    /// claims the same frontends as before.
    fn with_lost_frontends(&self, mut combined: ServiceRecord, is_affected: bool) -> ServiceRecord {
        let id = &combined.service.id;
        let lost = match self.records.get(id) {
            Some(old) if !is_affected && have_equal_claims(Some(old), Some(&combined)) => {
                old.service.lost.clone()
            }
            _ => self.claims.lost(id, &combined.service.frontends()),
        };
        if combined.service.lost != lost {
            Arc::make_mut(&mut combined.service).lost = lost;
        }
        combined
    }

    /// The other services at addresses that these services were added to or removed from: whether routes can carry them may
    /// have changed.
    fn neighbours(
        &self,
        results: &BTreeMap<ServiceId, Option<ServiceRecord>>,
    ) -> BTreeSet<ServiceId> {
        let addresses = |combined: Option<&ServiceRecord>| -> BTreeSet<IpAddr> {
            // A service without ports claims nothing.
            let claiming = combined.filter(|combined| !combined.service.ports.is_empty());
            claiming
                .map(|combined| combined.service.addresses().collect())
                .unwrap_or_default()
        };
        let changed = results.iter().flat_map(|(id, new)| {
            let (old, new) = (addresses(self.records.get(id)), addresses(new.as_ref()));
            old.symmetric_difference(&new).copied().collect::<Vec<_>>()
        });
        let at = |address| {
            self.claims
                .at(address)
                .map(|claimant| claimant.service.clone())
        };
        changed
            .flat_map(at)
            .filter(|id| !results.contains_key(id))
            .collect()
    }

    fn with_assignment(&self, mut combined: ServiceRecord) -> ServiceRecord {
        let service = &combined.service;
        let wants_routes = combined.asks_for_routes;
        let may_share = wants_routes && self.config.route_runs && !service.ports.is_empty();
        let shared = if may_share {
            self.shared_address(service)
        } else {
            None
        };
        let assignment = assign(service, wants_routes, self.config.route_runs, shared);
        if service.assignment != assignment {
            Arc::make_mut(&mut combined.service).assignment = assignment;
        }
        combined
    }

    /// An address of the service that another service has too, with that service: of several the first by name, whatever their
    /// ports, so that the result changes only when a service is added or removed.
    fn shared_address(&self, service: &ContivService) -> Option<(IpAddr, ServiceId)> {
        service.addresses().find_map(|address| {
            let claimants = self.claims.at(address).map(|claimant| &claimant.service);
            let other = claimants.filter(|id| **id != service.id).min()?;
            Some((address, other.clone()))
        })
    }

    /// Stores a result. None if it equals the previous one.
    fn commit(&mut self, id: &ServiceId, new: Option<ServiceRecord>) -> Option<ServiceChange> {
        let old = self
            .records
            .get(id)
            .map(|combined| combined.service.clone());
        match new {
            None => {
                self.records.remove(id);
                old.map(|old| ServiceChange {
                    old: Some(old),
                    new: None,
                })
            }
            Some(mut new) => {
                let change = ServiceChange::between(old.as_ref(), Some(&new.service));
                if let (None, Some(old)) = (&change, old) {
                    // Renderers hold the old value; storing an equal copy would waste memory.
                    new.service = old;
                }
                self.records.insert(id.clone(), new);
                change
            }
        }
    }

    /// Replaces equal services by the values of the other processor, so that each is in memory once.
    fn share_unchanged_services(&mut self, other: &Self) {
        for (id, combined) in &mut self.records {
            if let Some(same) = other
                .records
                .get(id)
                .filter(|other| other.service == combined.service)
            {
                combined.service = Arc::clone(&same.service);
            }
        }
    }
}

/// Whether both have the same seniority and frontends. May return false although they are equal.
fn have_equal_claims(one: Option<&ServiceRecord>, other: Option<&ServiceRecord>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            one.seniority == other.seniority && one.service.has_frontends_of(&other.service)
        }
        (None, None) => true,
        _ => false,
    }
}

fn claim(combined: &ServiceRecord) -> (Claimant, BTreeSet<Frontend>) {
    let ContivService { id, .. } = &*combined.service;
    (
        Claimant {
            seniority: combined.seniority,
            service: id.clone(),
        },
        combined.service.frontends(),
    )
}

/// Updates which pods of this node are backends of a service. True if that changed.
fn update_serving(
    serving: &mut MultiIndex<PodId, ServiceId>,
    id: &ServiceId,
    old: Option<&ServiceRecord>,
    new: Option<&ServiceRecord>,
) -> bool {
    let none = BTreeSet::new();
    let old = old.map_or(&none, |combined| &combined.local_pods);
    let new = new.map_or(&none, |combined| &combined.local_pods);
    for pod in old.difference(new) {
        serving.remove(pod.clone(), id.clone());
    }
    for pod in new.difference(old) {
        serving.insert(pod.clone(), id.clone());
    }
    old != new
}
