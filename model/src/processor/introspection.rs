//! Views of the processor's state for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use super::{EndpointPlace, LocalInterface, NodeView, Processor, not_served::unserved};
use crate::{
    ContivService, EndpointSliceId, InterfaceName, NodeFacts, NodeName, Object, ObjectKey, PodId,
    ServiceId, UnservedService,
    object::{Node, ObjectKind},
};

impl Processor {
    /// The object with this identity as it is used; none if it is unknown.
    pub fn object(&self, key: &ObjectKey) -> Option<Object> {
        self.cache.get(key)
    }

    /// The pods attached to this node's dataplane, with their main interfaces.
    pub const fn attached(&self) -> &BTreeMap<PodId, InterfaceName> {
        &self.attached
    }

    /// True if an interface of this node leads to the external network, and so is none of a pod.
    pub fn is_external_interface(&self, interface: &InterfaceName) -> bool {
        self.interfaces.external.contains(interface)
    }

    /// The interfaces of this node by which packets of services come in: those of its pods, as far as they can be recognised, and
    /// those to the external network.
    pub fn packet_interfaces(&self) -> BTreeSet<InterfaceName> {
        let facts = &self.placement.facts;
        let is_of_pods = |name: &InterfaceName, interface: &LocalInterface| {
            let is_in_pod_range =
                |address| facts.pod_cidrs.iter().any(|range| range.contains(address));
            facts
                .pod_interfaces
                .iter()
                .any(|pattern| pattern.matches(&name.0))
                || interface.addresses.iter().copied().any(is_in_pod_range)
        };
        let of_pods = self
            .local_interfaces
            .iter()
            .filter(|(name, interface)| is_of_pods(name, interface));
        of_pods
            .map(|(name, _)| name)
            .chain(&self.interfaces.frontends)
            .cloned()
            .collect()
    }

    /// The objects of a type as they are used, sorted by id.
    pub fn objects(&self, kind: ObjectKind) -> Vec<Object> {
        let cache = &self.cache;
        match kind {
            ObjectKind::Service => cache
                .services
                .values()
                .cloned()
                .map(Object::Service)
                .collect(),
            ObjectKind::Endpoints => cache
                .endpoints
                .values()
                .cloned()
                .map(Object::Endpoints)
                .collect(),
            ObjectKind::EndpointSlice => cache
                .endpoint_slices
                .values()
                .cloned()
                .map(Object::EndpointSlice)
                .collect(),
            ObjectKind::Pod => cache.pods.values().cloned().map(Object::Pod).collect(),
            ObjectKind::Node => cache.nodes.values().cloned().map(Object::Node).collect(),
            ObjectKind::VppNode => cache
                .vpp_nodes
                .values()
                .cloned()
                .map(Object::VppNode)
                .collect(),
            ObjectKind::IpAllocation => cache
                .ip_allocations
                .values()
                .cloned()
                .map(Object::IpAllocation)
                .collect(),
        }
    }

    /// The ids of the objects of a type that are used, sorted.
    pub fn keys(&self, kind: ObjectKind) -> Box<dyn Iterator<Item = ObjectKey> + '_> {
        let cache = &self.cache;
        match kind {
            ObjectKind::Service => Box::new(cache.services.keys().cloned().map(ObjectKey::Service)),
            ObjectKind::Endpoints => {
                Box::new(cache.endpoints.keys().cloned().map(ObjectKey::Endpoints))
            }
            ObjectKind::EndpointSlice => Box::new(
                cache
                    .endpoint_slices
                    .keys()
                    .cloned()
                    .map(ObjectKey::EndpointSlice),
            ),
            ObjectKind::Pod => Box::new(cache.pods.keys().cloned().map(ObjectKey::Pod)),
            ObjectKind::Node => Box::new(cache.nodes.keys().cloned().map(ObjectKey::Node)),
            ObjectKind::VppNode => {
                Box::new(cache.vpp_nodes.keys().copied().map(ObjectKey::VppNode))
            }
            ObjectKind::IpAllocation => Box::new(
                cache
                    .ip_allocations
                    .keys()
                    .cloned()
                    .map(ObjectKey::IpAllocation),
            ),
        }
    }

    /// How many objects of a type are used.
    pub fn count(&self, kind: ObjectKind) -> usize {
        let cache = &self.cache;
        match kind {
            ObjectKind::Service => cache.services.len(),
            ObjectKind::Endpoints => cache.endpoints.len(),
            ObjectKind::EndpointSlice => cache.endpoint_slices.len(),
            ObjectKind::Pod => cache.pods.len(),
            ObjectKind::Node => cache.nodes.len(),
            ObjectKind::VppNode => cache.vpp_nodes.len(),
            ObjectKind::IpAllocation => cache.ip_allocations.len(),
        }
    }

    /// Every node that any object names, sorted by name.
    pub fn nodes(&self) -> Vec<NodeView> {
        let names: BTreeSet<&NodeName> = self
            .cache
            .nodes
            .keys()
            .chain(self.cache.vpp_nodes.values().map(|node| &node.name))
            .collect();
        let view = |name: &NodeName| {
            let node = self.cache.nodes.get(name);
            let vpp_nodes = || {
                self.cache
                    .vpp_nodes
                    .values()
                    .filter(|vpp_node| vpp_node.name == *name)
            };
            let of_vpp_nodes = vpp_nodes().flat_map(|vpp_node| vpp_node.ips.iter().copied());
            let ips = node.into_iter().flat_map(Node::ips).chain(of_vpp_nodes);
            NodeView {
                name: name.clone(),
                this_node: *name == self.config.node_name,
                vpp_node_ids: vpp_nodes().map(|vpp_node| vpp_node.id).collect(),
                ips: ips.collect(),
                pod_cidrs: node.map(|node| node.pod_cidrs.clone()).unwrap_or_default(),
                zone: node.and_then(|node| node.zone.clone()),
            }
        };
        names.into_iter().map(view).collect()
    }

    /// Where the endpoints of a service run, as far as stored objects name their nodes.
    pub fn endpoint_places(&self, service: &ServiceId) -> BTreeMap<IpAddr, EndpointPlace> {
        let cache = &self.cache;
        let slices = cache.slices_of.values(service);
        let of_slices = slices
            .filter_map(|id| cache.endpoint_slices.get(id))
            .flat_map(|slice| slice.endpoints.iter().map(|endpoint| &endpoint.address));
        let endpoints = cache.endpoints.get(service);
        let of_subsets = endpoints
            .into_iter()
            .flat_map(|endpoints| &endpoints.subsets)
            .flat_map(|subset| &subset.addresses);
        of_subsets
            .chain(of_slices)
            .filter_map(|address| {
                let node = address.node_name.clone()?;
                let zone = cache.nodes.get(&node).and_then(|node| node.zone.clone());
                Some((address.ip, EndpointPlace { node, zone }))
            })
            .collect()
    }

    /// The nodes that endpoint slices name.
    pub fn nodes_of_endpoints(&self) -> BTreeSet<NodeName> {
        let endpoints = self
            .cache
            .endpoint_slices
            .values()
            .flat_map(|slice| &slice.endpoints);
        endpoints
            .filter_map(|endpoint| endpoint.address.node_name.clone())
            .collect()
    }

    /// The facts about this node.
    pub fn node_facts(&self) -> NodeFacts {
        self.facts()
    }

    /// True if node ports answer at this address.
    pub fn serves_node_ports_at(&self, address: IpAddr) -> bool {
        self.placement
            .facts
            .node_port_ips()
            .any(|ip| *ip == address)
    }

    /// True if an endpoint slice belongs to a service: by its last good state, or else by its name, which begins with that of
    /// the service.
    pub fn is_slice_of(&self, slice: &EndpointSliceId, service: &ServiceId) -> bool {
        let known = self
            .cache
            .endpoint_slices
            .get(slice)
            .and_then(|slice| slice.service.as_ref());
        let is_named_so = || {
            let rest = slice.name.strip_prefix(&*service.name);
            slice.namespace == service.namespace
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        known.map_or_else(is_named_so, |known| known == service)
    }

    /// The stored services that this proxy does not serve, sorted by id.
    pub fn unserved_services(&self) -> impl Iterator<Item = UnservedService> {
        self.cache
            .services
            .values()
            .filter_map(|service| unserved(service, &self.config))
    }

    /// A service as renderers have it; none if it does not exist or is not for this proxy.
    pub fn service(&self, id: &ServiceId) -> Option<&Arc<ContivService>> {
        self.records.get(id).map(|record| &record.service)
    }
}
