//! The objects of the store, and the services that a change of them affects.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use super::{multi_index::MultiIndex, string_interner::StringInterner};
use crate::{
    EndpointSliceId, NodeName, Object, ObjectKey, PodId, ServiceId,
    object::{
        EndpointAddress, EndpointSlice, Endpoints, IpAllocation, Node, Pod, Service, VppNode,
    },
    parallel::both,
};

/// The fewest services per thread: with fewer, another thread costs more than it saves.
pub(super) const SERVICES_PER_THREAD: usize = 256;

/// Every object of the store, by type.
#[derive(Debug, Clone, Default)]
pub(super) struct Cache {
    pub(super) services: BTreeMap<ServiceId, Box<Service>>,
    pub(super) endpoints: BTreeMap<ServiceId, Endpoints>,
    pub(super) endpoint_slices: BTreeMap<EndpointSliceId, EndpointSlice>,
    pub(super) pods: BTreeMap<PodId, Pod>,
    pub(super) nodes: BTreeMap<NodeName, Node>,
    pub(super) vpp_nodes: BTreeMap<u32, VppNode>,
    pub(super) ip_allocations: BTreeMap<PodId, IpAllocation>,
    /// The slices of each service.
    pub(super) slices_of: MultiIndex<ServiceId, EndpointSliceId>,
    /// Makes equal names share their memory.
    names: StringInterner,
}

/// The services and facts that must be derived again after changes of the cache.
#[derive(Debug, Default)]
pub(super) struct DirtySet {
    /// Services to derive again.
    pub(super) services: BTreeSet<ServiceId>,
    /// Pods whose host-network flag or weight has changed: services with endpoints of them must be derived again.
    pub(super) pods: BTreeSet<PodId>,
    /// Whether the locations of addresses must be derived again.
    pub(super) placement: bool,
    /// Whether the sets of interfaces must be derived again.
    pub(super) interfaces: bool,
}

impl Cache {
    /// A cache of these objects, whose names are interned in `names` already. Of several objects with the same identity the
    /// last one counts.
    ///
    /// The result equals that of [`Self::put`] for one object after the other, but collecting is many times faster and fills the
    /// nodes of the B-trees. Insertion in the order of the keys leaves them little more than half full.
    pub(super) fn of(objects: impl IntoIterator<Item = Object>, names: StringInterner) -> Self {
        let mut cache = Self {
            names,
            ..Self::default()
        };
        let (mut services, mut endpoints) = (Vec::new(), Vec::new());
        let (mut slices, mut pods) = (Vec::new(), Vec::new());
        for object in objects {
            match object {
                Object::Service(service) => services.push((service.id.clone(), service)),
                Object::Endpoints(object) => endpoints.push((object.id.clone(), object)),
                Object::EndpointSlice(slice) => slices.push((slice.id.clone(), slice)),
                Object::Pod(pod) => pods.push((pod.id.clone(), pod)),
                other @ (Object::Node(_) | Object::VppNode(_) | Object::IpAllocation(_)) => {
                    cache.put(other, &mut DirtySet::default());
                }
            }
        }
        let slices = || {
            let slices: BTreeMap<EndpointSliceId, EndpointSlice> = slices.into_iter().collect();
            let pairs = slices
                .values()
                .filter_map(|slice| Some((slice.service.clone()?, slice.id.clone())));
            let pairs = pairs.collect();
            (slices, pairs)
        };
        let count = services.len();
        ((cache.endpoint_slices, cache.slices_of), cache.services) =
            both(count, SERVICES_PER_THREAD, slices, || {
                services.into_iter().collect()
            });
        cache.endpoints = endpoints.into_iter().collect();
        cache.pods = pods.into_iter().collect();
        cache
    }

    /// Inserts a new or changed object.
    pub(super) fn put(&mut self, mut object: Object, dirty: &mut DirtySet) {
        self.names.share(&mut object);
        match object {
            Object::Service(service) => self.set_service(&service.id.clone(), Some(service), dirty),
            Object::Endpoints(endpoints) => {
                self.set_endpoints(&endpoints.id.clone(), Some(endpoints), dirty);
            }
            Object::EndpointSlice(slice) => self.set_slice(&slice.id.clone(), Some(slice), dirty),
            Object::Pod(pod) => self.set_pod(&pod.id.clone(), Some(pod), dirty),
            Object::Node(node) => {
                dirty.placement |=
                    replace(&mut self.nodes, &node.name.clone(), Some(node)).is_some();
            }
            Object::VppNode(node) => {
                dirty.placement |=
                    replace(&mut self.vpp_nodes, &node.id.clone(), Some(node)).is_some();
            }
            Object::IpAllocation(allocation) => {
                self.set_ip_allocation(&allocation.pod.clone(), Some(allocation), dirty);
            }
        }
    }

    /// Removes an object.
    pub(super) fn delete(&mut self, key: &ObjectKey, dirty: &mut DirtySet) {
        match key {
            ObjectKey::Service(id) => self.set_service(id, None, dirty),
            ObjectKey::Endpoints(id) => self.set_endpoints(id, None, dirty),
            ObjectKey::EndpointSlice(id) => self.set_slice(id, None, dirty),
            ObjectKey::Pod(id) => self.set_pod(id, None, dirty),
            ObjectKey::Node(name) => dirty.placement |= self.nodes.remove(name).is_some(),
            ObjectKey::VppNode(id) => dirty.placement |= self.vpp_nodes.remove(id).is_some(),
            ObjectKey::IpAllocation(pod) => self.set_ip_allocation(pod, None, dirty),
        }
    }

    /// The object with this identity.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Object> {
        match key {
            ObjectKey::Service(id) => self.services.get(id).cloned().map(Object::Service),
            ObjectKey::Endpoints(id) => self.endpoints.get(id).cloned().map(Object::Endpoints),
            ObjectKey::EndpointSlice(id) => self
                .endpoint_slices
                .get(id)
                .cloned()
                .map(Object::EndpointSlice),
            ObjectKey::Pod(id) => self.pods.get(id).cloned().map(Object::Pod),
            ObjectKey::Node(name) => self.nodes.get(name).cloned().map(Object::Node),
            ObjectKey::VppNode(id) => self.vpp_nodes.get(id).cloned().map(Object::VppNode),
            ObjectKey::IpAllocation(pod) => self
                .ip_allocations
                .get(pod)
                .cloned()
                .map(Object::IpAllocation),
        }
    }

    /// The services that have an endpoint with a matching address and are not in `known`.
    ///
    /// Scans all endpoints: an index by pod and address would take as much memory as the endpoints themselves. Scans are rare:
    /// only changes of nodes, of IP allocations, and of pods with a weight or on the host network need one.
    pub(super) fn services_with_address(
        &self,
        matches: impl Fn(&EndpointAddress) -> bool,
        known: &BTreeSet<ServiceId>,
    ) -> Vec<ServiceId> {
        let of_endpoints = self.endpoints.values().map(|endpoints| {
            let addresses = || {
                endpoints
                    .subsets
                    .iter()
                    .flat_map(|subset| &subset.addresses)
            };
            (
                &endpoints.id,
                !known.contains(&endpoints.id) && addresses().any(&matches),
            )
        });
        let of_slices = self.endpoint_slices.values().filter_map(|slice| {
            let service = slice.service.as_ref()?;
            let addresses = || slice.endpoints.iter().map(|endpoint| &endpoint.address);
            Some((
                service,
                !known.contains(service) && addresses().any(&matches),
            ))
        });
        of_endpoints
            .chain(of_slices)
            .filter(|(_, is_match)| *is_match)
            .map(|(service, _)| service.clone())
            .collect()
    }

    /// The services that have an endpoint with zone hints and are not in `known`.
    pub(super) fn services_with_zone_hints(&self, known: &BTreeSet<ServiceId>) -> Vec<ServiceId> {
        let services = self.endpoint_slices.values().filter_map(|slice| {
            let service = slice
                .service
                .as_ref()
                .filter(|service| !known.contains(service))?;
            let is_hinted = slice.endpoints.iter().any(|endpoint| {
                endpoint
                    .hints
                    .as_ref()
                    .is_some_and(|hints| !hints.zones.is_empty())
            });
            is_hinted.then(|| service.clone())
        });
        services.collect()
    }

    /// The services with source ranges.
    pub(super) fn services_with_source_ranges(&self) -> impl Iterator<Item = ServiceId> {
        self.services
            .values()
            .filter(|service| !service.source_ranges.is_empty())
            .map(|it| it.id.clone())
    }

    fn set_service(&mut self, id: &ServiceId, new: Option<Box<Service>>, dirty: &mut DirtySet) {
        if replace(&mut self.services, id, new).is_some() {
            dirty.services.insert(id.clone());
        }
    }

    fn set_endpoints(&mut self, id: &ServiceId, new: Option<Endpoints>, dirty: &mut DirtySet) {
        if replace(&mut self.endpoints, id, new).is_some() {
            dirty.services.insert(id.clone());
        }
    }

    fn set_slice(
        &mut self,
        id: &EndpointSliceId,
        new: Option<EndpointSlice>,
        dirty: &mut DirtySet,
    ) {
        let new_service = new.as_ref().and_then(|slice| slice.service.clone());
        let Some(old) = replace(&mut self.endpoint_slices, id, new) else {
            return;
        };
        // An update can move the slice to another service: both are affected.
        let old_service = old.and_then(|slice| slice.service);
        if old_service != new_service {
            if let Some(service) = &old_service {
                self.slices_of.remove(service.clone(), id.clone());
            }
            if let Some(service) = &new_service {
                self.slices_of.insert(service.clone(), id.clone());
            }
        }
        dirty
            .services
            .extend(old_service.into_iter().chain(new_service));
    }

    fn set_pod(&mut self, id: &PodId, new: Option<Pod>, dirty: &mut DirtySet) {
        let Some(old) = replace(&mut self.pods, id, new) else {
            return;
        };
        if as_backend(old.as_ref()) != as_backend(self.pods.get(id)) {
            dirty.pods.insert(id.clone());
        }
        if self.ip_allocations.contains_key(id) {
            dirty.placement = true;
            dirty.interfaces = true;
        }
    }

    fn set_ip_allocation(&mut self, pod: &PodId, new: Option<IpAllocation>, dirty: &mut DirtySet) {
        if replace(&mut self.ip_allocations, pod, new).is_some() {
            dirty.placement = true;
            dirty.interfaces = true;
        }
    }
}

/// The properties of a pod that matter to services. An unknown pod has the defaults.
fn as_backend(pod: Option<&Pod>) -> (bool, u8) {
    pod.map_or((false, 1), |pod| (pod.host_network, pod.weight))
}

/// Sets or removes an entry. Returns none if that changes nothing, otherwise the previous value, if there was one.
#[expect(
    clippy::option_option,
    reason = "outer: whether the map changed; inner: the previous value"
)]
fn replace<K: Ord + Clone, V: PartialEq>(
    map: &mut BTreeMap<K, V>,
    key: &K,
    new: Option<V>,
) -> Option<Option<V>> {
    let Some(value) = new else {
        return map.remove(key).map(Some);
    };
    match map.entry(key.clone()) {
        Entry::Occupied(entry) if *entry.get() == value => None,
        Entry::Occupied(mut entry) => Some(Some(entry.insert(value))),
        Entry::Vacant(entry) => {
            entry.insert(value);
            Some(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{AddressType, Conditions, Hints, SliceEndpoint};

    fn slice(service: &str, zones: &[&str]) -> Object {
        let address = EndpointAddress {
            ip: [10, 0, 0, 1].into(),
            node_name: None,
            pod: None,
        };
        let zones = zones.iter().map(|zone| (*zone).into()).collect();
        let hints = Some(Box::new(Hints {
            zones,
            ..Hints::default()
        }));
        Object::EndpointSlice(EndpointSlice {
            id: EndpointSliceId::new("default", service),
            service: Some(ServiceId::new("default", service)),
            address_type: AddressType::Ipv4,
            is_supplement: false,
            endpoints: [SliceEndpoint {
                address,
                conditions: Conditions::READY,
                hints,
            }]
            .into(),
            ports: [].into(),
        })
    }

    #[test]
    fn cache_of_objects_equals_one_filled_object_by_object() {
        let pod = |name: &str, host_network| {
            Object::Pod(Pod {
                id: PodId::new("default", name),
                ips: BTreeSet::new(),
                host_network,
                weight: 1,
            })
        };
        // The slice of `web` again, moved to another service.
        let moved = {
            let Object::EndpointSlice(mut slice) = slice("web", &["z1"]) else {
                panic!()
            };
            slice.service = Some(ServiceId::new("default", "shop"));
            Object::EndpointSlice(slice)
        };
        let objects = [
            slice("web", &[]),
            pod("a", true),
            slice("db", &[]),
            moved,
            pod("b", false),
        ];
        let (mut one_by_one, mut dirty) = (Cache::default(), DirtySet::default());
        for object in objects.clone() {
            one_by_one.put(object, &mut dirty);
        }
        let at_once = Cache::of(objects, StringInterner::default());
        let slices = |cache: &Cache| cache.endpoint_slices.clone();
        assert_eq!(slices(&at_once), slices(&one_by_one));
        assert_eq!(at_once.pods, one_by_one.pods);
        let of = |cache: &Cache, service| {
            let service = ServiceId::new("default", service);
            cache
                .slices_of
                .values(&service)
                .cloned()
                .collect::<Vec<_>>()
        };
        for service in ["web", "shop", "db"] {
            assert_eq!(of(&at_once, service), of(&one_by_one, service));
        }
        assert_eq!(
            of(&at_once, "shop"),
            [EndpointSliceId::new("default", "web")]
        );
    }

    #[test]
    fn services_with_zone_hints_are_found_unless_known() {
        let mut cache = Cache::default();
        for object in [
            slice("hinted", &["z1"]),
            slice("known", &["z1"]),
            slice("plain", &[]),
        ] {
            cache.put(object, &mut DirtySet::default());
        }
        let known = BTreeSet::from([ServiceId::new("default", "known")]);
        assert_eq!(
            cache.services_with_zone_hints(&known),
            [ServiceId::new("default", "hinted")]
        );
    }
}
