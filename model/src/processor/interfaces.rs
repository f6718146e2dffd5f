//! The interfaces of this node that services concern. Source: Contiv's `processor_impl.go`, which counts references where this
//! derives.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    ProcessorConfig, ServiceInterfaces, cache::Cache, event::LocalInterfaces,
    masquerade_sources::masquerade_sources, multi_index::MultiIndex, placement::Placement,
};
use crate::{InterfaceName, InterfacePattern, PodId, ServiceId, object::CustomInterface};

/// The two sets of interfaces that renderers get, and what the first is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interfaces {
    /// The interfaces by which clients come: those of pods, and those to the external network.
    pub(super) frontends: BTreeSet<InterfaceName>,
    /// The interfaces by which backends are reached: those of pods that are backends, and the main ones to the external
    /// network.
    pub(super) backends: BTreeSet<InterfaceName>,
    /// The interfaces of attached pods, on the node's side.
    pods: BTreeSet<InterfaceName>,
    /// The interfaces to the external network.
    pub(super) external: BTreeSet<InterfaceName>,
    /// The addresses that masqueraded connections get.
    pub(super) masquerade_sources: BTreeMap<InterfaceName, BTreeSet<IpAddr>>,
}

impl Interfaces {
    /// Derives the sets from the attached pods and the interfaces of this node, so the order of events does not matter.
    pub(super) fn derive(
        attached: &BTreeMap<PodId, InterfaceName>,
        local: &LocalInterfaces,
        serving: &MultiIndex<PodId, ServiceId>,
        cache: &Cache,
        (placement, config): (&Placement, &ProcessorConfig),
    ) -> Self {
        let mut interfaces = Self::of_node(local, placement, config);
        for (pod, main) in attached {
            interfaces.pods.insert(main.clone());
            let allocation = cache.ip_allocations.get(pod);
            for custom in allocation
                .into_iter()
                .flat_map(|allocation| &allocation.interfaces)
            {
                if custom.in_pod_network() {
                    interfaces.frontends.insert(inside(pod, custom));
                }
            }
            if serving.contains_key(pod) {
                let redirected = cache
                    .pods
                    .get(pod)
                    .is_some_and(|stored| placement.is_redirected(pod, &stored.ips));
                let custom = allocation
                    .filter(|_| redirected)
                    .and_then(|allocation| allocation.service_endpoint());
                let serving = custom.map_or_else(|| main.clone(), |custom| inside(pod, custom));
                interfaces.backends.insert(serving);
            }
        }
        interfaces.masquerade_sources = masquerade_sources(local, &placement.facts);
        interfaces
            .frontends
            .extend(interfaces.pods.iter().chain(&interfaces.external).cloned());
        interfaces
    }

    /// The interfaces to the external network. Backends elsewhere are behind those with an address that this node is known by.
    fn of_node(local: &LocalInterfaces, placement: &Placement, config: &ProcessorConfig) -> Self {
        let mut interfaces = Self::default();
        for (name, interface) in local {
            let is_main = !interface
                .addresses
                .is_disjoint(&placement.facts.primary_ips);
            let is_external = if config.external_interfaces.is_empty() {
                is_main || interface.is_physical
            } else {
                config
                    .external_interfaces
                    .iter()
                    .any(|pattern| pattern.matches(&name.0))
            };
            if is_external {
                interfaces.external.insert(name.clone());
            }
            if is_external && is_main {
                interfaces.backends.insert(name.clone());
            }
        }
        interfaces
    }

    /// The configured interfaces at which services answer; none for all.
    pub(super) fn serving(&self, config: &ProcessorConfig) -> Option<BTreeSet<InterfacePattern>> {
        let mut patterns = BTreeSet::new();
        let names = |names: &BTreeSet<InterfaceName>| -> Vec<InterfacePattern> {
            names
                .iter()
                .filter_map(|name| name.0.parse().ok())
                .collect()
        };
        for interfaces in &config.service_interfaces {
            match interfaces {
                ServiceInterfaces::Pods => patterns.extend(names(&self.pods)),
                ServiceInterfaces::External => patterns.extend(names(&self.external)),
                ServiceInterfaces::Named(pattern) => patterns.extend([*pattern]),
            }
        }
        // Packets from this node to itself arrive on the loopback interface.
        patterns.extend("lo".parse::<InterfacePattern>());
        (!config.service_interfaces.is_empty()).then_some(patterns)
    }
}

/// The name of an interface that is inside a pod: another pod can have one of the same name.
fn inside(pod: &PodId, custom: &CustomInterface) -> InterfaceName {
    InterfaceName::new(format!("{pod}/{}", custom.name))
}
