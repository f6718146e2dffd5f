//! The objects that a service is combined from: for one service by lookup, or for all services in one pass.

use super::cache::Cache;
use crate::{
    ServiceId,
    object::{AddressType, EndpointSlice, Endpoints, Service},
};

/// The objects that a service is combined from: its usable slices in the order of their ids.
#[derive(Debug)]
pub(super) struct Sources<'a, Slices> {
    pub(super) service: &'a Service,
    pub(super) endpoints: Option<&'a Endpoints>,
    pub(super) slices: Slices,
}

/// Usable slices, each after the id of its service, in the order of these ids.
type SlicesByService<'a> = Vec<(&'a ServiceId, &'a EndpointSlice)>;

impl Cache {
    /// The objects of the service with this id; none if it does not exist.
    pub(super) fn sources(
        &self,
        id: &ServiceId,
    ) -> Option<Sources<'_, impl Iterator<Item = &EndpointSlice>>> {
        let slices = self
            .slices_of
            .values(id)
            .filter_map(|id| self.endpoint_slices.get(id));
        Some(Sources {
            service: self.services.get(id)?,
            endpoints: self.endpoints.get(id),
            slices: slices.filter(|slice| is_usable(slice)),
        })
    }

    /// All usable slices, for [`Cache::all_sources`].
    pub(super) fn slices_by_service(&self) -> SlicesByService<'_> {
        let usable = self
            .endpoint_slices
            .values()
            .filter(|slice| is_usable(slice));
        let mut slices: Vec<_> = usable
            .filter_map(|slice| Some((slice.service.as_ref()?, slice)))
            .collect();
        // The sort is stable: slices of one service stay in order.
        slices.sort_by_key(|(service, _)| *service);
        slices
    }

    /// The objects of each service, in the order of ids. Merges sorted sequences, without lookups.
    pub(super) fn all_sources<'a>(
        &'a self,
        slices: &'a SlicesByService<'a>,
    ) -> Vec<Sources<'a, &'a [(&'a ServiceId, &'a EndpointSlice)]>> {
        let mut endpoints = self.endpoints.iter().peekable();
        let mut slices = &slices[..];
        let sources = self.services.iter().map(|(id, service)| {
            while endpoints.next_if(|(of, _)| *of < id).is_some() {}
            let before = slices.iter().take_while(|(of, _)| *of < id).count();
            let rest = slices.get(before..).unwrap_or_default();
            let own = rest.iter().take_while(|(of, _)| *of == id).count();
            let (own, rest) = rest.split_at(own);
            slices = rest;
            Sources {
                service,
                endpoints: endpoints.next_if(|(of, _)| *of == id).map(|(_, it)| it),
                slices: own,
            }
        });
        sources.collect()
    }
}

impl<'a> Sources<'a, &'a [(&'a ServiceId, &'a EndpointSlice)]> {
    /// In the form that [`super::combine::combine`] takes.
    pub(super) fn to_be_combined(
        &self,
    ) -> Sources<'a, impl Iterator<Item = &'a EndpointSlice> + use<'a>> {
        let slices = self.slices.iter().map(|(_, slice)| *slice);
        Sources {
            service: self.service,
            endpoints: self.endpoints,
            slices,
        }
    }
}

pub(super) fn is_usable(slice: &EndpointSlice) -> bool {
    slice.address_type != AddressType::Fqdn
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        Addresses, EndpointSliceId, Object, TrafficPolicy,
        object::{Seniority, ServiceOptions, ServiceType},
        processor::string_interner::StringInterner,
    };

    fn service(name: &str) -> Object {
        Object::Service(Box::new(Service {
            id: ServiceId::new("default", name),
            service_type: ServiceType::default(),
            headless: true,
            cluster_ips: Addresses::new(),
            external_ips: Addresses::new(),
            load_balancer_ips: Addresses::new(),
            source_ranges: BTreeSet::new(),
            health_check_node_port: None,
            ports: Vec::new(),
            external_policy: TrafficPolicy::Cluster,
            internal_policy: TrafficPolicy::Cluster,
            session_affinity_timeout: 0,
            options: ServiceOptions::default(),
            labels: BTreeMap::new(),
            proxy_name: None,
            seniority: Seniority::OLDEST,
        }))
    }

    proptest! {
        #[test]
        fn services_combined_together_equal_those_combined_one_by_one(
            services in vec("[a-c]{1,2}", 0..6),
            endpoints in vec("[a-c]{1,2}", 0..6),
            slices in vec(("[a-c]{1,2}", prop::option::of("[a-c]{1,2}"), any::<bool>()), 0..12),
        ) {
            let endpoints = endpoints.into_iter().map(|name| {
                Object::Endpoints(Endpoints { id: ServiceId::new("default", name), subsets: Vec::new() })
            });
            let slices = slices.into_iter().map(|(name, service, is_usable)| {
                Object::EndpointSlice(EndpointSlice {
                    id: EndpointSliceId::new("default", name),
                    service: service.map(|name| ServiceId::new("default", name)),
                    address_type: if is_usable { AddressType::Ipv4 } else { AddressType::Fqdn },
                    is_supplement: false,
                    endpoints: [].into(),
                    ports: [].into(),
                })
            });
            let services = services.into_iter().map(|name| service(&name));
            let cache = Cache::of(services.chain(endpoints).chain(slices), StringInterner::default());
            let slices = cache.slices_by_service();
            let all = cache.all_sources(&slices);
            prop_assert_eq!(all.len(), cache.services.len());
            for sources in all {
                let one = cache.sources(&sources.service.id).unwrap();
                prop_assert_eq!(sources.endpoints, one.endpoints);
                prop_assert_eq!(sources.to_be_combined().slices.collect::<Vec<_>>(), one.slices.collect::<Vec<_>>());
            }
        }
    }
}
