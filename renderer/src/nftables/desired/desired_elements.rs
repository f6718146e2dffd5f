//! Plans many services at once, on all processors.

use std::{collections::BTreeMap, sync::Arc};

use contiv_model::{ContivService, parallel::in_shares};

use super::{
    element::{Element, FrontendKey},
    elements,
    plan::plan,
    shared_address::{SharedAddress, shared_addresses},
};

/// With fewer services another thread costs more than it saves.
const SERVICES_PER_THREAD: usize = 256;

/// The elements of some services.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DesiredElements<T> {
    /// The elements of each frontend, in the form that the caller keeps.
    pub(crate) frontends: Vec<(FrontendKey, T)>,
    /// Addresses that several services may share, repeated for each.
    pub(crate) shared: Vec<SharedAddress>,
}

impl<T: Send> DesiredElements<T> {
    /// The elements of all services, in order. `before` are the current elements of frontends, so that slots stay in place.
    /// `keep` makes what is kept of the elements of a frontend.
    pub(crate) fn of_all(
        services: &[&Arc<ContivService>],
        before: &BTreeMap<FrontendKey, Vec<Element>>,
        keep: impl Fn(Vec<Element>) -> T + Sync,
    ) -> Vec<Self> {
        in_shares(services, SERVICES_PER_THREAD, |share| {
            Self::of(share, before, &keep)
        })
    }

    fn of(
        services: &[&Arc<ContivService>],
        before: &BTreeMap<FrontendKey, Vec<Element>>,
        keep: impl Fn(Vec<Element>) -> T,
    ) -> Self {
        let mut desired = Self {
            frontends: Vec::with_capacity(services.len()),
            shared: Vec::new(),
        };
        for service in services {
            let plan = plan(service);
            desired.shared.extend(shared_addresses(service));
            desired
                .frontends
                .extend(plan.frontends.into_iter().map(|(frontend, plan)| {
                    let before = before.get(&frontend).map(Vec::as_slice).unwrap_or_default();
                    (
                        frontend,
                        keep(elements::of_frontend(frontend, &plan, before)),
                    )
                }));
        }
        desired
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use contiv_model::{Backend, Protocol, ServiceId, ServicePort};

    use super::*;

    #[test]
    fn many_services_are_planned_in_their_order_as_one_by_one() {
        let service = |number: u32| {
            let address = |first: u32| IpAddr::from(Ipv4Addr::from_bits(first + number));
            Arc::new(ContivService {
                cluster_ips: [address(0x0a60_0000)].into(),
                ports: vec![ServicePort {
                    port: 80,
                    protocol: Protocol::Tcp,
                    name: "".into(),
                    node_port: None,
                    backends: vec![Backend::new((address(0x0a80_0000), 8080).into())],
                }],
                ..ContivService::new(ServiceId::new("default", number.to_string()))
            })
        };
        let services: Vec<_> = (0..3 * 1000 + 7).map(service).collect();
        let services: Vec<_> = services.iter().collect();
        let nothing = BTreeMap::new();
        let keep = |elements: Vec<Element>| elements;
        let one_by_one = DesiredElements::of(&services, &nothing, keep);
        let mut together = DesiredElements {
            frontends: Vec::new(),
            shared: Vec::new(),
        };
        for part in DesiredElements::of_all(&services, &nothing, keep) {
            together.frontends.extend(part.frontends);
            together.shared.extend(part.shared);
        }
        assert_eq!(one_by_one.frontends.len(), services.len());
        assert!(together == one_by_one);
    }
}
