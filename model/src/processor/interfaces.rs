//! The interfaces of the pods of this node. Source: Contiv's `processor_impl.go`, which counts references where this derives.

use std::collections::{BTreeMap, BTreeSet};

use super::{cache::Cache, multi_index::MultiIndex, placement::Placement};
use crate::{InterfaceName, PodId, ServiceId};

/// The two sets of interfaces that renderers get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interfaces {
    /// Interfaces of pods that can be clients.
    pub(super) frontends: BTreeSet<InterfaceName>,
    /// Interfaces of pods that are backends.
    pub(super) backends: BTreeSet<InterfaceName>,
}

impl Interfaces {
    /// Derives both sets from the attached pods, so the order of events does not matter.
    pub(super) fn derive(
        attached: &BTreeMap<PodId, InterfaceName>,
        serving: &MultiIndex<PodId, ServiceId>,
        cache: &Cache,
        placement: &Placement,
    ) -> Self {
        let mut interfaces = Self::default();
        for (pod, main) in attached {
            interfaces.frontends.insert(main.clone());
            let allocation = cache.ip_allocations.get(pod);
            for custom in allocation.into_iter().flat_map(|allocation| &allocation.interfaces) {
                if custom.in_pod_network() {
                    interfaces.frontends.insert(custom.name.clone());
                }
            }
            if serving.has(pod) {
                let redirected =
                    cache.pods.get(pod).is_some_and(|stored| placement.is_redirected(pod, &stored.ips));
                let custom =
                    allocation.filter(|_| redirected).and_then(|allocation| allocation.service_endpoint());
                interfaces.backends.insert(custom.map_or(main, |custom| &custom.name).clone());
            }
        }
        interfaces
    }
}
